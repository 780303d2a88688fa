"""The commands, one function each."""

from __future__ import annotations

import platform

import click
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import dovetail
from dovetail.executors import Plugin, plugins, resolve_executors

COLOURS = {"ready": "green", "unavailable": "yellow", "broken": "red"}

NOTHING = "No executor is installed, so programs can be traced and not run; the README lists the executors there are."


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dovetail.__version__, message=f"dovetail %(version)s, torch {torch.__version__}, Python {platform.python_version()}")
def main() -> None:
    """Dovetail, a source-to-source compiler for PyTorch with executors that plug in."""


@main.command("executors")
def show_executors() -> None:
    """List the plugins that are installed, and the executors that they bring."""
    console = Console()
    found = plugins()
    if not found:
        console.print(NOTHING)
        return
    console.print(inventory(found))
    order = [ex.name for ex in resolve_executors()]
    if order:
        console.print(f"Asked in this order: {', '.join(order)}.")


def inventory(found: list[Plugin]) -> Table:
    """One row for each plugin, whatever became of it."""
    table = Table(title="Plugins", title_justify="left")
    for heading in ("plugin", "distribution", "status", "executors", "reason"):
        table.add_column(heading, overflow="fold")
    for plugin in found:
        status = f"[{COLOURS[plugin.status]}]{plugin.status}[/]"
        table.add_row(escape(plugin.name), f"{plugin.distribution} {plugin.version}", status, ", ".join(plugin.executors), escape(plugin.reason))
    return table
