"""Decide from recorded programs, before anything runs, in which cells an executor may run a line."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.devices import device as named
from dovetail.dtypes import DType
from dovetail.extend import BoundSymbol, OperatorExecutor, Trace
from dovetail.extend.advanced import Executor
from dovetail.langs.torch.binding.fake_runs import without_fakes
from dovetail_conformance.case import MOST, Case
from dovetail_conformance.one_rank import case_of
from dovetail_conformance.plan import Task, collectives, described, opinfos
from dovetail_conformance.program import program_of
from dovetail_conformance.subject import KINDS, Subject, absent, every
from dovetail_conformance.twins import is_in_place

PROGRAMS = 8  # samples of an operation that are recorded, each with its arguments passed in another way


@cache
def has_samples(operation: str, dtype: DType) -> bool:
    """Return whether the operation has a sample with this dtype: eager runs some in-place operations with fewer dtypes than their twins."""
    if not is_in_place(operation):
        return True
    try:
        return next(opinfos()[operation].samples(dtype, named("cpu")), None) is not None
    except Exception:  # the checks report samples that cannot be created
        return True


def has_room(subject: Subject, task: Task, *, parts: bool = True) -> bool:
    """Return whether the executor may run a line of the operation or of its decomposition; True where its declaration names no operations.

    Each line is offered to the executor itself, so a claim beyond the declaration counts. A cell
    without room is `not-claimed`: `suite` leaves it out, and `check` reports it without running anything. Without `parts`, no program is
    recorded, and an executor that takes nothing but what it declares has room in cells of those operations alone.
    """
    rows = subject.declared["operations"]
    if task.dtype is None:
        return True
    if rows and task.operation in rows and subject.coverage(task.operation, task.dtype, task.device) != "no":
        return True
    if task.operation in collectives():
        with subject.configured():
            return _starts(subject, task.operation, task.dtype)
    if rows is None or subject.declared.get("family"):
        return True
    if not parts and _by_table(subject.executor):
        return False
    device = _recorded_on(subject, task.device)
    if _by_table(subject.executor) and not rows.keys() & _parts(subject.executor, task.operation, _alike(task.operation, task.dtype), device):
        return False
    with subject.configured():
        return _is_offered(subject, rows, task, task.dtype, device)


def _starts(subject: Subject, operation: str, dtype: DType) -> bool:
    """Return whether the executor takes a line of a collective that needs several ranks: only those need processes."""
    lines = offered(subject.executor, operation, dtype, named("cpu"))
    return any([line.symbol.module == "dist" and _takes(subject.executor, line) for line in lines])


def _recorded_on(subject: Subject, kind: str) -> Device:
    """Return the device whose lines tell: the CPU for one that is not here, which runs nothing, or that the executor does not declare."""
    declared = subject.declared["devices"]
    return named("cpu" if (absent(subject, kind) and "cpu" in (declared or KINDS)) or kind not in (declared or (kind,)) else kind)


def _alike(operation: str, dtype: DType) -> DType:
    """Return the dtype with which an operation decomposes to much the same: one for all inexact dtypes, one for all others."""
    accepted, usual = described()[operation].dtypes, dtypes.float32 if dtype.inexact else dtypes.int64
    return usual if usual in accepted else dtype


@cache
def _parts(ex: Executor, operation: str, dtype: DType, device: Device) -> frozenset[str]:
    """Return the ids of the operations in the recorded programs; of a prim, which is its only line, none."""
    return frozenset() if described()[operation].symbol.is_prim else frozenset(line.symbol.id for line in offered(ex, operation, dtype, device))


def _is_offered(subject: Subject, rows: dict[str, Any], task: Task, dtype: DType, device: Device) -> bool:
    """Return whether recorded programs of the operation have a line that the executor takes."""
    usual = offered(subject.executor, task.operation, _alike(task.operation, dtype), device)
    if not any(line.symbol.id in rows or _takes(subject.executor, line) for line in usual):
        return False
    return any(_takes(subject.executor, line) for line in offered(subject.executor, task.operation, dtype, device))


def _by_table(ex: Executor) -> bool:
    """Return whether an executor takes nothing but lines of operations that its declaration lists."""
    return type(ex).verdict is OperatorExecutor.verdict and type(ex).prepare is Executor.prepare


def _takes(ex: Executor, line: BoundSymbol) -> bool:
    """Return whether the executor takes a line; one whose checker raises has to run, so that a check can report it."""
    try:
        verdict = ex.verdict(line)
    except Exception:
        return True
    return verdict is not False and not isinstance(verdict, str)


@cache
def offered(ex: Executor, operation: str, dtype: DType, device: Device) -> tuple[BoundSymbol, ...]:
    """Record a few samples; return the lines that the executor would be offered, before and after it rewrites each program."""
    lines: list[BoundSymbol] = []
    for trace in recorded(operation, dtype, device):
        lines += every(trace.lines, whole=False)
        if type(ex).prepare is Executor.prepare:
            continue
        try:
            lines += every(ex.prepare(trace, (ex,)).lines, whole=False)
        except Exception:  # the checks that run the program report it
            continue
    return tuple(lines)


@cache
def recorded(operation: str, dtype: DType, device: Device) -> tuple[Trace, ...]:
    """Record the operation's samples without data, one for each way in which the other arguments are passed."""
    if operation in collectives():
        return tuple([case.specs(device) for case in _of_one_rank(operation, dtype)])
    info = opinfos()[operation]
    programs: dict[object, Case] = {}
    try:
        for sample in islice(info.samples(dtype, named("cpu")), MOST):
            program = program_of(info.symbol, sample)
            programs.setdefault(program.template, Case(None, info, program, "", sample))
            if len(programs) == PROGRAMS:
                break
    except Exception:
        pass  # the samples so far
    traces = []
    for case in programs.values():
        try:
            with without_fakes():
                traces.append(case.specs(device))
        except Exception:  # the operation is refused before dispatch, or needs values
            continue
    return tuple(traces)


def _of_one_rank(operation: str, dtype: DType) -> list[Case]:
    """Return the samples of a collective as the first of two ranks runs them."""
    info = collectives()[operation]
    return [case_of(None, info, sample, dtype, rank=0) for sample in info.samples(dtype, 2)]
