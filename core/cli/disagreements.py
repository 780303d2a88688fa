"""`dovetail disagreements`: the lines that executors computed otherwise than the reference, and are not offered again."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from dovetail.cli.config import plain_errors
from dovetail.executors.discovery import configuration
from dovetail.executors.dispatching.distrust import DISTRUST, folder


@click.command("disagreements", short_help="List or forget what executors computed otherwise than the reference.")
@click.option("--clear", is_flag=True, help="Forget them: the executors are offered these lines again, and tried again.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@plain_errors
def disagreements(clear: bool, as_json: bool) -> None:
    """List the disagreements of earlier processes, each with the script that replays it."""
    configuration.refresh()
    found = DISTRUST.clear() if clear else list(DISTRUST.listed())
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    for each in found:
        click.echo(f"{each.executor}: {each.operation}: {each.message}\n  python {each.case}")
    count = f"{len(found)} disagreement{'s' * (len(found) != 1)}"
    click.echo(f"{count} {'forgotten' if clear else 'kept'} in {folder()}")
