"""The suite as a Python call, and as one line of a test file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from importlib_metadata import entry_points

from dovetail.extend.advanced import Executor
from dovetail_conformance import environment
from dovetail_conformance.expectations import Expectation, accepted, applicable, applied, expectations_of, lock_of, locked, stale, write_lock
from dovetail_conformance.levels import LEVELS
from dovetail_conformance.plan import Task, Wanted, described, opinfos, tasks
from dovetail_conformance.pool import Done, Pool
from dovetail_conformance.report import Report, Row
from dovetail_conformance.seeds import rows_by_seed
from dovetail_conformance.subject import Subject, absent

GROUP = "dovetail.opinfos"  # entry points of modules that append to OPINFOS
CLAIM_ONLY = ("refusals", "checkers", "errors", "declaration")  # checks that count verdicts, not samples that ran
Progress = Callable[[int, int, Row | None], None]  # called with the number of tasks done, of all tasks, and a failing row


def check(
    executor: Executor | str,
    *,
    level: str = "core",
    operations: Iterable[str] | None = None,
    checks: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    devices: Iterable[str] | None = None,
    processes: int = 0,
    seed: int = 0,
    seeds: int = 1,
    timeout: float = 120.0,
    expectations: str | Path | None = None,
    lock: str | Path | None = None,
    update_lock: bool = False,
    update_expectations: bool = False,
    fail_fast: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Hold an executor to the suite, and return the report.

    Args:
        executor: an executor, the name of one that is installed, or "file.py:name" or "package.module:name" of one or of a function that makes it.
        level: "smoke", "quick", "core", "full" or "stress".
        operations: names, parts of names or patterns; None for all.
        checks, dtypes, devices: names; None for all.
        processes: in how many others the work is done, where a crash is a row; with 0, and for an executor that is an object, it is in this one.
        seed: decides every random number.
        seeds: with how many each task runs, from `seed` on; a row that fails with some of them is flaky.
        timeout: the most seconds that a task may take in another process.
        expectations, lock: files, looked for beside the executor's own code where they are not named; see `dovetail_conformance.expectations`.
        update_lock, update_expectations: whether to write these anew.
        fail_fast: whether the first failure ends the run.
        progress: called after each task.

    Raises ValueError for unknown names in the arguments.
    """
    began = perf_counter()
    wanted = Wanted(*(tuple(names) if names is not None else None for names in (operations, checks, dtypes, devices)))
    if level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; expected one of {', '.join(LEVELS)}")
    if seed < 0 or seeds < 1:
        raise ValueError(f"expected a seed of 0 or more, and at least one, got seed={seed} and seeds={seeds}")
    import_opinfos()
    subject = Subject.of(executor, expectations)
    if problem := next(wanted.problems(), None):
        raise ValueError(problem)
    plan = tasks(subject, LEVELS[level], wanted)
    lock_file = lock_of(subject.executor, lock)
    if update_lock and (not wanted.whole or lock_file is None):
        raise ValueError("a lock is updated by a whole run: name a file with lock=, and restrict nothing but devices")
    known_file = expectations_of(subject.executor, expectations)
    if update_expectations and (known_file is None or fail_fast):
        raise ValueError("expectations are updated by a complete run: name a file with expectations=, and leave fail_fast out")
    if update_expectations and not known_file.is_file():
        known_file.touch()
    known = applicable(known_file, subject.executor.version)
    if processes > 0 and isinstance(executor, str):
        done = Pool(setup_of(executor, level, wanted, seed, processes, expectations, seeds), min(processes, len(plan)), timeout * seeds).run(plan)
    else:
        done = _here(subject, level, wanted, range(seed, seed + seeds), plan)
    rows, ran, stopped = _collected(done, len(plan), [] if update_expectations else known, progress, fail_fast=fail_fast)
    rows = _sorted(rows, plan)
    if update_expectations:
        rows, known = accepted(rows, known_file, subject.executor.version, whole=wanted.whole)
    if not stopped and any(row.operation for row in rows):
        rows += idle(subject, rows)
    if wanted.whole and not stopped:
        rows += without_opinfo(subject, ran, level)
        finish(rows, level, wanted.devices, known, lock_file, update=update_lock)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    about = (environment.suite(), environment.machine(), environment.source(subject.executor))
    return Report(environment.identity(subject.executor), level, *about, seed, round(perf_counter() - began, 2), created, rows, seeds)


def _collected(
    done: Generator[Done], count: int, known: list[Expectation], progress: Progress | None, *, fail_fast: bool
) -> tuple[list[Row], set[str], bool]:
    """Return the rows of all tasks with the known failures applied, the operations that ran, and whether a failure ended the run."""
    rows, ran = [], set()
    for i, each in enumerate(done, 1):
        rows += applied(each.rows, known)
        ran.update(each.ran)
        failed = next((row for row in each.rows if row.failed), None)
        if progress is not None:
            progress(i, count, failed)
        if fail_fast and failed is not None:
            done.close()
            return rows, ran, True
    return rows, ran, False


def _here(subject: Subject, level: str, wanted: Wanted, seeds: Sequence[int], plan: list[Task]) -> Generator[Done]:
    for task in plan:
        yield Done(task, list(rows_by_seed(task, subject, LEVELS[level], wanted, seeds)), sorted(subject.ran))


def setup_of(
    executor: str, level: str, wanted: Wanted, seed: int, processes: int, expectations: str | Path | None = None, seeds: int = 1
) -> dict[str, Any]:
    """Return the setup of a process that does tasks."""
    threads = max(1, torch.get_num_threads() // processes)
    about = {"executor": executor, "level": level, "wanted": asdict(wanted), "seed": seed, "seeds": seeds, "threads": threads}
    return {**about, "expectations": None if expectations is None else str(expectations), "opinfos": import_opinfos(), "path": sys.path}


def import_opinfos(names: Iterable[str] = ()) -> list[str]:
    """Import the modules that bring OpInfos for operations of plugins: those of the entry points, and `names`."""
    modules = [*names] or sorted(ep.module for ep in entry_points(group=GROUP))
    for name in modules:
        importlib.import_module(name)
    if modules:
        opinfos.cache_clear()
    return modules


def finish(rows: list[Row], level: str, devices: tuple[str, ...] | None, known: list[Expectation], lock: Path | None, *, update: bool) -> None:
    """Append to the rows of a whole run what fails besides: expectations that match nothing, and checks that ran fewer samples than locked."""
    rows += stale(known)
    if update and lock is not None:
        write_lock(rows, lock, environment.suite()["version"], level)
    elif lock is not None:
        rows += locked(list(rows), lock, level, devices)


def idle(subject: Subject, rows: Iterable[Row]) -> list[Row]:
    """Return a failing row for an executor that is available and ran none of the requested operations: nothing was tested."""
    rows = list(rows)
    absent_device = all(row.state == "not-run" for row in rows if row.check == "claims") and any(row.check == "claims" for row in rows)
    if subject.available is not True or absent_device or any(row.ran and row.check not in CLAIM_ONLY for row in rows):
        return []
    return [
        Row(
            "",
            "claims",
            state="fail",
            message=f"the executor is available, and no program that was compiled for it has a line of its own{_refused(rows)}",
        )
    ]


def _refused(rows: Iterable[Row]) -> str:
    """Return the first refusal of an executor that ran nothing."""
    message = next((f"{row.operation}: {row.message}" for row in rows if row.check == "claims" and row.state == "unsupported"), "")
    return f"; it refused {message}" if message else ""


def without_opinfo(subject: Subject, ran: set[str], level: str) -> list[Row]:
    """Return a row for each operation of the executor's own without an OpInfo: it has to run as a part of others."""
    own = [id for id in subject.declared["operations"] or () if id not in described() and not id.startswith("prims.")]
    if LEVELS[level].rank == 0 or subject.available is not True:
        return []
    messages = {
        "pass": "it has no OpInfo, and ran as a part of other operations",
        "fail": "it has no OpInfo, and no other operation made it run",
        "not-run": "it has no OpInfo, and none of its devices is here",
    }
    states = [(id, "pass" if id in ran else "fail" if _runs_here(subject, id) else "not-run") for id in own]
    return [Row(id, "claims", state=state, ran=int(id in ran), samples=1, message=messages[state]) for id, state in states]


def _runs_here(subject: Subject, operation: str) -> bool:
    """Return whether this machine has one of the devices that the operation is declared for."""
    declared = subject.declared["operations"][operation]["devices"]
    return any(not absent(subject, kind) for kind in subject.devices() if declared is None or kind in declared)


def _sorted(rows: list[Row], plan: list[Task]) -> list[Row]:
    """Sort rows in the order of the plan, whichever was done first."""
    place = {task.operation: i for i, task in reversed(list(enumerate(plan)))}
    return sorted(rows, key=lambda row: (place.get(row.operation, -1), row.device, row.dtype))
