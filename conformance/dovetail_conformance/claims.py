"""The checks of claims: an executor takes what it declares, refuses with a reason, and its checkers depend on the line alone."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from time import perf_counter
from typing import Any

import torch

from dovetail.extend import BoundSymbol, TensorSpec
from dovetail.extend.advanced import NO_REASON, Proxy
from dovetail_conformance.acts import acts
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Cell, Outcome, whole
from dovetail_conformance.program import inexact, seed_generators
from dovetail_conformance.state import recording_reads, watched
from dovetail_conformance.subject import every

NOTHING_TO_RUN = "the programs that ran have no line to run: they return their inputs"
OFTEN, SELDOM = 1100, 3  # times that one line is offered, with the first dtype and with the others
KEPT = 12  # times that a sample is offered while it is watched whether lines stay alive
YEARS = 20 * 365 * 86_400.0  # seconds by which the clock is put forward
LATER = tuple(7.77**i for i in range(-4, 5)) + tuple(0.0377 * i for i in range(1, 40))  # seconds, by which a line is offered again
SURVIVORS = 1 if sys.version_info < (3, 14) else None  # the generation of what a collection of the youngest leaves; None for all
OFFERED = 6  # cases whose lines a checker is offered


def claims(cell: Cell) -> Outcome:
    """Check that what is declared is taken and nothing else; the executed trace says which of the two it was."""
    subject, cases = cell.subject, cell.cases
    coverage = subject.coverage(cell.info.symbol.id, cell.dtype, cell.device.type)
    refusal = first_refusal(cell)
    if not cell.claimed:
        if coverage == "yes":
            return Outcome("fail", f"it declares {cell.dtype.name} and takes none of {len(cases)} samples: {refusal}", 0, len(cases))
        state = "unsupported" if refusal and cell.subject.names(cell.info.symbol.id) else "not-claimed"
        unclaimed = all(case.ran.lines[1] == 0 for case in cases)
        return Outcome(state, refusal or (NOTHING_TO_RUN if unclaimed else "no line of the programs that ran was its own"), 0, len(cases))
    if coverage == "no" and (taken := next((case for case in cell.claimed if is_whole(case) and not _is_covered(cell, case)), None)) is not None:
        return Outcome("fail", f"it took {taken}, and declares neither this operation with this dtype nor this device", 1, len(cases))
    return cell.right()


def _own_lines(case: Case) -> list[BoundSymbol]:
    """Return the lines of the executed trace that are this very operation, by the executor under test."""
    if case.ran.error is not None:
        return []
    lines = [line for line in case.executed if line.implementation is not None and line.implementation.executor == case.subject.name]
    return [line for line in lines if line.symbol is case.info.symbol]


def is_whole(case: Case) -> bool:
    """Return whether the executor under test runs the operation itself, not parts that it decomposes to."""
    return bool(_own_lines(case))


def _is_covered(cell: Cell, case: Case) -> bool:
    """Return whether each line is declared by its own tensors: without an argument that has the cell's dtype, a result may have another."""
    for line in _own_lines(case):
        specs = [p.spec for p in line.reads or line.writes if isinstance(p.spec, TensorSpec)]
        covered = [cell.subject.coverage(cell.info.symbol.id, spec.dtype, spec.device.type) != "no" for spec in specs]
        if not covered or not all(covered):
            return False
    return True


def first_refusal(cell: Cell) -> str:
    """Return the first sentence with which the executor refused a sample."""
    for case in cell.cases[:OFFERED]:
        for line in lines_of(cell, case):
            try:
                verdict = cell.subject.executor.verdict(line)
            except Exception as error:
                return f"its checker raised {whole(error)}"
            if verdict is not True:
                return str(verdict)
    return ""


def lines_of(cell: Cell, case: Case, *, grad: bool = False) -> list[BoundSymbol]:
    """Record the sample without data; return the lines that the executor would be offered."""
    try:
        trace = case.specs(cell.device, grad=grad)
    except Exception:
        return []  # the operation is refused before dispatch, or needs values
    return every(trace.lines, whole=False)


def refusals(cell: Cell) -> Outcome | None:
    """Check that an executor that refuses an operation which it implements says why, in a sentence."""
    checked = 0
    for case in cell.cases[:OFFERED]:
        for line in lines_of(cell, case):
            if not cell.subject.names(line.symbol.id):
                continue
            checked += 1
            try:
                verdict = cell.subject.executor.verdict(line)
            except Exception:
                continue  # `checkers` reports it
            if verdict is not True and (not isinstance(verdict, str) or verdict == NO_REASON or " " not in verdict.strip()):
                return Outcome("fail", f"{case}: {line.symbol} was refused with {verdict!r}; return a sentence that says why", 0, len(cell.cases))
    return Outcome("pass", "", checked, checked) if checked else None


def checkers(cell: Cell) -> Outcome | None:
    """Check that a checker never raises, and returns one verdict for one line: in any order, without gradients, with another default dtype."""
    checked = 0
    if (problem := _inconsistency(cell)) is not None:
        return Outcome("fail", problem, 0, len(cell.cases))
    for case in cell.cases[:OFFERED]:
        for grad in (False, True) if any(map(inexact, case.program.inputs)) else (False,):
            offered = lines_of(cell, case, grad=grad)
            lines = [line for line in offered if cell.subject.names(line.symbol.id) or cell.subject.declared["operations"] is None]
            answers = [_verdict(cell, line) for line in lines]
            checked += len(lines)
            if not grad:
                cell.verdicts += list(zip(lines, answers))
            again = [_verdict(cell, line) for line in reversed(lines)][::-1]
            with _other_settings():
                other = [_verdict(cell, line) for line in lines]
            for line, answer, second, third in zip(lines, answers, again, other):
                if isinstance(answer, Exception):
                    return Outcome("fail", f"{case}: the checker of {line.symbol} raised {whole(answer)}", 0, len(cell.cases))
                if not _same(answer, second) or not _same(answer, third):
                    other_answer = next(x for x in (second, third) if not _same(answer, x))
                    return Outcome(
                        "fail",
                        f"{case}: the checker of {line.symbol} returned {answer!r} and then {other_answer!r} for the same line",
                        0,
                        len(cell.cases),
                    )
    return Outcome("pass", "", checked, checked) if checked else None


def verdicts(cell: Cell) -> Outcome | None:
    """A checker returns the verdicts of the beginning once more, after all that it was offered and all that ran."""
    for line, answer in cell.verdicts:
        if not _same(answer, again := _verdict(cell, line)):
            return Outcome("fail", f"the checker of {line.symbol} returned {answer!r} at first, and {again!r} for the same line at the end")
    return Outcome("pass", "", len(cell.verdicts), len(cell.verdicts)) if cell.verdicts else None


def _inconsistency(cell: Cell) -> str | None:
    """Describe how the verdict on one line is wrong: it changes, takes too long, or reads the environment; None where it does not."""
    line = next((line for case in cell.cases for line in lines_of(cell, case) if cell.subject.names(line.symbol.id)), None)
    if line is None:
        return None
    first, shortest = _verdict(cell, line), float("inf")
    if (effect := _effect(cell, line)) is not None:
        return f"the checker of {line.symbol} {effect}"
    if cell.first and cell.subject.few and _keeps(cell):
        return f"the checker of {line.symbol} keeps alive the lines that it is offered"
    if cell.first and (answer := _at_other_times(cell, line, first)) is not None:
        return f"the checker of {line.symbol} returned {first!r} and, at another time, {answer!r} for the same line"
    for i in range(OFTEN if cell.first else SELDOM):
        began = perf_counter()
        again = _verdict(cell, line)
        shortest = min(shortest, perf_counter() - began)
        if not _same(first, again):
            return f"the checker of {line.symbol} returned {first!r} and, called {i + 1} more times, {again!r} for the same line"
        if i == SELDOM and shortest > cell.subject.limits.checker:
            return f"the checker of {line.symbol} takes {shortest * 1e3:.3g} ms; {cell.subject.limits.checker * 1e3:.3g} are allowed"
    return None


def _at_other_times(cell: Cell, line: BoundSymbol, first: Any) -> Any:
    """Return a verdict on a line that differs from the first one where the clock says that it is later; None where there is none."""
    clock = time.time
    now = clock()
    try:
        for seconds in LATER:
            time.time = lambda seconds=seconds: now + seconds
            if not _same(first, again := _verdict(cell, line)):
                return again
    finally:
        time.time = clock
    return None


def _effect(cell: Cell, line: BoundSymbol) -> str | None:
    """Describe what a verdict reads or changes besides the line, as a predicate; None where it does not."""
    reads: list[str] = []
    changed: list[str] = []
    state, output = torch.get_rng_state(), StringIO()
    with (
        recording_reads(reads),
        watched(changed),
        _looked_for(files := []),
        acts(reads=True) as did,
        redirect_stdout(output),
    ):
        _verdict(cell, line)
    anew = "a program is not compiled anew where that changes"
    if reads:
        return f"reads the environment variable {reads[0]}; {anew}"
    if did or files:
        return f"{did[0] if did else f'looks for the file {files[0]}'}; {anew}"
    if not torch.equal(state, torch.get_rng_state()):
        torch.set_rng_state(state)
        changed.append("torch's random state")
    if changed:
        return f"changes {changed[0]}"
    return f"prints {output.getvalue()[:80]!r}" if output.getvalue() else None


@contextmanager
def _looked_for(files: list[str]) -> Iterator[None]:
    """Record the files that code of Python looks for while open."""
    before = os.stat

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        files.append(os.path.basename(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else str(path))
        return before(path, *args, **kwargs)

    os.stat = stat  # type: ignore[assignment]
    try:
        yield
    finally:
        os.stat = before


def _keeps(cell: Cell) -> bool:
    """Return whether lines stay alive after verdicts on them, but for the last few."""
    case = next(case for case in cell.cases if any(cell.subject.names(line.symbol.id) for line in lines_of(cell, case)))

    def alive() -> int:
        return sum(issubclass(type(each), Proxy) for each in gc.get_objects(SURVIVORS))

    def offer() -> None:
        for line in lines_of(cell, case):
            if cell.subject.names(line.symbol.id):
                _verdict(cell, line)

    offer()
    collects = gc.isenabled()
    gc.collect(1)
    before = alive()
    gc.disable()  # so that all that the offers make is young
    try:
        for _ in range(KEPT):
            offer()
    finally:
        if collects:
            gc.enable()
    gc.collect(0)
    return alive() - before >= KEPT


def _verdict(cell: Cell, line: BoundSymbol) -> Any:
    """Return the executor's verdict on a line, or the error that its checker raises."""
    try:
        return cell.subject.executor.verdict(line)
    except Exception as error:
        return error


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (isinstance(a, Exception) or a == b)


@contextmanager
def _other_settings() -> Iterator[None]:
    """Change, while open, what no checker may look at: grad mode, inference mode, the default dtype, the seed, threads, the time."""
    threads, clock = torch.get_num_threads(), time.time
    dtype, state, folder = torch.get_default_dtype(), torch.get_rng_state(), os.environ.get("DOVETAIL_CONFORMANCE")
    torch.set_default_dtype(torch.float64)
    seed_generators(12345)
    os.environ["DOVETAIL_CONFORMANCE"] = "elsewhere"
    torch.set_num_threads(1 if threads > 1 else 2)
    time.time = lambda: clock() + YEARS
    try:
        with torch.inference_mode():
            yield
    finally:
        time.time = clock
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(state)
        if folder is None:
            del os.environ["DOVETAIL_CONFORMANCE"]
        else:
            os.environ["DOVETAIL_CONFORMANCE"] = folder
