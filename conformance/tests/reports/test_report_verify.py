"""A report that is sent in is looked at again: each thing that is wrong with it is a sentence."""

from __future__ import annotations

import json

import pytest

from dovetail_conformance import environment, plan, verify
from dovetail_conformance.report import Report, Row

SUITE = {"version": "0.1.0", "hash": "0123456789abcdef" * 4}  # that of the reports of conftest.py
CHECKS = ("claims", "forward", "backward", "meta", "inputs", "determinism", "repeat")
MUSTPASS = {("torch.sin", "float32", "cpu"), ("prims.sin", "float32", "cpu"), ("declaration", "", "cpu"), ("a program", "", "cpu")}


def cell(operation: str, *checks: str) -> list[Row]:
    return [Row(operation, check, "float32", "cpu", "pass", 3, 3, (3, 3)) for check in checks or CHECKS]


@pytest.fixture
def whole() -> list[Row]:
    """The rows of a report that is complete for MUSTPASS."""
    return [
        Row("", "declaration", ran=1, samples=1),
        Row("a program", "composition"),
        *cell("torch.sin"),
        *cell("prims.sin", *(check for check in CHECKS if check not in ("forward", "backward"))),
    ]


def looked(document: Report | str, **more) -> list[str]:
    text = document if isinstance(document, str) else document.to_json()
    return verify.problems(text, **{"suite": SUITE, "mustpass": MUSTPASS, **more})


def changed(document: Report, **more) -> str:
    return json.dumps(json.loads(document.to_json()) | more)


def test_a_report_in_order_has_no_problem(report, whole):
    assert looked(report(*whole)) == []


def test_a_failure_that_calls_itself_new(report, whole):
    assert looked(report(*whole, Row("torch.cos", "forward", state="fail", message="differs", new=True))) == [
        "torch.cos-cpu-forward is marked as new, and is not."
    ]


def test_known_failures_and_what_is_waived_with_a_reason_are_no_problem(report, whole):
    more = [Row("torch.cos", "forward", state="xfail", reason="issue 3"), Row("torch.tan", "forward", state="waived", message="needs a patent")]

    assert looked(report(*whole, *more)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>", "It is not valid JSON: "),
        ("[]", "Its format is None, and this version of the suite reads format 1."),
        ('{"format": 7}', "Its format is 7, and this version of the suite reads format 1."),
        ('{"format": 1, "reports": []}', "Its list of reports is empty."),
        ('{"format": 1, "reports": [3]}', "?: It does not follow report.schema.json: 3 is not of type 'object'."),
    ],
)
def test_what_is_no_report_at_all(text, message):
    (sentence,) = looked(text)

    assert sentence.startswith(message)


def test_a_report_that_does_not_follow_the_schema(report, whole):
    (sentence,) = looked(changed(report(), rows=[{"operation": "torch.sin", "check": "forward", "state": "passed"}]))

    assert sentence.startswith("It does not follow report.schema.json at rows[0].state: 'passed' is not one of")


def test_a_report_of_another_suite(report, whole):
    sentences = looked(report(*whole, suite={**SUITE, "version": "0.2.0"}))

    assert sentences == ["It was created by version 0.2.0 of the suite; version 0.1.0 is installed."]


def test_a_report_of_a_suite_that_was_changed(report, whole):
    (sentence,) = looked(report(*whole, suite={**SUITE, "hash": "f" * 64}))

    assert sentence == "It was created by a suite of version 0.1.0 with other files: their hash is ffffffffffff, and not 0123456789ab."


def test_uncommitted_changes(report, whole):
    (sentence,) = looked(report(*whole, source={"commit": "c0ffee", "clean": False}))

    assert sentence == "The executor's repository had changes that are not in the commit c0ffee: commit them and run the suite again."


def test_a_report_that_says_nothing_of_its_commit(report, whole):
    (sentence,) = looked(report(*whole, source={}))

    assert sentence.startswith("It names no commit of the executor")


def test_a_level_that_proves_too_little(report, whole):
    assert looked(report(*whole, level="smoke")) == ["It is of level smoke, which is too low: run the suite with --level core."]


@pytest.mark.parametrize(("left_out", "named"), [("torch.sin", "torch.sin-float32-cpu"), ("a program", "a program-cpu"), ("", "declaration-cpu")])
def test_an_operation_that_is_missing(report, whole, left_out, named):
    sentences = looked(report(*[row for row in whole if row.operation != left_out]))

    assert sentences == [f"It has no rows for 1 operations with a dtype that level core has: {named}."]


@pytest.mark.parametrize("check", CHECKS[1:])
def test_a_check_that_is_missing_of_an_operation_that_was_run(report, whole, check):
    sentences = looked(report(*[row for row in whole if (row.operation, row.check) != ("torch.sin", check)]))

    assert sentences == [f"It has no rows for 1 checks of operations that it ran: torch.sin-float32-cpu-{check}."]


def test_an_operation_that_was_not_taken_has_no_further_checks(report, whole):
    rows = [row for row in whole if row.operation != "torch.sin"]

    assert looked(report(*rows, Row("torch.sin", "claims", "float32", "cpu", "not-claimed", 0, 3))) == []


def test_devices_that_are_not_declared_are_not_asked_for(report):
    rows = [Row("torch.sin", "claims", "float32", "cuda", ran=0, state="not-run"), Row("torch.cos", "meta", "float32", "cuda", ran=1, samples=1)]
    document = report(*rows)
    document.executor["declaration"] = {"devices": ["cuda"]}

    assert looked(document) == []


def test_a_report_of_an_executor_that_ran_nothing(report):
    rows = [Row(operation, "claims", dtype, device, "not-run") for operation, dtype, device in MUSTPASS]

    assert looked(report(*rows)) == ["mine ran no sample at all, so the report proves nothing."]


def test_a_summary_that_the_rows_contradict(report, whole):
    summary = {"counts": {"pass": 20, "waived": 2}, "passed": 20, "counted": 22, "failed": 0}

    assert looked(changed(report(*whole), summary=summary)) == [
        "Its summary counts 20 rows in state pass, and there are 14.",
        "Its summary counts 2 rows in state waived, and there are 0.",
        "Its summary has 20 rows passed, and there are 14.",
        "Its summary has 22 rows counted, and there are 14.",
    ]


def test_a_failure_that_nobody_expected(report, whole):
    (sentence,) = looked(report(*whole, Row("torch.cos", "forward", "float32", state="fail", message="off by 3")))

    assert sentence == "torch.cos-float32-cpu-forward failed, and no expectation says why: off by 3."


def test_an_expected_failure_that_passes(report, whole):
    assert "failed, and no expectation says why" in looked(report(*whole, Row("torch.cos", "forward", state="xpass")))[0]


@pytest.mark.parametrize("state", ["waived", "xfail"])
def test_what_is_left_out_without_a_reason(report, whole, state):
    assert looked(report(*whole, Row("torch.cos", "forward", state=state, reason="  "))) == [f"torch.cos-cpu-forward is {state} without a reason."]


def test_rows_that_cannot_be(report, whole):
    rows = [Row("torch.cos", "forward", ran=5, samples=4), Row("torch.tan", "forward", lines=(3, 2)), Row("torch.tan", "forward", state="partly")]

    assert looked(report(*whole, *rows)) == [
        "It has 1 rows more than once: torch.tan-cpu-forward.",
        "torch.cos-cpu-forward says that more samples were run than there were.",
        "torch.tan-cpu-forward says that more lines were the executor's than there were.",
    ]


def test_many_of_one_kind_are_counted(report, whole):
    sentences = looked(report(*whole, *[Row(f"torch.op{i}", "forward", state="fail") for i in range(13)]))

    assert len(sentences) == 11 and sentences[-1] == "3 more: each failed, and no expectation says why."


def test_of_several_reports_each_problem_names_its_executor(report, whole):
    both = json.dumps(
        {"format": 1, "reports": [json.loads(document.to_json()) for document in (report(*whole), report(*whole, name="other", level="smoke"))]}
    )

    assert looked(both) == ["other: It is of level smoke, which is too low: run the suite with --level core."]


def test_the_installed_suite_says_what_must_pass(report):
    (missing,) = verify.problems(report(Row("torch.sin", "meta", ran=1, samples=1), suite=environment.suite()).to_json())

    assert missing.startswith(f"It has no rows for {len(plan.mustpass()):,} operations with a dtype that level core has: ")
