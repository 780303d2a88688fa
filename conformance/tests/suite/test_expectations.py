"""Expectations: known failures that have to fail, entries that are out of date, counts that may only grow."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dovetail.executors.discovery.registry import REGISTRY
from dovetail.extend import options_of
from dovetail_conformance import check
from dovetail_conformance.broken import running
from dovetail_conformance.expectations import BadExpectations, accepted, applied, locked, options_in, read, stale, write_lock
from dovetail_conformance.report import Row

ENTRY = '[[expect]]\noperation = "torch.sin"\ncheck = "forward"\nclass = "bug"\nreason = "the range reduction is coarse"\n'


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "conformance.toml"


def test_a_known_failure_is_no_failure(file) -> None:
    known = read(written(file, ENTRY), "1.0")

    rows = list(applied([Row("torch.sin", "forward", state="fail", message="differs"), Row("torch.sin", "meta", state="fail")], known))

    assert [(row.state, row.reason) for row in rows] == [("xfail", "the range reduction is coarse"), ("fail", "")]


def test_a_known_failure_that_passes_is_one(file) -> None:
    known = read(written(file, ENTRY), "1.0")

    (row,) = applied([Row("torch.sin", "forward")], known)

    assert row.state == "xpass" and row.failed
    assert row.message == "it was expected to fail (the range reduction is coarse) and passes; remove the entry"


def test_an_entry_that_speaks_of_nothing_fails(file) -> None:
    known = read(written(file, ENTRY), "1.0")

    list(applied([Row("torch.cos", "forward")], known))

    assert [(str(row), row.state) for row in stale(known)] == [("executor-cpu-expectation xfail of torch.sin, forward", "fail")]


def test_what_fails_is_written_and_what_fails_no_more_is_taken_out(file) -> None:
    written(file, f'# what we know\n\n{ENTRY}\n# on old machines\n{ENTRY.replace("sin", "tan")}when = {{ torch = "<2.0" }}\n')
    rows = [Row("torch.sin", "forward"), *(Row("torch.cos", "meta", dtype, state="fail", message="the dtype is\nanother") for dtype in ("b", "a"))]

    rows, known = accepted(rows, file, "1.0", whole=True)

    text = file.read_text()
    assert text.startswith("# what we know") and "# on old machines" in text and "torch.tan" in text and "torch.sin" not in text
    assert [(each.operation, each.check, each.dtypes, each.kind, each.reason) for each in known] == [
        ("torch.cos", "meta", ("a", "b"), "bug", "the dtype is")
    ]
    assert [row.state for row in rows] == ["pass", "xfail", "xfail"] and not list(stale(known))


def test_a_run_of_a_part_takes_nothing_out(file) -> None:
    written(file, ENTRY)

    rows, known = accepted([Row("torch.cos", "forward")], file, "1.0", whole=False)

    assert file.read_text() == ENTRY and [each.operation for each in known] == ["torch.sin"] and [row.state for row in rows] == ["pass"]


def test_a_run_writes_its_expectations_and_the_next_one_passes(file) -> None:
    wrong = running(torch.cos)  # for torch.sin
    how = {"level": "smoke", "operations": ["torch.sin"], "devices": ["cpu"], "expectations": file}

    first, second = check(wrong, update_expectations=True, **how), check(wrong, **how)

    assert not first.failures and not second.failures
    assert first.counts["xfail"] == second.counts["xfail"] > 0


def test_a_skip_is_waived_with_its_reason(file) -> None:
    known = read(written(file, ENTRY + 'state = "skip"\ndtype = ["float16"]\n'), "1.0")

    rows = list(applied([Row("torch.sin", "forward", "float16", state="error"), Row("torch.sin", "forward", "float32", state="error")], known))

    assert [row.state for row in rows] == ["waived", "error"]


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ('{ torch = ">=2" }', True),
        ('{ torch = "<2" }', False),
        ('{ executor = ">=1.0", python = ">=3.11" }', True),
        ('{ machine = "abacus" }', False),
        ('{ cuda = ">=1" }', torch.version.cuda is not None),
    ],
)
def test_conditions(file, when, holds) -> None:
    assert bool(read(written(file, ENTRY + f"when = {when}\n"), "1.0")) == holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expect = [", "cannot be read"),
        ("options = 3\n", r"has options = 3; write a table, \[options\]"),
        ("[expct]\na = 1\n", r"has expct; it may hold \[\[expect\]\] entries and the tables \[options\] and \[limits\]"),
        ('[[expect]]\noperation = "torch.sin"\nclass = "bug"\n', "entry 1 has no reason"),
        (ENTRY.replace('"bug"', '"whim"'), "entry 1 has the unknown class 'whim'; expected one of bug, unsupported, planned, upstream"),
        (ENTRY + 'sate = "skip"\n', "entry 1 has sate; it may have "),
        (ENTRY + 'state = "off"\n', "entry 1 has the unknown state 'off'; expected xfail or skip"),
        (ENTRY + 'until = "0.9"\n', "entry 1 holds until version 0.9, and this is 1.0: the range reduction is coarse; "),
        (ENTRY + 'when = { weather = "fine" }\n', "entry 1 has the unknown condition weather; `when` takes "),
        (ENTRY + 'when = { torch = "new" }\n', "entry 1 has torch = 'new', which is not a range of versions"),
    ],
)
def test_what_means_nothing_is_refused(file, text, message) -> None:
    with pytest.raises(BadExpectations, match=message):
        read(written(file, text), "1.0")
        options_in(file)


def test_an_executor_is_tested_under_the_options_of_its_file(file, monkeypatch) -> None:
    sine = running(torch.sin, dtypes=["float32"], checker=lambda x: options_of(sine)["wanted"] == 2 or "it is not wanted")
    sine.options = {"wanted": 1}
    monkeypatch.setitem(REGISTRY.executors, sine.name, sine)
    how = {"operations": ["torch.sin"], "checks": ["claims", "forward"], "dtypes": ["float32"], "devices": ["cpu"]}

    assert {row.state for row in check(sine.name, **how)} == {"fail"}
    assert {row.state for row in check(sine.name, expectations=written(file, "[options]\nwanted = 2\n"), **how)} == {"pass"}
    assert options_of(sine)["wanted"] == 1


@pytest.mark.slow  # three runs at level core
def test_the_lock_fails_when_less_is_run(tmp_path) -> None:
    lock = tmp_path / "conformance.lock"
    how = {"operations": ["torch.sin"], "dtypes": ["float32", "float64"], "devices": ["cpu"]}
    write_lock(check(running(torch.sin), **how), lock, "0.1.0", "core")

    less = check(running(torch.sin, dtypes=["float32"], checker=lambda x: True if x.spec.shape else "expected a dimension"), **how)

    failed = list(locked(less, lock, "core"))
    assert {row.check for row in failed} >= {"lock of forward", "lock of claims"}
    assert not list(locked(less, lock, "core", devices=("cuda",)))
    assert all(row.failed and row.message.endswith("if that is meant, run the suite with --update-lock") for row in failed)
    assert not list(locked(check(running(torch.sin), **how), lock, "core"))
    assert not list(locked(less, lock, "smoke"))  # another level runs others


def test_a_lock_that_is_not_there(tmp_path) -> None:
    with pytest.raises(BadExpectations, match="there is no lock file"):
        list(locked([], tmp_path / "conformance.lock", "core"))
