"""What the ranks of a process group send for one call: each collective of the programs that run, its bytes, and what runs beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from dovetail.langs.torch import bytes_sent
from dovetail.trace import BoundSymbol, Trace
from dovetail.trace.aliases import is_view
from dovetail.trace.passes.overlap import WAITS, starts
from dovetail.trace.passes.split import bytes_of


@dataclass(frozen=True)
class CollectiveRow:
    """One collective.

    Attributes:
        program: the program's name, such as "backward".
        results: the names of its results.
        operation: its id.
        group: the name of the process group.
        ranks: how many ranks that has.
        sent: the bytes that one rank sends, as a ring of ranks sends them; where sizes are dynamic, for those of the first call.
        beside: how many lines compute between its start and its wait, so that they run while it does.
        where: the user's line.
    """

    program: str
    results: tuple[str, ...]
    operation: str
    group: str
    ranks: int
    sent: int
    beside: int
    where: str | None

    @property
    def overlapped(self) -> bool:
        """Whether computation runs while the collective does."""
        return self.beside > 0

    @property
    def overlap(self) -> str:
        """What runs beside it, in words."""
        return f"beside {self.beside} line{'s' * (self.beside != 1)}" if self.overlapped else "not overlapped"

    def __str__(self) -> str:
        return f"{', '.join(self.results)} = {self.operation} over {self.group!r} of {self.ranks}: {self.sent:,} bytes, {self.overlap}"


def collective_rows(trace: Trace) -> Iterator[CollectiveRow]:
    """Yield a row for each collective of a program that runs."""
    for start, line in enumerate(trace.lines):
        if starts(line):
            results = set(line.writes)
            wait = next((i for i, other in enumerate(trace.lines) if other.symbol in WAITS and not results.isdisjoint(other.reads)), start)
            sent = bytes_sent(line.symbol.name, max([sum(map(bytes_of, line.reads)), sum(map(bytes_of, line.writes))]), line.kwargs["ranks"])
            beside = sum(map(_computes, trace.lines[start + 1 : wait]))
            names = tuple([p.name for p in line.writes])
            yield CollectiveRow(trace.name, names, line.symbol.id, line.kwargs["group"], line.kwargs["ranks"], sent, beside, line.where)


def _computes(line: BoundSymbol) -> bool:
    """Return whether a line computes: it starts no collective, waits for none, and is no view."""
    return line.implementation is not None and not (starts(line) or line.symbol in WAITS or is_view(line))


def _total(rows: Sequence[CollectiveRow]) -> str:
    total, beside = sum([row.sent for row in rows]), sum([row.sent for row in rows if row.overlapped])
    return f"communication: a rank sends {total:,} bytes for a call, {beside:,} of them beside computation"


def communication_html(rows: Sequence[CollectiveRow]) -> str:
    """Return the table of `communication_text` as HTML, empty where nothing is sent."""
    if not rows:
        return ""
    cells = [(r.program, ", ".join(r.results), r.operation, f"{r.group} of {r.ranks}", f"{r.sent:,}", r.overlap, r.where or "") for r in rows]
    head = "".join(f"<th>{name}</th>" for name in ("program", "results", "collective", "group", "bytes sent", "overlap", "called at"))
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    return f'<h2>{_total(rows)}</h2><table id="communication"><tr>{head}</tr>{body}</table>'


def communication_text(rows: Iterable[CollectiveRow]) -> Iterator[str]:
    """Yield the lines of a table: what a call sends, and each collective."""
    rows = list(rows)
    if not rows:
        return
    yield _total(rows)
    for program in dict.fromkeys([row.program for row in rows]):
        yield from (f"  {program}: {row}" for row in rows if row.program == program)
    yield ""
