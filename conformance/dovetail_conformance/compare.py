"""Several reports beside each other: what changed between two, how several went over time, and many as one file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail_conformance.report import FORMAT, Report, Row

RANKS = {"pass": 2, "partly": 1}  # every other state is 0: it shows nothing to be right


@dataclass(frozen=True)
class Change:
    """The change of one row; `old` is None where the row is new, `new` where it was removed."""

    old: Row | None
    new: Row | None

    @property
    def worse(self) -> bool:
        """Whether less is known to be right than before: a check that is gone counts as one that passes no more."""
        if self.new is not None and self.new.failed and not (self.old is not None and self.old.failed):
            return True
        return _rank(self.new) < _rank(self.old)

    @property
    def better(self) -> bool:
        fixed = self.old is not None and self.old.failed and self.new is not None and not self.new.failed
        return not self.worse and (fixed or _rank(self.new) > _rank(self.old))

    def __str__(self) -> str:
        row = self.new or self.old
        before, now = (each.state if each else "not there" for each in (self.old, self.new))
        message = self.new.message or self.new.reason if self.new else ""
        return f"{row}: {before} -> {now}{f': {message}' if message and self.worse else ''}"


def _rank(row: Row | None) -> int:
    return RANKS.get(row.state, 0) if row and not row.new else 0


@dataclass(frozen=True)
class Difference:
    """The differences of two reports: `remarks` are those of suite, environment and level."""

    remarks: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def worse(self) -> list[Change]:
        """What fails now comes first."""
        return sorted((each for each in self.changes if each.worse), key=lambda each: each.new is None or not each.new.failed)

    @property
    def better(self) -> list[Change]:
        return [each for each in self.changes if each.better]

    @property
    def others(self) -> list[Change]:
        return [each for each in self.changes if not each.worse and not each.better]


def diff(old: Report, new: Report) -> Difference:
    """Compare two reports row by row."""
    before, now = ({row.key: row for row in report} for report in (old, new))
    pairs = [Change(before.get(key), now.get(key)) for key in dict.fromkeys([*before, *now])]
    return Difference(tuple(_remarks(old, new)), tuple(pair for pair in pairs if _states(pair.old) != _states(pair.new)))


def _states(row: Row | None) -> tuple[str, bool] | None:
    return (row.state, row.new) if row else None


def _remarks(old: Report, new: Report) -> Iterator[str]:
    for what, a, b in (
        ("executors", old.name, new.name),
        ("versions of the executor", old.executor.get("version"), new.executor.get("version")),
        ("levels", old.level, new.level),
        ("seeds", old.seed, new.seed),
        ("numbers of seeds", old.seeds, new.seeds),
        ("suites", suite_version(old), suite_version(new)),
        *((f"environments ({key})", old.environment.get(key), new.environment.get(key)) for key in {**old.environment, **new.environment}),
    ):
        if a != b:
            yield f"{what} differ: {a} and {b}"


def suite_version(report: Report) -> str:
    """Format a suite by its version and hash."""
    return f"{report.suite.get('version')} ({report.suite.get('hash')})"


@dataclass(frozen=True)
class Point:
    """One report in a trend, and how it differs from the one before it of the same executor and level."""

    report: Report
    worse: int | None = None
    better: int | None = None


def trend(reports: Iterable[Report]) -> list[Point]:
    """Sort reports by time, executor by executor and level by level."""
    points: list[Point] = []
    before: Report | None = None
    for report in sorted(reports, key=lambda report: (report.name, report.level, report.created)):
        if before is None or (before.name, before.level) != (report.name, report.level):
            points.append(Point(report))
        else:
            changes = diff(before, report)
            points.append(Point(report, len(changes.worse), len(changes.better)))
        before = report
    return points


def combine(reports: Sequence[Report]) -> list[Report]:
    """Return reports that fit one table.  Raises ValueError where they are of different suites, or two are of one executor."""
    first: dict[str, Report] = {}
    for report in reports:
        if suite_version(report) != suite_version(reports[0]):
            two = f"{reports[0].name} by suite {suite_version(reports[0])}, {report.name} by suite {suite_version(report)}"
            raise ValueError(f"reports of different suites do not compare: {two}; run both with one version of dovetail-conformance")
        if report.name in first:
            raise ValueError(f"there are two reports of the executor {report.name}; combine one of each, or use diff or trend for several")
        first[report.name] = report
    return list(reports)


def combined(reports: Sequence[Report]) -> str:
    """Write reports as one JSON text; one report alone in its usual form."""
    if len(reports) == 1:
        return reports[0].to_json() + "\n"
    return json.dumps({"format": FORMAT, "reports": [json.loads(report.to_json()) for report in combine(reports)]}, indent=1) + "\n"


def load(path: str | Path) -> list[Report]:
    """Return the reports in a file, one or several.  Raises ValueError, with the reason, where it holds none."""
    text = Path(path).read_text(encoding="utf-8")
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError:
        data = None
    several = isinstance(data, dict) and data.get("format") == FORMAT and isinstance(data.get("reports"), list)
    try:
        return [_one(each) for each in data["reports"]] if several else [Report.of_json(text)]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _one(data: Any) -> Report:
    if not isinstance(data, dict):
        raise ValueError(f"one of its reports is of type {type(data).__name__}")
    return Report.of_data(data)
