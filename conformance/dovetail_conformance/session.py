"""The suite in a run of pytest: what is collected, what does a test, and the summary of the whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dovetail.extend.advanced import Executor, executors
from dovetail_conformance import environment, expectations
from dovetail_conformance.declared import has_room, has_samples
from dovetail_conformance.engine import rows_of
from dovetail_conformance.levels import LEVELS
from dovetail_conformance.plan import Task, Wanted, tasks
from dovetail_conformance.pool import Process
from dovetail_conformance.report import Report, Row, as_data, of_data
from dovetail_conformance.requested import PROPERTY, Requested
from dovetail_conformance.run import finish, idle, import_opinfos, setup_of, without_opinfo
from dovetail_conformance.subject import Subject

RUNS: dict[str, Run] = {}  # the registry: the run of each executor for each call of `suite`, by a unique name


@dataclass
class Run:
    """One executor at one level, as a call of `suite` asks for it."""

    executor: Executor | str
    level: str
    wanted: Wanted
    options: dict[str, Any]
    planned: int = 0  # tasks that are collected
    left_out: int = 0  # cells that the executor's declaration excludes

    @property
    def name(self) -> str:
        return self.executor if isinstance(self.executor, str) else self.executor.name

    def about(self) -> dict[str, Any] | None:
        """Return the run as data, for the process that collects all results; None for an executor that exists in this process alone."""
        if not isinstance(self.executor, str):
            return None
        options = {key: str(value) if isinstance(value, Path) else value for key, value in self.options.items()}
        return {
            "executor": self.executor,
            "level": self.level,
            "wanted": asdict(self.wanted),
            "options": options,
            "counts": (self.planned, self.left_out),
        }


def run_of(about: dict[str, Any]) -> Run:
    """Make a run of the data of `about`."""
    wanted = {key: value and tuple(value) for key, value in about["wanted"].items()}
    return Run(about["executor"], about["level"], Wanted(**wanted), about["options"], *about["counts"])


@dataclass(frozen=True)
class Case:
    """One task of a run."""

    run: str
    executor: str
    task: Task

    def __str__(self) -> str:
        return f"{self.executor}-{self.task}"


@cache
def subject_of(executor: Executor | str, expectations: str | Path | None = None) -> Subject:
    return Subject.of(executor, expectations)


def cases(requested: Requested, level: str) -> list[Case]:
    """Return the tasks of every requested executor, but for cells that its declaration excludes."""
    import_opinfos()
    all_cases = []
    for executor in requested.executors or [ex.name for ex in executors() if ex.available() is True]:
        filters = {key: requested.options.get(key) for key in ("operations", "checks", "dtypes", "devices")}
        wanted = Wanted(**{key: tuple(value) if value is not None else None for key, value in filters.items()})
        if problem := next(wanted.problems(), None):
            raise pytest.UsageError(problem)
        subject, run = subject_of(executor, requested.options.get("expectations")), Run(executor, level, wanted, requested.options)
        every_task = [task for task in tasks(subject, LEVELS[level], wanted) if task.dtype is None or has_samples(task.operation, task.dtype)]
        chosen = [task for task in every_task if has_room(subject, task, parts=wanted.parts(LEVELS[level]))]
        if every_task and not chosen:
            raise pytest.UsageError(f"the declaration of {run.name} excludes every requested operation; name one that it implements")
        run.planned, run.left_out = len(chosen), len(every_task) - len(chosen)
        key = f"{run.name} {level} {wanted}"
        RUNS[key] = run
        all_cases += [Case(key, run.name.rpartition(":")[2], task) for task in chosen]
    return all_cases


class Runs:
    """Runs the tests of one pytest process in a worker process, so that a crash is a failure like any other."""

    def __init__(self, *, inline: bool):
        self.inline = inline
        self.processes: dict[str, Process] = {}
        self.known: dict[str, list[expectations.Expectation]] = {}

    def test(self, case: Case, item: pytest.Item) -> None:
        """Do a task; fail or skip the test by its rows."""
        run = RUNS[case.run]
        rows, ran = self.rows(case, run)
        rows = list(expectations.applied(rows, self.expected(case.run, run)))
        done = {"task": str(case.task), "rows": [as_data(row) for row in rows], "ran": ran}
        item.user_properties.append((PROPERTY, {"run": case.run, "about": run.about(), **done}))
        failed = [row for row in rows if row.failed]
        if failed:
            pytest.fail("\n\n".join(map(message, failed)), pytrace=False)
        if not any(row.state in ("pass", "partly") for row in rows):
            pytest.skip("; ".join(dict.fromkeys(f"{row.state}: {row.reason or row.message}" for row in rows)) or "nothing to test")

    def rows(self, case: Case, run: Run) -> tuple[list[Row], list[str]]:
        """Do a task; return its rows, and which operations the executor has run so far."""
        seed, timeout = run.options.get("seed", 0), run.options.get("timeout", 120.0)
        if self.inline or not isinstance(run.executor, str):
            subject = subject_of(run.executor, run.options.get("expectations"))
            return list(rows_of(case.task, subject, LEVELS[run.level], run.wanted, seed)), sorted(subject.ran)
        process = self.processes.get(case.run)
        if process is None:
            process = self.processes[case.run] = Process(
                setup_of(run.executor, run.level, run.wanted, seed, 1, run.options.get("expectations")), timeout
            )
        done = process.do(case.task)
        if process.over:
            del self.processes[case.run]
        return done.rows, done.ran

    def expected(self, key: str, run: Run) -> list[expectations.Expectation]:
        if key not in self.known:
            self.known[key] = known(run)
        return self.known[key]

    def close(self) -> None:
        for process in self.processes.values():
            process.close()


def known(run: Run) -> list[expectations.Expectation]:
    """Return the expectations that hold for a run."""
    ex = subject_of(run.executor).executor
    return expectations.applicable(expectations.expectations_of(ex, run.options.get("expectations")), ex.version)


def left_out(key: str, values: list[dict[str, Any]]) -> str:
    """Return how many cells of a run are not collected, as a sentence; empty where all are."""
    run = RUNS.get(key) or (run_of(values[0]["about"]) if values[0]["about"] else None)
    return f"{run.left_out:,} cells of {run.name} are deselected: its declaration excludes them" if run is not None and run.left_out else ""


def message(row: Row) -> str:
    """Format a failing row for pytest."""
    return f"{row}: {row.state}\n{row.message}" + (f"\n\nTo see it without the suite:\n\n{row.replay}" if row.replay else "")


def finished(key: str, values: list[dict[str, Any]], json: str | None, alone: bool) -> list[str]:
    """Finish a whole run: report failures besides those of tests, and write its report where one is requested."""
    run = RUNS.get(key) or (run_of(values[0]["about"]) if values[0]["about"] else None)
    if run is None:
        return []
    import_opinfos()
    subject = subject_of(run.executor)
    every_task = tasks(subject, LEVELS[run.level], run.wanted)
    plan = [str(task) for task in every_task]
    whole = run.wanted.whole and len({value["task"] for value in values}) >= run.planned
    place = {name: i for i, name in enumerate(plan)}
    values = sorted(values, key=lambda value: place.get(value["task"], len(place)))  # a worker may have collected OpInfos of a plugin's tests
    rows = [of_data(row) for value in values for row in value["rows"]]
    before = len(rows)
    expected = known(run)
    for row in rows:
        for each in expected:
            each.used = each.used or each.covers(row)
    if any(row.operation for row in rows):
        rows += idle(subject, rows)
    if whole:
        rows += without_opinfo(subject, {id for value in values for id in value["ran"]}, run.level)
        finish(rows, run.level, run.wanted.devices, expected, expectations.lock_of(subject.executor, run.options.get("lock")), update=False)
    if json:
        rows += _deselected(every_task, values) if whole else []
        about = (environment.suite(), environment.machine(), environment.source(subject.executor))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        report = Report(environment.identity(subject.executor), run.level, *about, run.options.get("seed", 0), 0.0, created, rows)
        path = Path(json)
        report.save(path if alone else path.with_name(f"{path.stem}-{report.name}{path.suffix}"))
    return [f"{row}: {row.message}" for row in rows[before:] if row.failed]


def _deselected(plan: list[Task], values: list[dict[str, Any]]) -> list[Row]:
    """Return a row for each cell that was not collected, so that the report is complete."""
    done, message = {value["task"] for value in values}, "the executor's declaration excludes it"
    return [
        Row(task.operation, "claims", task.dtype.name, task.device, "not-claimed", message=message)
        for task in plan
        if task.dtype and str(task) not in done
    ]
