"""A region's FusionDefinition, and the function that runs it.

The values of a definition (nvFuser's TensorView and Val) do not keep it alive, and touching one after it is gone ends the process.  So a
`Definition` owns its `fd`, nothing else does, and no value leaves `_define`: the one is dropped with the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch

from dovetail.extend import Trace
from dovetail.extend.advanced import ExecutorError
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail_nvfuser_exec.claims import operand
from dovetail_nvfuser_exec.program import Program, layout
from dovetail_nvfuser_exec.translators import RULES, Builder, Call


class Definition:
    """An nvFuser definition, alive as long as some region holds it.  nvFuser caches its kernels in it."""

    def __init__(self, fd: Any):
        self.fd, self.lock = fd, Lock()

    def __call__(
        self, inputs: list, device: torch.device | None = None, enable: Iterable[str] = (), disable: Iterable[str] = ()
    ) -> list[torch.Tensor]:
        """Run the definition on tensors and numbers; one thread at a time, since nvFuser compiles during the call."""
        with self.lock, torch.no_grad():
            return self.fd.execute(inputs, device=device, _enable_options=list(enable), _disable_options=list(disable))

    def __repr__(self) -> str:
        """Return nvFuser's own text of the definition."""
        return repr(self.fd)


class Memory(NamedTuple):
    """The shape, strides and dtype that the region promises for a result."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: torch.dtype


class Region:
    """A region as a function of its inputs."""

    def __init__(self, program: Program, definition: Definition | None, enable: list[str], disable: list[str]):
        self.definition, self.makers, self.used = definition, program.makers, program.inputs
        self.results = [Memory(p.spec.shape, p.spec.steps, TO_TORCH[p.spec.dtype]) for p in program.results]
        devices = [p.spec.device for p in (*program.region.inputs, *program.results) if hasattr(p.spec, "device")]
        self.device = torch_device(devices[0]) if devices else None
        self.switches = enable, disable

    def __call__(self, *inputs: Any) -> tuple:
        results = [] if self.definition is None else self.run(inputs)
        return tuple([make(inputs, results) for make in self.makers])

    def run(self, inputs: tuple) -> list[torch.Tensor]:
        """Run the definition, and copy results where nvFuser laid them out otherwise than promised, or returned an input's memory."""
        arguments = [inputs[i].detach() if isinstance(inputs[i], torch.Tensor) else inputs[i] for i in self.used]
        device = None if any([isinstance(x, torch.Tensor) for x in arguments]) else self.device
        computed = self.definition(arguments, device, *self.switches)
        shared = {x.untyped_storage().data_ptr() for x in arguments if isinstance(x, torch.Tensor)}
        return [_owned(x, promised, shared) for x, promised in zip(computed, self.results, strict=True)]


def _owned(x: torch.Tensor, promised: Memory, shared: set[int]) -> torch.Tensor:
    """Return x, or a copy of it where it lies in `shared` memory or not as promised; add its memory to `shared`."""
    same = all([n == 1 or a == b for n, a, b in zip(x.shape, x.stride(), promised.steps, strict=True)])
    at = x.untyped_storage().data_ptr()
    if same and at not in shared and x.storage_offset() == 0:
        shared.add(at)
        return x
    return torch.empty_strided(promised.shape, promised.steps, dtype=promised.dtype, device=x.device).copy_(x)


class Definitions:
    """Definitions by structure, alive as long as regions hold them: equal layers of a model share one."""

    def __init__(self) -> None:
        self.by_key: WeakValueDictionary[Any, Definition] = WeakValueDictionary()
        self.lock = Lock()

    def region(self, nv: ModuleType, trace: Trace, *, enable: Iterable[str] = (), disable: Iterable[str] = ()) -> Region:
        """Return the function of a region; a definition of equal structure is reused."""
        program = Program(trace)
        if not program.stored:
            return Region(program, None, [], [])
        layouts = [layout(trace.inputs[i].spec, nv.compute_tensor_descriptor, program.static) for i in program.inputs]
        key = program.key(layouts)
        with self.lock:
            definition = self.by_key.get(key)
            if definition is None:
                definition = self.by_key[key] = define(nv, program, layouts)
        return Region(program, definition, list(enable), list(disable))


def define(nv: ModuleType, program: Program, layouts: list[tuple]) -> Definition:
    """Build the definition of a program.  Errors are raised after the `with`: nvFuser prints those that pass through it."""
    failed = None
    with nv.FusionDefinition() as fd:
        try:
            _define(Builder(fd, nv.DataType), program, layouts)
        except Exception as error:
            failed = error
    if failed is not None:
        reason = str(failed).splitlines()[0] if str(failed) else type(failed).__name__
        raise ExecutorError(f"nvFuser does not take the definition of {program.region.name}: {reason}") from failed.with_traceback(None)
    valid, message = fd.validate_definition()
    if not valid:
        raise ExecutorError(f"nvFuser does not take the definition of {program.region.name}: {message}")
    return Definition(fd)


def _define(b: Builder, program: Program, layouts: list[tuple]) -> None:
    values: dict[Any, Any] = {}

    def value(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [value(each) for each in x]
        return values[x] if hasattr(x, "spec") else x

    for i, known in zip(program.inputs, layouts, strict=True):
        values[program.region.inputs[i]] = input_like(b.fd, b.types, *known)
    for step in program.steps:
        line = step.line
        call = Call(line.symbol.name, tuple([value(a) for a in line.args]), operand(line).dtype, line.kwargs, line.writes[0].spec.dtype)
        results = RULES[call.name].build(b, call)
        for p, x, shown in zip(line.writes, results if isinstance(results, tuple) else (results,), step.shown, strict=True):
            values[p] = b.settle(x, p.spec.dtype, shown)
    for proxy, order, into in program.stored:
        x = b.cast(values[proxy], proxy.spec.dtype)
        if into is not None:
            b.fd.add_output(b.ops.set(x), alias_input=values[into])
        else:
            b.fd.add_output(_laid_out(b, x, order, [known for known in layouts if len(known) > 1]))


def input_like(fd: Any, types: Any, dtype: str, *known: tuple) -> Any:
    """Add the next input of a definition, as `layout` describes it."""
    if not known:
        return fd.define_scalar(None, dtype=getattr(types, dtype))
    shape, contiguity, order = known
    plain = list(order) == list(range(len(order) - 1, -1, -1))
    named = {"shape": list(shape), "contiguity": list(contiguity), "dtype": getattr(types, dtype), "is_cpu": False}
    return fd.define_tensor(**named, stride_order=[] if plain else list(order))


def _laid_out(b: Builder, x: Any, order: tuple[int, ...] | None, inputs: list[tuple]) -> Any:
    """Lay out x in memory with its dimensions in this order, slowest first; nvFuser counts them from the fastest.

    nvFuser's default is row-major, unless an input is not.
    """
    if order is None:
        if x.ndim < 2 or all(known[3] == tuple(range(len(known[3]) - 1, -1, -1)) for known in inputs):
            return x
        order = tuple(range(x.ndim))
    places = [0] * len(order)
    for at, d in enumerate(order):
        places[d] = len(order) - 1 - at
    return b.ops.stride_order(x, places)
