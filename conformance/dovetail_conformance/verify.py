"""Check a submitted report: that it is complete, of this suite, of published code, and without failures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from dovetail_conformance import environment, plan
from dovetail_conformance.report import FORMAT, STATES, Report, Row

SCHEMA = "report.schema.json"
MOST = 10  # sentences about one kind of trouble
ENOUGH = ("core", "full", "stress")  # levels that hold the whole of core
OF_EVERY_CLAIM = ("meta", "inputs", "determinism", "repeat")  # checks that have a row for every operation that the executor ran
REASONED = ("waived", "xfail")


@dataclass(frozen=True)
class Submitted:
    """A submitted report, its JSON as `data`, and the version and cells of the installed suite."""

    report: Report
    data: Mapping[str, Any]
    suite: Mapping[str, str]
    mustpass: frozenset[tuple[str, str, str]]


def problems(text: str, *, suite: Mapping[str, str] | None = None, mustpass: Iterable[tuple[str, str, str]] | None = None) -> list[str]:
    """List what is wrong with the report or the reports in `text`, a sentence each; empty where nothing is.

    `suite` and `mustpass` are those of the installed suite unless passed.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        return [f"It is not valid JSON: {error}."]
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        version = data.get("format") if isinstance(data, dict) else None
        return [f"Its format is {version!r}, and this version of the suite reads format {FORMAT}."]
    suite = environment.suite() if suite is None else suite
    keys = frozenset(plan.mustpass() if mustpass is None else mustpass)
    if "reports" not in data:
        return _first(_of_one(data, suite, keys))
    if not isinstance(data["reports"], list) or not data["reports"]:
        return ["Its list of reports is empty."]
    return [f"{_name(each)}: {message}" for each in data["reports"] for message in _first(_of_one(each, suite, keys))]


def _first(messages: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(messages))


def _name(data: Any) -> str:
    executor = data.get("executor") if isinstance(data, dict) else None
    return str(executor.get("name", "?")) if isinstance(executor, dict) else "?"


def _of_one(data: Any, suite: Mapping[str, str], mustpass: frozenset[tuple[str, str, str]]) -> Iterator[str]:
    wrong = list(_schema(data))
    if wrong:
        yield from wrong
        return
    submitted = Submitted(Report.of_data(data), data, suite, mustpass)
    for look in LOOKS:
        yield from look(submitted)


@cache
def validator(part: str = "report") -> Draft202012Validator:
    """Load the published schema of a report, or of another of its definitions."""
    schema = json.loads(files("dovetail_conformance").joinpath(SCHEMA).read_text(encoding="utf-8"))
    return Draft202012Validator({"$ref": f"#/$defs/{part}", "$defs": schema["$defs"]})


def _schema(data: Any) -> Iterator[str]:
    for i, error in enumerate(validator().iter_errors(data)):
        if i == MOST:
            yield "There are more violations of the schema."
            return
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
        message = error.message if len(error.message) <= 200 else f"{error.message[:200]}..."
        yield f"It does not follow {SCHEMA}{f' at {where}' if where else ''}: {message}."


def _suite(submitted: Submitted) -> Iterator[str]:
    """Check that the report was created by this version of the suite."""
    had, here = submitted.report.suite, submitted.suite
    if had["version"] != here["version"]:
        yield f"It was created by version {had['version']} of the suite; version {here['version']} is installed."
    elif had["hash"] != here["hash"]:
        hashes = f"{had['hash'][:12]}, and not {here['hash'][:12]}"
        yield f"It was created by a suite of version {here['version']} with other files: their hash is {hashes}."


def _source(submitted: Submitted) -> Iterator[str]:
    """Check that the executor's code can be retrieved again."""
    source = submitted.report.source
    if not source.get("commit"):
        yield "It names no commit of the executor: run the suite in a checkout of the executor's repository."
    elif source.get("clean") is not True:
        yield f"The executor's repository had changes that are not in the commit {source['commit'][:12]}: commit them and run the suite again."


def _complete(submitted: Submitted) -> Iterator[str]:
    """Check that nothing of level core is missing: neither a cell, nor a check of a cell that was run."""
    report = submitted.report
    if report.level not in ENOUGH:
        yield f"It is of level {report.level}, which is too low: run the suite with --level core."
        return
    devices = (report.executor.get("declaration") or {}).get("devices")
    wanted = {key for key in submitted.mustpass if devices is None or key[2] in devices}
    there = {(row.operation or row.check, row.dtype, row.device) for row in report}
    yield from _missing("operations with a dtype that level core has", ["-".join(filter(None, key)) for key in wanted - there])
    checks: dict[tuple[str, str, str], set[str]] = {}
    for row in report:
        checks.setdefault((row.operation, row.dtype, row.device), set()).add(row.check)
    ran = {(row.operation, row.dtype, row.device) for row in report if row.check == "claims" and row.ran and row.dtype}
    absent = [f"{'-'.join(key)}-{check}" for key in ran for check in _checks(*key[:2]) if check not in checks[key]]
    yield from _missing("checks of operations that it ran", absent)
    if not any(row.ran for row in report):
        yield f"{report.name} ran no sample at all, so the report proves nothing."


def _checks(operation: str, dtype: str) -> Iterator[str]:
    """Check that operations of PyTorch were compared with eager, and with its gradients where there are any."""
    yield from OF_EVERY_CLAIM
    info = plan.opinfos().get(operation)
    if info is not None and not operation.startswith("prims."):
        yield "forward"
        if info.grad and any(each.name == dtype and each.inexact and not each.storage_only for each in info.dtypes):
            yield "backward"


def _new(submitted: Submitted) -> Iterator[str]:
    """Check that only what is new in this version of the suite is marked so."""
    yield from _of([row for row in submitted.report if row.new and not plan.is_new(row.operation, row.check)], "is marked as new, and is not")


def _missing(what: str, keys: Iterable[str]) -> Iterator[str]:
    keys = sorted(keys)
    if keys:
        more = f" and {len(keys) - MOST:,} more" if len(keys) > MOST else ""
        yield f"It has no rows for {len(keys):,} {what}: {', '.join(keys[:MOST])}{more}."


def _summary(submitted: Submitted) -> Iterator[str]:
    """Check that the summary agrees with the rows."""
    summary, (passed, counted) = submitted.data["summary"], submitted.report.score
    counts = submitted.report.counts
    for state in STATES:
        if summary["counts"].get(state, 0) != counts.get(state, 0):
            yield f"Its summary counts {summary['counts'].get(state, 0):,} rows in state {state}, and there are {counts.get(state, 0):,}."
    for what, n in (("passed", passed), ("counted", counted), ("failed", len(submitted.report.failures))):
        if summary[what] != n:
            yield f"Its summary has {summary[what]:,} rows {what}, and there are {n:,}."


def _rows(submitted: Submitted) -> Iterator[str]:
    """Find rows that contradict themselves or each other."""
    twice = [row for row, n in Counter(str(row) for row in submitted.report).items() if n > 1]
    if twice:
        yield f"It has {len(twice):,} rows more than once: {', '.join(sorted(twice)[:MOST])}."
    yield from _of([row for row in submitted.report if row.ran > row.samples], "says that more samples were run than there were")
    yield from _of([row for row in submitted.report if row.lines[0] > row.lines[1]], "says that more lines were the executor's than there were")


def _failed(submitted: Submitted) -> Iterator[str]:
    """Check that nothing failed unexpectedly."""
    yield from _of(submitted.report.failures, "failed, and no expectation says why")


def _reasons(submitted: Submitted) -> Iterator[str]:
    """Check that whatever was left out has a reason."""
    for state in REASONED:
        silent = [row for row in submitted.report if row.state == state and not f"{row.reason}{row.message}".strip()]
        yield from _of(silent, f"is {state} without a reason")


def _of(rows: list[Row], what: str) -> Iterator[str]:
    for row in rows[:MOST]:
        yield f"{row} {what}{f': {row.message}' if row.failed and row.message else ''}."
    if len(rows) > MOST:
        yield f"{len(rows) - MOST:,} more: each {what}."


LOOKS = (_suite, _source, _complete, _new, _summary, _rows, _failed, _reasons)
