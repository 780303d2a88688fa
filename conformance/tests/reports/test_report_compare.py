"""Reports beside each other: what is worse is found, and what does not compare is refused."""

from __future__ import annotations

import json

import jsonschema
import pytest

from dovetail_conformance import compare, verify
from dovetail_conformance.report import Row


def row(state: str, operation: str = "torch.sin", **more) -> Row:
    return Row(operation, "forward", "float32", state=state, **more)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("pass", "fail", "worse"),
        ("pass", "not-claimed", "worse"),
        ("pass", "partly", "worse"),
        ("pass", "waived", "worse"),
        ("pass", "not-run", "worse"),
        ("pass", None, "worse"),
        ("unsupported", "crash", "worse"),
        (None, "fail", "worse"),
        ("fail", "pass", "better"),
        ("fail", "xfail", "better"),
        ("not-claimed", "partly", "better"),
        (None, "pass", "better"),
        ("fail", "crash", "others"),
        ("unsupported", "not-claimed", "others"),
        (None, "unsupported", "others"),
        ("waived", None, "others"),
    ],
)
def test_a_change_is_worse_better_or_neither(report, old, new, verdict):
    comparison = compare.diff(*[report(*[row(state)] if state else []) for state in (old, new)])

    assert {what: len(getattr(comparison, what)) for what in ("worse", "better", "others")} == {"worse": 0, "better": 0, "others": 0, verdict: 1}


def test_a_row_that_was_new_and_now_counts_is_worse_where_it_fails(report):
    comparison = compare.diff(report(row("fail", new=True)), report(row("fail")))

    assert [str(change) for change in comparison.worse] == ["torch.sin-float32-cpu-forward: fail -> fail"]


def test_equal_reports_have_no_difference(report, every_state):
    comparison = compare.diff(report(*every_state), report(*every_state))

    assert comparison.changes == () and comparison.remarks == ()


def test_a_change_is_told_with_its_sentence_and_failures_come_first(report):
    old = report(row("pass", "torch.a"), row("pass", "torch.b"))
    new = report(row("not-claimed", "torch.a", message="refused"), row("fail", "torch.b", message="off by one"))

    told = [str(change) for change in compare.diff(old, new).worse]
    assert told == ["torch.b-float32-cpu-forward: pass -> fail: off by one", "torch.a-float32-cpu-forward: pass -> not-claimed: refused"]


def test_what_the_reports_were_made_with_is_remarked(report):
    comparison = compare.diff(report(), report(level="full", environment={"torch": "2.14.0"}, suite={"version": "0.2.0", "hash": "ff"}))

    assert "levels differ: core and full" in comparison.remarks
    assert "environments (torch) differ: 2.13.0 and 2.14.0" in comparison.remarks
    assert any(remark.startswith("suites differ: 0.1.0 (0123") and remark.endswith("and 0.2.0 (ff)") for remark in comparison.remarks)


def test_a_trend_is_in_the_order_of_time_within_an_executor(report):
    first, second = report(row("pass"), created="2026-01-01"), report(row("fail"), created="2026-02-01")
    points = compare.trend([second, report(row("pass"), name="another", created="2026-03-01"), first])

    assert [(point.report.name, point.report.created, point.worse, point.better) for point in points] == [
        ("another", "2026-03-01", None, None),
        ("mine", "2026-01-01", None, None),
        ("mine", "2026-02-01", 1, 0),
    ]


@pytest.mark.parametrize("suite", [{"version": "0.2.0", "hash": "0123456789abcdef" * 4}, {"version": "0.1.0", "hash": "ff"}])
def test_reports_of_two_suites_do_not_combine(report, suite):
    with pytest.raises(ValueError, match=r"reports of different suites do not compare: mine by suite 0\.1\.0 .*, other by suite"):
        compare.combine([report(), report(name="other", suite=suite)])


def test_two_reports_of_one_executor_do_not_combine(report):
    with pytest.raises(ValueError, match="there are two reports of the executor mine"):
        compare.combine([report(), report(name="other"), report(level="smoke")])


def test_combined_reports_are_one_file_that_follows_the_schema(report, every_state, tmp_path):
    both = [report(*every_state), report(row("pass"), name="other")]
    (tmp_path / "both.json").write_text(compare.combined(both))

    verify.validator("combined").validate(json.loads((tmp_path / "both.json").read_text()))
    assert compare.load(tmp_path / "both.json") == both


def test_one_report_combined_is_as_it_always_is(report, tmp_path):
    (tmp_path / "one.json").write_text(compare.combined([report(row("pass"))]))

    verify.validator("report").validate(json.loads((tmp_path / "one.json").read_text()))
    with pytest.raises(jsonschema.ValidationError):
        verify.validator("combined").validate(json.loads((tmp_path / "one.json").read_text()))


@pytest.mark.parametrize("text", ["{}", "x", '{"format": 1, "reports": [3]}', '{"format": 1, "reports": [{}]}'])
def test_a_file_that_is_no_report_is_named(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)

    with pytest.raises(ValueError, match=r"bad\.json: "):
        compare.load(tmp_path / "bad.json")
