"""Row 14: each plugin is tried in a process of its own, so that a crash, an exit or a hang is a row like another."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dovetail.cli import main
from dovetail.cli.doctor import Finding, examine
from dovetail.executors.discovery.plugin_filter import Selection

CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
HEAD = "import torch\nfrom dovetail.extend import OperatorExecutor, hookimpl\n"
RUNS = HEAD + "@hookimpl\ndef dovetail_executors():\n    ex = OperatorExecutor({name!r})\n    ex.implements(torch.sin, {fn})\n    return [ex]\n"
CHECKS = """
@hookimpl
def dovetail_doctor():
    def crashes(): raise RuntimeError("no driver")
    return [("cache", lambda: True), ("disk", lambda: "the cache folder is full"), ("driver", crashes)]
"""
SOURCES = {
    "doc_segfault": CRASH,
    "doc_exits": "import os; os._exit(0)",
    "doc_kernel": RUNS.format(name="doc_kernel", fn=f"lambda input: exec({CRASH!r})"),
    "doc_wrong": RUNS.format(name="doc_wrong", fn="lambda input: torch.cos(input)"),
    "doc_good": RUNS.format(name="doc_good", fn="lambda input: torch.sin(input)") + CHECKS,
    "doc_idle": HEAD + "@hookimpl\ndef dovetail_executors():\n    return [OperatorExecutor('doc_idle')]\n",
}


@pytest.fixture
def findings(site):
    """findings(names, timeout) is what the doctor finds where these plugins are installed, by plugin and check."""

    def look(*names: str, timeout: float = 600) -> dict[tuple[str, str], Finding]:
        for name in names:
            site(name, SOURCES[name])
        return {(each.plugin, each.check): each for each in examine(Selection(allow=names, allowed_by="this test"), timeout)}

    return look


@pytest.mark.slow
def test_row_14_a_segfault_is_a_row(findings):
    found = findings("doc_segfault", "doc_kernel", "doc_exits", "doc_good")

    assert found["doc_segfault", "survives"].message == "the process crashed with SIGSEGV while importing it"
    assert "Segmentation fault" in found["doc_segfault", "survives"].error
    assert found["doc_kernel", "loads"].result == "ok"
    assert found["doc_kernel", "survives"].message == "the process crashed with SIGSEGV while running small programs with doc_kernel"
    assert found["doc_exits", "survives"].message == "the process exited with code 0 while importing it"
    assert found["doc_good", "runs (doc_good)"] == Finding("doc_good", "runs (doc_good)", "ok", "sin: as eager PyTorch")
    assert found["torch", "loads"].result == "note" and "this test allows only" in found["torch", "loads"].message


@pytest.mark.slow
def test_row_14_wrong_results_and_the_plugins_own_checks_are_rows(findings):
    found = findings("doc_wrong", "doc_good", "doc_idle")

    assert found["doc_wrong", "runs (doc_wrong)"].result == "failed"
    assert "sin: AssertionError: Tensor-likes are not close!" in found["doc_wrong", "runs (doc_wrong)"].message
    assert found["doc_idle", "runs (doc_idle)"].result == "note"
    checks = {check: (one.result, one.message) for (plugin, check), one in found.items() if plugin == "doc_good"}
    assert checks["cache"] == ("ok", "")
    assert checks["disk"] == ("failed", "the cache folder is full")
    assert checks["driver"] == ("failed", "RuntimeError: no driver")


@pytest.mark.slow
def test_row_14_a_plugin_that_hangs_is_stopped(site):
    site("doc_hangs", "import time; time.sleep(600)")
    found = examine(Selection(allow=("doc_hangs",), allowed_by="this test"), timeout=8)

    (row,) = [each for each in found if each.plugin == "doc_hangs"]
    assert row.check == "survives" and row.message.startswith("the process was stopped after 8 seconds while ")  # a slow machine is still starting


@pytest.mark.slow
def test_the_command_says_which_and_exits_with_1_where_something_failed(site, monkeypatch):
    site("doc_segfault", SOURCES["doc_segfault"])
    monkeypatch.setenv("DOVETAIL_ALLOW", "doc_segfault")
    result = CliRunner().invoke(main, ["doctor", "--json"])

    assert result.exit_code == 1, result.output
    found = [(row["check"], row["result"]) for row in json.loads(result.output) if row["plugin"] == "doc_segfault"]
    assert ("survives", "failed") in found
    monkeypatch.setenv("COLUMNS", "80")
    printed = CliRunner().invoke(main, ["doctor"]).output
    assert "SIGSEGV" in printed and "1 failed; --verbose prints tracebacks." in printed
    assert max(map(len, printed.splitlines())) <= 80
