"""`dovetail conformance`: what it asks the suite for, what it prints and writes, and what it ends with."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from xml.etree import ElementTree as xml

import click
import pytest
from click.testing import CliRunner

import dovetail_conformance
from dovetail.errors import ExecutorError
from dovetail_conformance import cli, verify
from dovetail_conformance.cli import conformance
from dovetail_conformance.report import Report, Row

RIGHT = Row("torch.sin", "forward", "float32", ran=3, samples=3)
WRONG = Row("torch.sin", "meta", "float32", state="fail", ran=3, samples=3, message="the strides are others", replay="print(1)")


def say(*words: object) -> click.testing.Result:
    return CliRunner().invoke(conformance, [str(word) for word in words])


@pytest.fixture
def runs(monkeypatch, report) -> dict:
    """What the suite was asked for: executor by executor.  It finds RIGHT for every executor, and WRONG for `wrong`."""
    runs: dict[str, dict] = {}

    def check(executor: str, **how) -> Report:
        if executor == "nobody":
            raise ExecutorError("no executor is called nobody")
        if how["dtypes"] == ("int3",):
            raise ValueError("unknown dtype int3")
        runs[executor] = how
        rows = [] if executor == "idle" else [RIGHT, WRONG] if executor == "wrong" else [RIGHT]
        return report(*rows, name=executor, level=how["level"])

    monkeypatch.setattr(dovetail_conformance, "check", check, raising=False)
    return runs


@pytest.fixture
def saved(report, tmp_path):
    """saved("a.json", row, ...) is a file with a report."""

    def save(file: str, /, *rows: Row, **more):
        report(*rows, **more).save(tmp_path / file)
        return tmp_path / file

    return save


def test_the_distribution_brings_the_command():
    try:
        (point,) = entry_points(group="dovetail.commands", name="conformance")
    except ValueError:
        pytest.skip("the installed metadata of dovetail-conformance is older than this tree; `make install` renews it")

    assert point.load() is conformance


def test_an_executor_s_name_runs_the_suite_at_level_core(runs):
    result = say("mine")

    assert result.exit_code == 0 and "mine 1.2 at level core: 100 % (1 of 1) passed" in result.output
    assert runs == {
        "mine": {
            "level": "core",
            "operations": None,
            "checks": None,
            "dtypes": None,
            "devices": None,
            "processes": 0,
            "timeout": 120.0,
            "seed": 0,
            "seeds": 1,
            "expectations": None,
            "lock": None,
            "update_lock": False,
            "update_expectations": False,
            "fail_fast": False,
            "progress": None,
        }
    }


def test_every_option_reaches_the_suite(runs, tmp_path):
    (tmp_path / "known.toml").touch()
    words = ["--level", "smoke", "mine", "-k", "softmax", "-k", "torch.*max", "--check", "meta", "--dtype", "float32", "--device", "cpu", "-n", "2"]
    words += [
        "--seed",
        "7",
        "--seeds",
        "3",
        "--timeout",
        "1.5",
        "--expectations",
        tmp_path / "known.toml",
        "--lock",
        tmp_path / "lock",
        "--update-lock",
    ]
    words += ["--update-expectations", "-x"]

    assert say(*words).exit_code == 0
    assert runs["mine"] == {
        "level": "smoke",
        "operations": ("softmax", "torch.*max"),
        "checks": ("meta",),
        "dtypes": ("float32",),
        "devices": ("cpu",),
        "processes": 2,
        "timeout": 1.5,
        "seed": 7,
        "seeds": 3,
        "expectations": tmp_path / "known.toml",
        "lock": tmp_path / "lock",
        "update_lock": True,
        "update_expectations": True,
        "fail_fast": True,
        "progress": None,
    }


def test_a_failing_row_ends_it_with_1_after_every_executor_was_asked(runs):
    result = say("wrong", "mine", "wrong")

    assert result.exit_code == 1 and list(runs) == ["wrong", "mine"]
    assert "fail  torch.sin, float32, cpu: meta\n    the strides are others" in result.output
    assert "print(1)" not in result.output and "print(1)" in say("wrong", "-v").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Usage: dovetail"),
        (["mine", "--level", "most"], "'most' is not one of 'smoke', 'quick', 'core', 'full', 'stress'"),
        (["mine", "--dtype", "int3"], "unknown dtype int3"),
        (["nobody"], "no executor is called nobody"),
        (["idle"], "nothing was checked"),
        (["mine", "other", "--badge", "b.json"], "a badge is of one executor"),
        (["mine", "--html", "no such folder/page.html"], "there is no folder no such folder"),
        (["mine", "--expectations", "not there.toml"], "not there.toml does not exist; create it with --update-expectations"),
        (["mine", "--frobnicate"], "No such option"),
        (["--level", "core"], "Missing argument 'NAME...'"),
    ],
)
def test_a_mistake_in_usage_ends_it_with_2(runs, words, message):
    result = CliRunner().invoke(conformance, words, prog_name="dovetail conformance")

    assert result.exit_code == 2 and message in result.output


def test_help_shows_the_options_and_the_other_commands():
    printed = say("--help").output

    assert all(
        word in printed for word in ("NAME... [OPTIONS]", "--level", "-k PATTERN", "--junit FILE", "verify", "combine", "trend", "diff", "render")
    )


def test_an_executor_that_is_called_like_a_command(runs):
    assert say("run", "diff").exit_code == 0
    assert list(runs) == ["diff"]


def test_it_writes_every_form_for_all_executors(runs, tmp_path):
    result = say("wrong", "mine", *(word for name in ("json", "html", "markdown", "junit") for word in (f"--{name}", tmp_path / name)))

    assert result.exit_code == 1
    assert [each["executor"]["name"] for each in json.loads((tmp_path / "json").read_text())["reports"]] == ["wrong", "mine"]
    assert "wrong, mine" in (tmp_path / "html").read_text()
    assert "| mine 1.2 |" in (tmp_path / "markdown").read_text()
    assert [suite.get("failures") for suite in xml.parse(tmp_path / "junit").getroot()] == ["1", "0"]


def test_one_report_is_written_as_such_and_a_badge(runs, tmp_path):
    say("mine", "--json", tmp_path / "json", "--badge", tmp_path / "badge")

    assert Report.load(tmp_path / "json").rows == [RIGHT]
    assert json.loads((tmp_path / "badge").read_text())["message"] == "100 % (1 of 1)"


def test_through_a_pipe_there_is_no_progress_bar(runs):
    assert runs == {} and say("mine").exit_code == 0
    assert runs["mine"]["progress"] is None


def test_on_a_terminal_a_bar_says_what_failed(monkeypatch, capsys):
    console = cli.Console
    monkeypatch.setattr(cli, "Console", lambda **how: console(force_terminal=True, width=80, **how))
    with cli._bar("mine") as progress:
        progress(1, 3, WRONG)
        progress(2, 3, RIGHT)

    assert "fail  torch.sin, float32, cpu: meta" in capsys.readouterr().err


def test_render_prints_and_writes(saved, tmp_path):
    path = saved("a.json", RIGHT, WRONG)

    assert "50.0 % (1 of 2) passed" in say("render", path).output
    assert say("render", path, "--html", tmp_path / "page.html").output == f"{tmp_path / 'page.html'} written\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_diff_ends_with_1_where_something_is_worse(saved):
    right, wrong = saved("a.json", RIGHT), saved("b.json", RIGHT, WRONG)
    worse, better, same = say("diff", right, wrong), say("diff", wrong, right), say("diff", right, right)

    assert worse.exit_code == 1 and "1 row worse\n  torch.sin-float32-cpu-meta: not there -> fail: the strides are others" in worse.output
    assert better.exit_code == 0 and "1 row otherwise changed" in better.output
    assert same.exit_code == 0 and same.output == "No row changed.\n"


def test_trend_has_a_line_for_each_report(saved):
    paths = saved("b.json", RIGHT, WRONG, created="2026-02-01"), saved("a.json", RIGHT, created="2026-01-01")

    assert say("trend", *paths).output == (
        "mine at level core\n"
        "  2026-01-01  100 % (1 of 1), 0 failed (version 1.2, suite 0.1.0)\n"
        "  2026-02-01  50.0 % (1 of 2), 1 failed (version 1.2, suite 0.1.0, 1 worse and 0 better)\n"
    )


def test_combine_writes_one_file_and_refuses_what_does_not_go_together(saved, tmp_path):
    one, other = saved("a.json", RIGHT), saved("b.json", RIGHT, name="other")
    assert say("combine", one, other, "--json", tmp_path / "both.json").exit_code == 0
    assert "other 1.2 at level core" in say("render", tmp_path / "both.json").output

    refused = say("combine", tmp_path / "both.json", one)
    assert refused.exit_code == 1 and "there are two reports of the executor mine" in refused.output


def test_verify_prints_what_is_wrong(saved, monkeypatch):
    path = saved("a.json", RIGHT)
    monkeypatch.setattr(verify, "problems", lambda text: ["It is of level smoke."] if "smoke" in text else [])

    assert say("verify", path).output == f"{path} holds.\n"
    result = say("verify", saved("b.json", RIGHT, level="smoke"))
    assert result.exit_code == 1 and result.output.startswith("It is of level smoke.\n") and result.output.endswith("b.json: 1 problem.\n")


@pytest.mark.parametrize("command", [["render"], ["trend"], ["combine"]])
def test_a_file_that_is_no_report_is_a_mistake_in_usage(tmp_path, command):
    (tmp_path / "a.json").write_text("{}")
    result = say(*command, tmp_path / "a.json")

    assert result.exit_code == 2 and "a.json: this is not a report" in result.output
