"""The group that every command belongs to: those of this package, and those that other distributions bring."""

from __future__ import annotations

import platform

import click
import torch

import dovetail
from dovetail.cli.installed import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dovetail.__version__, message=f"dovetail %(version)s, torch {torch.__version__}, Python {platform.python_version()}")
def main() -> None:
    """Dovetail, a source-to-source compiler for PyTorch with executors that plug in."""
