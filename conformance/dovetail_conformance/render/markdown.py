"""Reports as Markdown, for the summary of a CI run or a page of documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail_conformance.render import parts
from dovetail_conformance.report import STATES, Report, Row, matrix, together

MOST = 50  # rows of a table: CI services cut long summaries off


def markdown(reports: Sequence[Report]) -> str:
    """Render a table of the executors, and for each what failed, what is waived, and the matrix of its operations."""
    return "\n".join(["# Conformance", "", *_overview(reports), *(line for report in reports for line in _report(report)), ""])


def _overview(reports: Sequence[Report]) -> Iterator[str]:
    states = [state for state in STATES if any(state in report.counts for report in reports)]
    yield from _head("executor", "level", "passed", *states)
    for report in reports:
        version = str(report.executor.get("version") or "")
        counts = (f"{report.counts.get(state, 0):,}" for state in states)
        yield _line(f"{report.name} {version}".strip(), report.level, parts.score(report), *counts)


def _report(report: Report) -> Iterator[str]:
    yield from ("", f"## {escape(parts.title(report))}", "", escape(parts.about(report)))
    for message in parts.notices(report):
        yield from ("", f"**{escape(message)}**")
    failing = [row for row in parts.unusual(report) if STATES[row.state][0]]
    known = [row for row in parts.unusual(report) if not STATES[row.state][0]]
    yield from _table(f"{len(failing):,} failed" if failing else "", failing)
    yield from _table(f"{len(known):,} waived or expected to fail" if known else "", known)
    conditions = parts.one_way(report)
    if conditions:
        yield from (
            "",
            f"{len(conditions):,} conditions of its own code went one way only:",
            "",
            *(f"- {escape(each)}" for each in conditions[:MOST]),
        )
    yield from _matrix(report)


def _table(heading: str, rows: list[Row]) -> Iterator[str]:
    if not rows:
        return
    yield from ("", f"### {heading}", "")
    yield from _head("operation", "dtype", "device", "check", "state", "")
    for row in rows[:MOST]:
        state = f"{row.state} (new, does not count yet)" if row.new else row.state
        yield _line(row.operation or parts.WHOLE, row.dtype, row.device, row.check, state, row.reason or row.message)
    if len(rows) > MOST:
        yield from ("", f"and {len(rows) - MOST:,} more")


def _matrix(report: Report) -> Iterator[str]:
    dtypes = parts.sorted_dtypes(report)
    legend = ", ".join(f"{parts.LETTERS[state][0]} {state}" for state in STATES if state in report.counts)
    yield from ("", "<details><summary>Operations and dtypes</summary>", "", escape(legend), "")
    yield from _head("operation", *map(parts.short, dtypes))
    for operation, cells in sorted(matrix(report).items()):
        yield _line(parts.name_of(operation), *(parts.LETTERS[together(cells[dtype])][0] if dtype in cells else "" for dtype in dtypes))
    yield from ("", "</details>")


def _head(*cells: str) -> Iterator[str]:
    yield _line(*cells)
    yield f"|{'---|' * len(cells)}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|~#"} | {"&": "&amp;", "\n": " ", "\r": " "})


def escape(text: str) -> str:
    """Escape text for Markdown, on one line."""
    return text.translate(_SPECIAL)
