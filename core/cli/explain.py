"""`dovetail explain FILE:FUNCTION`: who runs each operation, and why others do not."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.text import Text

import dovetail
from dovetail import options
from dovetail.compiler.cache import Cache
from dovetail.errors import DovetailError
from dovetail.executors import Explanation, resolve_executors
from dovetail.executors.discovery import configuration
from dovetail.langs.torch import spec_of
from dovetail.options import suggestion
from dovetail.trace.source_location import OURS

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")
TARGET = "FILE:FUNCTION"
INSIDE = (OURS, "<frozen ")


@click.command("explain", short_help="Show who runs each operation of a function, and why.")
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
        try:
            found.to_html(html)
        except OSError as error:
            raise click.ClickException(f"{html} cannot be written: {error.strerror}") from None
        click.echo(f"wrote {html}", err=as_json)
    if as_json:
        click.echo(found.to_json(indent=1))
    elif html is None:
        show(found)


def ran(target: str, inputs: str, executors: str | None) -> tuple[Any, tuple, dict[str, Any]]:
    """The compiled function that `target` names, called once with its arguments, and these.  What is wrong is a message, no traceback of ours."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name:
        raise click.UsageError(f"expected {TARGET}, got {target!r}")
    if not Path(file).is_file():
        raise click.UsageError(f"there is no file {file}")
    if executors is not None:
        ours(configuration.command_line, executors=executors)
        ours(resolve_executors)
    names = theirs(f"{file} cannot be run", load, file)
    fn, make = _named(names, name, file), _named(names, inputs, file, "; name the function that gives the arguments with --args")
    _fits(make, (), {}, f"{inputs} in {file} expects arguments itself; write one that takes none, and name it with --args")
    args, kwargs = arguments(theirs(f"{inputs} failed", make))
    plain = fn.forward if isinstance(fn, torch.nn.Module) else fn
    _fits(plain, args, kwargs, f"{name} does not take what {inputs} in {file} gives, which is {_words(args, kwargs)}")
    if not isinstance(getattr(fn, "_cache", None), Cache):
        fn = ours(dovetail.jit, fn)
    elif executors and fn._cache.requested_order is not None:
        raise click.UsageError(f"{name} is compiled in {file}, with executors of its own; leave --executors out")
    theirs(f"{name} failed", fn, *args, **kwargs)
    return fn, args, kwargs


def load(file: str) -> dict[str, Any]:
    """What a file defines, as if it were imported; the modules beside it can be imported from it."""
    sys.path.insert(0, str(Path(file).resolve().parent))
    return runpy.run_path(file, run_name=Path(file).stem)


def ours(call: Callable, *args: Any, **kwargs: Any) -> Any:
    """call(*args, **kwargs), whose errors are messages."""
    try:
        return call(*args, **kwargs)
    except DovetailError as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from None


def theirs(what: str, call: Callable, *args: Any, **kwargs: Any) -> Any:
    """call(*args, **kwargs), which runs other people's code: of its errors the message shows their lines alone."""
    try:
        return ours(call, *args, **kwargs)
    except (click.ClickException, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise click.ClickException(f"{what}: it called sys.exit({error.code!r}); put what makes it a script below `if __name__ ...`") from None
    except BaseException as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if options.debug() or not each.filename.startswith(INSIDE)]
        rows = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
        raise click.ClickException(f"{what}:\n{''.join(rows).rstrip()}") from None


def _named(names: dict[str, Any], name: str, file: str, more: str = "") -> Any:
    found = names.get(name)
    if isinstance(found, type):
        raise click.UsageError(f"{name} in {file} is a class; name a function, or an object such as `model = {name}(...)`")
    if not callable(found):
        known = [key for key, value in names.items() if callable(value) and not isinstance(value, type) and not key.startswith("_")]
        other = f"{name} in {file} is of type {type(found).__name__}, and no function" if name in names else f"{file} has no function {name}"
        raise click.UsageError(f"{other}{more}; {suggestion(name, known) if known else 'it has none'}")
    return found


def _fits(fn: Callable, args: tuple, kwargs: dict[str, Any], message: str) -> None:
    """An error where a call would not even begin."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # of a function in C, which tells no names
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise click.UsageError(f"{message}: {error}") from None


def arguments(given: Any) -> tuple[tuple, dict[str, Any]]:
    """What an `example_inputs` function gives, as arguments."""
    if isinstance(given, dict):
        return (), given
    return (tuple(given) if isinstance(given, (tuple, list)) and not isinstance(given, torch.Size) else (given,)), {}


def _words(args: tuple, kwargs: dict[str, Any]) -> str:
    """Arguments by their types."""
    named = [*(("", value) for value in args), *((f"{key}=", value) for key, value in kwargs.items())]
    types = [key + (str(spec_of(value)) if isinstance(value, torch.Tensor) else type(value).__name__) for key, value in named]
    return f"({', '.join(types)})"


def show(found: Explanation) -> None:
    """The table: the plain text of str(), with colours and line breaks where there is a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        click.echo(str(found))
        return
    colour = {each.name: "dim" for each in found.executors}
    colour |= {each.name: COLOURS[i % len(COLOURS)] for i, each in enumerate(e for e in found.executors if not e.last_resort)}
    for line in found.text():
        console.print(coloured(line, colour, console.width), soft_wrap=True)


def coloured(line: str, colour: dict[str, str], width: int) -> Text:
    """One line of the table, broken at `width` and each executor in its colour where it is one that is spoken of."""
    margin = " " * (len(line) - len(line.lstrip()) + 4)
    rows = textwrap.wrap(line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False) or [""]
    made = Text("\n".join(rows), style="bold" if HEAD.match(line) else "")
    for name, style in colour.items():
        made.highlight_regex(re.compile(rf"(?<![\w.])({name})(?= ->| refuses:| runs it|,? \(|, in |, and |$)", re.MULTILINE), style)
    return made


HEAD = re.compile(r"\w+: \d+ operation")
