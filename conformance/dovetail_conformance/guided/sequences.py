"""Calls one after another, for code that keeps something from call to call: counters, dicts of earlier shapes, results of an address."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType

import torch
from torch import Tensor

from dovetail_conformance.axes.layouts import laid_out
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Outcome
from dovetail_conformance.guided.corpus import Candidate, Mutations
from dovetail_conformance.guided.hints import Hints
from dovetail_conformance.guided.own import Own, names_of, nested
from dovetail_conformance.guided.probes import Direct, failed
from dovetail_conformance.layout import overlaps
from dovetail_conformance.oracle import same_bits
from dovetail_conformance.program import fresh, rolled

STORING = ("STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR", "DELETE_ATTR")
CHANGING = ("append", "setdefault", "update", "pop", "popitem", "add", "insert", "extend", "next", "move_to_end", "remove", "clear", "count")
LOOKING = ("id", "data_ptr", "_version", "untyped_storage", "perf_counter", "monotonic", "time", "random")
CALLS, FEW = 20_000, 10  # calls of one sample at most; sequences
SMALL = 1 << 12  # elements of the samples of which there are sequences


def has_state(own: Own) -> bool:
    """Return whether code may depend on earlier calls: it stores what outlives a call, or reads addresses."""
    names = {name for code in own.functions for name in names_of(code)}
    if names & {*CHANGING, *LOOKING} or any(isinstance(value, functools._lru_cache_wrapper) for value in own.values):
        return True
    return any(_stores(each) for code in own.functions for each in nested(code))


def _stores(code: CodeType) -> bool:
    shared = code.co_freevars
    return any(each.opname in STORING or (each.opname == "STORE_DEREF" and each.argval in shared) for each in dis.get_instructions(code))


def sequenced(direct: Direct, candidates: Sequence[Candidate], hints: Hints) -> Outcome | None:
    """Return the first failure among sequences of calls; None where every call is right."""
    small = [c for c in candidates if 1 < sum(x.numel() for x in Mutations.tensors(c)) <= SMALL]
    for candidate in small[:FEW]:
        case = candidate.of.accepted(candidate.sample, candidate.row)
        if case is None or not direct.takes(case) or direct.wrong(candidate, case, direct.call(candidate, case)) is not None:
            continue
        if (outcome := _other_values(direct, candidate, case)) is not None:
            return outcome
    return next((outcome for candidate in small[:1] if (outcome := _counted(direct, candidate, hints)) is not None), None)


def _other_values(direct: Direct, candidate: Candidate, case: Case) -> Outcome | None:
    """Call with other values of the same shape, with the first again, in the same memory, and in another layout."""
    steps = [("with other values", rolled(case.program.inputs)), ("with the first values again", case.program.inputs)]
    steps += [("with the elements inside in another order", _inside(case.program.inputs)), ("with the values of before", case.program.inputs)]
    steps += [(f"in a {layout} layout", other) for layout, other in _layouts(case)]
    for what, inputs in steps:
        if (outcome := _failure(direct, candidate, case, inputs, fresh(inputs), f"called after others {what}")) is not None:
            return outcome
    memory = fresh(case.program.inputs)
    if any(overlaps(x) for x in memory):
        return None
    for counted in (True, False):
        for values in (rolled(case.program.inputs), case.program.inputs, _inside(case.program.inputs)):
            for x, value in zip(memory, values):
                (x if counted else x.data).copy_(value)
            if (outcome := _failure(direct, candidate, case, values, memory, "called with other values in the same memory")) is not None:
                return outcome
    return None


def _failure(direct: Direct, candidate: Candidate, case: Case, values: Sequence[Tensor], inputs: list[Tensor], when: str) -> Outcome | None:
    """Return the failure of a call of these tensors, which hold these values; None where it is right, or eager or the executor refuses them."""
    other = Case(case.subject, case.info, replace(case.program, inputs=list(values)), case.label, case.sample)
    if other.expected.error is not None or not direct.takes(other):
        return None
    problem = direct.wrong(candidate, other, direct.call(candidate, other, inputs))
    return None if problem is None else direct.confirmed(candidate, other, f"{when}, {problem}")


def _inside(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors with all elements but the first and the last in reverse."""
    copies = fresh(inputs)
    for x in copies:
        if x.numel() > 3 and not overlaps(x):
            flat = x.clone(memory_format=torch.contiguous_format).flatten()
            flat[1:-1] = flat[1:-1].flip(0)
            x.copy_(flat.view(x.shape))
    return copies


def _layouts(case: Case) -> Iterator[tuple[str, list[Tensor]]]:
    for layout in ("column-major", "gapped", "row-major"):
        laid = [laid_out(x, layout) for x in case.program.inputs]
        yield layout, [x if other is None else other for x, other in zip(case.program.inputs, laid)]


def _counted(direct: Direct, candidate: Candidate, hints: Hints) -> Outcome | None:
    """Call as often as the largest constant says, and a little more; results stay the same."""
    count = max((n for n in hints.whole if n <= CALLS), default=0)
    case = candidate.of.accepted(candidate.sample, candidate.row) if count else None
    if case is None:
        return None
    first = direct.call(candidate, case)
    if first.error is not None or direct.wrong(candidate, case, first) is not None:
        return None
    with direct.unobserved():
        for i in range(count + 3):
            ran = direct.call(candidate, case)
            changed = ran.error is not None or not same_bits([ran.result], [first.result])
            if changed and (problem := direct.wrong(candidate, case, ran)) is not None:
                return failed(case, f"called {i + 2:,} times in a row with the same values, {problem}")
    return None
