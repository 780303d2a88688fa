"""Eager, torch.compile, lightning-thunder and Dovetail on the same work, side by side: JSON, tables, pictures.

    python benchmarks/bench.py [--quick] [--only 'gpt*'] [--subjects eager,dovetail] [--plugin plugins/llvm_exec] [--continue]

docs/benchmarks.md says how it measures, and how to read what it writes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import machine
import measuring
import plots
import subjects
import tables
import torch
from processes import Started
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rows import NAME, Report, Row
from workloads import SUITE, Workload

console = Console(highlight=False)
SAME = ("cpu", "cores", "threads", "torch", "python", "commit", "executors")  # what rows of one report have in common

Folder = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="A part of the workloads in fewer rounds: some minutes on two cores.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only workloads whose name matches; may be repeated.")
@click.option("--subjects", "names", default=",".join(subjects.NAMES), show_default=True, help="dovetail:llvm+torch names its executors.")
@click.option("--plugin", "plugins", multiple=True, type=click.Path(exists=True), help="An executor's folder, not installed; may be repeated.")
@click.option("--threads", type=click.IntRange(1), help="Threads.  [default: torch's]")
@click.option("--rounds", type=click.IntRange(1), help="Number of rounds, instead of the default.")
@click.option("--timeout", type=float, default=300.0, show_default=True, help="Seconds within which a process has to answer.")
@click.option("--continue", "resume", is_flag=True, help="Keep existing rows, and measure missing ones.")
@click.option("--out", type=Folder, default=Path("out"), show_default=True, help="Output folder.")
@click.option("--keep", is_flag=True, help="Write to benchmarks/results.")
@click.option("--list", "listing", is_flag=True, help="List the workloads with the minutes that they would take, and stop.")
def main(
    quick: bool,
    only: tuple[str, ...],
    names: str,
    plugins: tuple[str, ...],
    threads: int | None,
    rounds: int | None,
    timeout: float,
    resume: bool,
    out: Path,
    keep: bool,
    listing: bool,
) -> None:
    """Compare eager PyTorch, torch.compile, lightning-thunder and Dovetail on the same workloads."""
    folder = machine.KEPT if keep else out
    effort = measuring.QUICK if quick else measuring.FULL
    effort = effort if rounds is None else measuring.Effort(rounds, effort.a_round, effort.warm, effort.firsts)
    wanted = compared(names)
    try:
        workloads = SUITE.chosen(only, quick)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from None
    if listing:
        return plan(workloads, wanted, effort)
    start = Started(threads or 0, plugins, timeout)
    report = empty_report(wanted, start, effort)
    if resume:
        report = continued(report, folder / f"{NAME}.json")
    run(report, workloads, start, effort, folder)
    tables.show(report, console)
    written = [folder / f"{NAME}.json", folder / f"{NAME}.md", *plots.draw(report, folder)]
    console.print("Written:", ", ".join(str(path) for path in written), soft_wrap=True)


def compared(names: str) -> list[str]:
    """Return the subjects that a list names, the baseline always first."""
    listed = [name for name in dict.fromkeys(names.replace(" ", "").split(",")) if name]
    try:
        for name in listed:
            subjects.subject(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--subjects") from None
    return [subjects.BASELINE, *(name for name in listed if name != subjects.BASELINE)]


def plan(workloads: Sequence[Workload], names: Sequence[str], effort: measuring.Effort) -> None:
    """Print what would be measured, and how long that takes."""
    there = [name for name in names if not subjects.absent(name)]
    took = {w.name: measuring.estimate(w, there, effort) / 60 for w in workloads}
    for w in workloads:
        console.print(f"{w.name:24} {took[w.name]:5.1f} min  {w.title}", markup=False, soft_wrap=True)
    console.print(f"{len(workloads)} workloads, about {sum(took.values()):.0f} minutes")


def empty_report(names: list[str], start: Started, effort: measuring.Effort) -> Report:
    """Return a report without rows: date, machine, versions and settings."""
    if start.threads:
        torch.set_num_threads(start.threads)
    os.environ |= start.environment  # so that the executors are those of the workers
    absent = {name: why for name in names if (why := subjects.absent(name))}
    versions = {name: subjects.version(name) for name in names if name not in absent and name.partition(":")[0] in ("dovetail", "lightning-thunder")}
    about = {"date": machine.today(), "commit": machine.commit(), **machine.machine(), **versions, "executors": subjects.executors()}
    settings = {"rounds": effort.rounds, "a_round": effort.a_round, "firsts": effort.firsts, "timeout": start.timeout}
    return Report(about, settings, {name: w.title for name, w in SUITE.workloads.items()}, names, absent)


def continued(report: Report, file: Path) -> Report:
    """Return `report` with the rows of an earlier run of the same code on the same machine."""
    if not file.is_file():
        return report
    try:
        before = Report.load(file)
    except ValueError as error:
        raise click.ClickException(f"{error}; run without --continue to start again") from None
    other = [key for key in SAME if before.about.get(key) != report.about.get(key)]
    if other or before.settings != report.settings:
        differs = ", ".join(f"{key} {before.about.get(key)}" for key in other) or "other settings"
        raise click.ClickException(f"{file} was measured with {differs}; run without --continue to start again")
    report.subjects = list(dict.fromkeys([*before.subjects, *report.subjects]))
    report.absent = before.absent | report.absent
    report.rows = before.rows
    return report


def run(report: Report, workloads: Sequence[Workload], start: measuring.Start, effort: measuring.Effort, folder: Path) -> None:
    """Measure the missing rows, and save the report after each workload."""
    report.save(folder)
    with bar(len(workloads)) as tell:
        for workload in workloads:
            missing = [name for name in report.measured if report.row(workload.name, name) is None]
            if missing:
                compared_names = [subjects.BASELINE, *(name for name in missing if name != subjects.BASELINE)]
                rows = measuring.Measurement(workload.name, compared_names, start, effort, lambda message, w=workload: tell(w.title, message)).run()
                report.add(rows)
                report.save(folder)
                (folder / f"{NAME}.md").write_text(tables.markdown(report))
                announce(workload, rows)
            tell(workload.title, "done", 1)


def announce(workload: Workload, rows: Sequence[Row]) -> None:
    """Print a line on a finished workload."""
    timed = [f"{row.subject} {tables.warm(row).replace('**', '')}, first {tables.first(row)}" for row in rows if row.ok]
    others = [f"{row.subject} {row.state}" for row in rows if not row.ok]
    console.print(f"{workload.title}: {'; '.join(timed + others)}", markup=False, soft_wrap=True)


@contextmanager
def bar(steps: int) -> Any:
    """Yield tell(title, message, done), which moves a bar on a terminal and does nothing elsewhere."""
    columns = (BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=steps)
        yield lambda title, message, done=0: progress.update(task, advance=done, description=f"{title}: {message}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes end with this one
    main()
