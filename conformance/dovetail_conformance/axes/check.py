"""The check of variants: results, training and gradients along every axis, in pairs of levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import Unsupported
from dovetail.extend.advanced import checked
from dovetail_conformance.accuracy import Place, inaccuracies
from dovetail_conformance.attributes import unlike
from dovetail_conformance.axes.apart import moved_gradients
from dovetail_conformance.axes.covering import Row
from dovetail_conformance.axes.exact import added_up, normalized_room, sums_exactly, turned_room, undefined_room, vector_room
from dovetail_conformance.axes.gradients import Gradients, cotangent, ends_the_process, gradients, subset
from dovetail_conformance.axes.modes import mode
from dovetail_conformance.axes.routes import ROUTES, routed
from dovetail_conformance.axes.variants import CROSSED, Variant, Variants, laid_in
from dovetail_conformance.case import MOST, Case, Ran, errors_of, own_errors
from dovetail_conformance.cell import Broke, Cell, Outcome, whole
from dovetail_conformance.chance import FEW, unknown_numbers, unlike_draws, unlike_in_chance
from dovetail_conformance.oracle import identical, same_bits
from dovetail_conformance.program import calm, fresh, perturbed, widened
from dovetail_conformance.subject import is_referee

TRAINED = ("plain", "autocast", "deterministic", "one thread", "three threads")  # modes in which gradients are computed
RELATED = (dtypes.int64, dtypes.complex64)  # dtypes that stand for others of their kind as well
STYLED = (*RELATED, dtypes.float64)  # dtypes besides the first with which each way of passing arguments is tried
RELATIVE = (Row(), Row(values="wide"), Row(size="odd", values="wide"), Row(size="block", layout="gapped", values="kinks"))
PROPORTION = 16.0  # roundings of a product that is formed in another order
FEWER = 3  # rows for an operation of which the executor runs only parts: a third


def variants(cell: Cell) -> Outcome | None:
    """Results and gradients are right along every axis: sizes, layouts, values, arguments, inputs that require gradients, cotangents, modes."""
    if not cell.claimed or cell.dtype.storage_only or not (chosen := of_cell(cell)):
        return None
    claimed = [variant for variant in chosen if variant.case.claimed]
    for variant in claimed:
        if variant.case.ran.error is not None and variant.case.expected.error is not None:
            continue
        if (outcome := judged(cell, variant)) is not None:
            return replace(outcome, ran=len(claimed), samples=len(chosen))
    return Outcome("pass", "", len(claimed), len(chosen)) if claimed else None


@dataclass(frozen=True)
class Fault:
    """What is wrong with a variant: in which part of it, and with which elements of which result; `raised` tells that it raised an error."""

    part: str
    text: str
    place: Place = (-1, None)
    raised: bool = False

    def within(self, other: Fault) -> bool:
        """Return whether another fault has this one as a part."""
        (at, mine), (where, theirs) = self.place, other.place
        if self.part != other.part or self.raised != other.raised or at != where or (mine is None) != (theirs is None):
            return False
        return mine is None or (mine.shape == theirs.shape and not bool((mine & ~theirs).any()))


def judged(cell: Cell, variant: Variant, *, called: bool = True, trained: bool = True) -> Outcome | None:
    """Return a failure where a variant is wrong, called without gradients or in training, and it is this executor's fault; else None."""

    def judge(case: Case) -> str | None:
        excused: dict[bool, list[Fault]] = {}
        for grad, faults in ((False, _called(variant) if called else ()), (True, _trained(cell, variant) if trained else ())):
            for fault in faults:
                if grad not in excused:
                    excused[grad] = _without(cell, variant, grad=grad)
                if any(fault.within(other) for other in excused[grad]):
                    continue
                if fault.raised:
                    raise Broke(fault.text)
                return fault.text
        return None

    outcome = cell.each(judge, "forward", [variant.case])
    if outcome.state not in ("fail", "error"):
        return None
    outcome.message = outcome.message.replace(str(variant.case), str(variant), 1)
    return outcome


def _without(cell: Cell, variant: Variant, *, grad: bool) -> list[Fault]:
    """Return what is wrong with the variant where the executors of last resort run it: that is not this executor's fault."""
    if is_referee(cell.subject.executor) or not cell.subject.others:
        return []
    others = replace(cell.subject, executor=cell.subject.others[0], others=cell.subject.others[1:])
    case = Case(others, variant.case.info, variant.case.program, variant.case.label, variant.case.sample)
    same = replace(variant, case=case)
    return list(_trained(cell, same) if grad else _called(same))


def maker(cell: Cell) -> Variants:
    """Return what makes the variants of a cell, those first that the executor takes."""
    samples = [case.sample for case in cell.all_cases if case.sample is not None]
    ways = {case.program.template for case in cell.claimed}
    taken = {laid_in(case.sample) for case in cell.claimed if case.sample is not None}
    return Variants(cell.subject, cell.info, cell.dtype, samples[:MOST], cell.seed, preferred=ways, taken=taken)


def of_cell(cell: Cell) -> list[Variant]:
    """Return the variants that the level has for a cell."""
    if cell.level.dealt or not cell.level.rows[0] or not cell.cases[0].program.eager:
        return []
    first = cell.first
    named = cell.subject.coverage(cell.info.symbol.id, cell.dtype, cell.device.type) == "yes" or _named(cell)
    most = cell.level.rows[0 if first else 1]
    variants_of_cell = maker(cell)
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


def _called(variant: Variant) -> Iterator[Fault]:
    """Yield what is wrong with a call without gradients: its result, what it wrote, a line whose result differs from its meta."""
    case, row = variant.case, variant.row
    function = case.compiled_once("variant", passes=[checked], **_tracing(row))
    with mode(row.mode):
        inputs = fresh(case.program.inputs)  # inference tensors in inference mode
        ran = case.call(function, inputs)
        if isinstance(ran.error, Unsupported):
            return  # Dovetail refuses the program, whichever executor runs it
        if ran.error is not None:
            yield Fault("the call", whole(ran.error), raised=True)
            return
        eager = (case.expected.result, list(case.expected.inputs))
        got = (case.settled(ran.result, case.expected.result, case.program.inputs), list(ran.inputs))
        if not identical(got, eager):
            if not case.draws:
                truth = case.truth(eager, case.program.inputs)
                truth = replace(truth, length=1, sharp=True) if sums_exactly(case) else truth
                wrong = [Fault("the result", text, place) for text, place in inaccuracies(got, truth)]
            else:
                wrong = [Fault("the numbers", text) for text in (_unlike_by_chance(case, function, ran),) if text is not None]
            yield from wrong
            if wrong:
                return
        for part, text in (
            ("attributes", unlike(ran.result, case.expected.result)),
            ("output", case.louder(function, ran, case.expected, case.program.inputs)),
        ):
            if text is not None:
                yield Fault(part, text)


def _unlike_by_chance(case: Case, function: Callable[..., Any], ran: Ran) -> str | None:
    """Describe what is wrong with a random result that is not eager's for the same seed; None where chance explains it."""
    for i, (x, before, wanted) in enumerate(zip(ran.inputs, case.program.inputs, case.expected.inputs)):
        if same_bits(wanted, before) and not same_bits(x, before):
            return f"it wrote into x{i}, which it only reads"
    return unknown_numbers(case, ran) or unlike_in_chance(case, function, lambda: fresh(case.program.inputs), FEW)


def _tracing(row: Row) -> dict[str, str]:
    """Choose how to trace: native tracing, which is faster, does not support autocast."""
    return {"interpretation": "bytecode"} if row.mode == "autocast" else {}


def _trained(cell: Cell, variant: Variant) -> Iterator[Fault]:
    """Yield what is wrong with a call that requires gradients: its result, the gradients, a cotangent that was written."""
    case, row = variant.case, variant.row
    if any(each.kind == "skip" and each.covers("backward", cell.dtype, cell.device.type) for each in cell.info.directives):
        return
    if not cell.info.grad or not cell.dtype.inexact or row.mode not in TRAINED or case.reference is None:
        return
    if not (candidates := case.differentiable):
        return
    if row.cotangent == "not finite" and not case.pointwise:  # 0 * inf is NaN in one sum and left out of another
        row = row.without("cotangent")
    wanted = subset(candidates, row.grad)
    if case.sample is not None and ends_the_process(cell.info.symbol.id, case.sample, wanted):
        return
    with mode(row.mode), calm():
        theirs = gradients(case.eager, fresh(case.program.inputs), wanted, row.cotangent)
        if theirs is None or theirs.error is not None:
            return
        route = None if case.draws else ROUTES.get(row.cotangent)
        through = case if route is None else routed(case, route)
        function = through.compiled_once("trained variant" if route is None else f"{row.cotangent} variant", **_tracing(row))
        ours = gradients(partial(case.call, function), fresh(case.program.inputs), wanted, row.cotangent, route=route)
        if ours is None:
            yield Fault("the gradient", "the gradient is missing")
            return
        if isinstance(ours.error, Unsupported):
            return
        if ours.error is not None:
            yield Fault("the training call", f"with gradients of {_inputs(wanted)}, {whole(ours.error)}", raised=True)
            return
        if ours.written:
            yield Fault("the cotangent", "the backward wrote into its cotangent")
        if not identical((ours.results, ours.values), (theirs.results, theirs.values)):
            wrong = list(_off_by_chance(case, function, ours, theirs, wanted, row) if case.draws else _unlike(case, ours, theirs, wanted, row))
            yield from wrong
            if wrong:
                return
        if ours.noise.beyond(theirs.noise) is not None:  # a first call may load a library
            again = gradients(partial(case.call, function), fresh(case.program.inputs), wanted, row.cotangent, route=route)
            if again is not None and (text := again.noise.beyond(theirs.noise)) is not None:
                yield Fault("the output of training", text)


def _off_by_chance(case: Case, function: Callable[..., Any], ours: Gradients, theirs: Gradients, wanted: Sequence[int], row: Row) -> Iterator[Fault]:
    """Yield what is wrong with random results and gradients that are not eager's for the same seed."""
    calls = (partial(case.call, function), case.eager)
    text = _unproportional(case, ours, theirs, wanted, row)
    text = text or unlike_draws(*(partial(_drawn, case, call, wanted, row.cotangent) for call in calls), FEW)
    if text is not None:
        yield Fault("the numbers of training", text)


def _drawn(case: Case, call: Callable[..., Ran], wanted: Sequence[int], kind: str, seed: int) -> list[Any] | None:
    """Return the results and gradients of a call that draws random numbers, for a seed, and their products, which tell that both drew one number."""
    outcome = gradients(partial(call, seed=seed), fresh(case.program.inputs), wanted, kind)
    if outcome is None or outcome.error is not None:
        return None
    products = [x * g for x in outcome.results for g in outcome.values if isinstance(x, Tensor) and isinstance(g, Tensor) and x.shape == g.shape]
    return [*outcome.results, *outcome.values, *products]


def _unproportional(case: Case, ours: Gradients, theirs: Gradients, wanted: Sequence[int], row: Row) -> str | None:
    """Describe gradients that are not the cotangent times the result divided by the input, where eager's are, as in a dropout; None where they are.

    What a dropout multiplies a gradient by is what it multiplied the input by, whichever elements it dropped.
    """
    for i, mine, eager in zip(wanted, ours.values, theirs.values):
        if mine is None or eager is None:
            return None if mine is eager else f"the gradient of x{i} is missing, or eager has none"
        if (mine.shape, mine.dtype) != (eager.shape, eager.dtype):
            return f"the gradient of x{i} is {mine.dtype}{list(mine.shape)} in place of {eager.dtype}{list(eager.shape)}"
    alike = len(ours.results) == len(theirs.results) == len(wanted) == 1 and ours.results[0].shape == case.program.inputs[wanted[0]].shape
    if not alike or row.cotangent == "not finite" or case.program.inputs[wanted[0]].is_complex():
        return None
    x, flowing = case.program.inputs[wanted[0]].detach(), cotangent(theirs.results[0], row.cotangent)
    if _off_proportion(x, flowing, theirs.results[0], theirs.values[0]) is not None:
        return None
    at = _off_proportion(x, flowing, ours.results[0], ours.values[0])
    return None if at is None else f"the gradient of x{wanted[0]} at {at} is not the cotangent times what the result is of the input"


def _off_proportion(x: Tensor, flowing: Tensor, result: Tensor, gradient: Tensor) -> list[int] | None:
    """Return where gradient * x is not cotangent * result; None where it is everywhere."""
    info = torch.finfo(result.dtype)
    x, flowing, result, gradient = (each.detach().to(torch.float64) for each in (x, flowing, result, gradient))
    left, right = gradient * x, flowing * result
    least = info.smallest_normal * info.eps * (x.abs() + flowing.abs())
    room = PROPORTION * (info.eps * torch.maximum(left.abs(), right.abs()) + least)
    wrong = ((left - right).abs() > room) & torch.isfinite(left.abs()) & torch.isfinite(right.abs())
    return [int(n) for n in wrong.nonzero()[0]] if bool(wrong.any()) else None


def _unlike(case: Case, ours: Gradients, theirs: Gradients, wanted: Sequence[int], row: Row) -> Iterator[Fault]:
    """Yield the results and gradients that differ from eager's by more than is allowed."""
    if identical(case.settled(ours.results, theirs.results, case.program.inputs), theirs.results) and not identical(ours.results, theirs.results):
        return  # the gradients flow to others of equal elements

    kind, eps = row.cotangent, max(torch.finfo(case.program.inputs[i].dtype).eps for i in wanted)
    complex_numbers = any(case.program.inputs[i].is_complex() for i in wanted)
    defined = case.pointwise and not complex_numbers  # inf * 0 is NaN where it is a term, as in a product of complex numbers
    kinds = kind != "not finite" and (row.values != "extreme" or defined)
    sharp = row.values == "kinks" and case.pointwise  # there a rounding of the inputs would change the branch

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
            extra = turned_room(case, theirs.values, wanted, kind) if case.pointwise else normalized_room(case, theirs)
            extra = undefined_room(theirs.values, extra) if row.values == CROSSED.values else extra
            extra = vector_room(case, ours, theirs, wanted, kind, extra) if case.pointwise else extra
            truth = replace(truth, extra=extra, length=max(truth.length, added_up(case, theirs.results, wanted)))
        for text, place in inaccuracies(getattr(ours, part), truth):
            yield Fault(what, f"{what} for {kind} cotangents: {text}", place)


def _own(case: Case, wanted: Sequence[int], kind: str, part: str, moved: int) -> Any:
    """Return the errors of eager in float32, in its results or its gradients, scaled to float64; with `moved`, those of other inputs."""

    def both(narrow: Sequence[Tensor]) -> tuple[Any, Any] | None:
        rough = gradients(case.narrow.eager, fresh(narrow), wanted, kind)
        exact = gradients(case.eager, widened(fresh(narrow)), wanted, kind)
        if rough is None or exact is None or rough.error is not None or exact.error is not None:
            return None
        return getattr(rough, part), getattr(exact, part)

    return own_errors(case.narrowed(case.program.inputs), both, moved)


def _others(case: Case, wanted: Sequence[int], kind: str, part: str, moved: int) -> Any:
    """Return the errors of eager's results or gradients for inputs that are off by a rounding."""
    nearby = perturbed(case.program.inputs, moved)
    rough, exact = (gradients(case.eager, inputs, wanted, kind) for inputs in (fresh(nearby), widened(fresh(nearby))))
    if rough is None or exact is None or rough.error is not None or exact.error is not None:
        return None
    return errors_of(getattr(rough, part), getattr(exact, part))


def _inputs(wanted: Sequence[int]) -> str:
    return ", ".join(f"x{i}" for i in wanted)
