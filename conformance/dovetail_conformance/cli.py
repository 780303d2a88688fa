"""`dovetail conformance`: test executors with the suite, and print, compare and check reports."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import dovetail_conformance
from dovetail.errors import DovetailError
from dovetail_conformance import compare
from dovetail_conformance.render import parts, terminal
from dovetail_conformance.render.badge import badge
from dovetail_conformance.render.html import html
from dovetail_conformance.render.junit import junit
from dovetail_conformance.render.markdown import markdown
from dovetail_conformance.report import Report, Row

LEVELS = ("smoke", "quick", "core", "full", "stress")
MOST = 20  # changes of each kind that `diff` prints
HELP = {"help_option_names": ["-h", "--help"]}
OUT = click.Path(dir_okay=False, writable=True, path_type=Path)
IN = click.Path(exists=True, dir_okay=False, path_type=Path)
FORMS: dict[str, tuple[str, Callable[[Sequence[Report]], str]]] = {  # option: (what it writes, how)
    "json": ("the report as data, for the other commands", compare.combined),
    "html": ("one page for a browser, that needs nothing else", html),
    "markdown": ("Markdown, for the summary of a CI run", markdown),
    "junit": ("JUnit XML, for a CI service", junit),
    "badge": ("the JSON of a badge of shields.io; of one executor", lambda reports: badge(reports[0])),
}


class NamesOrCommands(click.Group):
    """A group whose first word may also be the name of an executor: then it is the command `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["NAME... [OPTIONS]", "|", "COMMAND ..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        run.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def written(command: Callable) -> Callable:
    """Add an option to `command` for each form in which a report can be written."""
    for name, (what, _) in reversed(FORMS.items()):
        command = click.option(f"--{name}", f"{name}_file", type=OUT, callback=_into, metavar="FILE", help=f"Write {what}.")(command)
    return command


def _into(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Check that a file can be written later: a long run must not end in a folder that is not there."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}", context, option)
    return path


@contextmanager
def plain_errors(kind: type[click.ClickException] = click.UsageError, errors: tuple[type[Exception], ...] = (ValueError, OSError)) -> Iterator[None]:
    """Turn errors that the user can correct into messages without a traceback."""
    try:
        yield
    except errors as error:
        raise kind(str(error)) from error


@click.group("conformance", cls=NamesOrCommands, context_settings=HELP, short_help="Test executors with the conformance suite, and read its reports.")
def conformance() -> None:
    """Test executors with the conformance suite, and print, compare and check reports.

    NAME is an executor that is installed, or file.py:name or package.module:name of one. `dovetail conformance NAME` exits with 1 where a
    check fails, with 2 for invalid arguments, else with 0.
    """


@conformance.command("run", context_settings=HELP)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--level", type=click.Choice(LEVELS), default="core", show_default=True, help="How much is tested.")
@click.option("-k", "operations", multiple=True, metavar="PATTERN", help="Only operations with this in their name, or that match: 'torch.*max'.")
@click.option("--check", "checks", multiple=True, metavar="NAME", help="Only this check.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="Only this dtype.")
@click.option("--device", "devices", multiple=True, metavar="KIND", help="Only this kind of device.")
@click.option(
    "-n",
    "processes",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="PROCESSES",
    help="Worker processes; a crash becomes a failing row.",
)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True, help="Time limit of a task, with -n.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of every random number: values, variants, programs.")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="Run with so many seeds, from --seed on: a check that fails with some of them is flaky.",
)
@click.option("-x", "--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option(
    "--expectations", type=OUT, callback=_into, metavar="FILE", help="Known failures and their reasons; conformance.toml beside the executor's code."
)
@click.option("--update-expectations", is_flag=True, help="Add failures to it, and remove entries that pass; edit the reasons before you commit it.")
@click.option("--lock", type=OUT, metavar="FILE", help="Sample counts, which may only grow: conformance.lock.")
@click.option("--update-lock", is_flag=True, help="Write the lock file again.")
@click.option("--mutants", is_flag=True, help="Inject faults into the plugin, one at a time, and report which of them a check notices.")
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="Number of faults, with --mutants.")
@written
@click.option("-v", "--verbose", is_flag=True, help="Print every operation and every reason, and a script for each failure.")
def run(names: tuple[str, ...], verbose: bool, mutants: bool, count: int, **options: Any) -> None:
    """Run the suite with one executor after another; the same as without the word `run`."""
    names = tuple(dict.fromkeys(names))
    if mutants:
        for name in names:
            _mutate(name, count, options)
        return
    files = {name: options.pop(f"{name}_file") for name in FORMS}
    if files["badge"] and len(names) > 1:
        raise click.UsageError("a badge is of one executor; name one, or leave --badge out")
    known = options["expectations"]
    if known is not None and not known.is_file() and not options["update_expectations"]:
        raise click.UsageError(f"{known} does not exist; create it with --update-expectations")
    how = {key: value if value != () else None for key, value in options.items()}
    reports = [_checked(name, how) for name in names]
    for report in reports:
        _show(report, verbose)
    _write(reports, files)
    sys.exit(1 if any(report.failures for report in reports) else 0)


def _mutate(name: str, count: int, options: dict[str, Any]) -> None:
    """Print the verdict on each mutant of a plugin, then a summary; write the report to the file of --json."""
    from dovetail_conformance.mutants import campaign  # lazily: it reads every OpInfo

    with plain_errors(errors=(DovetailError, ValueError)):
        verdicts = []
        for verdict in campaign.campaign(name, level=options["level"], count=count, seed=options["seed"], operations=options["operations"] or None):
            verdicts.append(verdict)
            noticed = f"noticed by {verdict.check}" if verdict.check else "survived"
            click.echo(f"{verdict.operation}: {verdict.family}, {verdict.name}: {noticed} ({verdict.seconds:.1f} s)")
    click.echo()
    for line in campaign.table(verdicts):
        click.echo(line)
    if options["json_file"] is not None:
        campaign.save(verdicts, options["json_file"], options["level"])


def _checked(name: str, how: dict[str, Any]) -> Report:
    check = dovetail_conformance.check
    gc.freeze()  # collections, of which some checks make many, leave out what was imported
    with plain_errors(errors=(DovetailError, ValueError)), _bar(name) as progress:
        report = check(name, progress=progress, **how)
    if not report.rows:
        raise click.UsageError(f"nothing was checked: --check, --dtype, --device and -k together match no check of {name}")
    return report


@contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int, Row | None], None] | None]:
    """Show the progress of `check` as a bar where there is a terminal, not at all elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task, failed = bar.add_task(name, total=None), 0

        def progress(done: int, total: int, row: Row | None) -> None:
            nonlocal failed
            if row is not None and row.failed:
                failed += 1
                console.print(f"{row.state}  {parts.in_full(row)}", style=parts.LETTERS[row.state][1], markup=False, highlight=False)
            bar.update(task, completed=done, total=total, description=f"{name}, {failed:,} failed" if failed else name)

        yield progress


def _show(report: Report, verbose: bool = False) -> None:
    terminal.show(Console(highlight=False), report, verbose=verbose)
    click.echo()


def _write(reports: Sequence[Report], files: dict[str, Path | None]) -> None:
    with plain_errors(click.ClickException):
        for name, path in files.items():
            if path is not None:
                path.write_text(FORMS[name][1](reports), encoding="utf-8")
                click.echo(f"{path} written")


def _loaded(paths: Sequence[Path]) -> list[Report]:
    with plain_errors():
        return [report for path in paths for report in compare.load(path)]


def _one(path: Path) -> Report:
    reports = _loaded([path])
    if len(reports) != 1:
        raise click.UsageError(f"{path} holds {len(reports)} reports; this takes one")
    return reports[0]


@conformance.command("render", context_settings=HELP)
@click.argument("files", nargs=-1, required=True, type=IN, metavar="REPORT...")
@written
@click.option("-v", "--verbose", is_flag=True, help="Print every operation and every reason, and a script for each failure.")
def render(files: tuple[Path, ...], verbose: bool, **forms: Path | None) -> None:
    """Print reports, or write them in another form."""
    reports = _loaded(files)
    wanted = {name: forms[f"{name}_file"] for name in FORMS}
    if wanted["badge"] and len(reports) != 1:
        raise click.UsageError("a badge is of one executor; name one report, or leave --badge out")
    if not any(wanted.values()):
        for report in reports:
            _show(report, verbose)
    _write(reports, wanted)


@conformance.command("combine", context_settings=HELP)
@click.argument("files", nargs=-1, required=True, type=IN, metavar="REPORT...")
@written
def combine(files: tuple[Path, ...], **forms: Path | None) -> None:
    """Combine reports of several executors, one of each, by one version of the suite."""
    wanted = {name: forms[f"{name}_file"] for name in FORMS if name != "badge"}
    if forms["badge_file"]:
        raise click.UsageError("a badge is of one executor; make it with `dovetail conformance render`")
    loaded = _loaded(files)
    with plain_errors(click.ClickException):
        reports = compare.combine(loaded)
    if not any(wanted.values()):
        click.echo(compare.combined(reports), nl=False)
    _write(reports, wanted)


@conformance.command("diff", context_settings=HELP)
@click.argument("old", type=IN)
@click.argument("new", type=IN)
@click.option("-v", "--verbose", is_flag=True, help="Print every change.")
def diff(old: Path, new: Path, verbose: bool) -> None:
    """Show what changed from the report OLD to the report NEW; exit with 1 where something is worse."""
    differences = compare.diff(_one(old), _one(new))
    for remark in differences.remarks:
        click.echo(remark)
    for what, changes in (("worse", differences.worse), ("better", differences.better), ("otherwise changed", differences.others)):
        if changes:
            click.echo(f"\n{parts.number(len(changes))} {what}")
        for change in changes if verbose else changes[:MOST]:
            click.echo(f"  {change}")
        if not verbose and len(changes) > MOST:
            click.echo(f"  and {len(changes) - MOST:,} more; -v prints them")
    if not differences.changes:
        click.echo("No row changed.")
    sys.exit(1 if differences.worse else 0)


@conformance.command("trend", context_settings=HELP)
@click.argument("files", nargs=-1, required=True, type=IN, metavar="REPORT...")
def trend(files: tuple[Path, ...]) -> None:
    """Show the reports of an executor over time, the oldest first."""
    head = None
    for point in compare.trend(_loaded(files)):
        report = point.report
        if head != (report.name, report.level):
            click.echo(f"{report.name} at level {report.level}")
            head = (report.name, report.level)
        change = "" if point.worse is None else f", {point.worse:,} worse and {point.better:,} better"
        origin = f"version {report.executor.get('version', '?')}, suite {report.suite.get('version')}"
        click.echo(f"  {report.created or 'no date'}  {parts.score(report)}, {len(report.failures):,} failed ({origin}{change})")


@conformance.command("verify", context_settings=HELP)
@click.argument("report", type=IN)
def verify(report: Path) -> None:
    """Check a submitted report: complete, by the installed version of the suite, of a clean commit, and without failures."""
    look = importlib.import_module("dovetail_conformance.verify")  # it reads every OpInfo, and the help of `dovetail` imports this file
    with plain_errors():
        problems = look.problems(report.read_text(encoding="utf-8"))
    for message in problems:
        click.echo(message)
    click.echo(f"{report}: {len(problems)} problem{'s' * (len(problems) != 1)}." if problems else f"{report} holds.")
    sys.exit(1 if problems else 0)
