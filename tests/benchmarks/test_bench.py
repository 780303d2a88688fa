"""The command: what it measures again, what it refuses, and what it writes."""

from __future__ import annotations

import json
from dataclasses import replace

import bench
import machine
import measuring
import pytest
import subjects
from click.testing import CliRunner
from rows import Report, Row


@pytest.fixture
def asked(monkeypatch):
    """What was measured, as (workload, subjects), by a Measurement that takes no time."""
    found = []

    class Instant(measuring.Measurement):
        def run(self):
            found.append((self.workload, list(self.rows)))
            return [Row(self.workload, name, firsts=[1.0], rounds=[1.0], speeds=[1.0], calls=1) for name in self.rows]

    monkeypatch.setattr(measuring, "Measurement", Instant)
    monkeypatch.setattr(machine, "commit", lambda: "abc")
    return found


@pytest.fixture
def run(tmp_path):
    """run("--quick") is what the command prints, and its exit status."""

    def command(*arguments, status=0):
        done = CliRunner().invoke(bench.main, [*arguments, "--out", str(tmp_path)])
        assert done.exit_code == status, done.output + str(done.exception)
        return " ".join(done.output.split())

    return command


def test_everything_is_written(asked, run, tmp_path):
    message = run("--only", "add-4", "--subjects", "dovetail", "--rounds", "2")

    assert asked == [("add-4", ["eager", "dovetail"])]
    assert {file.name for file in tmp_path.iterdir()} == {"comparison.json", "comparison.md"} | {
        f"comparison_{name}.{form}" for name in ("speed", "first_call") for form in ("png", "svg")
    }
    assert "dovetail against eager: 1.00x warm" in message
    kept = json.loads((tmp_path / "comparison.json").read_text())
    assert kept["settings"]["rounds"] == 2 and kept["about"]["commit"] == "abc" and "torch" in kept["about"]["executors"]


def test_a_row_that_exists_is_not_measured_again(asked, run):
    run("--only", "add-4", "--subjects", "dovetail")
    run("--only", "add-4", "--only", "mlp-1", "--subjects", "dovetail", "--continue")
    run("--only", "add-4", "--subjects", "dovetail,dovetail:torch", "--continue")

    assert asked == [("add-4", ["eager", "dovetail"]), ("mlp-1", ["eager", "dovetail"]), ("add-4", ["eager", "dovetail:torch"])]


@pytest.mark.slow
def test_without_continue_it_begins_anew(asked, run, tmp_path):
    run("--only", "add-4", "--subjects", "dovetail")
    run("--only", "mlp-1", "--subjects", "dovetail")

    assert Report.load(tmp_path / "comparison.json").workloads == ["mlp-1"]


@pytest.mark.parametrize("key", ["commit", "cpu", "executors"])
def test_rows_of_other_code_or_another_machine_are_not_continued(asked, run, tmp_path, key):
    run("--only", "add-4", "--subjects", "dovetail")
    file = tmp_path / "comparison.json"
    before = Report.load(file)
    replace(before, about=before.about | {key: "another"}).save(tmp_path)

    message = run("--only", "mlp-1", "--subjects", "dovetail", "--continue", status=1)
    assert f"was measured with {key} another; run without --continue to start again" in message
    assert len(asked) == 1


def test_other_settings_are_not_continued(asked, run):
    run("--only", "add-4", "--subjects", "dovetail")

    assert "other settings" in run("--only", "mlp-1", "--subjects", "dovetail", "--rounds", "2", "--continue", status=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "gtp"), "no workload matches gtp; expected one of add-4"),
        (("--subjects", "jax"), "unknown subject jax; expected one of eager, torch.compile"),
        (("--plugin", "plugins/nowhere"), "does not exist"),
    ],
)
def test_a_name_that_nothing_has_is_an_error_that_says_what_there_is(run, arguments, message):
    assert message in run(*arguments, status=2)


def test_the_list_says_how_long_it_takes(run):
    message = run("--list", "--quick")

    assert "GPT, training step" in message and "bf16" not in message
    assert message.endswith("minutes")


def test_a_subject_that_is_not_there_is_told_and_not_measured(asked, run, monkeypatch, tmp_path):
    monkeypatch.setattr(subjects, "absent", lambda name: "not installed" if name == "lightning-thunder" else "")
    message = run("--only", "add-4", "--subjects", "lightning-thunder,dovetail")

    assert asked == [("add-4", ["eager", "dovetail"])]
    assert "lightning-thunder is not in the tables: not installed." in message
    assert "lightning-thunder is not in the tables" in (tmp_path / "comparison.md").read_text()


def test_chosen_executors_compile():
    import torch

    compiled = subjects.subject("dovetail:torch").compile(lambda x: x + 1)

    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert subjects.ran(compiled) == {"torch": 1}
    assert subjects.ran(lambda x: x) == {}
