"""A report on a terminal: counts, a matrix of operations and dtypes, and what failed.  It reads the same through a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from dovetail_conformance.render import parts
from dovetail_conformance.report import STATES, Report, Row, matrix, together

MOST = 20  # failures that are shown in full unless verbose
FEW = 8  # conditions that went one way only, unless verbose
NAMES = 28  # columns that the names of operations get at least


def show(console: Console, report: Report, *, verbose: bool = False) -> None:
    """Print a report; `verbose` prints every operation, every sentence and the scripts of what failed."""
    for line in lines(report, console.width, verbose=verbose):
        console.print(line, soft_wrap=True, highlight=False)


def lines(report: Report, width: int, *, verbose: bool = False) -> Iterator[Text]:
    """Yield the lines of a report, none longer than `width` but scripts."""
    yield Text(f"{parts.title(report)}: {parts.score(report)} passed", style="bold")
    yield from _wrapped(parts.about(report), width, style="dim")
    yield from _counts(report, width)
    if message := parts.operations(report):
        yield from _wrapped(message, width)
    for message in parts.notices(report):
        yield from _wrapped(message, width, style="yellow")
    yield from _matrices(report, width, verbose)
    yield from _failures(report, width, verbose)
    yield from _groups(report, width, verbose)
    yield from _one_way(report, width, verbose)


def _counts(report: Report, width: int) -> Iterator[Text]:
    """Yield `12 pass  3 fail`, as many to a line as fit."""
    line = Text()
    for state, n in report.counts.items():
        part = Text(f"{n:,} {state}", style=parts.LETTERS[state][1])
        if line and len(line) + 2 + len(part) > width:
            yield line
            line = Text()
        line.append("  " if line else "").append_text(part)
    yield line if line else Text("no rows")


def _matrices(report: Report, width: int, verbose: bool) -> Iterator[Text]:
    """Yield the matrix, or several below each other where its columns do not fit beside each other."""
    shown = {row.operation for row in (report if verbose else parts.unusual(report))}
    operations = {operation: cells for operation, cells in matrix(report).items() if operation in shown}
    if not operations:
        return
    longest = max(len(parts.name_of(operation)) for operation in operations)
    names = min(longest, max(NAMES, width - sum(map(_wide, _dtypes(operations)))))
    for block in _blocks(_dtypes(operations), width - names):
        rows = {operation: cells for operation, cells in operations.items() if any(cells.get(dtype) for dtype in block)}
        yield Text()
        yield Text(" " * names + "".join(parts.short(dtype).rjust(_wide(dtype)) for dtype in block), style="bold")
        for operation in sorted(rows):
            yield _row(operation, [rows[operation].get(dtype, []) for dtype in block], names, list(map(_wide, block)))
    yield from _legend(operations, width)


def _dtypes(operations: dict[str, dict[str, list[Row]]]) -> list[str]:
    return parts.sorted_dtypes(row for cells in operations.values() for rows in cells.values() for row in rows)


def _wide(dtype: str) -> int:
    return len(parts.short(dtype)) + 1


def _blocks(dtypes: list[str], room: int) -> Iterator[list[str]]:
    """Yield dtypes whose columns together are no wider than `room`."""
    block: list[str] = []
    for dtype in dtypes:
        if block and sum(map(_wide, [*block, dtype])) > room:
            yield block
            block = []
        block.append(dtype)
    yield block


def _row(operation: str, cells: Sequence[list[Row]], names: int, wide: list[int]) -> Text:
    name = parts.name_of(operation)
    line = Text(name if len(name) <= names else f"{name[: names - 2]}..".ljust(names))
    line.pad_right(names - len(line))
    for rows, columns in zip(cells, wide):
        letter, colour = parts.LETTERS[together(rows)] if rows else (" ", "")
        line.append(letter.rjust(columns), style=colour)
    line.rstrip()
    return line


def _legend(operations: dict[str, dict[str, list[Row]]], width: int) -> Iterator[Text]:
    there = {together(rows) for cells in operations.values() for rows in cells.values()}
    yield Text()
    yield from _wrapped("  ".join(f"{parts.LETTERS[state][0]} {state}" for state in STATES if state in there), width, style="dim")


def _failures(report: Report, width: int, verbose: bool) -> Iterator[Text]:
    """Yield the failures, each with its sentence; the rows that do not count yet come last and say so."""
    failing = [row for row in parts.unusual(report) if STATES[row.state][0]]
    for row in failing if verbose else failing[:MOST]:
        yield Text()
        heading = f"{row.state}  {parts.in_full(row)}{' (new, does not count yet)' if row.new else ''}"
        first, *more = textwrap.wrap(heading, width, subsequent_indent="    ", break_on_hyphens=False)
        head = Text(first, style="bold")
        head.stylize(parts.LETTERS[row.state][1], 0, len(row.state))
        yield from (head, *(Text(line, style="bold") for line in more))
        yield from _wrapped(row.message, width, "    ")
        if verbose and row.replay:
            yield from (Text(f"    {line}".rstrip(), style="dim") for line in row.replay.splitlines())
    if not verbose and len(failing) > MOST:
        yield Text(f"\nand {len(failing) - MOST:,} more", style="bold")
    if not verbose and any(row.replay for row in failing):
        yield Text()
        yield from _wrapped("-v prints all of it, with a script for each failure; --html FILE makes a page of it.", width, style="dim")


def _groups(report: Report, width: int, verbose: bool) -> Iterator[Text]:
    """Yield rows that share a state and a reason together."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in report:
        if not STATES[row.state][0] and (row.state not in parts.USUAL or (verbose and row.state != "pass")):
            groups.setdefault((row.state, row.reason or row.message), []).append(row)
    order = list(STATES)
    for (state, why), rows in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), -len(item[1]), item[0][1])):
        yield Text()
        yield Text(f"{state}  ", style=parts.LETTERS[state][1]).append(parts.number(len(rows)), style="bold")
        yield from _wrapped(why or "no reason given", width, "    ")
        yield from _wrapped(_named(rows, verbose), width, "    ", style="dim")


def _one_way(report: Report, width: int, verbose: bool) -> Iterator[Text]:
    """Yield the conditions of the executor's own code that went one way only."""
    conditions = parts.one_way(report)
    if not conditions:
        return
    yield Text()
    yield Text(f"{len(conditions):,} condition{'s' * (len(conditions) != 1)}", style="bold").append(
        " of its own code went one way only:", style="dim"
    )
    for condition in conditions if verbose else conditions[:FEW]:
        yield from _wrapped(condition, width, "    ", style="dim")
    if not verbose and len(conditions) > FEW:
        yield Text(f"    and {len(conditions) - FEW:,} more: -v prints them", style="dim")


def _named(rows: list[Row], verbose: bool) -> str:
    names = list(dict.fromkeys(parts.name_of(row.operation) for row in rows))
    return ", ".join(names if verbose else names[:8]) + ("" if verbose or len(names) <= 8 else f" and {len(names) - 8} more")


def _wrapped(message: str, width: int, indent: str = "", style: str = "") -> Iterator[Text]:
    """Yield a text in lines that fit; its own line breaks stay."""
    for paragraph in message.splitlines():
        for line in textwrap.wrap(paragraph, max(width - len(indent), 20), break_on_hyphens=False):
            yield Text(indent + line, style=style)
