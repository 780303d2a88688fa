"""One draft, run by an executor with several inputs and compared each time."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

import dovetail
from dovetail.errors import NoGradRule, Unclaimed, Unsupported
from dovetail.extend.advanced import Executor
from dovetail_conformance.case import executed
from dovetail_conformance.cell import whole
from dovetail_conformance.fuzz.draft import Draft, refill
from dovetail_conformance.fuzz.judge import Difference, Ran, Reference, difference, run
from dovetail_conformance.program import calm

CALLS = 3  # with new data each: the second in the storage of the first, the third in storage of its own


@dataclass
class Fault:
    """What is wrong with a draft: an error that eager does not raise, or a value."""

    kind: str  # "result", "input", "gradient", "error"
    message: str
    call: int = 0
    which: int = 0
    difference: Difference | None = None


@dataclass
class Outcome:
    """What became of one draft."""

    state: str  # "right", "wrong", "refused", "invalid": eager does not run it
    fault: Fault | None = None
    calls: int = 0
    gradients: int = 0
    lines: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Setup:
    """How drafts are run: by which executors in which order, with how many threads, how often."""

    executors: tuple[str | Executor, ...]
    threads: int = 2
    repeats: int = 1  # calls with the data of the last one again, for races

    @property
    def names(self) -> list[str]:
        """The executors by name."""
        return [ex if isinstance(ex, str) else ex.name for ex in self.executors]


@contextmanager
def threads(n: int):
    """Let torch use this many threads while open."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tried(draft: Draft, setup: Setup, seed: int) -> Outcome:
    """Run a draft on several inputs and compare each result; end with the first that is wrong."""
    with threads(setup.threads), calm(), dovetail.use(trial="off", drafts=False):  # a trial would put the reference's result in place of a wrong one
        try:
            reference = Reference(draft, seed)
            _ = reference.eager
        except Exception as error:
            return Outcome("invalid", Fault("invalid", whole(error)))
        return _compared(draft, setup, reference)


def _compared(draft: Draft, setup: Setup, reference: Reference) -> Outcome:
    function = dovetail.jit(draft.function(), executors=list(setup.executors), unsupported="error")
    outcome = Outcome("right")
    inputs: list[Any] = []
    for call in range(CALLS + setup.repeats):
        if 0 < call < CALLS:
            reference = Reference(draft, reference.seed + 1)  # the last one is dropped, and what it computed with it
        new_inputs = draft.make_inputs(reference.seed)
        inputs = list(refill(inputs, new_inputs)) if call == 1 else new_inputs
        try:
            got = run(draft, function, inputs, reference.seed)
        except (Unsupported, NoGradRule, Unclaimed) as error:
            return Outcome("refused", Fault("refusal", whole(error)))
        except Exception as error:
            outcome.state, outcome.fault = "wrong", Fault("error", whole(error), call)
            return outcome
        outcome.calls += 1
        outcome.gradients += sum(x is not None for x in got.gradients)
        fault = _fault(reference, got, call)
        if fault is not None:
            outcome.state, outcome.fault = "wrong", fault
            break
    outcome.lines = _lines(function, setup.names[0])
    return outcome


def _fault(reference: Reference, got: Ran, call: int) -> Fault | None:
    deviation = difference(reference, got)
    if deviation is None:
        return None
    kind, which, how = deviation
    return Fault(kind, f"{kind} {which} of call {call + 1}: {how.message}", call, which, how)


def _lines(function: Any, name: str) -> tuple[int, int]:
    """Return how many lines of the executed programs the executor runs, of how many."""
    lines = [line for trace in executed(function) for line in trace.lines if line.implementation is not None]
    return sum(line.implementation.executor == name for line in lines), len(lines)
