"""`dovetail lock`: write the plugins and their order to the lock file, or compare them with it."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.config import plain_errors
from dovetail.cli.versions import versions
from dovetail.executors.discovery import configuration, lockfile
from dovetail.executors.ordering.resolve_order import process_wide


@click.command("lock", short_help="Write the lock file of plugins and their order, or compare.")
@click.option("--frozen", is_flag=True, help="Write nothing; fail and list the differences from the lock file.")
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="The lock file, by default beside the configuration.")
@plain_errors
def lock_command(frozen: bool, path: Path | None) -> None:
    """Write the lock file: each plugin's distribution, version and content, and the order of executors.

    With `frozen = true` in the configuration, or DOVETAIL_FROZEN=1, a process refuses to compile where they differ.
    """
    configuration.refresh()
    path = path or configuration.lock_path()
    before = lockfile.read(path) if frozen or path.exists() else lockfile.Lock((), ())
    installed = lockfile.plugins()
    if frozen and (differences := before.differences(lockfile.Lock(installed, before.order))):
        raise lockfile.drift(path, differences)  # before any plugin is imported
    now = lockfile.Lock(installed, lockfile.order_of(process_wide()), versions())
    differences = before.differences(now)
    if frozen and differences:
        raise lockfile.drift(path, differences)
    if frozen:
        click.echo(f"{path} matches: {len(now.plugins)} plugins, in the order {', '.join(now.order) or 'none'}.")
        return
    path.write_text(now.written(), encoding="utf-8")
    for row in differences:
        click.echo(row)
    click.echo(f"{path} {'written' if differences else 'is unchanged'}.")
