"""`dovetail executors`: every plugin and what became of it, and everything that is known of one."""

from __future__ import annotations

import json
import platform
import sys
import warnings
from pathlib import Path
from typing import Any

import click
import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

import dovetail
from dovetail.errors import DovetailError
from dovetail.executors import Executor, ExecutorWarning, Plugin, get_executor, plugins, resolve_executors
from dovetail.executors.discovery.find_plugins import MANIFEST
from dovetail.executors.discovery.registry import REGISTRY, unknown

COLOURS = {"ready": "green", "disabled": "dim", "absent": "dim", "unavailable": "yellow", "unmet-requirement": "yellow", "incompatible": "yellow"}
NOTHING = "No executor is installed, so programs can be traced and not run; the README lists the executors there are."
SCHEMA = 1  # of what --json prints; a field that goes away or changes its meaning makes it 2


@click.group("executors", invoke_without_command=True, short_help="List plugins: what became of each, and what it brings.")
@click.option("--json", "as_json", is_flag=True, help="Print every field of every record as JSON; put it into bug reports.")
@click.pass_context
def executors(context: click.Context, as_json: bool) -> None:
    """List the plugins that there are, what became of each, and the executors that they bring."""
    if context.invoked_subcommand:
        return
    found = plugins()
    if as_json:
        click.echo(json.dumps(report(found), indent=2))
        return
    console = Console(highlight=False)
    if not found:
        console.print(NOTHING)
        return
    console.print(inventory(found))
    for plugin in found:
        explain(console, plugin)
    console.print(asked(), soft_wrap=True)


def report(found: list[Plugin]) -> dict[str, Any]:
    """The inventory as data, with what it depends on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExecutorWarning)  # the records say it
        try:
            order, trouble = [ex.name for ex in resolve_executors()], ""
        except DovetailError as error:
            order, trouble = [], str(error)
    about = {"schema": SCHEMA, "dovetail": dovetail.__version__, "torch": torch.__version__, "python": platform.python_version()}
    about |= {"platform": platform.platform(), "order": order, "order_error": trouble}
    return about | {"plugins": [plugin.row() for plugin in found]}


def asked() -> str:
    """The order in which executors are asked, or why there is none."""
    try:
        order = [ex.name for ex in resolve_executors()]
    except DovetailError as error:
        return f"The order is not known: {escape(str(error))}"
    return f"Asked in this order: {', '.join(order)}." if order else NOTHING


def coloured(plugin: Plugin) -> str:
    colour = COLOURS.get(plugin.status, "red")
    return f"[{colour}]{plugin.status}[/{colour}]"


def inventory(found: list[Plugin]) -> Table:
    """One row for each plugin, whatever became of it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("plugin", "from", "status", "executors"):
        table.add_column(heading, overflow="fold")
    for plugin in found:
        brings = ", ".join(plugin.executors) if plugin.status == "ready" else ""
        table.add_row(escape(plugin.name), escape(plugin.source), coloured(plugin), escape(brings))
    return table


def explain(console: Console, plugin: Plugin) -> None:
    """Why a plugin is not ready, and what would help, below each other."""
    if plugin.status == "ready" and not plugin.reason:
        return
    console.print(f"[bold]{escape(plugin.name)}[/bold] ({escape(plugin.source)}): {coloured(plugin)}", soft_wrap=True)
    for words in (plugin.reason, plugin.remedy):
        if words:
            console.print(Padding(escape(words), (0, 0, 0, 2)))
    console.print()


@executors.command("show", short_help="Print all that is known of one of them.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the records and declarations as JSON.")
def show(name: str, as_json: bool) -> None:
    """Print all that is known of a plugin or an executor: its record, what it declares, and the whole traceback of what went wrong."""
    found = [plugin for plugin in plugins() if name in (plugin.name, plugin.distribution, *plugin.executors)]
    if not found and name not in REGISTRY.executors:
        raise click.ClickException(unknown(name))
    if as_json:
        click.echo(json.dumps([plugin.row() | {"declares": declared(plugin)} for plugin in found], indent=2, default=repr))
        return
    console = Console(highlight=False)
    for plugin in found:
        console.print(facts(plugin))
        if plugin.error:
            click.echo(plugin.error)
        for each in declared(plugin):
            console.print(declaration(each))


def facts(plugin: Plugin) -> Table:
    """The fields of a record that say something."""
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
    """What the executors of a plugin declare; where it cannot be loaded, what its manifest says."""
    if plugin.status == "ready":
        return [said_by(get_executor(name)) for name in plugin.executors if name in REGISTRY.executors]
    if not plugin.manifest:
        return []
    try:
        return list(json.loads(Path(plugin.manifest).read_text())["executors"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"the manifest {plugin.manifest} cannot be read: {type(error).__name__}: {error}") from None


def said_by(ex: Executor) -> dict[str, Any]:
    """What an executor declares of its operations, with its hints on the order and the options that it has."""
    return ex.declaration() | {"before": list(ex.before), "after": list(ex.after), "options": dict(ex.options)}


def declaration(message: dict[str, Any]) -> Table:
    """The operations of one executor, with what it says of each."""
    limits = ", ".join(f"{key} {words(message[key])}" for key in ("dtypes", "devices", "grad") if key in message)
    limits += "".join(f", {key} {words(message[key])}" for key in ("before", "after") if message.get(key))
    limits += "".join(f", option {key} = {value!r}" for key, value in message.get("options", {}).items())
    table = Table(title=f"{message.get('name')}: {limits}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operation", overflow="fold")
    table.add_column("declares", overflow="fold")
    for operation, about in (message.get("operations") or {}).items():
        shown = [f"{key} {words(value)}" for key, value in about.items() if value not in (None, False)]
        table.add_row(escape(operation), escape(", ".join(shown)))
    return table


def words(value: Any) -> str:
    """A value of a declaration; None stands for anything."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return {None: "any", True: "yes", False: "no"}.get(value, str(value))


@executors.command("manifest", short_help="Write down what one declares, to be read without importing it.")
@click.argument("name")
@click.option("--check", is_flag=True, help="Only say whether the file is what the executors declare.")
def manifest(name: str, check: bool) -> None:
    """Write what the plugin NAME declares into its package, where it can be read without importing it."""
    found = [plugin for plugin in plugins() if plugin.name == name and plugin.status == "ready"]
    if not found:
        raise click.ClickException(unknown(name))
    (plugin,) = found
    candidate = next(each for each in REGISTRY.loaded if (each.name, each.value, each.path) == (plugin.name, plugin.value, plugin.path))
    init = Path(sys.modules[candidate.module.partition(".")[0]].__file__ or "")
    if init.name != "__init__.py":
        raise click.ClickException(f"{name} is one module, {init.name}, and a manifest lies in a package")
    file = init.with_name(MANIFEST)
    text = json.dumps({"schema": SCHEMA, "executors": declared(plugin)}, indent=2, default=repr) + "\n"
    if check and (not file.is_file() or file.read_text() != text):
        raise click.ClickException(f"{file} is not what {name} declares; run `dovetail executors manifest {name}`")
    if not check:
        file.write_text(text)
    click.echo(f"{file} is what {name} declares")
