"""What every form of a report says in the same words and in the same order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from dovetail import dtypes
from dovetail_conformance.report import STATES, Report, Row

LETTERS: dict[str, tuple[str, str]] = {  # state: (its letter in a matrix, its colour on a terminal); no two letters are the same
    "pass": (".", "green"),
    "partly": ("~", "cyan"),
    "fail": ("F", "bold red"),
    "error": ("E", "bold red"),
    "crash": ("C", "bold red"),
    "timeout": ("T", "bold red"),
    "unsupported": ("-", "dim"),
    "not-claimed": ("o", "dim"),
    "xfail": ("x", "yellow"),
    "xpass": ("X", "bold magenta"),
    "flaky": ("?", "bold magenta"),
    "waived": ("w", "yellow"),
    "not-run": ("/", "dim"),
}
USUAL = frozenset({"pass", "partly", "unsupported", "not-claimed", "not-run"})  # what a reader need not look at
WHOLE = "the executor as a whole"

_SHORT = {name: dtype.short for dtype in dtypes.ALL for name in (dtype.name, dtype.name.removesuffix("_"))}
_PLACE = {name: place for place, dtype in enumerate(dtypes.ALL) for name in (dtype.name, dtype.name.removesuffix("_"), dtype.short)}


def sorted_dtypes(rows: Iterable[Row]) -> list[str]:
    """Sort the dtypes of rows, from bool to complex; rows of no dtype come last."""
    return sorted({row.dtype for row in rows}, key=lambda name: (not name, _PLACE.get(name, len(_PLACE)), name))


def short(dtype: str) -> str:
    """Format a dtype for a heading; "any" stands for rows of no dtype."""
    return _SHORT.get(dtype, dtype) or "any"


def name_of(operation: str) -> str:
    """Format an operation for a column of names."""
    return operation.removeprefix("torch.") or WHOLE


def percent(passed: int, counted: int) -> str:
    """Format a share as `99.9 %`, rounded down: 100 % means that every one passed."""
    if not counted:
        return "nothing counted"
    return "100 %" if passed == counted else f"{math.floor(1000 * passed / counted) / 10:.1f} %"


def score(report: Report) -> str:
    """Format a score as `97.3 % (1,234 of 1,268)`; waived and expected failures are among those that count."""
    passed, counted = report.score
    return f"{percent(passed, counted)} ({passed:,} of {counted:,})" if counted else "nothing counted"


def title(report: Report) -> str:
    """Format a title: `torch 0.1.0 at level core`."""
    version = report.executor.get("version")
    return f"{report.name}{f' {version}' if version else ''} at level {report.level}"


def about(report: Report) -> str:
    """Describe how the report was made: suite, distribution, environment, seed and time."""
    parts = [f"suite {report.suite.get('version', '?')} ({str(report.suite.get('hash', '?'))[:12]})"]
    parts += [message] if (message := distribution(report)) else []
    parts += [f"{key} {value}" for key, value in report.environment.items() if isinstance(value, (str, int, float)) and value != ""]
    parts += [_seeds(report), duration(report.seconds), *([report.created] if report.created else [])]
    return ", ".join(parts)


def distribution(report: Report) -> str:
    """Format the distribution: `dovetail-torch-exec 0.1.0`; empty for an executor defined in the process."""
    return " ".join(str(report.executor[key]) for key in ("distribution", "distribution_version") if report.executor.get(key))


def operations(report: Report) -> str:
    """Summarize `ran 12 operations, refused 3, never saw 100`; empty for runs of whole-executor checks alone."""
    counts = report.operations
    return f"ran {counts['ran']:,} operations, refused {counts['refused']:,}, never saw {counts['never seen']:,}" if any(counts.values()) else ""


def number(n: int) -> str:
    """Format a count: `1 row`, `1,200 rows`."""
    return f"{n:,} row{'s' * (n != 1)}"


def duration(seconds: float) -> str:
    """Format a duration: `42 s` or `3 min 5 s`."""
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def notices(report: Report) -> Iterator[str]:
    """Yield what a reader of the counts has to know before believing them."""
    if not any(row.ran for row in report):
        yield f"{report.name} ran no sample, so this proves nothing about its results."
    new = [row for row in report if row.new]
    if new:
        failing = sum(STATES[row.state][0] for row in new)
        yield f"New in this version of the suite, and not counted yet: {number(len(new))}, of which {failing:,} fail."
    if report.source and report.source.get("clean") is False:
        yield "The executor's repository had uncommitted changes."


def one_way(report: Report) -> list[str]:
    """List the conditions of the executor's own code that went one way only, each once, with the operation."""
    return [f"{name_of(operation)}, {condition}" for operation, conditions in report.one_way.items() for condition in conditions]


def in_full(row: Row) -> str:
    """Name a row in full: `torch.softmax, float16, cpu: backward`."""
    place = ", ".join(part for part in (row.operation or WHOLE, row.dtype, row.device) if part)
    return f"{place}: {row.check}"


def unusual(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that a reader wants to see: failures first, then what is expected to fail or waived."""
    return sorted((row for row in rows if row.state not in USUAL), key=lambda row: (not row.failed, list(LETTERS).index(row.state)))


def _seeds(report: Report) -> str:
    return f"seed {report.seed}" if report.seeds == 1 else f"seeds {report.seed} to {report.seed + report.seeds - 1}"
