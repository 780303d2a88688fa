"""Many programs, one after the other, until their number or the time is reached."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from dovetail.extend.advanced import Executor
from dovetail_conformance.fuzz.attempt import Setup
from dovetail_conformance.fuzz.hunt import SHRINKING, Counts, Job, crash, events
from dovetail_conformance.pool import Process
from dovetail_conformance.subject import executor_of

RENEWED = 300  # programs after which a process is replaced, so that memory does not grow
PATIENCE = 900.0  # seconds without a word


@dataclass
class Campaign:
    """The programs that were run, and the findings."""

    job: Job
    counts: Counts = field(default_factory=Counts)
    findings: list[dict[str, Any]] = field(default_factory=list)
    duplicates: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong, and the executor ran something."""
        return not self.findings and self.counts.ran > 0

    def add(self, finding: dict[str, Any]) -> bool:
        """Keep a finding of a new kind; return whether it is new."""
        key = (finding["kind"], finding["structure"])
        if any((each["kind"], each["structure"]) == key for each in self.findings):
            self.duplicates += 1
            return False
        self.findings.append(finding)
        return True

    def summary(self) -> dict[str, Any]:
        """Return the campaign as data."""
        setup = self.job.setup
        counts = {**asdict(self.counts), "seconds": round(self.counts.seconds, 1)}
        how = {"executors": setup.names, "threads": setup.threads, "seed": self.job.seed, "dtypes": list(self.job.dtypes)}
        return {**how, **counts, "findings": self.findings, "duplicates": self.duplicates}


def job_of(
    executors: Sequence[str | Executor], threads: int = 2, repeats: int = 1, seed: int = 0, dtypes: Sequence[str] = (), shrinking: int = SHRINKING
) -> Job:
    """Return the job; the first executor may be "file.py:name", the others are names."""
    first = executor_of(executors[0])
    available = first.available()
    if available is not True:
        raise ValueError(f"the executor {first.name} cannot run here: {available}; run `dovetail doctor {first.name}`")
    return Job(Setup((first, *executors[1:]), threads, repeats), seed, tuple(dtypes), shrinking)


def campaign(
    job: Job,
    programs: int | None = None,
    minutes: float | None = None,
    first: int = 0,
    report: Callable[[Campaign, dict[str, Any] | None], None] = lambda campaign, finding: None,
    source: Callable[[int], Iterator[dict[str, Any]]] | None = None,
    fail_fast: bool = False,
) -> Campaign:
    """Run programs from number `first` on, in this process or by `source`; `report` is called with each program and each new finding."""
    done, began = Campaign(job), monotonic()
    for number in count(first):
        if fail_fast and done.findings:
            return done
        if (programs is not None and number - first >= programs) or (minutes is not None and monotonic() - began >= minutes * 60):
            return done
        for event in source(number) if source else events(job, number):
            new = event["finding"] if "finding" in event and done.add(event["finding"]) else None
            if "end" in event:
                done.counts.add(event["end"])
            done.counts.seconds = monotonic() - began
            report(done, new)
    raise AssertionError("numbers do not end")


@dataclass
class Workers:
    """Processes that run programs, one at a time; one that ends or says nothing for long is replaced."""

    setup: dict[str, Any]  # of `job_of`
    patience: float = PATIENCE
    process: Process | None = None
    done: int = 0

    def __call__(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the events of a program; where the process ends, a finding."""
        if self.process is None or self.done >= RENEWED:
            self.close()
            self.process, self.done = Process({**self.setup, "path": sys.path}, self.patience, "dovetail_conformance.fuzz.worker"), 0
        self.done += 1
        self.process.say(number)
        suspect, until = None, monotonic() + self.patience
        while (event := self.process.hear(until)) is not None:
            suspect, until = event.get("suspect", suspect), monotonic() + self.patience
            yield event
            if "end" in event:
                return
        hung = monotonic() >= until
        self.close(kill=hung)
        yield {"finding": crash(suspect, number, f"the process was stopped after {self.patience:g} seconds" if hung else self.message)}
        yield {"end": {"programs": 1, "ran": 1}}

    message = ""

    def close(self, kill: bool = False) -> None:
        """End the process."""
        if self.process is None:
            return
        if kill:
            self.process.process.kill()
        self.process.close()
        self.message = f"the process {self.process.ended()}\n{self.process.tail()}".strip()
        self.process = None


def save(finding: dict[str, Any], folder: Path, seed: int) -> Path:
    """Write the script of a finding and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding['kind']}_{seed}_{finding['number']}.py"
    path.write_text(finding["script"], encoding="utf-8")
    return path
