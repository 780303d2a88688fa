"""The check of variants: results, training and gradients along every axis, in pairs of levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import Unsupported
from dovetail.extend.advanced import checked
from dovetail_conformance.accuracy import inaccuracy
from dovetail_conformance.attributes import unlike
from dovetail_conformance.axes.apart import moved_gradients
from dovetail_conformance.axes.covering import Row
from dovetail_conformance.axes.exact import normalized_room, sums_exactly, turned_room
from dovetail_conformance.axes.gradients import Gradients, ends_the_process, gradients, subset
from dovetail_conformance.axes.modes import mode
from dovetail_conformance.axes.variants import Variant, Variants
from dovetail_conformance.case import MOST, Case, Ran, errors_of, scaled
from dovetail_conformance.cell import Broke, Cell, Outcome, whole
from dovetail_conformance.chance import unlike_draws, unlike_in_chance
from dovetail_conformance.oracle import identical
from dovetail_conformance.program import calm, fresh, perturbed, widened
from dovetail_conformance.subject import is_referee

TRAINED = ("plain", "autocast", "deterministic", "one thread", "three threads")  # modes in which gradients are computed
RELATED = (dtypes.int64, dtypes.complex64)  # dtypes that stand for others of their kind as well
STYLED = (*RELATED, dtypes.float64)  # dtypes besides the first with which each way of passing arguments is tried
RELATIVE = (Row(), Row(values="wide"), Row(size="odd", values="wide"), Row(size="block", layout="gapped", values="kinks"))
FEWER = 3  # rows for an operation of which the executor runs only parts: a third


def variants(cell: Cell) -> Outcome | None:
    """Results and gradients are right along every axis: sizes, layouts, values, arguments, inputs that require gradients, cotangents, modes."""
    if not cell.claimed or cell.info.random or cell.dtype.storage_only or not (chosen := of_cell(cell)):
        return None
    claimed = [variant for variant in chosen if variant.case.claimed]
    for variant in claimed:
        if variant.case.ran.error is not None and variant.case.expected.error is not None:
            continue
        if (outcome := judged(cell, variant)) is not None:
            return replace(outcome, ran=len(claimed), samples=len(chosen))
    return Outcome("pass", "", len(claimed), len(chosen)) if claimed else None


def judged(cell: Cell, variant: Variant, *, called: bool = True, trained: bool = True) -> Outcome | None:
    """Return a failure where a variant is wrong, called without gradients or in training, and it is this executor's fault; else None."""

    def judge(case: Case) -> str | None:
        return (_called(variant) if called else None) or (_trained(cell, variant) if trained else None)

    outcome = cell.each(judge, "forward", [variant.case])
    if outcome.state not in ("fail", "error") or _fails_without(cell, variant):
        return None
    outcome.message = outcome.message.replace(str(variant.case), str(variant), 1)
    return outcome


def _fails_without(cell: Cell, variant: Variant) -> bool:
    """Return whether the variant fails as well where the executors of last resort run it: then the fault is not this executor's."""
    if is_referee(cell.subject.executor):
        return False
    others = replace(cell.subject, executor=cell.subject.others[0], others=cell.subject.others[1:]) if cell.subject.others else None
    if others is None:
        return False
    case = Case(others, variant.case.info, variant.case.program, variant.case.label, variant.case.sample)
    try:
        return (_called(replace(variant, case=case)) or _trained(cell, replace(variant, case=case))) is not None
    except Broke:
        return True


def of_cell(cell: Cell) -> list[Variant]:
    """Return the variants that the level has for a cell."""
    if cell.level.dealt or not cell.level.rows[0] or not cell.cases[0].program.eager:
        return []
    first = cell.first
    named = cell.subject.coverage(cell.info.symbol.id, cell.dtype, cell.device.type) == "yes" or _named(cell)
    most = cell.level.rows[0 if first else 1]
    samples = [case.sample for case in cell.all_cases if case.sample is not None]
    claimed = {case.program.template for case in cell.claimed}
    variants_of_cell = Variants(cell.subject, cell.info, cell.dtype, samples[:MOST], cell.seed, preferred=claimed)
    chosen = variants_of_cell.chosen(most if named else most // FEWER, 0 if first else 17 * cell.dtype.bytes, complete=first and named)
    if named:
        chosen += variants_of_cell.of_dtype()
    if not first and cell.dtype in STYLED:
        chosen += variants_of_cell.every_style() + (variants_of_cell.wide_beside_numbers() if named else [])
    return [*chosen, *(variant for dtype in _relatives(cell) for variant in _of_relative(cell, dtype))]


def _relatives(cell: Cell) -> list[DType]:
    """Return the dtypes of the operation that the level has no cell for and this cell stands for: of its kind."""
    if cell.dtype not in RELATED:
        return []
    return [d for d in cell.info.dtypes if d.kind == cell.dtype.kind and d not in cell.level.dtypes and not d.storage_only]


def _of_relative(cell: Cell, dtype: DType) -> list[Variant]:
    """Return a few variants with another dtype: plain ones, and with values of its whole range."""
    samples = list(islice(cell.info.samples(dtype, cell.there), MOST))
    return Variants(cell.subject, cell.info, dtype, samples, cell.seed).some(RELATIVE)


def _named(cell: Cell) -> bool:
    rows = cell.subject.declared["operations"]
    return bool(rows) and cell.info.symbol.id in rows


def _called(variant: Variant) -> str | None:
    """Describe what is wrong with a call without gradients: its result, what it wrote, a line whose result differs from its meta."""
    case, row = variant.case, variant.row
    function = case.compiled_once("variant", passes=[checked], **_tracing(row))
    with mode(row.mode):
        inputs = fresh(case.program.inputs)  # inference tensors in inference mode
        ran = case.call(function, inputs)
        if isinstance(ran.error, Unsupported):
            return None  # Dovetail refuses the program, whichever executor runs it
        if ran.error is not None:
            raise Broke(whole(ran.error))
        eager = (case.expected.result, list(case.expected.inputs))
        got = (case.settled(ran.result, case.expected.result, case.program.inputs), list(ran.inputs))
        truth = case.truth(eager, case.program.inputs)
        truth = replace(truth, length=1, sharp=True) if sums_exactly(case) else truth
        if not identical(got, eager) and (difference := inaccuracy(got, truth)) is not None:
            difference = unlike_in_chance(case, function, lambda: fresh(case.program.inputs)) if case.draws else difference
            if difference is not None:
                return difference
        return unlike(ran.result, case.expected.result) or case.louder(function, ran, case.expected, case.program.inputs)


def _tracing(row: Row) -> dict[str, str]:
    """Choose how to trace: native tracing, which is faster, does not support autocast."""
    return {"interpretation": "bytecode"} if row.mode == "autocast" else {}


def _trained(cell: Cell, variant: Variant) -> str | None:
    """Describe what is wrong with a call that requires gradients: its result, the gradients, a cotangent that was written."""
    case, row = variant.case, variant.row
    if any(each.kind == "skip" and each.covers("backward", cell.dtype, cell.device.type) for each in cell.info.directives):
        return None
    if not cell.info.grad or not cell.dtype.inexact or row.mode not in TRAINED or case.reference is None:
        return None
    if not (candidates := case.differentiable):
        return None
    if row.cotangent == "not finite" and not case.pointwise:  # 0 * inf is NaN in one sum and left out of another
        row = row.without("cotangent")
    wanted = subset(candidates, row.grad)
    if ends_the_process(cell.info.symbol.id, case.program.inputs, wanted):
        return None
    judged = {
        "sharp": row.values == "kinks" and case.pointwise,  # there a rounding of the inputs would change the branch
        "kinds": row.cotangent != "not finite" and (row.values != "extreme" or case.pointwise),  # inf * 0 is NaN where it is a term
    }
    with mode(row.mode), calm():
        theirs = gradients(case.eager, fresh(case.program.inputs), wanted, row.cotangent)
        if theirs is None or theirs.error is not None:
            return None
        function = case.compiled_once("trained variant", **_tracing(row))
        ours = gradients(partial(case.call, function), fresh(case.program.inputs), wanted, row.cotangent)
        if ours is None:
            return "the gradient is missing"
        if isinstance(ours.error, Unsupported):
            return None
        if ours.error is not None:
            raise Broke(f"with gradients of {_inputs(wanted)}, {whole(ours.error)}")
        difference = _unlike(case, ours, theirs, wanted, row.cotangent, **judged)
        if difference is None and ours.noise.beyond(theirs.noise) is not None:  # a first call may load a library
            again = gradients(partial(case.call, function), fresh(case.program.inputs), wanted, row.cotangent)
            return None if again is None else again.noise.beyond(theirs.noise)
        if difference is None or not case.draws:
            return difference
        calls = (partial(case.call, function), case.eager)
        return unlike_draws(*(partial(_drawn, case, call, wanted, row.cotangent) for call in calls))


def _drawn(case: Case, call: Callable[..., Ran], wanted: Sequence[int], kind: str, seed: int) -> list[Any] | None:
    """Return the results and gradients of a call that draws random numbers, for a seed."""
    outcome = gradients(partial(call, seed=seed), fresh(case.program.inputs), wanted, kind)
    return None if outcome is None or outcome.error is not None else [*outcome.results, *outcome.values]


def _unlike(case: Case, ours: Gradients, theirs: Gradients, wanted: Sequence[int], kind: str, *, sharp: bool, kinds: bool) -> str | None:
    if ours.written:
        return "the backward wrote into its cotangent"
    if identical((ours.results, ours.values), (theirs.results, theirs.values)):
        return None
    if identical(case.settled(ours.results, theirs.results, case.program.inputs), theirs.results) and not identical(ours.results, theirs.results):
        return None  # the gradients flow to others of equal elements

    eps = max(torch.finfo(case.program.inputs[i].dtype).eps for i in wanted)

    def exact(part: str, moved: int | None = None) -> Any:
        if moved is None or part == "results":
            outcome = gradients(case.eager, case.widened(moved), wanted, kind, moved, eps)
        else:
            outcome = moved_gradients(case, wanted, kind, moved, eps)
        return None if outcome is None or outcome.error is not None else getattr(outcome, part)

    parts = (("with gradients, the result", "results"), (f"the gradient of {_inputs(wanted)}", "values"))
    for what, part in parts:
        if identical(getattr(ours, part), getattr(theirs, part)):
            continue
        how = {"zeros": part == "results", "kinds": kinds or (part == "results" and kind != "not finite")}
        truth = case.truth_of(getattr(theirs, part), exact(part), partial(exact, part), **how)
        own, others = (partial(each, case, wanted, kind, part) for each in (_own, _others))
        truth = replace(truth, sharp=truth.sharp or sharp, own=own, others=others)
        if part == "values":
            extra = normalized_room(case, theirs.results, theirs.values, theirs.largest)
            truth = replace(truth, extra=turned_room(case, theirs.values, wanted, kind) if case.pointwise else extra)
        if (difference := inaccuracy(getattr(ours, part), truth)) is not None:
            return f"{what} for {kind} cotangents: {difference}"
    return None


def _own(case: Case, wanted: Sequence[int], kind: str, part: str) -> Any:
    """Return the errors of eager in float32, in its results or its gradients, scaled to float64."""
    narrow = case.narrowed(case.program.inputs)
    rough, exact = (gradients(case.eager, inputs, wanted, kind) for inputs in (fresh(narrow), widened(fresh(narrow))))
    if rough is None or exact is None or rough.error is not None or exact.error is not None:
        return None
    return scaled(getattr(rough, part), getattr(exact, part))


def _others(case: Case, wanted: Sequence[int], kind: str, part: str, moved: int) -> Any:
    """Return the errors of eager's results or gradients for inputs that are off by a rounding."""
    nearby = perturbed(case.program.inputs, moved)
    rough, exact = (gradients(case.eager, inputs, wanted, kind) for inputs in (fresh(nearby), widened(fresh(nearby))))
    if rough is None or exact is None or rough.error is not None or exact.error is not None:
        return None
    return errors_of(getattr(rough, part), getattr(exact, part))


def _inputs(wanted: Sequence[int]) -> str:
    return ", ".join(f"x{i}" for i in wanted)
