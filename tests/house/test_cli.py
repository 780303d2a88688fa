"""The command `dovetail`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import dovetail
from dovetail.cli import commands, main


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


def test_executors_shows_each_plugin_with_its_status(say):
    printed = say("executors")

    assert "dovetail-torch-exec 0.1.0" in printed and "ready" in printed
    assert "Asked in this order: torch." in printed


def test_a_plugin_that_does_not_work_is_a_row_with_its_reason(say, monkeypatch):
    broken = commands.Plugin("soft", "dovetail-soft", "1.0", "broken", "ImportError: no module named [soft]")
    missing = commands.Plugin("fast", "dovetail-fast", "2.0", "unavailable", "needs a CUDA device")
    monkeypatch.setattr(commands, "plugins", lambda: [broken, missing])
    printed = say("executors")

    assert "ImportError: no module named [soft]" in printed
    assert "needs a CUDA device" in printed


def test_no_plugin_at_all(say, monkeypatch):
    monkeypatch.setattr(commands, "plugins", list)

    assert "No executor is installed" in say("executors")
