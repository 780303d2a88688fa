"""The command `dovetail`: what is installed, and whether it works."""

from dovetail.cli.commands import main as main
