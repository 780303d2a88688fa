"""The suite as a Python call: what it counts, what it refuses to count, and what it is asked for wrongly."""

from __future__ import annotations

import logging
import os
import sys
from types import SimpleNamespace

import pytest
import torch
from pytest import fixture, mark, param, raises

import dovetail
from dovetail.errors import ExecutorError
from dovetail.extend import OperatorExecutor
from dovetail_conformance import Report, check, subject
from dovetail_conformance.acts import acts
from dovetail_conformance.attributes import unlike
from dovetail_conformance.broken import running
from dovetail_conformance.run import idle, without_opinfo
from dovetail_conformance.state import watched
from dovetail_conformance.subject import Subject

SIN = ["torch.sin"]


@fixture
def sine() -> OperatorExecutor:
    return running(torch.sin)


def states(report: Report, name: str) -> set[str]:
    return {row.state for row in report if row.check == name}


def test_what_the_executor_ran_is_counted(sine) -> None:
    report = check(sine, operations=SIN, devices=["cpu"], level="quick")

    assert not report.failures
    forward = next(row for row in report if row.check == "forward" and row.dtype == "float32")
    assert forward.ran == forward.samples >= 8 and forward.lines[0] == forward.lines[1] == forward.ran
    assert report.score[0] == report.score[1] > 20


def test_what_others_ran_is_never_a_pass(sine) -> None:
    report = check(sine, operations=["torch.cos"], devices=["cpu"])

    assert {row.state for row in report if row.operation} == {"not-claimed"}
    assert report.score[0] == 0
    assert "does not implement torch.cos" in {row.message for row in report}


def test_an_executor_that_runs_nothing_fails() -> None:
    report = check(OperatorExecutor("idle"), operations=SIN, devices=["cpu"])

    (row,) = idle(Subject(OperatorExecutor("idle")), report.rows)

    assert row.failed
    assert row.message == "the executor is available, and no program that was compiled for it has a line of its own"


@pytest.mark.parametrize("value", ["mine_elsewhere", "mine_elsewhere:plugin"])
def test_the_declaration_of_an_executor_that_is_unavailable_here_is_tested(monkeypatch, value) -> None:
    class Elsewhere(OperatorExecutor):
        def available(self):
            return "needs a card that is not here"

    def make() -> list[OperatorExecutor]:
        ex = Elsewhere("elsewhere")
        ex.implements(torch.sin, torch.sin)
        return [ex]

    hooks = SimpleNamespace(dovetail_executors=make)
    monkeypatch.setitem(sys.modules, "mine_elsewhere", SimpleNamespace(plugin=hooks) if ":" in value else hooks)
    row = SimpleNamespace(name="elsewhere", status="unavailable", executors=("elsewhere",), value=value)
    monkeypatch.setattr(subject, "plugins", lambda: (row,))

    report = check("elsewhere", operations=[*SIN, "declaration"], devices=["cpu"], level="smoke")

    assert not report.failures
    assert states(report, "declaration") == states(report, "checkers") == {"pass"}
    assert {row.message for row in report if row.state == "not-run"} == {"elsewhere is not available here: needs a card that is not here"}
    with raises(ExecutorError, match="no executor is called"):
        check("nowhere", operations=SIN)
    with raises(ValueError, match=r"broken:differentiated\(\) raised .*name an executor, or a function without arguments that makes one"):
        check("dovetail_conformance.broken:differentiated", operations=SIN)


@pytest.mark.parametrize("checks", [None, ["checkers", "refusals"], ["forward"]])
def test_a_selection_of_which_nothing_ran_is_no_pass(checks) -> None:
    refusing = running(torch.sin, checker=lambda x: "has no kernel for this", dtypes=["float32"])

    report = check(refusing, operations=SIN, checks=checks, devices=["cpu"], level="smoke")

    assert not report.rows or report.failures
    assert report.operations["ran"] == 0


def test_the_report_counts_operations_that_ran_were_refused_and_were_never_seen() -> None:
    some = running(torch.sin)
    some.implements("torch.cos", torch.cos, checker=lambda x: "has no kernel for this")

    report = check(some, operations=["torch.sin", "torch.cos", "torch.tan"], devices=["cpu"], level="smoke")

    assert report.operations == {"ran": 1, "refused": 1, "never seen": 1}


def test_a_part_that_others_ran_is_told_apart() -> None:
    report = check(running(torch.mul, "torch.mul", dtypes=["float32"]), operations=["program.chain"], devices=["cpu"])

    row = next(row for row in report if row.check == "programs")
    assert row.state == "pass" and 0 < row.lines[0] < row.lines[1]


def test_a_dtype_that_is_not_declared_is_unsupported() -> None:
    report = check(running(torch.sin, dtypes=["float32"]), operations=SIN, devices=["cpu"], checks=["claims"])

    claims = {row.dtype: row for row in report if row.check == "claims"}
    assert claims["float32"].state == "pass"
    assert claims["float64"].state == "unsupported"
    assert claims["float64"].message.startswith("expected tensors of f32, got")


def test_a_device_that_is_not_there_is_not_run(sine) -> None:
    report = check(sine, operations=SIN, devices=["cuda"], dtypes=["float32"])

    if torch.cuda.is_available():
        assert not report.failures
    else:
        assert {row.check: row.state for row in report} == {"claims": "not-run", "checkers": "pass"}  # checkers need no device
        assert report.score == (1, 1)


def test_an_executor_that_is_not_available_is_not_run() -> None:
    ex = OperatorExecutor("far", available=lambda: "needs a machine with wings")
    ex.implements("torch.sin", torch.sin)

    report = check(ex, operations=["torch.sin", "random", "program.chain"], devices=["cpu"], dtypes=["float32"])

    assert {row.state for row in report if row.check != "checkers"} == {"not-run"}
    assert all("needs a machine with wings" in row.message for row in report if row.state == "not-run")


def test_an_operation_of_its_own_has_to_run_somewhere() -> None:
    ex = OperatorExecutor("mine")
    ex.operation("conformance_twice", lambda x: x * 2, meta=lambda x: x, replace=True)
    ex.operation("conformance_never", lambda x: x, meta=lambda x: x, replace=True)

    rows = without_opinfo(Subject(ex), ran={"mine.conformance_twice"}, level="core")

    assert {row.operation: row.state for row in rows} == {"mine.conformance_twice": "pass", "mine.conformance_never": "fail"}


@mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_an_operation_of_its_own_for_a_device_that_is_not_here_is_not_run() -> None:
    ex = OperatorExecutor("mine")
    far = ex.operation("conformance_far", lambda x: x, meta=lambda x: x, replace=True)
    ex.implements(far, lambda x: x, devices=("cuda",))

    assert [(row.state, row.message) for row in without_opinfo(Subject(ex), ran=set(), level="core")] == [
        ("not-run", "it has no OpInfo, and none of its devices is here")
    ]


def test_an_operation_that_ran_inside_another_is_seen() -> None:
    ex = OperatorExecutor("mine")
    twice = ex.operation("conformance_half", lambda x: x * 0.5, meta=lambda x: x, replace=True)
    ex.implements("torch.square", execution_transform=lambda x: twice(x))
    subject = Subject.of(ex)

    subject.lines(dovetail.last_traces(called(dovetail.jit(lambda x: torch.square(x), executors=[ex])))[-1])

    assert "mine.conformance_half" in subject.ran


def called(function):
    function(torch.ones(2))
    return function


def test_a_failure_comes_with_a_script_that_shows_it() -> None:
    report = check(running(lambda x: torch.sin(x) + 1), operations=SIN, devices=["cpu"], dtypes=["float32"], checks=["forward"])

    script = next(row.replay for row in report.failures)
    scope: dict = {}
    with raises(Exception, match=r"broken"):  # the executor of this test is installed nowhere
        exec(script, scope)
    exec(script.replace('executors=["broken"]', "executors=[]"), scope)
    torch.testing.assert_close(scope["expected"], scope["got"], equal_nan=True)


@mark.parametrize(
    ("how", "message"),
    [
        ({"level": "extreme"}, "unknown level 'extreme'; expected one of smoke, quick, core, full, stress"),
        ({"operations": ["sinusoid"]}, "no operation matches sinusoid"),
        ({"checks": ["fast"]}, "unknown check fast; the checks are "),
        ({"dtypes": ["float33"]}, "unknown dtype float33"),
        ({"devices": ["gpu"]}, "unknown kind of device 'gpu'"),
        ({"update_lock": True, "operations": SIN}, "a lock is updated by a whole run"),
        ({"expectations": "nowhere.toml"}, "there is no file nowhere.toml of expectations"),
    ],
)
def test_what_means_nothing_is_refused(sine, how, message) -> None:
    with raises(ValueError, match=message):
        check(sine, **how)


def test_processes_find_what_one_finds() -> None:
    how = {"operations": ["gelu"], "dtypes": ["float32"], "devices": ["cpu"], "level": "quick"}
    one, two = (check("dovetail_conformance.broken:ignores_an_argument", processes=n, **how) for n in (0, 2))

    assert [(str(row), row.state, row.message) for row in one] == [(str(row), row.state, row.message) for row in two]


@mark.parametrize("processes", [0, param(1, marks=mark.slow)])  # of two, one may be done with all others before the other one fails
def test_the_first_failure_ends_it_where_that_is_asked(processes) -> None:
    how = {"operations": ["gelu"], "devices": ["cpu"], "level": "quick", "processes": processes}
    whole, first = (check("dovetail_conformance.broken:ignores_an_argument", fail_fast=fast, **how) for fast in (False, True))

    assert len(first.rows) < len(whole.rows) and first.failures


def test_progress_is_told() -> None:
    heard = []

    check(
        running(torch.sin), operations=SIN, dtypes=["float32", "float64"], devices=["cpu"], level="smoke", progress=lambda *words: heard.append(words)
    )

    assert heard == [(1, 2, None), (2, 2, None)]


def test_a_report_says_what_it_was_made_with(sine) -> None:
    report = check(sine, operations=SIN, dtypes=["float32"], devices=["cpu"], level="smoke")

    assert report.environment["torch"] == torch.__version__
    assert len(report.suite["hash"]) == 64
    assert report.executor["declaration"]["operations"]["torch.sin"]["checker"] is False
    assert [(str(row), row.state, row.ran) for row in Report.of_json(report.to_json())] == [(str(row), row.state, row.ran) for row in report]


def in_inference_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return x.clone()


@mark.parametrize(
    ("change", "message"),
    [
        (in_inference_mode, "is an inference tensor"),
        (lambda x: torch.nn.Parameter(x, requires_grad=False), "a Parameter was returned"),
        (lambda x: torch.empty(1 << 20)[: len(x)].copy_(x), "keeps 4,194,304 bytes alive"),
        (lambda x: torch.complex(torch.zeros(3), -x).conj().imag, "is lazily negated"),
    ],
)
def test_a_result_of_another_kind_is_named(change, message) -> None:
    x = torch.ones(3)

    assert message in unlike([change(x)], [x])
    assert unlike([x.clone()], [x]) is None


def test_changes_of_the_process_are_named_and_undone() -> None:
    changed: list[str] = []
    level, mask, norm = logging.getLogger().level, os.umask(0o022), torch.linalg.norm
    with watched(changed, whole=True):
        logging.getLogger().setLevel(level + 5)
        os.umask(0o077)
        torch.linalg.norm = torch.norm
        torch.nn.Module.mine = 1

    assert {"logging", "the mask of new files", "torch.linalg.norm", "torch.nn.Module.mine"} <= set(changed)
    assert (logging.getLogger().level, os.umask(mask), torch.linalg.norm, hasattr(torch.nn.Module, "mine")) == (level, 0o022, norm, False)


def test_files_that_are_written_and_read_are_named(tmp_path) -> None:
    with acts(reads=True) as did:
        (tmp_path / "mine").write_text("x")
        (tmp_path / "mine").read_text()
    (tmp_path / "mine").unlink()

    assert did == ["wrote the file mine", "read the file mine"]


def test_checkers_read_nothing_and_remember_nothing() -> None:
    looking = running(torch.sin, checker=lambda x: "is off" if os.path.exists("off") else True)
    seen: list[object] = []
    keeping = running(torch.sin, checker=lambda x: bool(seen.append(x)) or True)

    for executor, message in ((looking, "looks for the file off"), (keeping, "keeps alive the lines")):
        report = check(executor, operations=SIN, devices=["cpu"], dtypes=["float32"], checks=["checkers"])
        assert message in report.failures[0].message


def test_a_checker_may_read_what_tensors_have():
    def checker(tensors, dim=0):
        return (tensors[0].dtype is torch.float32 and tensors[0].shape[0:] == tensors[-1].shape) or "expected tensors of float32"

    ex = OperatorExecutor("reads", dtypes=["float32"])
    ex.implements(torch.stack, torch.stack, checker=checker)

    report = check(ex, operations=["torch.stack"], devices=["cpu"], level="quick")

    assert not report.failures, report.failures[0].message
