"""`dovetail doctor`: whether each plugin works, tried in a process of its own, so that one that crashes is a row like another."""

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
from dovetail.torch_internals import INTERNALS

COLOURS = {"ok": "green", "note": "yellow", "failed": "red"}
MEANS = {"ready": "ok", "disabled": "note", "absent": "note", "unavailable": "note"}  # every other status is a failure
CHILD = """
import json, sys
request = json.load(sys.stdin)
sys.path[:] = request["sys.path"]
from dovetail.cli.smoke import answer
answer(request)
"""
NEWEST_TORCH = "2.15"  # the newest that was tested; a test compares it with the lanes in CONTRIBUTING.md
TAIL = 2000  # characters of what a process printed before it crashed


@dataclass(frozen=True)
class Finding:
    """What one check found: `result` is ok, note or failed, `message` a sentence, `error` a traceback or the last that was printed."""

    plugin: str
    check: str
    result: str
    message: str = ""
    error: str = ""


@click.command("doctor", short_help="Try each plugin in a process of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds that one plugin may take.")
@click.option("--verbose", is_flag=True, help="Print tracebacks, and what a crashed process printed.")
@click.option("--internals", "list_internals", is_flag=True, help="List the private parts of torch that Dovetail uses, and nothing else.")
def doctor(as_json: bool, timeout: float, verbose: bool, list_internals: bool) -> None:
    """Import each plugin, run small programs with each executor, and ask each plugin's own checks: all in processes of their own."""
    if list_internals:
        show_internals(Console(highlight=False))
        return
    found = examine(configured(), timeout)
    failed = [each for each in found if each.result == "failed"]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    else:
        show(Console(highlight=False), found, verbose)
    sys.exit(1 if failed else 0)


def examine(wanted: Selection, timeout: float) -> list[Finding]:
    """Every finding, in the order of the inventory.  No plugin is imported in this process."""
    there = survey(wanted)
    rows: dict[tuple, list[Finding]] = {(row.name, row.distribution, row.path, row.value): [finding(row)] for row in there.rows}
    with ThreadPoolExecutor(max_workers=2) as pool:
        tried = pool.map(lambda candidate: list(examined(candidate, wanted, timeout)), there.candidates)
        rows |= {(c.name, c.distribution, c.path, c.value): found for c, found in zip(there.candidates, tried)}
    return [*host(there.candidates), *(each for key in sorted(rows) for each in rows[key])]


def host(candidates: list[Candidate]) -> Iterator[Finding]:
    """What does not depend on any plugin."""
    about = f"dovetail {dovetail.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    yield Finding("dovetail", "installed", "ok", about)
    yield from internals()
    if Version(torch.__version__).release[:2] > Version(NEWEST_TORCH).release:
        newer = f"torch {torch.__version__} is newer than {NEWEST_TORCH}, the newest one tested"
        yield Finding("dovetail", "torch", "note", f"{newer}; if something fails, try `pip install torch=={NEWEST_TORCH}.*`")
    if not candidates:
        yield Finding("dovetail", "executors", "failed", "no plugin can be loaded, so no program can run")


def internals() -> Iterator[Finding]:
    """Probe every private part of torch: one finding for all that work, one for each that does not, with what happens instead."""
    lacking = [part for part in INTERNALS if part.problem is not None]
    yield Finding("dovetail", "torch internals", "ok", f"{len(INTERNALS) - len(lacking)} of {len(INTERNALS)} private parts of torch work as expected")
    for part in lacking:
        yield Finding("dovetail", "torch internals", "note", f"{part.problem}; without it {part.fallback}")


def finding(row: Plugin) -> Finding:
    """A record as the finding of the check that it loads."""
    message = "; ".join(part for part in (row.reason, row.remedy) if part) or ", ".join(row.executors)
    return Finding(row.name, "loads", MEANS.get(row.status, "failed"), f"{row.status}: {message}", row.error)


def examined(candidate: Candidate, wanted: Selection, timeout: float) -> Iterator[Finding]:
    """Ask a new process about one plugin, and make a finding of each thing that it wrote down, or of its end."""
    with tempfile.TemporaryDirectory() as folder:
        file, printed = Path(folder, "steps"), Path(folder, "printed")
        file.touch()
        request = {"name": candidate.name, "distribution": candidate.distribution, "plugins": wanted.plugins}
        request |= {"file": str(file), "sys.path": sys.path}
        with printed.open("w") as out:
            ended = run(json.dumps(request), out, timeout)
        doing, over = "starting", False
        for line in map(json.loads, file.read_text().splitlines()):
            over = over or "end" in line
            doing = line.get("doing", doing)
            if row := line.get("row"):
                yield finding(Plugin(**row | {"executors": tuple(row["executors"])}))
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
    """How the process ended, in words."""
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
    """Print every private part of torch: what it is for, whether it works here, and in which versions it was seen."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("part of torch", "used to", "here", "seen in", "without it"):
        table.add_column(heading, overflow="fold")
    for part in INTERNALS:
        here = "[green]works[/green]" if part.problem is None else f"[yellow]{escape(part.problem)}[/yellow]"
        table.add_row(part.path, part.purpose, here, " to ".join(part.seen), part.fallback)
    console.print(table)


def show(console: Console, found: list[Finding], verbose: bool) -> None:
    """The findings as a table, and a last line that counts them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("plugin", "check", "result", ""):
        table.add_column(heading, overflow="fold")
    for each in found:
        colour = COLOURS[each.result]
        table.add_row(escape(each.plugin), escape(each.check), f"[{colour}]{each.result}[/{colour}]", escape(each.message))
    console.print(table)
    for each in found:
        if verbose and each.error:
            console.print(f"[bold]{escape(each.plugin)}[/bold], {escape(each.check)}:")
            click.echo(each.error)
    failed = sum(each.result == "failed" for each in found)
    more = "" if verbose or not any(each.error for each in found) else "; --verbose prints tracebacks"
    console.print(f"{len(found)} checks, {failed} failed{more}.")
