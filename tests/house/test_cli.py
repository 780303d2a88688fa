"""The command `dovetail`."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import dovetail
from dovetail.cli import main
from dovetail.executors import Plugin

commands = importlib.import_module("dovetail.cli.executors")  # the command of that name hides the module


@pytest.fixture
def say(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, list(words))
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_version(say):
    assert say("--version").startswith(f"dovetail {dovetail.__version__}, torch ")


def test_help_lists_the_commands(say):
    assert "executors" in say("--help")


def test_the_module_is_the_command():
    run = subprocess.run([sys.executable, "-m", "dovetail", "--version"], capture_output=True, text=True, timeout=300)
    assert run.stdout.startswith(f"dovetail {dovetail.__version__}, torch "), run.stderr


def test_executors_shows_each_plugin_with_its_status(say):
    printed = say("executors")

    assert "dovetail-torch-exec 0.1.0" in printed and "ready" in printed
    assert "Priority order: " in printed


@pytest.fixture
def found(monkeypatch):
    """found(row, ...) is what the commands take for the inventory."""
    return lambda *rows: monkeypatch.setattr(commands, "plugins", lambda: list(rows))


BROKEN = Plugin("soft", "soft", "dovetail-soft", "1.0", "site", "import-failed", "no module named [soft]", "reinstall it", error="Traceback: line 7")
MISSING = Plugin("fast", "fast", "dovetail-fast", "2.0", "site", "unavailable", "needs a CUDA device", "provide what it asks for")


def test_row_10_a_plugin_that_does_not_work_is_a_row_with_its_reason_and_remedy(say, found):
    found(BROKEN, MISSING)
    printed = say("executors")

    for words in ("dovetail-soft 1.0", "import-failed", "no module named [soft]", "reinstall it", "unavailable", "needs a CUDA device"):
        assert words in printed


def test_row_10_the_inventory_as_json(say, found):
    found(BROKEN, MISSING)
    printed = json.loads(say("executors", "--json"))

    assert printed["schema"] == 1 and printed["dovetail"] == dovetail.__version__ and "torch" in printed["order"]
    assert [row["status"] for row in printed["plugins"]] == ["import-failed", "unavailable"]
    assert set(printed["plugins"][0]) == {field.name for field in dataclasses.fields(Plugin)}


def test_row_11_show_prints_the_whole_traceback(say, found):
    found(BROKEN)

    assert "Traceback: line 7" in say("executors", "show", "soft")


def test_show_says_what_an_executor_declares(say):
    (shown,) = json.loads(say("executors", "show", "torch", "--json"))

    assert "torch.nn.functional.softmax" in str(shown["declares"]) or "prims.sin" in str(shown["declares"])
    assert "prims.sin" in say("executors", "show", "torch")


def test_row_12_show_with_a_name_that_is_nearly_right():
    result = CliRunner().invoke(main, ["executors", "show", "torhc"])

    assert result.exit_code == 1 and "did you mean torch?" in result.output


def test_output_fits_80_columns(found, monkeypatch):
    found(BROKEN, MISSING)
    monkeypatch.setenv("COLUMNS", "80")

    assert max(map(len, CliRunner().invoke(main, ["executors"]).output.splitlines())) <= 80


def test_no_plugin_at_all(say, found):
    found()

    assert "No executor is installed" in say("executors")
