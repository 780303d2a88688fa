"""Shared by the scripts that measure Dovetail alone: a clock, a table with a title, output files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import machine
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console(highlight=False)


def seconds(fn: Callable[[], object], times: int = 1) -> float:
    """Return the seconds of one call, over `times` calls."""
    again = range(times)
    began = time.perf_counter()
    for _ in again:
        fn()
    return (time.perf_counter() - began) / times


def progress(steps: Iterable[Any], what: str) -> Iterable[Any]:
    """Yield `steps`, with a bar on a terminal."""
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield from bar.track(steps)


@dataclass
class Costs:
    """A table with a title and a sentence on how it was measured."""

    name: str
    title: str
    how: str
    headings: Sequence[str]
    rows: list[Sequence[str]]
    figures: dict[str, Any]  # the same numbers, unrounded, in seconds

    def write(self, folder: Path) -> None:
        """Print the table, and write it to `folder` as JSON and as Markdown."""
        about = {"date": machine.today(), "commit": machine.commit(), **machine.machine()}
        self.show(about)
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"benchmark": self.title, "how": self.how, **about, "figures": self.figures}
        (folder / f"{self.name}.json").write_text(json.dumps(kept, indent=2) + "\n")
        (folder / f"{self.name}.md").write_text(self.markdown(about))

    def show(self, about: dict[str, Any]) -> None:
        table = Table()
        for i, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if i else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        console.print(f"\n[bold]{self.title}[/bold]", table, f"[dim]{self.how}\n{machine.written(about)}[/dim]", sep="\n")

    def markdown(self, about: dict[str, Any]) -> str:
        lines = [f"# {self.title}", "", self.how, "", machine.written(about), ""]
        lines += [f"| {' | '.join(self.headings)} |", "|---|" + "---:|" * (len(self.headings) - 1)]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, ""])


def script(measure: Callable[[], Iterable[Costs]]) -> Callable[[], None]:
    """Return `measure` as a command that writes its tables to out/, to --out FOLDER, or with --keep to benchmarks/results."""

    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    @click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out"), show_default=True, help="Where to write.")
    @click.option("--keep", is_flag=True, help="Write to benchmarks/results.")
    @wraps(measure)
    def command(out: Path, keep: bool) -> None:
        for each in measure():
            each.write(machine.KEPT if keep else out)

    return command
