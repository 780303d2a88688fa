"""A region as a Python function: one kernel for what is computed, views of its results and of the inputs for the rest."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from dovetail.extend import BoundSymbol, Trace
from dovetail.extend.advanced import (
    CannotFuse,
    ExecutorWarning,
    KernelCache,
    RegionSizes,
    SizedKernels,
    drafts,
    line_by_line,
    prims_of,
    region_key,
)
from dovetail.langs.torch import TO_TORCH
from dovetail.prims.sizes import Size, is_symbolic
from dovetail.prims.spec import fills
from dovetail_llvm_exec.call import driver, threads
from dovetail_llvm_exec.call.inplace import chosen, writing
from dovetail_llvm_exec.call.launch import SCALAR_TYPES, Bound, Output, Payload, function
from dovetail_llvm_exec.call.shapes import Place, places_of, recipe, total
from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.loops.crowd import CYCLES, FACTOR, limit_of
from dovetail_llvm_exec.loops.program import Program, program
from dovetail_llvm_exec.loops.row_cache import ROW_MEMORY, written_row_memory
from dovetail_llvm_exec.loops.verifier import Broken, verify_phases
from dovetail_llvm_exec.region.biases import SHOWN
from dovetail_llvm_exec.region.forms import CannotLower
from dovetail_llvm_exec.region.graph import Graph, Node

MOST = 1024  # kernels that are kept for regions to come

Maker = Callable[[tuple, tuple], torch.Tensor]  # results of the kernel, and its inputs -> one output


class CompiledRegion(NamedTuple):
    """What a region became: its function, how many loop nests are in it, and the kernel of these."""

    call: Callable[..., tuple] | None
    nests: int
    kernel: driver.DrivenKernel | None = None


class Remade(NamedTuple):
    """What a pickled builtin comes back as an attribute of."""

    llvm_kernel: Callable[..., tuple]


class Region:
    """The function of a region that is more than a kernel; pickled as the region, and compiled again where it is read."""

    __slots__ = ("call", "region")

    def __init__(self, call: Callable[..., tuple], region: Trace):
        self.call, self.region = call, region

    def __call__(self, *inputs: torch.Tensor) -> tuple:
        return self.call(*inputs)

    def __reduce__(self) -> tuple:
        return remade, (self.region,)


def remade(region: Trace) -> Callable[..., tuple]:
    """Return the function of a region that was pickled."""
    return Kernels().get(region)


def _remade_builtin(region: Trace) -> Remade:
    return Remade(remade(region))


def picklable(call: Callable[..., tuple], region: Trace) -> Callable[..., tuple]:
    """Make `call` picklable, as the region that it was compiled from."""
    payload = getattr(call, "__self__", None)
    if isinstance(payload, Payload):
        payload.remake = lambda: (_remade_builtin, (region,))
        return call
    return Region(call, region)


class Kernels:
    """The functions of regions; regions of equal structure share one."""

    def __init__(self) -> None:
        self.cache = KernelCache[CompiledRegion](MOST)
        self.sized = SizedKernels[CompiledRegion](MOST)

    def get(self, region: Trace) -> Callable[..., tuple]:
        """Return the function of a region."""
        compiled_region = self.compiled(region)
        if (kernel := compiled_region.kernel) is not None and kernel.drafts:
            kernel.allow_runs() if drafts() else kernel.finish()
        return compiled_region.call

    def compiled(self, region: Trace) -> CompiledRegion:
        """Return what a region becomes."""
        if region.relations is None:
            key = region_key(region)
            return self.cache.get(key, lambda: _picklable(compiled(region, mark=repr(key)), region))
        sizes = RegionSizes(region)
        return self.sized.get(region_key(region, sizes.own), sizes, lambda: _picklable(_sized(region, sizes), region))

    def in_place(self, region: Trace, into: dict[Any, Any]) -> Callable[..., tuple] | None:
        """Return the function of a region with results written `into` inputs, those that may be; None where none may."""
        if region.relations is not None:
            return None
        results, inputs = ({p: i for i, p in enumerate(ps)} for ps in (region.outputs, region.inputs))
        wanted = {results[result]: inputs[target] for result, target in into.items()}
        return self.cache.get((region_key(region), tuple(wanted.items())), lambda: CompiledRegion(in_place(region, wanted, self.get(region)), 0)).call


def _picklable(compiled_region: CompiledRegion, region: Trace) -> CompiledRegion:
    return compiled_region._replace(call=picklable(compiled_region.call, region))


def _sized(region: Trace, sizes: RegionSizes) -> CompiledRegion:
    """Return the function of a region of many sizes: one that assumes nothing of them if there is one, so that it runs as many as it can."""
    try:
        with sizes.unassuming(CannotLower):
            return compiled(region, sizes)
    except CannotFuse:
        return compiled(region, sizes)


def compiled(region: Trace, sizes: RegionSizes | None = None, mark: str | None = None) -> CompiledRegion:
    """Return the function of a region, from its lines; where they do not make loop nests, each is run by an executor of last resort.

    Regions of equal `mark` have equal kernels, in other processes, too.

    A region of many sizes that does not make loop nests is refused.  One whose plan the verifier refuses is refused with a warning: that is a
    bug, and other executors run it.
    """
    try:
        return _compiled(region, sizes, mark)
    except Broken as broken:
        warnings.warn(
            f"the llvm executor does not compile {region.name}, which other executors run: {broken}; please report this, with the program",
            ExecutorWarning,
            stacklevel=2,
        )
        raise CannotFuse(f"has no right plan for the region: {broken}") from broken
    except CannotLower as cut:
        if sizes is not None:
            raise CannotFuse(f"makes no loop nest of the region: {cut}") from cut
        return CompiledRegion(line_by_line(region), 0)


def _compiled(region: Trace, sizes: RegionSizes | None = None, mark: str | None = None) -> CompiledRegion:
    graph = Graph(region, sizes)
    places = places_of(graph)
    stored: dict[Node, Output] = {}
    seen = [o for o in graph.outputs if o.base.op == "input"]
    computed = [o for o in graph.outputs if o.base.op != "input"]
    makers = _makers(computed, stored, places)
    views = _views_of_inputs(region, graph) if seen else None
    if not stored and not computed:
        return CompiledRegion(views, 0)
    call, nests = None, 0
    if stored:
        nests, bound = _recalled(graph, stored, mark) if mark is not None and sizes is None else _written(graph, stored, places)
        call = function(bound)
        if not seen and makers == list(range(len(stored))):
            return CompiledRegion(call, nests, bound.kernel)
    kernel = bound.kernel if stored else None
    return CompiledRegion(_joined(call, makers, views, [o.base.op == "input" for o in graph.outputs]), nests, kernel)


def _written(graph: Graph, stored: dict[Node, Output], places: tuple[Place, ...]) -> tuple[int, Bound]:
    """Return the number of loop nests that compute `stored`, and their kernel."""
    built, bound = _bound(graph, stored, places=places)
    if places and not built.plan.streamed and any(is_symbolic(node.shape) and not node.reduces for node in stored):
        bound = bound._replace(streaming=_streaming(graph, stored, places))
    return built.groups, bound


def _streaming(graph: Graph, stored: dict[Node, Output], places: tuple[Place, ...]) -> Callable[[], Bound | None]:
    """Return what compiles a kernel of many sizes again, to write results past the caches; it returns None where it would assume more of sizes."""
    sizes, known, lock = graph.sizes, len(graph.sizes.questions), threading.Lock()

    def compile() -> Bound | None:
        with lock:
            try:
                with sizes.unassuming(CannotLower):
                    bound = _bound(graph, stored, places=places, streamed=True)[1]
            except (CannotLower, CannotFuse, Broken):
                return None
        return bound if len(sizes.questions) == known else None

    return compile


def _recalled(graph: Graph, stored: dict[Node, Output], mark: str) -> tuple[int, Bound]:
    """Do the same with the kernel that this process or another one has written for an equal region before."""
    compiler = _linking()
    mark = f"{bool(threads.pool())} {mark}"
    facts = compiler.recall(mark)
    kernel = driver.recalled(compiler, facts, bool(threads.pool())) if facts is not None else None
    if facts is not None and kernel is not None:
        bound = Bound(kernel, len(graph.inputs), tuple(stored.values()), facts["workspace"], facts["cost"], facts["parallel"], (), 0)
        return facts["nests"], bound
    built, bound = _bound(graph, stored)
    facts = {"workspace": bound.workspace, "cost": bound.cost, "parallel": bound.parallel, "nests": built.groups}
    compiler.keep(mark, facts | bound.kernel.facts())
    return built.groups, bound


def _linking() -> jit.Compiler:
    """Return the compiler, which links kernels with the pool of threads."""
    compiler = jit.compiler()
    for name, address in threads.pool().items():
        compiler.provide(name, address)
    return compiler


def _bound(
    graph: Graph, stored: dict[Node, Output], *, fresh: bool = True, places: tuple[Place, ...] = (), streamed: bool = False
) -> tuple[Program, Bound]:
    """Return the program that computes `stored`, and its kernel."""
    compiler, parallel = _linking(), bool(threads.pool())
    symbols = [place.name for place in places]
    built = program(graph, list(stored), compiler.target, parallel=parallel, fresh=fresh, symbols=symbols, streamed=streamed)
    outputs = tuple(stored.values())
    kernel = _driven(compiler, built, sized=bool(places))
    bound = Bound(kernel, len(graph.inputs), outputs, built.workspace, built.cost, parallel and built.parallel, places)
    if places:
        dtypes = [SCALAR_TYPES[TO_TORCH[out.dtype]] for out in outputs]
        bound = bound._replace(recipe=recipe(built.module.sizes, outputs, dtypes, built.workspace, built.costs))
    return built, bound


def _driven(compiler: jit.Compiler, built: Program, *, sized: bool) -> driver.DrivenKernel:
    """Return the kernel of a program, `sized` where its sizes are known when it runs."""
    sizes, functions, calls, limit, draft = built.module.sizes, [], [], 0, built.cost < driver.SHORT and drafts()
    if ROW_MEMORY in built.module.declarations:
        compiler.provide(ROW_MEMORY, _row_memory(compiler).address)
    for nest, phase in built.nests():
        functions.append(compiler.shared(nest.text, "nest", f"; numbers: {', '.join(map(str, nest.numbers))}", draft=draft))
        row = driver.sized_row_of(phase, built.parallel, sizes) if sized else driver.row_of(phase, built.parallel)
        calls.append(driver.NestCall(functions[-1].key, nest.numbers, row))
    if built.parallel:
        limit = sizes.place(total(built.costs, FACTOR * CYCLES) + limit_of(0.0)) if sized else limit_of(built.cost)
    return driver.DrivenKernel(compiler, driver.driver(compiler, bool(threads.pool()), sized=sized), functions, calls, limit)


@cache
def _row_memory(compiler: jit.Compiler) -> jit.Kernel:
    """Return the function that takes memory for rows; it lives as long as the process."""
    return compiler.compile(written_row_memory(compiler.target), ROW_MEMORY)


def in_place(region: Trace, wanted: dict[int, int], plain: Callable[..., tuple]) -> Callable[..., tuple] | None:
    """Recompile `plain`, the function of a region, so that results are written into inputs, those of `wanted` that may be; None where none may.

    Where the verifier refuses the plan, `plain` has warned of it, or keeps inputs and results apart.
    """
    graph, stored = Graph(region), dict[Node, Output]()
    if any(o.base.op == "input" for o in graph.outputs):
        return None
    try:
        if _makers(graph.outputs, stored, ()) != list(range(len(region.outputs))):
            return None
        built, bound = _bound(graph, stored, fresh=False)
        source_by_result = chosen(built.plan, list(stored), graph.inputs, wanted)
        into = {built.plan.outputs[list(stored)[result]]: built.plan.memory[graph.inputs[source]] for result, source in source_by_result.items()}
        verify_phases(built.phases, built.rooms, built.plan.outputs.values(), into)
    except CannotLower:
        return None
    return writing(bound, source_by_result, plain) if source_by_result else None


def _views_of_inputs(region: Trace, graph: Graph) -> Callable[..., tuple]:
    """Return the outputs that are views of inputs, as the program of the lines that make them: eager gives them their history, or detaches them."""
    wanted = tuple(p for p in region.outputs if graph.of[p].base.op == "input")
    parts = [part for line in region.lines for part in ([line] if _is_view(line) else prims_of([line]))]
    needed, lines = set(wanted), []
    for line in reversed(parts):
        if not needed.isdisjoint(line.writes):
            needed.update(line.reads)
            lines.append(line)
    plain = region.derive("dispatch", outputs=wanted)
    plain.lines = lines[::-1]
    return line_by_line(plain, whole=True)


def _is_view(line: BoundSymbol) -> bool:
    """Return whether a line computes nothing."""
    return all(part.symbol.name in SHOWN for part in prims_of([line]))


def _makers(outputs: list[Node], stored: dict[Node, Output], places: tuple[Place, ...]) -> list[int | Maker]:
    """Return how each output is got: the number of a result of the kernel, or a function of its results."""
    whole = {o for o in outputs if not o.is_view}
    makers: list[int | Maker] = []
    for node in outputs:
        base = node.base
        if node.numel == 0:
            makers.append(_empty(node, places))
            continue
        if base.dtype is not node.dtype:
            raise CannotLower("a view is of another dtype than what it shows")
        sole = node.is_view and base not in whole and sum(o.base is base for o in outputs) == 1
        direct = sole and node.numel == base.numel and node.offset == 0 and fills(node.shape, node.steps)
        if base not in stored:
            stored[base] = Output(node.shape, node.steps, node.dtype) if direct else Output(base.shape, base.steps, base.dtype)
        number = list(stored).index(base)
        if direct or not node.is_view:
            makers.append(number if number not in makers else _alias(number))
        else:
            makers.append(_view(number, node, places))
    return makers


def _empty(node: Node, places: tuple[Place, ...]) -> Maker:
    layout, dtype = _numbers((node.shape, node.steps), places), TO_TORCH[node.dtype]
    return lambda results, inputs: torch.empty_strided(*layout(inputs), dtype=dtype)


def _alias(number: int) -> Maker:
    return lambda results, inputs: results[number].detach()


def _view(number: int, node: Node, places: tuple[Place, ...]) -> Maker:
    """Return a view of a result of the kernel."""
    layout = _numbers((node.shape, node.steps, node.offset), places)
    return lambda results, inputs: results[number].as_strided(*layout(inputs))


def _numbers(layout: tuple, places: tuple[Place, ...]) -> Callable[[tuple], tuple]:
    """Return what gives shape, strides and offset as ints for the inputs of a call."""
    if not places:
        return lambda inputs: layout
    compute: list[Callable[..., tuple]] = []

    def numbers(inputs: tuple) -> tuple:
        if not compute:  # not before all is known of the sizes
            compute.append(eval(f"lambda {', '.join([place.name for place in places])}: {_expression(layout)}"))
        return compute[0](*[place.read(inputs) for place in places])

    return numbers


def _expression(x: Any) -> str:
    """Return sizes in nested tuples as a Python expression."""
    return f"({''.join([f'{_expression(item)}, ' for item in x])})" if type(x) is tuple else x.text() if type(x) is Size else repr(x)


def _joined(call: Callable[..., tuple] | None, makers: list[int | Maker], views: Callable | None, seen: list[bool]) -> Callable[..., tuple]:
    """Return a function of the inputs that gives every output: `seen` says which are views of inputs."""

    def run(*inputs: torch.Tensor) -> tuple:
        results = () if call is None else call(*inputs)
        outputs = [results[make] if type(make) is int else make(results, inputs) for make in makers]
        if views is None:
            return tuple(outputs)
        computed, shown = iter(outputs), iter(views(*inputs))
        return tuple([next(shown if is_seen else computed) for is_seen in seen])

    return run
