"""One candidate, tried: its branches, and whether its result is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.axes.check import judged
from dovetail_conformance.axes.modes import mode
from dovetail_conformance.axes.variants import Variant
from dovetail_conformance.case import SEED, Case, Ran
from dovetail_conformance.cell import Cell, Outcome
from dovetail_conformance.chance import differs_in_kind, unknown_numbers
from dovetail_conformance.claims import lines_of
from dovetail_conformance.guided.corpus import Candidate
from dovetail_conformance.guided.recorder import Recorder
from dovetail_conformance.oracle import identical, tensors
from dovetail_conformance.program import calm, fresh, inexact, seed_generators

JUDGED = 1 << 13  # elements up to which a result is compared as exactly as variants are; larger ones roughly at first
ROUGH = 1e-2
MISTAKES = 3  # direct calls with other results than compiled ones, after which they are not compared any more


@dataclass
class Probe:
    """What trying a candidate showed."""

    case: Case
    path: frozenset[int]
    sides: dict[int, tuple[float, float]]
    outcome: Outcome | None = None


class Direct:
    """Tries candidates by calling the implementation itself, which takes microseconds, and compares what it returns with eager's result."""

    cost = 1.0

    def __init__(self, cell: Cell, recorder: Recorder, fn: Callable[..., Any]):
        self.cell, self.recorder, self.fn = cell, recorder, fn
        self.mistakes, self.observed = 0, True
        row = cell.subject.declared["operations"][cell.info.symbol.id]
        self.checker, self.dtypes = row["checker"], row["dtypes"]

    def __call__(self, candidate: Candidate, case: Case) -> Probe | None:
        """Call the implementation; None where its checker refuses the call or it declares other dtypes."""
        if not self.takes(case):
            return None
        ran = self.call(candidate, case)
        probe = Probe(case, self.recorder.path, dict(self.recorder.sides))
        if self.mistakes < MISTAKES and (problem := self.wrong(candidate, case, ran)) is not None:
            probe.outcome = self.confirmed(candidate, case, f"between other calls, {problem}")
        return probe

    def takes(self, case: Case) -> bool:
        """Return whether the executor would run the call."""
        if not self.checker:
            return self.dtypes is None or all(str(x.dtype).removeprefix("torch.") in self.dtypes for x in case.program.inputs)
        lines = [line for line in lines_of(self.cell, case) if line.symbol is case.info.symbol]
        with self.recorder.recording():
            verdicts = [_verdict(self.cell, line) for line in lines]
        return all(verdict is True or not isinstance(verdict, (str, Exception)) for verdict in verdicts)

    def call(self, candidate: Candidate, case: Case, inputs: Sequence[Tensor] | None = None) -> Ran:
        """Call the implementation with copies of a case's tensors, or with other ones."""
        seed_generators(SEED)
        with mode(candidate.row.mode), calm(), torch.no_grad():
            inputs = fresh(case.program.inputs) if inputs is None else inputs
            args, kwargs = case.program.arguments(inputs)
            try:
                with self.recorder.recording() if self.observed else nullcontext():
                    return Ran(self.fn(*args, **kwargs), inputs)
            except Exception as error:
                return Ran(inputs=inputs, error=error)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Record no branches while open, for calls that are many."""
        self.observed = False
        try:
            yield
        finally:
            self.observed = True

    def wrong(self, candidate: Candidate, case: Case, ran: Ran) -> str | None:
        """Describe how a direct call's result differs from eager's."""
        if ran.error is not None:
            return f"it raised {type(ran.error).__name__}"
        if ran.result is NotImplemented:
            return None
        ours, theirs = (ran.result, list(ran.inputs)), (case.expected.result, list(case.expected.inputs))
        if identical(ours, theirs):
            return None
        if case.draws:
            return differs_in_kind(ran.result, case.expected.result) or unknown_numbers(case, ran)  # what is judged is compared in distribution
        if sum(x.numel() for x in tensors(case.expected.result)) > JUDGED and _alike(ours, theirs):
            return None
        with mode(candidate.row.mode):
            return case.wrong(ran, case.expected, fresh(case.program.inputs))

    def confirmed(self, candidate: Candidate, case: Case, problem: str) -> Outcome | None:
        """Return the failure of a compiled call; or that of the implementation, where it is right for the same values in other memory.

        Else the direct call is not what a compiled program does, and None is returned.
        """
        outcome = judge(self.cell, candidate, case, trained=False)
        if outcome is not None:
            return outcome
        again = self.call(candidate, case)
        if again.error is None and self.wrong(candidate, case, again) is None:
            return failed(case, f"the implementation was wrong once and then right for the same values: {problem}")
        self.mistakes += 1
        return None


def failed(case: Case, problem: str) -> Outcome:
    """Return the failure of calls of the implementation itself."""
    return Outcome("fail", f"{case}: {problem}", replay=case.replay("branches"))


class Compiled:
    """Tries candidates by compiled calls, which are judged; with `trained`, calls that require gradients."""

    cost = 12.0

    def __init__(self, cell: Cell, recorder: Recorder, *, trained: bool):
        self.cell, self.recorder, self.trained = cell, recorder, trained

    def __call__(self, candidate: Candidate, case: Case) -> Probe | None:
        """Judge a compiled call."""
        with self.recorder.recording():
            outcome = judge(self.cell, candidate, case, called=not self.trained, trained=self.trained)
        return Probe(case, self.recorder.path, dict(self.recorder.sides), outcome)


def judge(cell: Cell, candidate: Candidate, case: Case, *, called: bool = True, trained: bool = True) -> Outcome | None:
    """Return the failure of a call that is judged as variants are; None where it is right."""
    own = Cell(cell.subject, cell.info, candidate.of.dtype, cell.device, cell.level, cell.there, cell.seed)
    own.cases = []  # nothing else of this dtype runs here
    return judged(own, Variant(candidate.row, case), called=called, trained=trained)


def _verdict(cell: Cell, line: Any) -> Any:
    try:
        return cell.subject.executor.verdict(line)
    except Exception as error:
        return error


def _alike(ours: Any, theirs: Any) -> bool:
    """Return whether results are roughly the same, as far as a look at large ones shows."""
    pairs = list(zip(tensors(ours), tensors(theirs)))
    return all(a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and _close(a, b) for a, b in pairs)


def _close(a: Tensor, b: Tensor) -> bool:
    if not inexact(a):
        return torch.equal(a, b)
    size = float(b.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()) if b.numel() else 0.0
    return bool(torch.isclose(a, b, rtol=ROUGH, atol=ROUGH * ROUGH * size, equal_nan=True).all())
