"""`dovetail explain FILE:FUNCTION`: which executor runs each operation, and why others do not."""

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


@click.command("explain", short_help="Show which executor runs each operation of a function, and why.")
@click.argument("target", metavar=TARGET)
@click.option(
    "--args", "inputs", default="example_inputs", show_default=True, metavar="NAME", help="The function in FILE that returns the arguments."
)
@click.option("--executors", metavar="NAMES", help="The executors in priority order, separated by commas.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; docs/explain.md describes it.")
@click.option("--html", type=click.Path(dir_okay=False, writable=True), metavar="PATH", help="Write one self-contained page to PATH.")
@click.option("--profile", "timed", is_flag=True, help="Run it three more times and time each operation.")
def explain(target: str, inputs: str, executors: str | None, as_json: bool, html: str | None, timed: bool) -> None:
    """Compile a function for its example arguments, run it, and show which executor runs each of its operations.

    FUNCTION is a function or a torch.nn.Module, compiled or not; `example_inputs()` returns a tuple of arguments, a dict of them by
    name, or one tensor.
    """
    fn, args, kwargs = run_target(target, inputs, executors)
    if timed:
        with dovetail.profile(fn):
            for _ in range(3):
                fn(*args, **kwargs)
        fn(*args, **kwargs)
    explanation = dovetail.explain(fn)
    if html is not None:
        try:
            explanation.to_html(html)
        except OSError as error:
            raise click.ClickException(f"{html} cannot be written: {error.strerror}") from None
        click.echo(f"wrote {html}", err=as_json)
    if as_json:
        click.echo(explanation.to_json(indent=1))
    elif html is None:
        show(explanation)


def run_target(target: str, inputs: str, executors: str | None) -> tuple[Any, tuple, dict[str, Any]]:
    """Compile and call the function that `target` names; return it with its arguments.  Errors become messages without our traceback."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name:
        raise click.UsageError(f"expected {TARGET}, got {target!r}")
    if not Path(file).is_file():
        raise click.UsageError(f"no such file: {file}")
    if executors is not None:
        with_plain_errors(configuration.command_line, executors=executors)
        with_plain_errors(resolve_executors)
    names = with_user_errors(f"{file} cannot be run", load, file)
    fn, make = _lookup(names, name, file), _lookup(names, inputs, file, "; use --args to name the function that returns the arguments")
    _fits(make, (), {}, f"{inputs} in {file} takes arguments; use --args to name a function without arguments")
    args, kwargs = arguments(with_user_errors(f"{inputs} failed", make))
    plain = fn.forward if isinstance(fn, torch.nn.Module) else fn
    _fits(plain, args, kwargs, f"{name} does not accept the arguments from {inputs} in {file}, {_format_types(args, kwargs)}")
    if not isinstance(getattr(fn, "_cache", None), Cache):
        fn = with_plain_errors(dovetail.jit, fn)
    elif executors and fn._cache.requested_order is not None:
        raise click.UsageError(f"{name} is compiled in {file} with its own executors; remove --executors")
    with_user_errors(f"{name} failed", fn, *args, **kwargs)
    return fn, args, kwargs


def load(file: str) -> dict[str, Any]:
    """Run a file as a module and return its names; it can import the modules beside it."""
    sys.path.insert(0, str(Path(file).resolve().parent))
    return runpy.run_path(file, run_name=Path(file).stem)


def with_plain_errors(call: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call a function of Dovetail; its errors become messages."""
    try:
        return call(*args, **kwargs)
    except DovetailError as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from None


def with_user_errors(what: str, call: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call a function that runs user code; error messages show only the user's lines of the traceback."""
    try:
        return with_plain_errors(call, *args, **kwargs)
    except (click.ClickException, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise click.ClickException(f"{what}: it called sys.exit({error.code!r}); move the code of the script below `if __name__ == ...`") from None
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if options.debug() or not frame.filename.startswith(INSIDE)]
        rows = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
        raise click.ClickException(f"{what}:\n{''.join(rows).rstrip()}") from None


def _lookup(names: dict[str, Any], name: str, file: str, more: str = "") -> Any:
    value = names.get(name)
    if isinstance(value, type):
        raise click.UsageError(f"{name} in {file} is a class; name a function, or an object such as `model = {name}(...)`")
    if not callable(value):
        functions = [key for key, value in names.items() if callable(value) and not isinstance(value, type) and not key.startswith("_")]
        problem = f"{name} in {file} is of type {type(value).__name__}, not a function" if name in names else f"{file} has no function {name}"
        raise click.UsageError(f"{problem}{more}; {suggestion(name, functions) if functions else 'it defines none'}")
    return value


def _fits(fn: Callable, args: tuple, kwargs: dict[str, Any], message: str) -> None:
    """Raise a usage error where the arguments do not match the signature."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # a function in C without a signature
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise click.UsageError(f"{message}: {error}") from None


def arguments(result: Any) -> tuple[tuple, dict[str, Any]]:
    """Convert the result of an `example_inputs` function to (args, kwargs)."""
    if isinstance(result, dict):
        return (), result
    return (tuple(result) if isinstance(result, (tuple, list)) and not isinstance(result, torch.Size) else (result,)), {}


def _format_types(args: tuple, kwargs: dict[str, Any]) -> str:
    """Format arguments by their types."""
    labelled = [*(("", value) for value in args), *((f"{key}=", value) for key, value in kwargs.items())]
    types = [key + (str(spec_of(value)) if isinstance(value, torch.Tensor) else type(value).__name__) for key, value in labelled]
    return f"({', '.join(types)})"


def show(explanation: Explanation) -> None:
    """Print the explanation, on a terminal with colours and line breaks."""
    console = Console(highlight=False)
    if not console.is_terminal:
        click.echo(str(explanation))
        return
    colour = {executor.name: "dim" for executor in explanation.executors}
    colour |= {executor.name: COLOURS[i % len(COLOURS)] for i, executor in enumerate(e for e in explanation.executors if not e.last_resort)}
    for line in explanation.text():
        console.print(coloured(line, colour, console.width), soft_wrap=True)


def coloured(line: str, colour: dict[str, str], width: int) -> Text:
    """Wrap one line at `width` and colour the names of executors."""
    margin = " " * (len(line) - len(line.lstrip()) + 4)
    rows = textwrap.wrap(line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False) or [""]
    text = Text("\n".join(rows), style="bold" if HEAD.match(line) else "")
    for name, style in colour.items():
        text.highlight_regex(re.compile(rf"(?<![\w.])({name})(?= ->| refuses:| runs it|,? \(|, in |, and |$)", re.MULTILINE), style)
    return text


HEAD = re.compile(r"\w+: \d+ operation")
