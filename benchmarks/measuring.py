"""One workload at a time: subjects in their own processes, checked, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from processes import Gone
from rows import Row
from subjects import BASELINE
from workloads import Workload

DEAR = 3.0  # seconds; a first call that takes longer is measured once
STARTING = 1.5  # seconds that a process takes to import what it needs
PEERS_STARTING = 3.0  # and to import a peer that compiles


@dataclass(frozen=True)
class Effort:
    """`rounds` in which every subject has a turn of about `a_round` seconds, after `warm` seconds of calls; `firsts` first calls of each."""

    rounds: int
    a_round: float
    warm: float
    firsts: int


FULL = Effort(rounds=15, a_round=0.2, warm=0.5, firsts=3)
QUICK = Effort(rounds=7, a_round=0.05, warm=0.1, firsts=1)


class Client(Protocol):
    """The interface of `processes.Worker`."""

    def ask(self, **request: Any) -> dict[str, Any]: ...

    def close(self) -> None: ...


Start = Callable[[str, str], Client]  # of a workload and a subject


class Measurement:
    """A measurement of the subjects of one workload, the baseline first; `tell` is called with its progress."""

    def __init__(self, workload: str, subjects: Sequence[str], start: Start, effort: Effort, tell: Callable[[str], None] = lambda message: None):
        self.workload, self.start, self.effort, self.tell = workload, start, effort, tell
        self.rows = {name: Row(workload, name) for name in subjects}
        self.workers: dict[str, Client] = {}

    def run(self) -> list[Row]:
        """Return a row for each subject, also for those that failed."""
        try:
            for name in self.rows:
                self.tell(f"{name}, first call")
                self.first(name)
            for name in list(self.workers):
                self.ask(name, "warm", seconds=self.effort.warm, then=self.decide)
            for i in range(self.effort.rounds):
                self.tell(f"round {i + 1} of {self.effort.rounds}")
                self.round(i)
            self.compare()
            for name in list(self.workers):
                self.tell(f"{name}, memory")
                self.peak(name)
        finally:
            for name in list(self.workers):
                self.drop(name)
        return list(self.rows.values())

    def first(self, name: str) -> None:
        """Start the process of `name`, kept if its first call is right; repeat cheap first calls in other processes."""
        row = self.rows[name]
        try:
            self.workers[name] = self.start(self.workload, name)
        except Gone as end:
            row.state, row.message = end.state, str(end)
            return
        self.ask(name, "first", then=self.judge)
        while row.ok and len(row.firsts) < self.effort.firsts and row.firsts[0] < DEAR:
            try:
                other = self.start(self.workload, name)
            except Gone:
                return
            try:
                row.firsts.append(other.ask(do="first")["first"])
            except Gone:
                return
            finally:
                other.close()

    def judge(self, row: Row, message: dict[str, Any]) -> None:
        row.firsts.append(message["first"])
        row.ran = message.get("ran", {})
        if message["wrong"]:
            row.state, row.message, row.firsts = "wrong", message["wrong"], []
            self.drop(row.subject)

    def decide(self, row: Row, message: dict[str, Any]) -> None:
        row.calls = max(1, round(self.effort.a_round / message["call"]))

    def round(self, number: int) -> None:
        """Time each subject once; the order rotates from round to round."""
        names = list(self.workers)
        begin = number % max(len(names), 1)
        for name in names[begin:] + names[:begin]:
            self.ask(name, "round", calls=self.rows[name].calls, then=lambda row, message: row.rounds.append(message["call"]))

    def compare(self) -> None:
        """Compute each subject's speed relative to the baseline's in the same round."""
        baseline = self.rows.get(BASELINE)
        for row in self.rows.values():
            if row.ok and baseline is not None and baseline.ok:
                row.speeds = [theirs / mine for theirs, mine in zip(baseline.rounds, row.rounds, strict=True)]

    def peak(self, name: str) -> None:
        """Measure peak memory; a failure leaves it out and keeps the times."""
        try:
            self.rows[name].peak = self.workers[name].ask(do="peak")["peak"]
        except Gone as end:
            self.rows[name].message = f"no peak: {end}"

    def ask(self, name: str, what: str, then: Callable[[Row, dict[str, Any]], None], **more: Any) -> None:
        """Send one request; where the process is gone, its row has the reason and no times."""
        row = self.rows[name]
        try:
            then(row, self.workers[name].ask(do=what, **more))
        except Gone as end:
            row.state, row.message, row.firsts, row.rounds = end.state, str(end), [], []
            self.drop(name)

    def drop(self, name: str) -> None:
        self.workers.pop(name).close()


def estimate(workload: Workload, subjects: Sequence[str], effort: Effort) -> float:
    """Estimate the seconds of a Measurement, assuming that no subject is faster than eager."""
    call, total = workload.seconds, 0.0
    for name in subjects:
        peer = name in ("torch.compile", "lightning-thunder")
        first = workload.compiling if peer else call if name == BASELINE else 0.5
        total += (effort.firsts if first < DEAR else 1) * ((PEERS_STARTING if peer else STARTING) + first + 4 * call)
        total += max(effort.warm, 2 * call) + effort.rounds * max(effort.a_round, call) + 0.3 + 2 * call
    return total
