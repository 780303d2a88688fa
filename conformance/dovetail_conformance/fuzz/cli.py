"""`dovetail fuzz`: random programs at real sizes."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dovetail.errors import DovetailError
from dovetail_conformance.cli import HELP, OUT, plain_errors

KINDS = ("float32", "float64", "bfloat16", "float16", "complex64", "int64", "int32", "int16", "int8", "uint8", "bool")


@click.command("fuzz", context_settings=HELP, short_help="Run random programs of real sizes, and compare with eager.")
@click.argument("name", metavar="EXECUTOR")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="How long.  [default: 10, without --programs]")
@click.option("--programs", type=click.IntRange(1), help="How many programs.")
@click.option("--seed", type=click.IntRange(0), help="Decides every program and every value; printed.  [default: a new one]")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="Number of the first program: with --seed, runs one again.")
@click.option("--executors", metavar="NAMES", help="Executors behind the one that is tested, by commas: llvm,onednn.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="Threads of torch.")
@click.option("--repeats", type=click.IntRange(0), default=1, show_default=True, help="Calls of each program with the same data again, for races.")
@click.option("--dtype", "dtypes", type=click.Choice(KINDS), multiple=True, help="Only programs that begin with this dtype.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), default="fuzz-findings", show_default=True, help="Folder for scripts.")
@click.option("--json", "summary", type=OUT, metavar="FILE", help="Write counts and findings as data.")
@click.option("-x", "--fail-fast", is_flag=True, help="End with the first finding.")
@click.option("--in-process", is_flag=True, help="Run in this process: quicker to start, but a crash ends the run.")
def fuzz(name: str, minutes: float | None, programs: int | None, seed: int | None, first: int, executors: str | None, **rest: Any) -> None:
    """Run random programs with EXECUTOR and compare results, written inputs and gradients with eager PyTorch in float64.

    Sizes are those that users have, up to 3 million elements; layouts, dtypes and threads vary, and each program is called several times with
    new data.  What is wrong is shrunk to a script of few lines, which ends with 1 while it is wrong.  Exit status: 0 if nothing is wrong,
    1 if something is, or if EXECUTOR ran nothing; 2 for a wrong call.
    """
    from dovetail_conformance.fuzz.campaign import Workers, campaign, job_of  # they import torch, and the help of `dovetail` imports this file

    seed = secrets.randbelow(10**6) if seed is None else seed
    minutes = 10.0 if minutes is None and programs is None else minutes
    order = [name, *(word.strip() for word in (executors or "").split(",") if word.strip() and word.strip() != name)]
    setup = {"executors": order, "seed": seed, "dtypes": rest["dtypes"], "threads": rest["threads"], "repeats": rest["repeats"]}
    click.echo(f"seed {seed}")
    with plain_errors(errors=(DovetailError, ValueError)):
        job = job_of(**setup)
    workers = None if rest["in_process"] else Workers(setup)
    try:
        with _bar(name, rest["save"], seed, minutes, programs) as report:
            done = campaign(job, programs, minutes, first, report, workers, rest["fail_fast"])
    finally:
        if workers is not None:
            workers.close()
    _finish(done, rest["summary"])


def _finish(done: Any, summary: Path | None) -> None:
    """Print the counts and end with the status of the run."""
    if summary is not None:
        summary.write_text(json.dumps(done.summary(), indent=1) + "\n", encoding="utf-8")
    c = done.counts
    click.echo(f"{c.programs:,} programs, {c.operations:,} operations, {c.calls:,} calls, {c.gradients:,} gradients in {c.seconds:,.0f} seconds")
    click.echo(f"{c.ran:,} ran on {done.job.setup.names[0]}, {c.refused:,} were refused; {len(done.findings)} findings, {done.duplicates} more alike")
    if not c.ran:
        click.echo(f"{done.job.setup.names[0]} ran nothing, so nothing is known of it.")
    sys.exit(0 if done.passed else 1)


@contextmanager
def _bar(name: str, folder: Path, seed: int, minutes: float | None, programs: int | None) -> Iterator[Callable[[Any, Any], None]]:
    """Report findings as they come, below a bar where there is a terminal."""
    from dovetail_conformance.fuzz.campaign import save

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[programs]:,} programs"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=programs or (minutes or 0) * 60, programs=0)

        def report(done: Any, finding: dict[str, Any] | None) -> None:
            if finding is not None:
                path = save(finding, folder, seed)
                console.print(f"{finding['message']}\n{finding['program']}\n{path}\n", markup=False, highlight=False)
            wrong = f"{name}, {len(done.findings)} wrong" if done.findings else name
            reached = done.counts.programs if programs else done.counts.seconds
            bar.update(task, completed=reached, description=wrong, programs=done.counts.programs)

        yield report
