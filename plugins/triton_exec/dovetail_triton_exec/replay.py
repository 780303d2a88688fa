"""Whole programs as CUDA graphs, where the option `cuda_graphs` asks for it: one launch for a call, whatever it computes.

A graph reads and writes the memory that it was recorded with.  An input that has been at one place in all calls so far, as parameters are,
is read where it lies; any other one is copied to a place of its own first.  What the graph leaves in its memory is copied for the caller.
An input that moves after all has the graph recorded anew, once for each input at most.  A program that cannot be recorded, or that is
called while the caller records a graph of its own, is launched kernel by kernel.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock, RLock
from typing import Any, Protocol

import torch

from dovetail import prims
from dovetail.extend import BoundSymbol, Tag, TensorSpec, Trace
from dovetail.extend.advanced import ExecutorWarning, to_callable, torch_internals

BEFORE = 2  # calls that run as they are: kernels are compiled and tuned in them, and show which inputs stay where they are
NAME = "triton"
RECORDING = RLock()  # one graph of a process is recorded at a time, as PyTorch wants it
FAILS = {"capture_error_mode": "thread_local"}  # what other threads do meanwhile is not our mistake


class Recorder(Protocol):
    """What makes graphs."""

    def record(self, fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[Any, Callable[[], None]]:
        """Run `fn`; return its results, in memory that stays, and a function that computes them again there."""

    def busy(self) -> bool:
        """Return whether the caller records a graph of its own, of which this call is to be a part."""

    def stream(self, x: torch.Tensor) -> Any:
        """Return the stream on which kernels for x are launched."""


class CudaRecorder:
    """CUDA's own graphs, as PyTorch documents them: a run and the recording on a stream beside the caller's, one for each device."""

    def record(self, fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[Any, Callable[[], None]]:
        graph, side = torch.cuda.CUDAGraph(), _side(inputs[0].device)
        with RECORDING, torch.cuda.device(side.device):
            here = torch.cuda.current_stream()
            side.wait_stream(here)
            try:
                with torch.cuda.stream(side):  # is left, where recording fails, by this alone
                    fn(*inputs)  # whatever is compiled, chosen or allocated once for these inputs and this stream is so before
                    with torch.cuda.graph(graph, stream=side, **FAILS):
                        result = fn(*inputs)
            except Exception:
                _settle(side)
                raise
            here.wait_stream(side)
            graph.replay()  # recording computes nothing
        return result, graph.replay

    def busy(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def stream(self, x: torch.Tensor) -> torch.cuda.Stream:
        return torch.cuda.current_stream(x.device)


@functools.cache
def _side(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of a device on which graphs are recorded."""
    return torch.cuda.Stream(device)


def _settle(side: torch.cuda.Stream) -> None:
    """Record a graph that succeeds: after a failed one the generator still waits for its end, and would refuse to draw."""
    with suppress(Exception), torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side, **FAILS):
        torch.zeros(1, device=side.device)


def entry(
    prologue: Trace, computation: Trace | None, recorder: Recorder | None = None, devices: Sequence[str] = ("cuda",)
) -> Callable[[tuple, dict], Any] | None:
    """Return the prologue with a graph in the place of the program that it runs; None, and a warning that says why, where there can be none."""
    last = prologue.lines[-1]
    message = refusal(None if last.kwargs.get("found") else computation, devices)
    if message is not True:
        warnings.warn(f"{NAME}.cuda_graphs: {message}; the program is launched kernel by kernel", ExecutorWarning, stacklevel=2)
        return None
    program = last.args[0]
    graph = Replay(prologue.constants[program], recorder or CudaRecorder())
    return to_callable(replace(prologue, constants=prologue.constants | {program: graph}))


def refusal(computation: Trace | None, devices: Sequence[str] = ("cuda",)) -> bool | str:
    """Return True where a program can be a graph, else why not."""
    if computation is None:
        return "a graph holds programs without gradients, writes into inputs and results that are views, and this one is more"
    specs = [(p.name, p.spec) for p in (*computation.inputs, *(p for line in computation.lines for p in line.writes))]
    for name, spec in specs:
        if type(spec) is not TensorSpec:
            return f"a graph computes with tensors, and {name} is a number"
        if spec.device.type not in devices:
            return f"a graph expects everything on a CUDA device, and {name} is on {spec.device}"
    if not computation.inputs:
        return "a graph without inputs would compute the same again"
    if len({spec.device for _, spec in specs}) > 1:
        return "a graph is of one device, and this program is on several"
    for p in computation.inputs:
        if not _apart(p.spec):
            return f"inputs are copied for a graph, and {p.name} has elements that lie on one another"
    for line in computation.lines:
        if line.symbol is not prims.delete and (message := _forbidden(line)) is not None:
            return message
    return _outputs(computation)


def _forbidden(line: BoundSymbol) -> str | None:
    """Return what of a line cannot be recorded."""
    if _has(Tag.RANDOM, line):
        return f"a graph would draw the same numbers again, and {line.symbol} draws"
    if _has(Tag.HOST, line):
        return f"a graph stays on its device, and {line.symbol} does not"
    if _untraced(line):
        return f"a graph calls no Python, and {line.symbol} is a function that is not looked into"
    if line.mutates:
        return f"a graph would write into the memory of an earlier call, and {line.symbol} writes into an input"
    return None


def _has(tag: Tag, line: BoundSymbol) -> bool:
    return tag in line.symbol.tags or any(_has(tag, inner) for inner in line.body)


def _untraced(line: BoundSymbol) -> bool:
    """Return whether a function of the user's is called that is marked opaque."""
    return "untraced" in line.symbol.path.split(".") or any(map(_untraced, line.body))


def _apart(spec: TensorSpec) -> bool:
    """Return whether each element has a place of its own."""
    reach = 0
    for step, n in sorted((step, n) for step, n in zip(spec.steps, spec.shape, strict=True) if n > 1):
        if step <= reach:
            return False
        reach += step * (n - 1)
    return True


def _outputs(computation: Trace) -> bool | str:
    inputs = set(computation.inputs)
    for value in torch_internals.tree_leaves(computation.outputs):
        if not hasattr(value, "spec"):
            continue
        if value in inputs:
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
        self.stream: Any = None  # of the call before
        self.failed = False

    def __call__(self, *inputs: torch.Tensor) -> Any:
        if self.failed or self.recorder.busy():
            return self.run(*inputs)
        with self.lock:
            self._look(inputs)
            self.calls += 1
            if self.calls > BEFORE and not self.failed:
                self._queue(inputs[0])
                if self.replay is not None:
                    self._again(inputs)
                else:
                    self._record(inputs)
                if not self.failed:
                    return self._copied_results()
        return self.run(*inputs)

    def _look(self, inputs: Sequence[torch.Tensor]) -> None:
        """Note which inputs have moved; one that did for the first time makes the graph worthless."""
        places = [x.data_ptr() for x in inputs]
        moved = {number for number, (old, new) in enumerate(zip(self.places, places)) if old != new} - self.moving
        if moved:
            self.moving |= moved
            self.replay = self.result = None
        self.places = places

    def _queue(self, x: torch.Tensor) -> None:
        """Wait for a call on another stream than the one before: the graph has one memory."""
        stream = self.recorder.stream(x)
        if self.stream is not None and stream != self.stream:
            stream.wait_stream(self.stream)
        self.stream = stream

    def _again(self, inputs: Sequence[torch.Tensor]) -> None:
        for number in self.moving:
            self.inputs[number].copy_(inputs[number])
        self.replay()

    def _record(self, inputs: Sequence[torch.Tensor]) -> None:
        self.inputs = [_copy(x) if number in self.moving else x.detach() for number, x in enumerate(inputs)]
        try:
            self.result, self.replay = self.recorder.record(self.run, self.inputs)
        except Exception as error:  # whatever an operation does that cannot be recorded
            self.failed, self.inputs = True, []
            message = (str(error).splitlines() or [""])[0]
            why = f"recording the graph failed with {type(error).__name__}: {message}"
            warnings.warn(f"{NAME}.cuda_graphs: {why}; the program is launched kernel by kernel", ExecutorWarning, stacklevel=2)

    def _copied_results(self) -> Any:
        """Copy the results; one that is returned twice is one tensor."""
        copies: dict[int, torch.Tensor] = {}

        def copy(x: torch.Tensor) -> torch.Tensor:
            return copies[id(x)] if id(x) in copies else copies.setdefault(id(x), x.clone())

        return torch_internals.tree_map_only(torch.Tensor, copy, self.result)


def _copy(x: torch.Tensor) -> torch.Tensor:
    """Return a place of its own for what lies as x does, which may be written in inference mode and out of it."""
    with torch.inference_mode(False):
        place = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return place.copy_(x)
