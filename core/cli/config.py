"""`dovetail config`: the value of each option, and where it came from.  `dovetail --disable NAME ...`: one plugin less."""

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
    """`command`, where an error that is the user's to correct is a message, not a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except DovetailError as error:
            raise click.ClickException(str(error)) from None

    return run


@click.command("config", short_help="Show the value of each option, and where it comes from.")
@click.option("--explain", is_flag=True, help="Say for each value which file, variable or call it came from, and what it overrides.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@plain_errors
def config_command(explain: bool, as_json: bool) -> None:
    """Show the configuration that holds here: files, environment and command line together."""
    configuration.refresh()
    try:
        priority, wrong = process_wide(), ""
    except DovetailError as error:  # what is wrong is best seen beside the values
        priority, wrong = None, str(error)
    rows = [row(option, priority) for option in options.OPTIONS]
    notes = priority.notes if priority else ()
    if as_json:
        click.echo(json.dumps({"options": rows, "notes": list(notes), "error": wrong}, indent=2))
    else:
        _print(rows, notes, explain)
    if wrong:
        raise click.ClickException(wrong)


def _print(rows: list[dict[str, Any]], notes: tuple[str, ...], explain: bool) -> None:
    """Plain lines, which a pipe and a narrow terminal show alike."""
    for each in rows:
        click.echo(f"{each['option']} = {each['shown']}")
        for message in each["from"] if explain else ():
            click.echo(f"    {message}")
    if explain and notes:
        click.echo("\nnotes")
        for note in notes:
            click.echo(click.wrap_text(note, 80, "    ", "        "))


def row(option: options.Option, priority: Priority | None) -> dict[str, Any]:
    """An option with its value and where that came from, the highest layer first."""
    settings = options.settings(option)
    value: Any = settings[-1].value if settings else option.default
    asked = option is options.EXECUTORS and priority is not None
    if asked:
        value = tuple([ex.name for ex in priority])
    elif option in (options.OPERATIONS, options.OPTIONS_OF):
        value = tuple({key: each for setting in settings for key, each in setting.value}.items())
    message = [f"{name}: {source}" for name, source in priority.provenance] if asked else []
    message += _origins(option, settings)
    return {"option": option.key, "variable": option.name, "value": value, "shown": options.shown(value), "from": message}


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
    help="Go without a plugin: it is not even imported.",
)
