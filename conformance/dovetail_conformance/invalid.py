"""The check of errors: what eager refuses, a plugin refuses as well, whether shapes, other arguments, or values in tensors are invalid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

import dovetail
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Cell, Outcome, whole
from dovetail_conformance.claims import is_whole
from dovetail_conformance.layout import overlaps
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.program import fresh, message, program_of
from dovetail_conformance.subject import is_referee

CHOSEN, FAR = 6, 1 << 20  # samples that get invalid values, and an index that is far away
REALS = (-1.0, 2.0, nan, inf, -inf)  # outside of what probabilities, counts, rates and spreads may be
NUMBERS: dict[type, tuple[Any, ...]] = {int: (-1, 0, 101, -101), float: (-1.0, 0.0, 2.0, nan, inf)}  # in place of an argument


def errors(cell: Cell) -> Outcome | None:
    """Invalid arguments raise the errors of eager PyTorch, whichever executor runs the operation; so do values and indices out of range."""
    if not cell.claimed or not cell.first:
        return None
    samples = list(cell.info.error_samples(cell.device))
    for sample in samples:
        program = program_of(cell.info.symbol, sample)
        case = Case(cell.subject, cell.info, program, message(sample))
        ran = case.call(case.compiled(), fresh(program.inputs))
        if ran.error is None:
            return Outcome("fail", f"{case}: returned a result, expected {sample.error.__name__}", 0, len(samples), replay=case.replay("errors"))
        if not isinstance(ran.error, sample.error) or re.search(sample.match, str(ran.error), re.DOTALL) is None:
            wanted = f"{sample.error.__name__}" + (f" matching {sample.match!r}" if sample.match else "")
            return Outcome("fail", f"{case}: raised {whole(ran.error)}, expected {wanted}", 0, len(samples), replay=case.replay("errors"))
    if cell.level.calls and (outcome := _of_values(cell) or _of_numbers(cell)) is not None:
        return outcome
    return Outcome("pass", "", len(samples), len(samples)) if samples else None


def _of_values(cell: Cell) -> Outcome | None:
    """Return a failure where eager refuses the values of a tensor, and the executor does not; None where there is none."""
    for case in [c for c in cell.claimed if c.ran.error is None and c.reference is not None][:CHOSEN]:
        for i, what, inputs in _with_invalid_values(case, reals=is_whole(case)):
            expected = case.eager(fresh(inputs))
            if expected.error is None or case.call(case.function, fresh(inputs)).error is not None:
                continue
            if not _runs_elsewhere(case, inputs):
                text = f"{case}: with {what} in x{i} it returned a result, and eager raises {whole(expected.error)}"
                return Outcome("fail", text, 0, len(cell.claimed), replay=case.replay("errors", inputs=inputs))
    return None


def _with_invalid_values(case: Case, *, reals: bool) -> Iterator[tuple[int, str, list[Tensor]]]:
    """Yield inputs with a value at the end of one of them, or everywhere in it, that may be invalid; its position; and what is in there."""
    for i, x in enumerate(case.program.inputs):
        if not x.numel() or overlaps(x) or x.dtype is torch.bool or x.is_complex() or (x.dtype.itemsize == 1 and x.is_floating_point()):
            continue
        values: Sequence[Any] = _positions(case, x) if not x.is_floating_point() else REALS if reals else ()
        for value in values:
            inputs = fresh(case.program.inputs)
            inputs[i].view(-1)[-1:].fill_(value) if inputs[i].is_contiguous() else inputs[i].fill_(value)
            yield i, str(value), inputs
        if values:
            inputs = fresh(case.program.inputs)
            inputs[i].zero_()
            yield i, "nothing but zeros", inputs


def _positions(case: Case, x: Tensor) -> list[int]:
    """Return indices that its dtype holds: far away, and just outside of each dimension."""
    sizes = {n for other in case.program.inputs for n in other.shape}
    info = torch.iinfo(x.dtype)
    return [n for n in sorted({FAR, -FAR, -1, *sizes, *(-n - 1 for n in sizes)}) if info.min <= n <= info.max]


def _of_numbers(cell: Cell) -> Outcome | None:
    """Return a failure where eager refuses a number among the arguments, and the executor does not; None where there is none."""
    alike = {c.program.template: c for c in cell.claimed if c.ran.error is None and c.reference is not None and c.sample is not None and is_whole(c)}
    for base in list(alike.values())[:CHOSEN]:
        for sample in _with_other_numbers(base.sample):
            case = Case(cell.subject, cell.info, program_of(cell.info.symbol, sample), message(sample), sample)
            if case.expected.error is None or case.call(case.compiled(), fresh(case.program.inputs)).error is not None:
                continue
            if not _runs_elsewhere(case, case.program.inputs):
                text = f"{case}: it returned a result, and eager raises {whole(case.expected.error)}"
                return Outcome("fail", text, 0, len(cell.claimed), replay=case.replay("errors"))
    return None


def _with_other_numbers(sample: SampleInput) -> Iterator[SampleInput]:
    """Yield the sample with one number among its arguments replaced by one that may be invalid."""
    for key, value in sample.arguments().items():
        yield from (sample.with_argument(key, number) for number in NUMBERS.get(type(value), ()))


def _runs_elsewhere(case: Case, inputs: Sequence[Tensor]) -> bool:
    """Return whether the executors of last resort return a result for these inputs: then it is not this executor that leaves out a refusal."""
    if is_referee(case.subject.executor) or not case.subject.others:
        return False
    function = dovetail.jit(case.program.fn, executors=list(case.subject.others), interpretation="native")
    return case.call(function, fresh(inputs)).error is None
