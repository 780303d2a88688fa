"""Checks of executors that declare few operations, which take long: results above 2^24 elements, and many sizes one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import process_time
from typing import Any

from torch import Tensor

from dovetail_conformance.axes.sizes import grown, mapped, resized
from dovetail_conformance.axes.values import within
from dovetail_conformance.case import Case, Ran
from dovetail_conformance.cell import Broke, Cell, Outcome, whole
from dovetail_conformance.chance import FEW, unknown_numbers, unlike_in_chance, unlike_once
from dovetail_conformance.draws import generator
from dovetail_conformance.footprint import fits
from dovetail_conformance.oracle import identical, tensors
from dovetail_conformance.program import fresh, message, program_of

VAST, MOST, SLOW = (1 << 24) + 9, 1 << 26, 0.5  # elements; of results; seconds of all processors that eager may take
EDGE, JUDGED = 1 << 16, 1 << 18  # elements at each end of a result that are judged, and how many a result may have that is judged whole
SIZES = (*range(2, 34), 63, 64, 65)  # with every remainder of vectors of up to 32 elements


def applies(cell: Cell) -> bool:
    """Return whether a cell has these checks: of an executor of few operations, or from level full on, with its first dtype."""
    wanted = cell.level.calls and cell.first and (cell.subject.few or cell.level.rank > 1)
    return bool(wanted) and cell.subject.names(cell.info.symbol.id) and not cell.dtype.storage_only


def scale(cell: Cell) -> Outcome | None:
    """Results are right for tensors of more than 2^24 elements, with executors of few operations; and from level full on."""
    if not applies(cell):
        return None
    case = next((case for base in _bases(cell) for case in _vast(cell, base)), None)
    return None if case is None else cell.each(_judged, "forward", [case])


def _bases(cell: Cell) -> list[Case]:
    """Return cases with a tensor that may grow, one for each way of passing the other arguments."""
    usable = [c for c in cell.claimed if c.ran.error is None and c.sample is not None and c.reference is not None]
    return list({c.program.template: c for c in usable if any(x.ndim and x.numel() > 1 for x in c.program.inputs)}.values())[:3]


def _vast(cell: Cell, base: Case) -> Iterator[Case]:
    """Yield the case with more than 2^24 elements, if eager takes it and is fast."""
    values = generator(5)
    shapes = {tuple(x.shape) for x in base.program.inputs if x.ndim}
    if base.pointwise and len(shapes) == 1:
        grown_samples: Iterator = iter([mapped(base.sample, lambda x: _tiled(x, VAST) if x.ndim and x.numel() else x)])
    else:
        grown_samples = resized(base.sample, "vast", "first", values)
    for sample in (within(each, cell.info) for each in grown_samples):
        case = Case(cell.subject, cell.info, program_of(cell.info.symbol, sample), message(sample), sample)
        if not fits(case, MOST):
            continue
        began = process_time()
        if case.expected.error is None and process_time() - began < SLOW and case.claimed:
            yield case
            return


def _tiled(x: Tensor, count: int) -> Tensor:
    values = x.detach().resolve_conj().resolve_neg().reshape(-1)
    return values.repeat(-(-count // len(values)))[:count]


def _judged(case: Case) -> str | None:
    """Judge a whole result where it is small or eager's own, else its ends: the exact one would take too much memory."""
    ran, expected = case.ran, case.expected
    if ran.error is not None:
        raise Broke(whole(ran.error))
    if (problem := case.louder(case.function, ran, expected, case.program.inputs)) is not None:
        return problem
    if identical(ran.result, expected.result):
        return None
    if case.draws:
        return unlike_once(case, case.function, lambda: fresh(case.program.inputs))
    if all(x.numel() <= JUDGED for x in tensors(expected.result)):
        return case.wrong(ran, expected, case.program.inputs)
    if not case.pointwise or any(x.ndim > 1 for x in case.program.inputs):
        return None
    for end in (slice(0, EDGE), slice(-EDGE, None)):
        inputs = [x[end] if x.ndim else x for x in case.program.inputs]
        part = Case(case.subject, case.info, replace(case.program, inputs=inputs), str(case))
        ours = [x[end] if x.ndim else x for x in tensors(ran.result)]
        if (difference := part.wrong_for(ours, part.expected, fresh(inputs))) is not None:
            return f"among the {'first' if end.start == 0 else 'last'} {EDGE:,} elements, {difference}"
    return None


def right(case: Case, ran: Ran, function: Callable[..., Any]) -> str | None:
    """Describe how a call of a function is wrong; None where it is right, or where chance explains the difference."""
    if not case.draws:
        return case.wrong(ran, case.expected, case.program.inputs)
    if identical(ran.result, case.expected.result):
        return None
    return unknown_numbers(case, ran) or unlike_in_chance(case, function, lambda: fresh(case.program.inputs), FEW)


def sizes(cell: Cell) -> Outcome | None:
    """One compiled function is right for 35 sizes, one after another, with executors of few operations; and from level full on."""
    if not applies(cell) or not (bases := _bases(cell)):
        return None
    base = max(bases, key=lambda case: sum(x.numel() for x in case.program.inputs))
    symbol = next(n for x in base.program.inputs for n in reversed(x.shape) if n > 1)
    values, function = generator(6), base.compiled()
    cases = []
    for size in SIZES:
        larger = mapped(base.sample, lambda x, size=size: grown(x, tuple(size if n == symbol else n for n in x.shape), values))
        sample = within(larger, cell.info)
        case = Case(cell.subject, cell.info, program_of(cell.info.symbol, sample), message(sample), sample)
        if case.expected.error is None:
            cases.append(case)

    def judge(case: Case) -> str | None:
        ran = case.call(function, fresh(case.program.inputs))
        if ran.error is not None:
            raise Broke(whole(ran.error))
        difference = right(case, ran, function) or case.louder(function, ran, case.expected, case.program.inputs)
        return None if difference is None else f"called after others with the same compiled function: {difference}"

    return cell.each(judge, "shapes", cases) if cases else None
