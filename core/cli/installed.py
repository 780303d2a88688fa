"""Commands of other distributions: `name = "package.module:command"` in their entry-point group `dovetail.commands`.

Each is a click command.  It is imported when it is called or described in the help.  One that cannot be imported is
a row in the help and an error when it is called; other commands are not affected.
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
KNOWN = dict.fromkeys(("conformance", "fuzz"), "dovetail-conformance")  # commands that get a hint where their distribution is not installed


@dataclass(frozen=True)
class CommandEntry:
    """The entry point of a command, not yet imported."""

    name: str
    point: importlib_metadata.EntryPoint
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.name} = {self.point.value})"

    def command(self) -> click.Command:
        """Import the command, or return one that reports why it cannot be loaded: modules may exit or raise anything."""
        try:
            loaded = self.point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Missing(self.name, f"cannot be loaded: {_describe_error(error)}", f"it comes with {self}; reinstall it: {_pip(self)}", error)
        if not isinstance(loaded, click.Command):
            return Missing(self.name, f"cannot be loaded: it is of type {type(loaded).__name__}, not a click command", f"it comes with {self}")
        return loaded


def _describe_error(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"its module called sys.exit({error.code!r})"
    words = str(error).strip()
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _pip(entry: CommandEntry) -> str:
    return f"pip install --force-reinstall {entry.distribution}"


class Missing(click.Command):
    """A placeholder for an unavailable command.  It reports why with any arguments; `error` is the original exception."""

    def __init__(self, name: str, message: str, remedy: str, error: BaseException | None = None):
        any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, short_help=message, add_help_option=False, context_settings=any_arguments)
        self.message, self.remedy, self.error = message, remedy, error

    def get_short_help_str(self, limit: int = 45) -> str:
        return self.message.splitlines()[0]  # not truncated

    def invoke(self, ctx: click.Context) -> None:
        if self.error is not None and options.debug():
            click.echo("".join(traceback.format_exception(self.error)), err=True)
        more = "" if self.error is None or options.debug() else "; DOVETAIL_DEBUG=1 prints the traceback"
        raise click.ClickException(f"the command {self.name} {self.message}; {self.remedy}{more}")


def installed_commands() -> dict[str, list[CommandEntry]]:
    """Return the commands of installed distributions by name, from metadata alone.  Unreadable metadata is skipped; the doctor reports it."""
    commands: dict[str, list[CommandEntry]] = {}
    for distribution in distributions():
        for entry in _of(distribution):
            commands.setdefault(entry.name, []).append(entry)
    return {name: sorted(commands[name], key=str) for name in sorted(commands)}


def _of(distribution: importlib_metadata.Distribution) -> Iterator[CommandEntry]:
    try:
        points = [point for point in distribution.entry_points if point.group == GROUP]
        entries = [CommandEntry(point.name, point, distribution.metadata["Name"], distribution.version) for point in points]
    except Exception:
        return
    yield from entries


def missing(name: str) -> Missing | None:
    """Return a placeholder for a known command that is not installed, or None."""
    home = KNOWN.get(name)
    return Missing(name, f"comes with {home}, which is not installed", f"pip install {home}") if home else None


class Commands(click.Group):
    """A group of its own commands and those of installed distributions.  Its own take precedence; the help lists the ones left out."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *installed_commands(), *KNOWN})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        rows = installed_commands().get(cmd_name, [])
        if len(rows) > 1:
            both = " and ".join(map(str, rows))
            return Missing(cmd_name, f"cannot be loaded: two distributions provide it, {both}", "uninstall one of them")
        return rows[0].command() if rows else missing(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        left_out = [
            (name, f"of {entry} is left out: Dovetail has a command of that name")
            for name, rows in installed_commands().items()
            for entry in rows
            if name in self.commands
        ]
        if left_out:
            with formatter.section("Left out"):
                formatter.write_dl(left_out)
