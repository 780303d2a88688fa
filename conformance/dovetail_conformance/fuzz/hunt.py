"""One program from its number to what became of it, as events that a pipe can carry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from dovetail_conformance.fuzz.attempt import Fault, Outcome, Setup, tried
from dovetail_conformance.fuzz.draft import Draft
from dovetail_conformance.fuzz.generator import draft_of
from dovetail_conformance.fuzz.replay import replay
from dovetail_conformance.fuzz.shrink import Finding, shrunk

ENDED = "the process that ran it ended"
SHRINKING = 150  # programs that are tried to make a wrong one smaller


@dataclass(frozen=True)
class Job:
    """What is hunted: by which executors, with which seed, in which dtypes."""

    setup: Setup
    seed: int = 0
    dtypes: tuple[str, ...] = ()
    shrinking: int = SHRINKING

    def data_seed(self, number: int) -> int:
        """Return the seed of the inputs of a program."""
        return (self.seed * 100_003 + number) * 10 % 2**40


@dataclass
class Counts:
    """What was done."""

    programs: int = 0
    operations: int = 0
    calls: int = 0
    gradients: int = 0
    refused: int = 0  # programs that Dovetail does not compile
    ran: int = 0  # programs that the executor ran a part of
    seconds: float = 0.0

    def add(self, other: dict[str, Any]) -> None:
        """Add what one program came to."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + other.get(each.name, 0))


def events(job: Job, number: int) -> Iterator[dict[str, Any]]:
    """Run a program.  Yield what may be wrong with it as it was drawn ("suspect"), as it was shrunk ("finding"), and what was done ("end")."""
    draft, seed = draft_of(job.seed, number, job.dtypes), job.data_seed(number)
    yield {"suspect": {**report(Finding(draft, job.setup, seed, Fault("error", ENDED)), job, number), "kind": "crash"}}
    outcome = tried(draft, job.setup, seed)
    if outcome.state == "wrong" and outcome.fault is not None:
        finding = Finding(draft, job.setup, seed, outcome.fault)
        yield {"suspect": report(finding, job, number)}
        small = shrunk(draft, job.setup, seed, outcome.fault, job.shrinking)
        yield {"finding": report(small, job, number)}
    yield {"end": counted(draft, outcome)}


def counted(draft: Draft, outcome: Outcome) -> dict[str, Any]:
    """Return the counts of one program."""
    if outcome.state == "invalid":
        return asdict(Counts())
    done = Counts(1, len(draft.steps), outcome.calls, outcome.gradients, outcome.state == "refused", outcome.lines[0] > 0 or outcome.state == "wrong")
    return {key: int(value) for key, value in asdict(done).items()}


def report(finding: Finding, job: Job, number: int) -> dict[str, Any]:
    """Return a finding as data, with its script."""
    message = finding.fault.message
    title = f"Wrong with {', '.join(finding.setup.names)}: {message}\nFound by dovetail fuzz, seed {job.seed}, program {number}."
    return {
        "number": number,
        "kind": finding.fault.kind,
        "message": message,
        "structure": finding.structure,
        "program": finding.draft.text,
        "script": replay(finding, title),
    }


def crash(suspect: dict[str, Any] | None, number: int, message: str) -> dict[str, Any]:
    """Return the program whose process ended with `message`, as a finding; `suspect` is what was known of it."""
    if suspect is None:
        return {"number": number, "kind": "crash", "message": message, "structure": f"drawing: {message[:90]}", "program": "", "script": ""}
    if suspect["kind"] != "crash":
        return suspect
    comment = "".join(f"# {line}\n" for line in message.splitlines())
    return {**suspect, "message": message, "structure": suspect["program"], "script": comment + suspect["script"]}
