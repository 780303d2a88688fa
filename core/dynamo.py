"""`torch.compile(model, backend="dovetail")`: compile the graphs that Dynamo captures, and report them.

Dynamo runs the Python code of the program, breaks it into graphs where necessary, and guards what it reads; each graph comes here.  Its
gradients are Dovetail's: one backward for each graph, with the saved tensors chosen by the pass `split`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx

from dovetail.compiler.api import cache_of, jit
from dovetail.errors import NoGradRule, TracedValueError, Unsupported
from dovetail.frontend.fx import run_graph, user_line_of
from dovetail.langs.torch import OpaqueSymbol, name_of
from dovetail.torch_internals import INLINES_PARAMETERS, current_compile_id, graph_break_counts, is_set_grad_enabled
from dovetail.trace import BoundSymbol

_NOT_OURS = (Unsupported, TracedValueError, NoGradRule)  # errors of tracing, before anything has run
_OPTIONS = ("executors", "recompute")
_OWN = f"it contains parameters, which Dynamo passes as arguments unless {INLINES_PARAMETERS} is False"


class Opaque(NamedTuple):
    """An operation without a decomposition: PyTorch runs and differentiates it."""

    name: str
    where: str | None

    def __str__(self) -> str:
        return self.name + (f" at {self.where}" if self.where else "")


@dataclass(eq=False)
class Graph:
    """One graph of a program, and how it was compiled.

    `id` is Dynamo's: the number of the frame, and how often it was compiled before.  `where` is the user's line of the first operation, and
    `ended` the line and the reason where the graph stops short of the end of its function.  `eager` is why PyTorch runs it, None where
    Dovetail does; `function` is the compiled function, for `dovetail.explain` and `dovetail.last_traces`.
    """

    id: str
    where: str | None
    operations: int
    ended: str | None
    module: fx.GraphModule = field(repr=False)
    function: Callable = field(repr=False)
    eager: str | None = None

    @property
    def opaque(self) -> list[Opaque]:
        """The operations that stayed opaque in some program of this graph."""
        operations = (_opaque(line) for entry in cache_of(self.function).entries for top in entry.traces[0].lines for line in _all(top))
        return list(dict.fromkeys(operation for operation in operations if operation is not None))

    def __str__(self) -> str:
        head = f"[{self.id}] {self.where or 'nowhere'}: {self.operations} operations"
        if self.eager is not None:
            head += f", run by PyTorch: {self.eager}"
        rows = [head, *(f"opaque: {each}" for each in self.opaque)]
        return "\n    ".join(rows + ([f"graph break: {self.ended}"] if self.ended else []))


class Report(tuple[Graph, ...]):
    """The graphs of this process, in Dynamo's order; str() returns one paragraph for each."""

    @property
    def breaks(self) -> list[str]:
        """The reasons for graph breaks, each with the user's line where that is known; once for each graph that ends so."""
        seen = [graph.ended for graph in self if graph.ended]
        counted = map(_short, graph_break_counts() - _counted_before)
        return seen + [reason for reason in counted if not any([reason in each for each in seen])]

    def __str__(self) -> str:
        head = f"{len(self)} graphs, {len(self.breaks)} graph breaks, {sum(len(graph.opaque) for graph in self)} opaque operations"
        elsewhere = self.breaks[len([graph for graph in self if graph.ended]) :]
        return "\n".join([head, *map(str, self), *(f"graph break without a graph: {reason}" for reason in elsewhere)])


_graphs: list[weakref.ref[Graph]] = []  # the registry: every graph since Dynamo was last reset, as long as Dynamo keeps it
_counted_before = graph_break_counts()  # graph breaks that Dynamo had counted before, for whatever backend


def report() -> Report:
    """Return the graphs that `torch.compile(..., backend="dovetail")` compiled in this process since `torch.compiler.reset()`.

    Each lists where and why its function was broken into graphs, its opaque operations, and whether PyTorch runs it.
    """
    return Report(graph for reference in _graphs if (graph := reference()) is not None)


def reset() -> None:
    """Clear the registry of graphs."""
    _graphs.clear()
    _counted_before.clear()
    _counted_before.update(graph_break_counts())


def backend(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None) -> Callable:
    """Compile a graph for Dynamo: return a function of its flat inputs that returns a tuple of its results.

    `options` may contain `executors` and `recompute`, as for `dovetail.jit`.  A size that Dynamo keeps symbolic is a symbol
    here, too, so that one program runs the graph for all of them.  A graph that cannot be traced is run by PyTorch, with a warning.
    """
    unknown = [name for name in options or () if name not in _OPTIONS]
    if unknown or mode is not None:
        argument = f"the mode {mode!r}" if mode is not None else f"the option {unknown[0]!r}"
        raise ValueError(f'torch.compile(backend="dovetail") does not support {argument}; the options are {", ".join(_OPTIONS)}')
    before = torch.is_grad_enabled()

    def traced(*args: Any) -> Any:
        try:
            return run_graph(gm, *args)
        finally:
            torch.set_grad_enabled(before)  # a graph may switch it off, and compilation continues

    traced.__name__ = traced.__qualname__ = "graph_" + (name := _compile_id()).replace("/", "_")
    compiled = jit(traced, interpretation="native", **(options or {}))  # Dynamo has guarded what the program reads
    cache_of(compiled).compiler.of_graph = True
    cache_of(compiled).compiler.sizes.moving |= set(_symbols_in(gm.graph))
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    where = next(filter(None, map(user_line_of, calls)), None)
    graph = Graph(name, where, len(calls), _ended(gm), gm, compiled, _OWN if any(p.requires_grad for p in gm.parameters()) else None)
    _graphs.append(weakref.ref(graph))
    return _runner(graph, _last_grad_mode(gm.graph))


backend.reset = reset  # Dynamo calls it when it is reset


def _symbols_in(graph: fx.Graph) -> Iterator[tuple[str, int | None]]:
    """Yield where the inputs of a graph have sizes that Dynamo keeps symbolic, and which of them are such ints."""
    for i, node in enumerate(graph.find_nodes(op="placeholder")):
        x = node.meta.get("example_value")
        if isinstance(x, torch.SymInt):
            yield f"args[{i}]", None
        elif isinstance(x, torch.Tensor):
            yield from [(f"args[{i}]", dim) for dim, n in enumerate(x.shape) if isinstance(n, torch.SymInt)]


def _runner(graph: Graph, leaves: bool | None) -> Callable:
    """Return the function that Dynamo calls; `leaves` is the grad mode that the graph sets last."""
    compiled, gm = graph.function, graph.module

    def run(*args: Any) -> Any:
        if graph.eager is not None:
            return gm(*args)
        try:
            result = compiled(*args)
        except _NOT_OURS as error:
            graph.eager = str(error).partition("\n")[0]
            warnings.warn(f"dovetail: PyTorch runs graph {graph.id} ({graph.where}): {graph.eager}", stacklevel=2)
            return gm(*args)
        if leaves is not None:
            torch.set_grad_enabled(leaves)
        return result

    return run


def _last_grad_mode(graph: fx.Graph) -> bool | None:
    """Return the grad mode that a graph sets last, or None: Dynamo relies on the graph for it."""
    set_ = [node.args[0] for node in graph.nodes if is_set_grad_enabled(node.target)]
    return set_[-1] if set_ else None


def _compile_id() -> str:
    """Return Dynamo's id of the current compilation, or a running number."""
    id_ = current_compile_id()
    return str(id_) if id_ is not None else str(len(_graphs))


def _ended(gm: fx.GraphModule) -> str | None:
    """Return the line and the reason of the graph break that ends a graph, or None."""
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return None
    text = _short(reason.reason)
    frame = reason.user_stack[-1] if reason.user_stack else None
    return text if frame is None else f"{frame.filename}:{frame.lineno}: {text}"


def _short(reason: str) -> str:
    """Shorten Dynamo's explanation of a graph break to one line without hints."""
    if reason.startswith("generic_jump"):
        return "the program branches on the value of a tensor"
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    explanations = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return explanations[0] if explanations else lines[0] if lines else "no reason given"


def _all(line: BoundSymbol) -> Iterator[BoundSymbol]:
    yield line
    for inner in line.body:
        yield from _all(inner)


def _opaque(line: BoundSymbol) -> Opaque | None:
    return Opaque(name_of(line.symbol.func), line.where) if isinstance(line.symbol, OpaqueSymbol) else None
