"""A report as Markdown and on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from machine import span, written
from rich.console import Console
from rich.table import Table
from rows import STATES, Report, Row, summary
from subjects import BASELINE

MIB = 2**20
TITLE = "Dovetail beside its peers"


def warm(row: Row) -> str:
    """Format the median, the spread between the quartiles and the speed relative to eager."""
    message = f"{span(row.median)} ±{row.spread / 2:.0%}"
    return message if row.subject == BASELINE or row.speed is None else f"{message} (**{row.speed:.2f}x**)"


def first(row: Row) -> str:
    return span(row.first)


def peak(row: Row) -> str:
    return "-" if row.peak is None else f"{row.peak / MIB:.1f} MiB"


# heading: (formatter of a cell, caption)
TABLES: dict[str, tuple[Callable[[Row], str], str]] = {
    "A warm call": (
        warm,
        "The median over the rounds, half of the distance between the quartiles, and how many calls it makes while eager makes one.",
    ),
    "The first call": (first, "In a new process and with empty caches, compiling included, importing not; the median where there were several."),
    "Memory": (peak, "The most memory that a call holds at once of what it allocates, pooled blocks included."),
}


def cells(report: Report, cell: Callable[[Row], str]) -> Iterator[list[str]]:
    """Yield a row of text for each workload: its title, and a cell for each subject."""
    for name in report.workloads:
        rows = [report.row(name, subject) for subject in report.measured]
        yield [report.titles[name], *("" if row is None else cell(row) if row.ok else row.state for row in rows)]


def reasons(report: Report) -> list[str]:
    """Return a sentence for each missing subject, and for each row without times."""
    message = [f"{name} is not in the tables: {why}." for name, why in report.absent.items()]
    return message + [
        f"{row.subject}, {report.titles[row.workload]}: {row.state}, {STATES[row.state]}: {row.message}"
        for name in report.workloads
        for row in report.rows
        if row.workload == name and not row.ok and row.subject in report.measured
    ]


def markdown(report: Report) -> str:
    """Format the whole report as one page."""
    lines = [f"# {TITLE}", "", *(f"- {each}" for each in summary(report)), "", written(report.about), "", how(report), ""]
    for heading, (cell, shows) in TABLES.items():
        lines += [f"## {heading}", "", shows, "", f"| {' | '.join(['', *report.measured])} |", "|---|" + "---:|" * len(report.measured)]
        lines += [f"| {' | '.join(row)} |" for row in cells(report, cell)] + [""]
    if message := reasons(report):
        lines += ["## Not measured", "", *(f"- {each}" for each in message), ""]
    return "\n".join(lines)


def how(report: Report) -> str:
    s = report.settings
    return (
        "Each subject has a process of its own, and is checked against eager before it is timed; they take turns: "
        f"{s['rounds']} rounds of {span(s['a_round'])} or one call."
    )


def show(report: Report, console: Console) -> None:
    """Print the tables, what was not measured, and the summary."""
    for heading, (cell, _) in TABLES.items():
        table = Table(title=heading, title_justify="left")
        table.add_column("")
        for name in report.measured:
            table.add_column(name, justify="right")
        for row in cells(report, cell):
            table.add_row(*(text.replace("**", "") for text in row))
        console.print(table)
    for each in reasons(report):
        console.print(each, style="dim", markup=False)
    for each in summary(report):
        console.print(str(each), style="bold", markup=False)
