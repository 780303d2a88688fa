"""Whole programs as CUDA graphs, where the option `cuda_graphs` asks for it: one launch for a call, whatever it computes.

A graph reads and writes the memory that it was recorded with.  An input that has been at one place in all calls so far, as parameters are,
is read where it lies; any other one is copied to a place of its own first.  What the graph leaves in its memory is copied for the caller.
An input that moves after all has the graph recorded anew, once for each input at most.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Protocol

import torch

from dovetail import prims
from dovetail.extend import BoundSymbol, ExecutorWarning, Tag, TensorSpec, Trace, compiled

BEFORE = 2  # calls that run as they are: kernels are compiled and tuned in them, and show which inputs stay where they are
NAME = "triton"


class Recorder(Protocol):
    """What makes graphs."""

    def record(self, fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[Any, Callable[[], None]]:
        """What `fn` gives for inputs, in memory that stays, and a function that computes it again there."""


class CudaRecorder:
    """CUDA's own graphs, as PyTorch records them."""

    def record(self, fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[Any, Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(inputs[0].device):
            fn(*inputs)  # whatever is compiled for inputs at these places is compiled before
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                result = fn(*inputs)
            graph.replay()  # recording computes nothing
        return result, graph.replay


def entry(
    prologue: Trace, computation: Trace | None, recorder: Recorder | None = None, devices: Sequence[str] = ("cuda",)
) -> Callable[[tuple, dict], Any] | None:
    """The prologue with a graph in the place of the program that it runs; None, and a warning that says why, where there can be none."""
    last = prologue.lines[-1]
    said = refusal(None if last.kwargs.get("found") else computation, devices)
    if said is not True:
        warnings.warn(f"{NAME}.cuda_graphs: {said}; the program is launched kernel by kernel", ExecutorWarning, stacklevel=2)
        return None
    program = last.args[0]
    graph = Replay(prologue.constants[program], recorder or CudaRecorder())
    return compiled(replace(prologue, constants=prologue.constants | {program: graph}))


def refusal(computation: Trace | None, devices: Sequence[str] = ("cuda",)) -> bool | str:
    """True where a program can be a graph, else why not."""
    if computation is None:
        return "a graph holds programs without gradients, writes into inputs and results that are views, and this one is more"
    specs = [(p.name, p.spec) for p in (*computation.inputs, *(p for line in computation.lines for p in line.writes))]
    for name, spec in specs:
        if type(spec) is not TensorSpec:
            return f"a graph computes with tensors, and {name} is a number"
        if spec.device.type not in devices:
            return f"a graph wants everything on a CUDA device, and {name} is on {spec.device}"
    if not computation.inputs:
        return "a graph without inputs would compute the same again"
    if len({spec.device for _, spec in specs}) > 1:
        return "a graph is of one device, and this program is on several"
    for p in computation.inputs:
        if not _apart(p.spec):
            return f"inputs are copied for a graph, and {p.name} has elements that lie on one another"
    for line in computation.lines:
        if line.symbol is not prims.delete and (said := _forbidden(line)) is not None:
            return said
    return _outputs(computation)


def _forbidden(line: BoundSymbol) -> str | None:
    """What of a line cannot be recorded."""
    if _has(Tag.RANDOM, line):
        return f"a graph would draw the same numbers again, and {line.symbol} draws"
    if _has(Tag.HOST, line):
        return f"a graph stays on its device, and {line.symbol} does not"
    if line.mutates:
        return f"a graph would write into the memory of an earlier call, and {line.symbol} writes into an input"
    return None


def _has(tag: Tag, line: BoundSymbol) -> bool:
    return tag in line.symbol.tags or any(_has(tag, inner) for inner in line.body)


def _apart(spec: TensorSpec) -> bool:
    """Whether each element has a place of its own."""
    reach = 0
    for step, n in sorted((step, n) for step, n in zip(spec.steps, spec.shape, strict=True) if n > 1):
        if step <= reach:
            return False
        reach += step * (n - 1)
    return True


def _outputs(computation: Trace) -> bool | str:
    given = set(computation.inputs)
    for value in torch.utils._pytree.tree_leaves(computation.outputs):
        if not hasattr(value, "spec"):
            continue
        if value in given:
            return f"a graph gives results of its own, and {value.name} is an input"
        if not value.spec.is_dense:
            return f"results are copied from a graph, and {value.name} has elements that lie apart or on one another"
    return True


class Replay:
    """A program that becomes a graph when it has been called some times."""

    def __init__(self, run: Callable[..., Any], recorder: Recorder):
        self.run, self.recorder = run, recorder
        self.calls, self.lock = 0, Lock()
        self.places: list[int] = []  # where inputs were
        self.moving: set[int] = set()  # the numbers of those that were elsewhere in some call
        self.inputs: list[torch.Tensor] = []  # as the graph reads them
        self.result: Any = None
        self.replay: Callable[[], None] | None = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        with self.lock:
            self._look(inputs)
            if self.calls < BEFORE:
                self.calls += 1
                return self.run(*inputs)
            if self.replay is None:
                self._record(inputs)
            else:
                for number in self.moving:
                    self.inputs[number].copy_(inputs[number])
                self.replay()
            return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, self.result)

    def _look(self, inputs: Sequence[torch.Tensor]) -> None:
        """Notes which inputs have moved; one that did for the first time makes the graph worthless."""
        places = [x.data_ptr() for x in inputs]
        moved = {number for number, (old, new) in enumerate(zip(self.places, places)) if old != new} - self.moving
        if moved:
            self.moving |= moved
            self.replay = self.result = None
        self.places = places

    def _record(self, inputs: Sequence[torch.Tensor]) -> None:
        self.inputs = [_copy(x) if number in self.moving else x.detach() for number, x in enumerate(inputs)]
        self.result, self.replay = self.recorder.record(self.run, self.inputs)


def _copy(x: torch.Tensor) -> torch.Tensor:
    """A place of its own for what lies as x does."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
