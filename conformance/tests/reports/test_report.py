"""Reports as data: the schema says what they are, and they are read as they were written."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_conformance.report import STATES, Report, Row, as_data, of_data, together

SCHEMA = json.loads(files("dovetail_conformance").joinpath("report.schema.json").read_text(encoding="utf-8"))


def test_a_report_is_read_as_it_was_written(report, every_state):
    original = report(*every_state, Row("", "random"), Row("torch.new", "forward", new=True, against=1.5))

    assert Report.of_json(original.to_json()) == original


texts = st.text(max_size=20)
rows = st.builds(
    Row,
    texts,
    texts,
    dtype=texts,
    device=texts,
    state=st.sampled_from(list(STATES)),
    ran=st.integers(0, 9),
    samples=st.integers(0, 9),
    lines=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    message=texts,
    replay=texts,
    reason=texts,
    seconds=st.integers(0, 10**6).map(lambda n: n / 10**6),
    new=st.booleans(),
    against=st.none() | st.floats(0, 100),
)


@given(rows)
def test_so_is_any_row(row):
    assert of_data(json.loads(json.dumps(as_data(row)))) == row


def test_a_file_is_read_as_it_was_saved(report, every_state, tmp_path):
    original = report(*every_state)
    original.save(tmp_path / "mine.json")

    assert Report.load(tmp_path / "mine.json") == original


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>", "invalid JSON"),
        ("[]", "not a report of format 1"),
        ('{"format": 2}', "not a report of format 1"),
        ('{"format": 1}', "as report.schema.json describes it: KeyError: 'rows'"),
        ('{"format": 1, "rows": [{"operation": "a"}]}', "TypeError: .*'check'"),
        ('{"format": 1, "rows": [{"operation": "a", "check": "b", "colour": 3}]}', "TypeError: .*'colour'"),
        ('{"format": 1, "rows": 3}', "TypeError"),
        ('{"format": 1, "rows": [], "executor": {}}', "KeyError"),
    ],
)
def test_what_is_no_report_is_an_error_that_says_why(text, message):
    with pytest.raises(ValueError, match=message):
        Report.of_json(text)


@pytest.mark.parametrize(("change", "message"), [({"executor": {"version": "1"}}, "'name'"), ({"executor": {"name": 3}}, "no name")])
def test_a_report_has_the_name_of_its_executor(report, change, message):
    data = json.loads(report().to_json()) | change

    with pytest.raises(ValueError, match=message):
        Report.of_data(data)


def test_a_row_of_an_unknown_state_is_an_error(report):
    data = json.loads(report(Row("torch.sin", "forward")).to_json())
    data["rows"][0]["state"] = "passed"

    with pytest.raises(ValueError, match="unknown state passed"):
        Report.of_data(data)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_reports_follow_the_schema(report, every_state):
    original = report(*every_state, Row("torch.new", "forward", new=True, against=1.5), Row("", "random"))

    jsonschema.validate(json.loads(original.to_json()), SCHEMA)
    jsonschema.validate(json.loads(report().to_json()), SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"level": "most"},
        {"seed": "0"},
        {"more": 1},
        {"executor": {"name": ""}},
        {"rows": [{"operation": "a", "check": "b", "state": "ok"}]},
    ],
)
def test_what_is_otherwise_does_not_follow_it(report, change):
    data = json.loads(report(Row("torch.sin", "forward")).to_json()) | change

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_the_schema_knows_what_rows_and_reports_are():
    defs = SCHEMA["$defs"]
    row, whole = defs["row"]["properties"], defs["report"]["properties"]
    defaults = {f.name: list(f.default) if isinstance(f.default, tuple) else f.default for f in fields(Row) if f.default is not MISSING}

    assert defs["state"]["enum"] == list(STATES)
    assert list(row) == [f.name for f in fields(Row)]
    assert {name: each["default"] for name, each in row.items() if "default" in each} == {k: v for k, v in defaults.items() if k != "state"}
    assert set(whole) == {f.name for f in fields(Report)} | {"format", "summary"}


def test_waived_and_expected_failures_count_against_the_score(report, every_state):
    # fail, error, crash, timeout, xfail, xpass, flaky, waived and partly are in the denominator; unsupported, not-claimed and not-run are not
    assert report(*every_state).score == (1, 10)


def test_a_new_row_neither_counts_nor_fails(report):
    original = report(Row("torch.a", "forward"), Row("torch.b", "forward", state="fail", new=True), Row("torch.c", "forward", new=True))

    assert original.score == (1, 1) and original.failures == []


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["pass"], "pass"),
        (["pass", "not-run"], "pass"),
        (["not-run"], "not-run"),
        ([], "not-run"),
        (["pass", "fail", "crash"], "crash"),
        (["pass", "xfail", "waived"], "xfail"),
        (["pass", "unsupported"], "partly"),
        (["not-claimed", "unsupported", "not-run"], "not-claimed"),
        (["unsupported", "fail"], "fail"),
        (["partly", "pass"], "partly"),
    ],
)
def test_several_rows_as_one(states, state):
    assert together([Row("torch.sin", "forward", state=each) for each in states]) == state
