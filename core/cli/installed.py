"""Commands that other distributions bring: `name = "package.module:command"` in their entry-point group `dovetail.commands`.

Each is a click command.  It is imported when it is called, or when the help has to say what it does; one that cannot be imported is a row in
the help and an error when it is called, and harms no other command.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import click
import importlib_metadata

from dovetail import options
from dovetail.executors.discovery.find_plugins import distributions

GROUP = "dovetail.commands"
KNOWN = dict.fromkeys(("conformance", "fuzz"), "dovetail-conformance")  # commands that are worth a hint where their distribution is not installed


@dataclass(frozen=True)
class Brought:
    """A command by the entry point that brings it; nothing is imported yet."""

    name: str
    point: importlib_metadata.EntryPoint
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.name} = {self.point.value})"

    def command(self) -> click.Command:
        """The command itself, or one that says why there is none.  Scripts exit and compiled extensions raise what they like."""
        try:
            found = self.point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Missing(self.name, f"cannot be loaded: {_said(error)}", f"it comes with {self}; reinstall it: {_pip(self)}", error)
        if not isinstance(found, click.Command):
            return Missing(self.name, f"cannot be loaded: it is of type {type(found).__name__}, and no click command", f"it comes with {self}")
        return found


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"its module called sys.exit({error.code!r})"
    words = str(error).strip()
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _pip(brought: Brought) -> str:
    return f"pip install --force-reinstall {brought.distribution}"


class Missing(click.Command):
    """Stands for a command that is not there.  Whatever it is called with, it says why; `error` is the reason's own."""

    def __init__(self, name: str, message: str, remedy: str, error: BaseException | None = None):
        open_to_all = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, short_help=message, add_help_option=False, context_settings=open_to_all)
        self.message, self.remedy, self.error = message, remedy, error

    def get_short_help_str(self, limit: int = 45) -> str:
        return self.message.splitlines()[0]  # a reason that is cut off is none

    def invoke(self, ctx: click.Context) -> None:
        if self.error is not None and options.debug():
            click.echo("".join(traceback.format_exception(self.error)), err=True)
        more = "" if self.error is None or options.debug() else "; DOVETAIL_DEBUG=1 prints the traceback"
        raise click.ClickException(f"the command {self.name} {self.message}; {self.remedy}{more}")


def brought() -> dict[str, list[Brought]]:
    """Every command that an installed distribution brings, by name, from metadata alone.  Unreadable metadata brings none: the doctor names it."""
    found: dict[str, list[Brought]] = {}
    for distribution in distributions():
        for each in _of(distribution):
            found.setdefault(each.name, []).append(each)
    return {name: sorted(found[name], key=str) for name in sorted(found)}


def _of(distribution: importlib_metadata.Distribution) -> Iterator[Brought]:
    try:
        points = [point for point in distribution.entry_points if point.group == GROUP]
        named = [Brought(point.name, point, distribution.metadata["Name"], distribution.version) for point in points]
    except Exception:
        return
    yield from named


def missing(name: str) -> Missing | None:
    """What stands for a command that is known of and not installed."""
    home = KNOWN.get(name)
    return Missing(name, f"comes with {home}, which is not installed", f"pip install {home}") if home else None


class Commands(click.Group):
    """A group whose commands are its own and those that installed distributions bring.  Its own win, and the help says who lost."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *brought(), *KNOWN})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        rows = brought().get(cmd_name, [])
        if len(rows) > 1:
            both = " and ".join(map(str, rows))
            return Missing(cmd_name, f"cannot be loaded: two distributions bring it, {both}", "uninstall one of them")
        return rows[0].command() if rows else missing(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        lost = [(name, f"of {each} is left out: Dovetail has a command of that name") for name, rows in brought().items() for each in rows]
        lost = [row for row in lost if row[0] in self.commands]
        if lost:
            with formatter.section("Left out"):
                formatter.write_dl(lost)
