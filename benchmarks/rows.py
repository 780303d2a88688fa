"""What was measured: a row for each subject of each workload, and what they were measured with; as JSON and back."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from subjects import BASELINE

FORMAT = 1  # of the JSON; other formats are refused
NAME = "comparison"  # of the files

# state of a subject of a workload: its meaning
STATES = {
    "ok": "right, and timed",
    "wrong": "its result, its gradients or what it writes are not eager's",
    "error": "it raised an error",
    "crash": "its process died",
    "timeout": "it did not answer in time",
}
NOISE = 0.02  # a call that is slower than eager's by less than this is not called slower


@dataclass
class Row:
    """One subject of one workload.  Times are seconds of a call, `peak` is in bytes.

    `firsts` are those of first calls, each in its own process, `rounds` those of warm calls, one for each round.  `speeds` are eager's time
    by the subject's in the same round.  `ran` says how many lines each executor of Dovetail ran.  `message` is why there are no times.
    """

    workload: str
    subject: str
    state: str = "ok"
    message: str = ""
    firsts: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    calls: int = 0
    peak: int | None = None
    ran: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    @property
    def first(self) -> float | None:
        return statistics.median(self.firsts) if self.ok else None

    @property
    def median(self) -> float | None:
        return statistics.median(self.rounds) if self.ok else None

    @property
    def spread(self) -> float | None:
        """The distance between the quartiles, divided by the median."""
        if not self.ok:
            return None
        low, high = quartiles(self.rounds)
        return (high - low) / self.median

    @property
    def speed(self) -> float | None:
        """The speed relative to eager: the median over the rounds; None where eager was not timed."""
        return statistics.median(self.speeds) if self.ok and self.speeds else None

    def data(self) -> dict[str, Any]:
        """Return the row as data, with derived numbers."""
        derived = {"first": self.first, "median": self.median, "spread": self.spread, "speed": self.speed}
        if self.ok:
            derived["minimum"], derived["quartiles"] = min(self.rounds), list(quartiles(self.rounds))
        return asdict(self) | {name: value for name, value in derived.items() if value is not None}


def quartiles(values: list[float]) -> tuple[float, float]:
    """Return the first and third quartile, interpolated; of one value itself twice."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


@dataclass
class Report:
    """Rows, and what they were measured with: `about` has date and commit, machine, versions and executors, `settings` how it was done."""

    about: dict[str, Any]
    settings: dict[str, Any]
    titles: dict[str, str]  # of the workloads, by name
    subjects: list[str]
    absent: dict[str, str] = field(default_factory=dict)  # subjects that are missing, and why
    rows: list[Row] = field(default_factory=list)

    def row(self, workload: str, subject: str) -> Row | None:
        return self.by_key.get((workload, subject))

    @property
    def by_key(self) -> dict[tuple[str, str], Row]:
        return {(row.workload, row.subject): row for row in self.rows}

    @property
    def measured(self) -> list[str]:
        """The subjects that are present."""
        return [name for name in self.subjects if name not in self.absent]

    @property
    def workloads(self) -> list[str]:
        """Those that have rows, in their order."""
        there = {row.workload for row in self.rows}
        return [name for name in self.titles if name in there]

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows; existing ones are kept."""
        there = self.by_key
        self.rows += [row for row in rows if (row.workload, row.subject) not in there]

    def text(self) -> str:
        """Return the report as JSON, as `comparison.schema.json` describes it."""
        from_fields = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}
        return json.dumps({"format": FORMAT, **from_fields, "summary": summaries(self), "rows": [row.data() for row in self.rows]}, indent=1)

    def save(self, folder: Path) -> None:
        """Write the report atomically, so that an interrupted run can be continued."""
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{NAME}.json.{os.getpid()}"
        unfinished.write_text(self.text() + "\n")
        unfinished.replace(folder / f"{NAME}.json")

    @classmethod
    def load(cls, file: Path) -> Report:
        """Return the report in a file.  Raises ValueError where it holds none."""
        data = json.loads(file.read_text())
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"{file} is not a comparison of format {FORMAT}")
        known = {f.name for f in fields(Row)}
        rows = [Row(**{name: value for name, value in row.items() if name in known}) for row in data["rows"]]
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name != "rows"}, rows=rows)


@dataclass(frozen=True)
class Against:
    """One subject beside another: geometric means over the `rows` in which both were timed, and the workloads where it is slower."""

    subject: str
    other: str
    rows: int
    warm: float
    first: float
    slower: list[str]

    def __str__(self) -> str:
        where = f": {', '.join(self.slower)}" if self.slower else ""
        return (
            f"{self.subject} against {self.other}: {self.warm:.2f}x warm, {self.first:.3g}x in the first call "
            f"(geometric means of {self.rows} rows); slower in {len(self.slower)}{where}"
        )


def against(report: Report, subject: str, other: str) -> Against | None:
    """Compare `subject` with `other`; None where no row has both."""
    pairs = [(report.row(name, subject), report.row(name, other)) for name in report.workloads]
    both = [(mine, theirs) for mine, theirs in pairs if mine and theirs and mine.speed and theirs.speed]
    if not both:
        return None
    warm = [mine.speed / theirs.speed for mine, theirs in both]
    slower = [mine.workload for (mine, _), speed in zip(both, warm) if speed < 1 - NOISE]
    first = statistics.geometric_mean(theirs.first / mine.first for mine, theirs in both)
    return Against(subject, other, len(both), statistics.geometric_mean(warm), first, slower)


def summaries(report: Report) -> list[dict[str, Any]]:
    return [asdict(each) for each in summary(report)]


def summary(report: Report) -> list[Against]:
    """Compare every Dovetail subject with eager and each of the peers."""
    ours = [name for name in report.measured if name.startswith("dovetail")]
    peers = [name for name in report.measured if name not in ours]
    comparisons = [against(report, mine, peer) for mine in ours for peer in sorted(peers, key=lambda name: name != BASELINE)]
    return [each for each in comparisons if each is not None]
