"""`dovetail doctor`: test each plugin in a process of its own, so that a crash is only a failed check."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import torch
from packaging.version import Version
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import dovetail
from dovetail.executors import Plugin
from dovetail.executors.discovery.find_plugins import Candidate
from dovetail.executors.discovery.plugin_filter import Selection, configured
from dovetail.executors.discovery.registry import survey
from dovetail.torch_internals import CLAMP_SEEN, INTERNALS, SUBGRADIENTS, clamp_saturates

COLOURS = {"ok": "green", "note": "yellow", "failed": "red"}
MEANS = {"ready": "ok", "disabled": "note", "absent": "note", "unavailable": "note"}  # every other status is a failure
CHILD = """
import json, sys
request = json.load(sys.stdin)
sys.path[:] = request["sys.path"]
from dovetail.cli.smoke import answer
answer(request)
"""
NEWEST_TORCH = "2.15"  # the newest one tested; a test compares it with the lanes in CONTRIBUTING.md
TAIL = 2000  # characters of what a process printed before it crashed


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: `result` is ok, note or failed, `message` a sentence, `error` a traceback or the end of the output."""

    plugin: str
    check: str
    result: str
    message: str = ""
    error: str = ""


@click.command("doctor", short_help="Test each plugin in a process of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--timeout", default=120.0, show_default=True, help="Time limit for each plugin, in seconds.")
@click.option("--verbose", is_flag=True, help="Print tracebacks and the output of crashed processes.")
@click.option("--internals", "list_internals", is_flag=True, help="Only list what of torch is private or differs between versions.")
def doctor(as_json: bool, timeout: float, verbose: bool, list_internals: bool) -> None:
    """Import each plugin, run small programs with each executor, and run the plugin's own checks, each plugin in its own process."""
    if list_internals:
        show_internals(Console(highlight=False))
        return
    findings = examine(configured(), timeout)
    failed = [finding for finding in findings if finding.result == "failed"]
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        show(Console(highlight=False), findings, verbose)
    sys.exit(1 if failed else 0)


def examine(selection: Selection, timeout: float) -> list[Finding]:
    """Return all findings in the order of the inventory.  No plugin is imported in this process."""
    inventory = survey(selection)
    rows: dict[tuple, list[Finding]] = {(row.name, row.distribution, row.path, row.value): [load_finding(row)] for row in inventory.rows}
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = pool.map(lambda candidate: list(examined(candidate, selection, timeout)), inventory.candidates)
        rows |= {(c.name, c.distribution, c.path, c.value): findings for c, findings in zip(inventory.candidates, results)}
    return [*host(inventory.candidates), *(finding for key in sorted(rows) for finding in rows[key])]


def host(candidates: list[Candidate]) -> Iterator[Finding]:
    """Yield the findings that do not depend on a plugin."""
    about = f"dovetail {dovetail.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    yield Finding("dovetail", "installed", "ok", about)
    yield from internals()
    if Version(torch.__version__).release[:2] > Version(NEWEST_TORCH).release:
        newer = f"torch {torch.__version__} is newer than {NEWEST_TORCH}, the newest one tested"
        yield Finding("dovetail", "torch", "note", f"{newer}; if something fails, try `pip install torch=={NEWEST_TORCH}.*`")
    if not candidates:
        yield Finding("dovetail", "executors", "failed", "no plugin can be loaded, so no program can run")


def internals() -> Iterator[Finding]:
    """Probe every private part of torch: one finding for all that work, one for each that does not, with its fallback."""
    broken = [part for part in INTERNALS if part.problem is not None]
    yield Finding("dovetail", "torch internals", "ok", f"{len(INTERNALS) - len(broken)} of {len(INTERNALS)} private parts of torch work as expected")
    for part in broken:
        yield Finding("dovetail", "torch internals", "note", f"{part.problem}; without it {part.fallback}")
    for subgradient in SUBGRADIENTS:
        if subgradient.problem is not None:
            yield Finding("dovetail", "gradients", "note", f"{subgradient.problem}; compiled gradients there may differ from eager's")


def load_finding(row: Plugin) -> Finding:
    """Return the finding of the check that a plugin loads."""
    message = "; ".join(part for part in (row.reason, row.remedy) if part) or ", ".join(row.executors)
    return Finding(row.name, "loads", MEANS.get(row.status, "failed"), f"{row.status}: {message}", row.error)


def examined(candidate: Candidate, selection: Selection, timeout: float) -> Iterator[Finding]:
    """Test one plugin in a new process, and yield a finding for each step it reports, or for its crash."""
    with tempfile.TemporaryDirectory() as folder:
        file, printed = Path(folder, "steps"), Path(folder, "printed")
        file.touch()
        request = {"name": candidate.name, "distribution": candidate.distribution, "plugins": selection.plugins}
        request |= {"file": str(file), "sys.path": sys.path}
        with printed.open("w") as out:
            ended = run(json.dumps(request), out, timeout)
        doing, over = "starting", False
        for line in map(json.loads, file.read_text().splitlines()):
            over = over or "end" in line
            doing = line.get("doing", doing)
            if row := line.get("row"):
                yield load_finding(Plugin(**row | {"executors": tuple(row["executors"])}))
            if "check" in line:
                yield Finding(candidate.name, line["check"], line["result"], line["message"], line.get("error", ""))
        if not over:
            yield Finding(candidate.name, "survives", "failed", f"{ended} while {doing}", _last_words(printed))
        elif ended != EXITED:
            yield Finding(candidate.name, "ends", "failed", f"{ended} when Python shut down", _last_words(printed))


EXITED = "the process exited with code 0"


def _last_words(printed: Path) -> str:
    """Return the report of a fatal error from its start, else the end of what a process printed."""
    text = printed.read_text(errors="replace")
    fatal = text.rfind("Fatal Python error")
    return text[-TAIL:] if fatal < 0 else text[fatal : fatal + TAIL]


def run(request: str, out: Any, timeout: float) -> str:
    """Run the child process and return how it ended, in words."""
    command = [sys.executable, "-X", "faulthandler", "-P", "-c", CHILD]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, text=True)
    try:
        process.communicate(request, timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"the process was stopped after {timeout:g} seconds"
    code = process.returncode
    if code >= 0:
        return f"the process exited with code {code}"
    try:
        return f"the process crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"the process crashed with signal {-code}"


def show_internals(console: Console) -> None:
    """Print every private part of torch: its purpose, whether it works here, and the versions it was tested with; then the conventions."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("part of torch", "used to", "here", "seen in", "without it"):
        table.add_column(heading, overflow="fold")
    for part in INTERNALS:
        here = "[green]works[/green]" if part.problem is None else f"[yellow]{escape(part.problem)}[/yellow]"
        table.add_row(part.path, part.purpose, here, " to ".join(part.seen), part.fallback)
    console.print(table)
    console.print(convention_table())


def convention_table() -> Table:
    """Return what versions of torch disagree about: the convention of this torch, and the versions of each."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("versions differ in", "", "here", "seen in"):
        table.add_column(heading, overflow="fold")
    for subgradient in SUBGRADIENTS:
        here = "[yellow]unknown[/yellow]" if subgradient.problem is not None else f"[green]{subgradient.convention}[/green]"
        seen = "; ".join(f"{c.name}: " + " to ".join(dict.fromkeys(c.seen)) for c in subgradient.conventions)
        table.add_row(f"gradient of {subgradient.operation}", subgradient.place, here, seen)
    saturates = "saturates" if clamp_saturates() else "wraps or is refused"
    table.add_row("torch.clamp of integers", "by a number beyond their dtype", f"[green]{saturates}[/green]", CLAMP_SEEN)
    return table


def show(console: Console, findings: list[Finding], verbose: bool) -> None:
    """Print the findings as a table, and a line that counts them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("plugin", "check", "result", ""):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        colour = COLOURS[finding.result]
        table.add_row(escape(finding.plugin), escape(finding.check), f"[{colour}]{finding.result}[/{colour}]", escape(finding.message))
    console.print(table)
    for finding in findings:
        if verbose and finding.error:
            console.print(f"[bold]{escape(finding.plugin)}[/bold], {escape(finding.check)}:")
            click.echo(finding.error)
    failed = sum(finding.result == "failed" for finding in findings)
    more = "" if verbose or not any(finding.error for finding in findings) else "; --verbose prints tracebacks"
    console.print(f"{len(findings)} checks, {failed} failed{more}.")
