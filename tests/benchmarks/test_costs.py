"""The scripts that measure Dovetail alone: one way to run them, one way to keep what they find."""

from __future__ import annotations

import importlib
import json

import costs
import machine
import pytest
from click.testing import CliRunner


@pytest.fixture
def trial():
    return costs.Costs("trial", "A trial", "Once.", ("", "takes"), [("a", "1 ms")], {"a": 1e-3})


def test_a_table_is_kept_with_date_commit_and_machine(trial, tmp_path):
    trial.write(tmp_path / "new")
    kept = json.loads((tmp_path / "new" / "trial.json").read_text())

    assert kept["figures"] == {"a": 1e-3}
    assert {"date", "commit", "cpu", "cores", "torch", "python"} <= set(kept)
    assert "| a | 1 ms |" in (tmp_path / "new" / "trial.md").read_text()


def test_a_script_writes_where_it_is_told(trial, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "KEPT", tmp_path / "kept")
    command = costs.script(lambda: [trial])

    assert CliRunner().invoke(command, ["--out", str(tmp_path / "out")]).exit_code == 0
    assert CliRunner().invoke(command, ["--keep"]).exit_code == 0
    assert (tmp_path / "out" / "trial.md").read_text() == (tmp_path / "kept" / "trial.md").read_text()


@pytest.mark.parametrize("name", ["import_time", "trace_cost", "discovery", "decision_cost", "small_training"])
def test_every_script_is_run_in_one_way(name):
    message = CliRunner().invoke(importlib.import_module(name).main, ["--help"]).output

    assert "--out" in message and "--keep" in message
