"""Run one task: every check of one operation with one dtype, or one check of the whole executor, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from time import perf_counter

from dovetail.devices import device as named
from dovetail.dtypes import DType
from dovetail_conformance import claims
from dovetail_conformance.cell import Cell, Outcome, whole
from dovetail_conformance.checks import CHECKS
from dovetail_conformance.collective_cell import ELSEWHERE, CollectiveCell
from dovetail_conformance.composition import composition_rows
from dovetail_conformance.declaration import declaration
from dovetail_conformance.declared import has_room, has_samples
from dovetail_conformance.draws import seeded
from dovetail_conformance.grown import first_call
from dovetail_conformance.levels import Level
from dovetail_conformance.overruns import overruns
from dovetail_conformance.plan import OVERRUNS, PROCESSES, Task, Wanted, collectives, is_new, opinfos
from dovetail_conformance.processes import processes
from dovetail_conformance.programs import PROGRAMS
from dovetail_conformance.random_programs import random_programs
from dovetail_conformance.report import Row
from dovetail_conformance.subject import Subject, absent

Doing = Callable[[str], None]  # called with the check that is about to run
IN_NEW_PROCESSES = {PROCESSES: processes, OVERRUNS: overruns}


def rows_of(
    task: Task, subject: Subject, level: Level, wanted: Wanted, seed: int = 0, doing: Doing = lambda check: None, *, twice: bool = True
) -> Iterator[Row]:
    """Yield the rows of a task; with `twice`, run failing checks again and report those that then pass as flaky."""
    with subject.configured(), seeded(seed):
        yield from (_rows_repeated if twice else _rows)(task, subject, level, wanted, seed, doing)


def _rows_repeated(task: Task, subject: Subject, level: Level, wanted: Wanted, seed: int, doing: Doing) -> Iterator[Row]:
    for row in _rows(task, subject, level, wanted, seed, doing):
        if row.failed and row.state in ("fail", "error"):
            only = Wanted(wanted.operations, (row.check,), wanted.dtypes, wanted.devices)
            again = next((other for other in _rows(task, subject, level, only, seed, doing) if other.key == row.key), row)
            if not again.failed:
                row.state, row.message = "flaky", f"the first time: {row.message}"
        yield row


def _rows(task: Task, subject: Subject, level: Level, wanted: Wanted, seed: int, doing: Doing) -> Iterator[Row]:
    if task.dtype is not None:
        yield from _cell_rows(task, task.dtype, subject, level, wanted, seed, doing)
    elif task.operation == "declaration":
        yield from _whole("declaration", wanted, doing, lambda: declaration(subject))
    elif task.operation == "random":
        yield from _whole("random", wanted, doing, lambda: random_programs(subject, level, seed), absent(subject, "cpu"))
    elif task.operation in IN_NEW_PROCESSES:
        named_ones = [id for id in opinfos() if subject.names(id) and wanted.operation(id)]
        run = IN_NEW_PROCESSES[task.operation]
        yield from _whole(task.operation, wanted, doing, lambda: run(subject, named_ones, seed), absent(subject, "cpu"))
    else:
        program = next(program for program in PROGRAMS if program.name == task.operation)
        yield from composition_rows(subject, program, wanted, doing, absent(subject, "cpu"), parts=level.parts)


def _whole(check: str, wanted: Wanted, doing: Doing, run: Callable[[], Outcome], missing: str = "") -> Iterator[Row]:
    if wanted.check(check):
        doing(check)
        began = perf_counter()
        outcome = Outcome("not-run", missing) if missing else guarded(run)
        yield row_of("", check, "", "cpu", outcome, began)


def _cell_rows(task: Task, dtype: DType, subject: Subject, level: Level, wanted: Wanted, seed: int, doing: Doing) -> Iterator[Row]:
    cell, missing = _cell(task, dtype, subject, level, wanted, seed), absent(subject, task.device)
    if isinstance(cell, CollectiveCell) and subject.source is None:
        missing = missing or ELSEWHERE
    info = cell.info

    def row(check: str, run: Callable[[], Outcome | None]) -> Iterator[Row]:
        doing(check)
        began = perf_counter()
        directive = next((each for each in info.directives if each.covers(check, dtype, task.device)), None)
        if directive is not None and directive.kind == "skip":
            state = "waived" if _may_claim(cell) else "not-claimed"
            yield row_of(task.operation, check, dtype.name, task.device, Outcome(state, directive.reason), began)
        elif (outcome := guarded(run)) is not None:
            if directive is not None:
                outcome = expected_failure(outcome, directive.reason)
            yield row_of(task.operation, check, dtype.name, task.device, outcome, began)

    if (isinstance(cell, CollectiveCell) or not _declared(cell)) and (missing or not has_room(subject, task, parts=wanted.parts(level))):
        if has_samples(task.operation, dtype) and wanted.check("claims"):
            nothing = Outcome("not-run", missing) if missing else Outcome("not-claimed", f"does not implement {task.operation}")
            yield from row("claims", lambda: nothing)
        return
    if not _has_samples(cell):
        return  # an in-place operation that eager does not run with this dtype
    if missing:
        cell.device = named(task.device)  # nothing runs, and checkers run all the same
        yield from row("claims", lambda: Outcome("not-run", missing)) if wanted.check("claims") else ()
        if _declared(cell):
            yield from row("checkers", lambda: claims.checkers(cell)) if wanted.check("checkers") else ()
        return
    if not isinstance(cell, CollectiveCell):
        with suppress(Exception):  # the checks report it
            cell.first_call = first_call(cell)
    if wanted.check("claims"):
        yield from row("claims", cell.claims if isinstance(cell, CollectiveCell) else lambda: claims.claims(cell))
    if _declared(cell):
        for name, run in (("refusals", claims.refusals), ("checkers", claims.checkers)):
            if wanted.check(name):
                yield from row(name, lambda run=run: run(cell))
    if guarded(lambda: Outcome("pass" if cell.claimed else "not-claimed")).state != "pass":
        return
    for name, run in cell.checks() if isinstance(cell, CollectiveCell) else _checks(cell):
        if wanted.check(name):
            yield from row(name, run)


def _cell(task: Task, dtype: DType, subject: Subject, level: Level, wanted: Wanted, seed: int) -> Cell:
    """Return the cell of a task; where its device is missing, the samples are on the CPU and only checkers run."""
    if task.operation in collectives():
        return CollectiveCell(subject, collectives()[task.operation], dtype, level, wanted.checks, seed)
    device = named(task.device)
    there = named("cpu") if absent(subject, task.device) else device
    return Cell(subject, opinfos()[task.operation], dtype, device, level, there, seed)


def _checks(cell: Cell) -> Iterator[tuple[str, Callable[[], Outcome | None]]]:
    return ((check.name, lambda check=check: check.run(cell)) for check in CHECKS if check.applies(cell))


def _has_samples(cell: Cell) -> bool:
    """Return whether the operation has samples; True where creating them raises, which the checks then report."""
    try:
        return bool(cell.cases)
    except Exception:
        return True


def _declared(cell: Cell) -> bool:
    """Return whether the executor may have a checker for the operation."""
    rows = cell.subject.declared["operations"]
    return rows is None or cell.info.symbol.id in rows


def _may_claim(cell: Cell) -> bool:
    """Return whether the executor may run the operation: its declaration lists it, or has a function for a family of operations."""
    return bool(cell.subject.declared.get("family")) or _declared(cell)


def guarded(run: Callable[[], Outcome | None]) -> Outcome | None:
    """Run a check; an exception that escapes it becomes an outcome with state "error"."""
    try:
        return run()
    except Exception as error:
        return Outcome("error", whole(error))


def expected_failure(outcome: Outcome, reason: str) -> Outcome:
    """Return the outcome of a check that is known to fail as an expected failure or an unexpected pass."""
    if outcome.state in ("fail", "error", "crash", "timeout"):
        outcome.state, outcome.message = "xfail", f"{reason} ({outcome.message})"
    elif outcome.state in ("pass", "partly"):
        outcome.state, outcome.message = "xpass", f"it is expected to fail, since {reason}, and passes; remove the expectation"
    return outcome


def row_of(operation: str, check: str, dtype: str, device: str, outcome: Outcome, began: float) -> Row:
    """Return the row of an outcome."""
    return Row(
        operation,
        check,
        dtype,
        device,
        outcome.state,
        outcome.ran,
        outcome.samples,
        outcome.lines,
        outcome.message,
        outcome.replay if outcome.state not in ("pass", "partly") else "",
        seconds=perf_counter() - began,
        new=is_new(operation, check),
        against=outcome.against,
        one_way=outcome.one_way,
    )
