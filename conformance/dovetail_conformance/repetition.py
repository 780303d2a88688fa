"""The checks of many calls of one compiled function: with changing values, with gradients, in reused memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.axes.gradients import gradients
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Cell, Outcome, whole
from dovetail_conformance.layout import overlaps
from dovetail_conformance.memory import resident
from dovetail_conformance.noise import Noise, recording_noise
from dovetail_conformance.oracle import flat, same_bits, tensors
from dovetail_conformance.program import calm, fresh, inexact, rolled
from dovetail_conformance.random_calls import chosen, from_generator, in_a_row

LONG = 5.0  # seconds after which no further call is made
VALUES, KEPT, TRAINED = 5, 24, 40  # sets of values; results that are held on to; calls with gradients
SPAN, SPANS, LEAK = 250, 3, 4_000  # calls after which memory is measured, how often it has to grow between, and by how many bytes a call


def calls(cell: Cell) -> Outcome | None:
    """Hundreds of calls return the first results for the same values, in new and in reused memory, and leave earlier results unchanged."""
    if not cell.level.calls:
        return None
    count = cell.level.calls if cell.first else cell.level.calls // 10
    if cell.info.random:
        return _drawn(cell, count)
    usable = [case for case in cell.claimed if case.ran.error is None]
    sizes = [(sum(x.numel() for x in case.program.inputs or tensors(case.ran.result)), case) for case in usable]
    case = max(((n, case) for n, case in sizes if 1 < n <= 256), key=lambda each: each[0], default=(0, None))[1]
    if case is None:
        return None
    return cell.each(lambda case: _plain(case, count) or (_trained(case, count) if cell.info.grad and cell.dtype.inexact else None), "calls", [case])


def _drawn(cell: Cell, count: int) -> Outcome | None:
    """Judge many calls of a random operation, of two samples in turn, and calls with a generator of their own."""
    drawing = chosen(cell.claimed)
    if not drawing:
        return None
    outcome = cell.each(lambda case: in_a_row(case, drawing[-1], count), "calls", drawing[:1])
    if outcome.state in ("fail", "error") or not cell.first:
        return outcome
    alike = {case.program.template: case for case in cell.claimed if case.ran.error is None and case.reference is not None}
    return cell.each(from_generator, "calls", list(alike.values()))


def _plain(case: Case, count: int) -> str | None:
    """Describe how one of many calls is wrong, or what it prints or warns of that eager's do not; None where none is."""
    function, theirs = case.compiled(), Noise()
    sets: list[Sequence[Tensor]] = []
    expected: list[list[Any]] = []
    with calm(), torch.no_grad():
        for values in _value_sets(case):
            eager = case.eager(fresh(values)) if case.reference is not None else None
            if eager is not None and eager.error is not None:
                continue  # the operation does not take these values
            result = flat(function(*fresh(values)))
            expected.append([x.clone() if isinstance(x, Tensor) else x for x in result])
            sets.append(values)
            if eager is not None and (difference := case.wrong_for(result, eager, values)) is not None:
                return f"with other values: {difference}"
            theirs = theirs if eager is None else theirs + eager.noise
    if not sets:
        return None  # another check reports it
    with recording_noise() as noise, torch.no_grad():
        problem = _again(function, fresh(case.program.inputs), sets, expected, count)
    return problem or (None if case.reference is None else noise.beyond(theirs))


def _value_sets(case: Case) -> list[Sequence[Tensor]]:
    """Return values for calls: its own, others, ones that are equal in several tensors, and ones of which the last alone is another."""
    sets: list[Sequence[Tensor]] = [case.program.inputs]
    while len(sets) < VALUES:
        sets.append(rolled(sets[-1]))
    return [*sets, _alike(sets[0], integers=case.pointwise), _with_another_end(sets[0])]


def _again(
    function: Callable[..., Any], place: Sequence[Tensor], sets: Sequence[Sequence[Tensor]], expected: Sequence[Sequence[Any]], count: int
) -> str | None:
    """Call a function with one set of values after another, in new memory and in `place`; describe the first result that is not the expected one."""
    kept: deque[tuple[Any, Sequence[Any]]] = deque(maxlen=KEPT)
    late, memory = perf_counter() + LONG, [resident()]
    for i in range(count):
        if perf_counter() > late:
            break
        if i % SPAN == SPAN - 1:
            kept.clear()
            memory.append(resident())
            if len(memory) > SPANS and min(b - a for a, b in pairwise(memory[-SPANS:])) > SPAN * LEAK:
                return f"{SPAN} calls keep {min(b - a for a, b in pairwise(memory[-SPANS:])) / 1e6:.3g} MB, and the next {SPAN} as much again"
        at = i * 7 % len(sets) if i % 3 else (i // 3) % len(sets)
        inputs = None  # these go first: the next ones may get their addresses
        inputs = fresh(sets[at]) if i % 2 else _refilled(place, sets[at], counted=i % 4 == 0)
        try:
            result = flat(function(*inputs))
        except Exception as error:
            return f"call {i + 1 + len(sets)} raised {whole(error)}"
        if not same_bits(result, expected[at]):
            written = ", of which the result has been written into" if i > KEPT else ""
            return f"call {i + 1 + len(sets)} returned other results than an earlier call with the same values{written}"
        if len(kept) == KEPT and not _within(kept[0][0], place):
            _overwrite(kept[0][0])
        if i % 2 or not _within(result, inputs):  # what lies in an input changes when that is filled again
            kept.append((result, expected[at]))
        if i % 10 == 9 and any(not same_bits(a, b) for a, b in kept):
            return f"within {KEPT} calls, a call changed what an earlier one had returned"
    return None


def _overwrite(results: Sequence[Any]) -> None:
    """Write into results of a call, as their owner may."""
    for x in results:
        if isinstance(x, Tensor) and not overlaps(x):
            x.copy_(~x if x.dtype is torch.bool else torch.ones_like(x) if x.numel() and not bool((x == 1).all()) else torch.zeros_like(x))


def _alike(values: Sequence[Tensor], *, integers: bool) -> list[Tensor]:
    """Copy the values of an earlier tensor of the same shape and dtype into each: then comparisons hold for all of them.

    Without `integers` only into inexact ones: integers may be positions, which the values of another tensor are not.
    """
    copies = fresh(values)
    for i, x in enumerate(copies):
        first = next((other for other in copies[:i] if (other.shape, other.dtype) == (x.shape, x.dtype)), None)
        if first is not None and x.is_contiguous() and (integers or inexact(x)):
            x.copy_(first)
    return copies


def _with_another_end(values: Sequence[Tensor]) -> list[Tensor]:
    """Copy the values with the last element of each tensor replaced by its first one."""
    copies = fresh(values)
    for x in copies:
        if x.numel() > 1 and not overlaps(x):
            at = tuple(n - 1 for n in x.shape)
            x[at] = x[(0,) * x.ndim].clone()
    return copies


def _refilled(place: Sequence[Tensor], values: Sequence[Tensor], *, counted: bool) -> list[Tensor]:
    """Put the values into the memory of the last call, where each has a place; a write that is not `counted` leaves the tensors' versions."""

    def refill(x: Tensor, value: Tensor) -> Tensor:
        if not x.is_contiguous() or x.shape != value.shape:
            return fresh([value])[0]
        (x if counted else x.data).copy_(value)
        return x

    return [refill(x, value) for x, value in zip(place, values)]


def _within(results: Sequence[Any], inputs: Sequence[Tensor]) -> bool:
    """Return whether a result lies in the memory of an input: the result of an operation in place, or a view."""
    places = {x.untyped_storage().data_ptr() for x in inputs}
    return any([isinstance(x, Tensor) and x.untyped_storage().data_ptr() in places for x in results])


def _trained(case: Case, count: int) -> str | None:
    """Compute the gradients of one call after the other."""
    wanted = case.differentiable
    if not wanted or case.sample is None or case.reference is None:
        return None
    function, sets = case.compiled(), (case.program.inputs, rolled(case.program.inputs))
    expected: list[list[Any] | None] = [None, None]
    for i in range(min(TRAINED, count)):
        with calm():
            outcome = gradients(lambda inputs, grad: case.call(function, inputs, grad=grad), fresh(sets[i % 2]), wanted, "dense")
        if outcome is None or outcome.error is not None:
            return None  # another check reports it
        got = [outcome.results, outcome.values]
        if expected[i % 2] is None:
            expected[i % 2] = got
        elif not same_bits(got, expected[i % 2]):
            return f"training call {i + 1} returned other results or gradients than an earlier one with the same values"
    return None
