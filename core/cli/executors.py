"""`dovetail executors`: list the plugins and their status, or show the details of one."""

from __future__ import annotations

import json
import platform
import sys
import warnings
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from dovetail.cli.versions import versions
from dovetail.errors import DovetailError
from dovetail.executors import Executor, ExecutorWarning, Plugin, get_executor, plugins, resolve_executors
from dovetail.executors.discovery.find_plugins import MANIFEST
from dovetail.executors.discovery.registry import REGISTRY, unknown
from dovetail.executors.ordering.unordered import unordered_notes

COLOURS = {"ready": "green", "disabled": "dim", "absent": "dim", "unavailable": "yellow", "unmet-requirement": "yellow", "incompatible": "yellow"}
NOTHING = "No executor is installed, so programs can be traced but not run; the README lists the available executors."
SCHEMA = 1  # of what --json prints; removing a field or changing its meaning raises it


@click.group("executors", invoke_without_command=True, short_help="List plugins, their status and their executors.")
@click.option("--json", "as_json", is_flag=True, help="Print every field as JSON, for bug reports.")
@click.pass_context
def executors(context: click.Context, as_json: bool) -> None:
    """List the installed plugins, their status, and the executors they provide."""
    if context.invoked_subcommand:
        return
    records = plugins()
    if as_json:
        click.echo(json.dumps(report(records), indent=2))
        return
    console = Console(highlight=False)
    if not records:
        console.print(NOTHING)
        return
    console.print(inventory(records))
    for plugin in records:
        explain(console, plugin)
    console.print(order_line(), soft_wrap=True)
    for note in notes():
        console.print(f"Note: {escape(note)}.", soft_wrap=True)


def report(records: list[Plugin]) -> dict[str, Any]:
    """Return the inventory as data, with versions and platform."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExecutorWarning)  # the records say it
        try:
            order, order_error = [ex.name for ex in resolve_executors()], ""
        except DovetailError as error:
            order, order_error = [], str(error)
    about = {"schema": SCHEMA, **versions(), "platform": platform.platform(), "order": order, "order_error": order_error}
    return about | {"plugins": [plugin.row() for plugin in records]}


def order_line() -> str:
    """Return the executors in priority order, or why there is no order."""
    try:
        order = [ex.name for ex in resolve_executors()]
    except DovetailError as error:
        return f"The order cannot be resolved: {escape(str(error))}"
    return f"Priority order: {', '.join(order)}." if order else NOTHING


def notes() -> list[str]:
    """Return a sentence for each pair of executors that only their names order."""
    try:
        return unordered_notes(resolve_executors())
    except DovetailError:
        return []


def coloured(plugin: Plugin) -> str:
    colour = COLOURS.get(plugin.status, "red")
    return f"[{colour}]{plugin.status}[/{colour}]"


def inventory(records: list[Plugin]) -> Table:
    """Return a table with one row for each plugin."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("plugin", "from", "status", "executors"):
        table.add_column(heading, overflow="fold")
    for plugin in records:
        executors = ", ".join(plugin.executors) if plugin.status == "ready" else ""
        table.add_row(escape(plugin.name), escape(plugin.source), coloured(plugin), escape(executors))
    return table


def explain(console: Console, plugin: Plugin) -> None:
    """Print why a plugin is not ready, and the remedy."""
    if plugin.status == "ready" and not plugin.reason:
        return
    console.print(f"[bold]{escape(plugin.name)}[/bold] ({escape(plugin.source)}): {coloured(plugin)}", soft_wrap=True)
    for words in (plugin.reason, plugin.remedy):
        if words:
            console.print(Padding(escape(words), (0, 0, 0, 2)))
    console.print()


@executors.command("show", short_help="Show the details of one plugin or executor.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the records and declarations as JSON.")
def show(name: str, as_json: bool) -> None:
    """Show a plugin or an executor: its record, its declaration, and the full traceback of an error."""
    records = [plugin for plugin in plugins() if name in (plugin.name, plugin.distribution, *plugin.executors)]
    if not records and name not in REGISTRY.executors:
        raise click.ClickException(unknown(name))
    if as_json:
        click.echo(json.dumps([plugin.row() | {"declares": declared(plugin)} for plugin in records], indent=2, default=repr))
        return
    console = Console(highlight=False)
    for plugin in records:
        console.print(facts(plugin))
        if plugin.error:
            click.echo(plugin.error)
        for executor in declared(plugin):
            console.print(declaration(executor))


def facts(plugin: Plugin) -> Table:
    """Return a table of the non-empty fields of a record."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = {"plugin": plugin.name, "from": plugin.source, "path": plugin.path, "entry point": plugin.value, "reason": plugin.reason}
    rows |= {"remedy": plugin.remedy, "executors": ", ".join(plugin.executors), "manifest": plugin.manifest}
    table.add_row("status", coloured(plugin))
    for heading, words in rows.items():
        if words:
            table.add_row(heading, escape(words))
    if plugin.seconds:
        table.add_row("loaded in", f"{plugin.seconds * 1e3:.1f} ms")
    return table


def declared(plugin: Plugin) -> list[dict[str, Any]]:
    """Return the declarations of a plugin's executors, from its manifest where it cannot be loaded."""
    if plugin.status == "ready":
        return [declaration_of(get_executor(name)) for name in plugin.executors if name in REGISTRY.executors]
    if not plugin.manifest:
        return []
    try:
        return list(json.loads(Path(plugin.manifest).read_text())["executors"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"the manifest {plugin.manifest} cannot be read: {type(error).__name__}: {error}") from None


def declaration_of(ex: Executor) -> dict[str, Any]:
    """Return an executor's declaration, with its order hints and options."""
    return ex.declaration() | {"before": list(ex.before), "after": list(ex.after), "options": dict(ex.options)}


def declaration(declared: dict[str, Any]) -> Table:
    """Return a table of the operations of one executor and their declarations."""
    limits = ", ".join(f"{key} {words(declared[key])}" for key in ("dtypes", "devices", "grad") if key in declared)
    limits += "".join(f", {key} {words(declared[key])}" for key in ("before", "after") if declared.get(key))
    limits += "".join(f", option {key} = {value!r}" for key, value in declared.get("options", {}).items())
    table = Table(title=f"{declared.get('name')}: {limits}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operation", overflow="fold")
    table.add_column("declares", overflow="fold")
    for operation, about in (declared.get("operations") or {}).items():
        shown = [f"{key} {words(value)}" for key, value in about.items() if value not in (None, False)]
        table.add_row(escape(operation), escape(", ".join(shown)))
    return table


def words(value: Any) -> str:
    """Format a value of a declaration; None means any."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return {None: "any", True: "yes", False: "no"}.get(value, str(value))


@executors.command("manifest", short_help="Write a plugin's declarations to a file that is read without importing it.")
@click.argument("name")
@click.option("--check", is_flag=True, help="Only check whether the file matches the declarations.")
def manifest(name: str, check: bool) -> None:
    """Write the declarations of the plugin NAME into its package, where they are read without importing it."""
    records = [plugin for plugin in plugins() if plugin.name == name and plugin.status == "ready"]
    if not records:
        raise click.ClickException(unknown(name))
    (plugin,) = records
    candidate = next(item for item in REGISTRY.loaded if (item.name, item.value, item.path) == (plugin.name, plugin.value, plugin.path))
    init = Path(sys.modules[candidate.module.partition(".")[0]].__file__ or "")
    if init.name != "__init__.py":
        raise click.ClickException(f"{name} is a single module, {init.name}; a manifest needs a package")
    file = init.with_name(MANIFEST)
    text = json.dumps({"schema": SCHEMA, "executors": declared(plugin)}, indent=2, default=repr) + "\n"
    if check and (not file.is_file() or file.read_text() != text):
        raise click.ClickException(f"{file} does not match the declarations of {name}; run `dovetail executors manifest {name}`")
    if not check:
        file.write_text(text)
    click.echo(f"{file} matches the declarations of {name}")
