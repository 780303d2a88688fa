"""Replay a disagreement: run the operations of one line by the executor and by the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from dovetail.errors import DovetailError
from dovetail.executors import Executor, Priority, differs, dispatch, get_executor, resolve_executors
from dovetail.executors.dispatching.distrust import forgiving
from dovetail.executors.dispatching.regions import RegionSymbol
from dovetail.executors.trials.reference import exact, generators, program, referees, restore, rounded
from dovetail.frontend import make_trace
from dovetail.trace import BoundSymbol, Proxy, Trace, proxies, to_callable

RUNS = 8  # of the executor, for what is wrong in some calls
SAMPLES = 8  # differently rounded programs that a difference is compared with


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay: `ran` are the operations run by the executor; true where it agrees with the reference."""

    executor: str
    ran: tuple[str, ...]
    difference: str | None

    def __bool__(self) -> bool:
        return self.difference is None

    def __str__(self) -> str:
        summary = f"{self.executor} runs {', '.join(self.ran)}" if self.ran else f"{self.executor} runs none of it"
        return f"{summary}: {self.difference or 'it agrees with the reference'}"


def replay(case: Callable[..., Any], inputs: Sequence[Any], *, executor: str | Executor) -> Replay:
    """Run `case`, a function of `inputs` written in operations, by `executor` and by the reference, and compare.

    Called by the scripts that a `DisagreementWarning` names.  Recorded disagreements of the executor are ignored.  Raises DovetailError
    unless all inputs are tensors.
    """
    ex = get_executor(executor) if isinstance(executor, str) else executor
    reference = referees(resolve_executors([]))
    if not all([isinstance(x, torch.Tensor) for x in inputs]):
        raise DovetailError("expected tensors as the inputs of a replayed case, got a number; pass tensors")
    with torch.no_grad():
        recorded = make_trace(case)(*inputs)
        values: dict[Proxy, Any] = dict(zip(recorded.inputs, inputs, strict=True)) | recorded.constants
        with forgiving():
            run = dispatch(recorded, Priority([ex, *[other for other in reference if other is not ex]]))
        line, run_lines, before = _as_line(recorded), to_callable(run), generators()
        expected = program(line, list(values), reference)(*values.values())
        with suppress(Exception):  # what is kept of another call would be a wrong result of this one
            run_lines(*[x.flip(0) if x.dim() else x for x in inputs])
        for _ in range(RUNS):
            restore(before)
            results = [x for x in _flat(run_lines(*inputs)) if isinstance(x, torch.Tensor)]
            difference = differs(results, expected)
            if difference is not None:
                difference = differs(results, expected, exact(line, values, reference), rounded=list(rounded(line, values, reference, SAMPLES)))
            if difference is not None:
                break
    ran = tuple(str(line.symbol) for line in run.lines if line.implementation is not None and line.implementation.executor == ex.name)
    return Replay(ex.name, ran, difference)


def _flat(result: Any) -> tuple:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _as_line(recorded: Trace) -> BoundSymbol:
    """Return a whole program as one line."""
    outputs = tuple(proxies(recorded.outputs))
    inputs = list(recorded.inputs)
    return BoundSymbol(RegionSymbol("case", recorded.name), tuple(inputs), {}, outputs, inputs, body=tuple(recorded.lines))
