"""`dovetail disagreements`: list or clear lines whose results differed from the reference; their executors are not offered them again."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from dovetail.cli.config import plain_errors
from dovetail.executors.discovery import configuration
from dovetail.executors.dispatching.distrust import DISTRUST, folder


@click.command("disagreements", short_help="List or clear results that differed from the reference.")
@click.option("--clear", is_flag=True, help="Clear them: the executors are offered these lines again.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@plain_errors
def disagreements(clear: bool, as_json: bool) -> None:
    """List the disagreements of earlier processes, each with its replay script."""
    configuration.refresh()
    records = DISTRUST.clear() if clear else list(DISTRUST.listed())
    if as_json:
        click.echo(json.dumps([asdict(record) for record in records], indent=2))
        return
    for record in records:
        click.echo(f"{record.executor}: {record.operation}: {record.message}\n  python {record.case}")
    count = f"{len(records)} disagreement{'s' * (len(records) != 1)}"
    click.echo(f"{count} {'cleared' if clear else 'recorded'} in {folder()}")
