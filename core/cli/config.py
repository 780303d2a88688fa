"""`dovetail config`: show each option's value and source.  `dovetail --disable NAME ...`: run without a plugin."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from dovetail import options
from dovetail.errors import DovetailError
from dovetail.executors.discovery import configuration
from dovetail.executors.ordering.resolve_order import Priority, process_wide


def plain_errors(command: Callable) -> Callable:
    """Wrap `command` so that a DovetailError is shown as a message, without a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except DovetailError as error:
            raise click.ClickException(str(error)) from None

    return run


@click.command("config", short_help="Show the value of each option and its source.")
@click.option("--explain", is_flag=True, help="Show which file, variable or call each value comes from, and what it overrides.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@plain_errors
def config_command(explain: bool, as_json: bool) -> None:
    """Show the effective configuration: files, environment and command line combined."""
    configuration.refresh()
    try:
        priority, wrong = process_wide(), ""
    except DovetailError as error:  # the error is shown below the values
        priority, wrong = None, str(error)
    rows = [describe_option(option, priority) for option in options.OPTIONS]
    notes = priority.notes if priority else ()
    if as_json:
        click.echo(json.dumps({"options": rows, "notes": list(notes), "error": wrong}, indent=2))
    else:
        _print(rows, notes, explain)
    if wrong:
        raise click.ClickException(wrong)


def _print(rows: list[dict[str, Any]], notes: tuple[str, ...], explain: bool) -> None:
    """Print plain lines, which also suit a pipe or a narrow terminal."""
    for row in rows:
        click.echo(f"{row['option']} = {row['shown']}")
        for origin in row["from"] if explain else ():
            click.echo(f"    {origin}")
    if explain and notes:
        click.echo("\nnotes")
        for note in notes:
            click.echo(click.wrap_text(note, 80, "    ", "        "))


def describe_option(option: options.Option, priority: Priority | None) -> dict[str, Any]:
    """Return an option with its value and sources, the highest layer first."""
    settings = options.settings(option)
    value: Any = settings[-1].value if settings else option.default
    is_order = option is options.EXECUTORS and priority is not None
    if is_order:
        value = tuple([ex.name for ex in priority])
    elif option in (options.OPERATIONS, options.OPTIONS_OF):
        value = tuple({key: item for setting in settings for key, item in setting.value}.items())
    origins = [f"{name}: {source}" for name, source in priority.provenance] if is_order else []
    origins += _origins(option, settings)
    return {"option": option.key, "variable": option.name, "value": value, "shown": options.shown(value), "from": origins}


def _origins(option: options.Option, settings: list[options.Setting]) -> list[str]:
    if not settings:
        return [] if option is options.EXECUTORS else ["default"]
    together = option.adds or option in (options.EXECUTORS, options.OPERATIONS, options.OPTIONS_OF)
    last, *before = reversed(settings)
    first = f"{options.shown(last.value)} in {last.source}" if together else f"from {last.source}"
    verb = "and" if together else "overrides"
    return [first, *(f"{verb} {options.shown(each.value)} in {each.source}" for each in before)]


def _disable(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> None:
    if names:
        configuration.command_line(disable=names)


disable_option = click.Option(
    ["--disable"],
    multiple=True,
    metavar="NAME",
    expose_value=False,
    is_eager=True,
    callback=_disable,
    help="Do not import or use a plugin.",
)
