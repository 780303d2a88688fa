"""`dovetail explain FILE:FUNCTION`: who runs each operation, and why others do not."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.text import Text

import dovetail
from dovetail.errors import DovetailError
from dovetail.executors import Explanation
from dovetail.executors.explain import Row, counted, one_part
from dovetail.jit import Cache

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")
TARGET = "FILE:FUNCTION"


@click.command("explain")
@click.argument("target", metavar=TARGET)
@click.option("--args", "inputs", default="example_inputs", show_default=True, metavar="NAME", help="The function in FILE that gives the arguments.")
@click.option("--executors", metavar="NAMES", help="Who is asked, in this order, commas between them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; docs/explain.md describes it.")
@click.option("--html", type=click.Path(dir_okay=False, writable=True), metavar="PATH", help="Write one self-contained page to PATH.")
@click.option("--profile", "timed", is_flag=True, help="Run it three times more, with a clock around each operation.")
def explain(target: str, inputs: str, executors: str | None, as_json: bool, html: str | None, timed: bool) -> None:
    """Compile a function for its example arguments, run it, and show who runs each of its operations.

    FUNCTION is a function or a torch.nn.Module, compiled or not; `example_inputs()` gives a tuple of its arguments, a dict of them by
    name, or one tensor.
    """
    fn, args, kwargs = ran(target, inputs, executors)
    if timed:
        with dovetail.profile(fn):
            for _ in range(3):
                fn(*args, **kwargs)
        fn(*args, **kwargs)
    found = dovetail.explain(fn)
    if html is not None:
        found.to_html(html)
        click.echo(f"wrote {html}", err=as_json)
    if as_json:
        click.echo(found.to_json(indent=1))
    elif html is None:
        show(found)


def ran(target: str, inputs: str, executors: str | None) -> tuple[Any, tuple, dict[str, Any]]:
    """The compiled function that `target` names, called once with its arguments, and these."""
    try:
        fn, args, kwargs = compiled(target, inputs, executors)
        fn(*args, **kwargs)
    except DovetailError as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from None
    return fn, args, kwargs


def compiled(target: str, inputs: str, executors: str | None) -> tuple[Any, tuple, dict[str, Any]]:
    """The compiled function that `target` names, and the arguments to call it with."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name:
        raise click.UsageError(f"wants {TARGET}, got {target!r}")
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"there is no file {file}")
    sys.path.insert(0, str(path.resolve().parent))
    names = runpy.run_path(str(path), run_name=path.stem)
    fn, make = _named(names, name, file), _named(names, inputs, file, "; name the function that gives the arguments with --args")
    args, kwargs = arguments(make())
    if not isinstance(getattr(fn, "_cache", None), Cache):
        fn = dovetail.jit(fn, executors=[each.strip() for each in executors.split(",")] if executors else None)
    elif executors:
        raise click.UsageError(f"{name} is compiled in {file}, with executors of its own; leave --executors out")
    return fn, args, kwargs


def _named(names: dict[str, Any], name: str, file: str, more: str = "") -> Any:
    if not callable(names.get(name)):
        known = ", ".join(sorted(key for key, value in names.items() if callable(value) and not key.startswith("_"))) or "none"
        raise click.UsageError(f"{file} has no function {name}{more}; there are: {known}")
    return names[name]


def arguments(given: Any) -> tuple[tuple, dict[str, Any]]:
    """What an `example_inputs` function gives, as arguments."""
    if isinstance(given, dict):
        return (), given
    return (tuple(given) if isinstance(given, (tuple, list)) and not isinstance(given, torch.Size) else (given,)), {}


def show(found: Explanation) -> None:
    """The table: colours where there is a terminal, the plain text of str() where there is none."""
    console = Console(highlight=False)
    if not console.is_terminal:
        click.echo(str(found))
        return
    colour = {each.name: COLOURS[i % len(COLOURS)] for i, each in enumerate(e for e in found.executors if not e.last_resort)}
    for program in found.programs:
        rows = [row for row in found.rows if row.program == program.name]
        if rows:
            console.print(Text(f"{program.name}: {counted(rows)}", style="bold"))
        for row in rows:
            _show(console, row, colour)
    for each in found.executors:
        console.print(Text(one_part(each), style=colour.get(each.name, "dim")))
    for said in found.left_out:
        console.print(Text(said, style="yellow"))


def _show(console: Console, row: Row, colour: dict[str, str]) -> None:
    head = Text("  " * (row.depth + 1))
    head.append(", ".join(row.results) or "-", style="bold").append(f" = {row.operation}: ")
    head.append(row.actual or "its parts", style=colour.get(row.actual or "", "dim"))
    if row.region:
        head.append(f", in {row.region}", style="dim")
    if row.where:
        head.append(f"  {Path(row.where).name}", style="dim")
    console.print(head, soft_wrap=False)
    for each in row.refusals:
        line = Text("  " * (row.depth + 3))
        line.append(each.executor, style=colour.get(each.executor, "dim")).append(f" refuses: {each.said}", style="dim")
        console.print(line)
