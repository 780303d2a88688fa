"""The checks of each operation that an executor runs.  A check is one function; its docstring is its description in reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import dovetail
from dovetail import dtypes
from dovetail.extend import Tag
from dovetail.extend.advanced import checked
from dovetail_conformance.attributes import unlike as unlike_kind
from dovetail_conformance.axes.check import variants
from dovetail_conformance.axes.sizes import mapped
from dovetail_conformance.case import SEED, Case, Ran, cotangents, executed
from dovetail_conformance.cell import Broke, Cell, Outcome, whole
from dovetail_conformance.chance import unlike_draws, unlike_in_chance
from dovetail_conformance.claims import verdicts
from dovetail_conformance.guided.check import branches
from dovetail_conformance.invalid import errors
from dovetail_conformance.memory import peak
from dovetail_conformance.opinfo import unlike
from dovetail_conformance.oracle import differs, flat, same_bits, tensors
from dovetail_conformance.program import calm, fresh, inexact, message, overlaps, program_of, rolled, seed_generators, widened
from dovetail_conformance.repetition import calls
from dovetail_conformance.resources import resources
from dovetail_conformance.scale import scale, sizes
from dovetail_conformance.search import search
from dovetail_conformance.surroundings import surroundings
from dovetail_conformance.threaded import threads
from dovetail_conformance.twins import is_in_place

SMALL = 24  # elements of what finite differences are taken of
SLACK = 4.0  # a gradient is several operations, each with a rounding of its own


@dataclass(frozen=True)
class Check:
    """A check of every cell from a level on.

    `run` gives None where it does not apply.  `once` says that the answer hardly depends on the dtype, nor on whether the
    operation works in place: level quick runs it for the first dtype, and not in place.  `since` is the version of the suite that it came with.
    """

    name: str
    run: Callable[[Cell], Outcome | None]
    level: int
    since: str = "0.1"
    once: bool = False

    def applies(self, cell: Cell) -> bool:
        """Return whether the level includes this check for the cell."""
        again = self.once and cell.level.dealt and (not cell.first or is_in_place(cell.info.symbol.id))
        return self.level <= cell.level.rank and not again

    @property
    def doc(self) -> str:
        return (self.run.__doc__ or "").strip()


def forward(cell: Cell) -> Outcome | None:
    """Results are those of eager PyTorch, for every layout, size and extreme value, within the errors that `accuracy.py` allows."""
    if not cell.claimed or cell.claimed[0].reference is None:
        return None

    def judge(case: Case) -> str | None:
        problem = right(case, case.ran, case.expected, case.program.inputs)
        return problem or case.louder(case.function, case.ran, case.expected, case.program.inputs)

    return cell.each(judge, "forward", [*([cell.first_call] if cell.first_call is not None else []), *cell.claimed])


def right(case: Case, ran: Ran, expected: Ran, inputs: list[Tensor]) -> str | None:
    """Describe what is wrong with a call; an error counts as right where eager raises one of its type."""
    if expected.error is not None:
        same = isinstance(ran.error, type(expected.error)) or isinstance(expected.error, type(ran.error))
        return (
            None
            if ran.error is not None and same
            else f"eager raises {whole(expected.error)}, and this gives {whole(ran.error) if ran.error else 'a result'}"
        )
    if ran.error is not None:
        raise Broke(whole(ran.error))
    difference = case.wrong(ran, expected, fresh(inputs))
    return unlike_in_chance(case, case.function, lambda: fresh(inputs)) if difference is not None and expected.drew else difference


def reference(cell: Cell) -> Outcome | None:
    """Results are those of NumPy or SciPy, within its tolerance, in 16 bits times the root of the terms of a sum: PyTorch itself is not called."""
    if cell.info.reference is None or not cell.claimed or cell.dtype.storage_only:
        return None

    def judge(case: Case) -> str | None:
        if case.ran.error is not None or case.sample is None:
            return None
        expected = case.info.reference(*case.sample.args, **case.sample.kwargs)
        tolerance = max(cell.info.tolerance, LOOSE.get(cell.dtype, 0.0) * sqrt(case.length))
        difference = unlike(case.ran.result, expected, tolerance)
        if (
            difference is None
            or cell.dtype not in LOOSE
            or case.expected.error is not None
            or unlike(case.expected.result, expected, tolerance) is None
        ):
            return difference
        return case.wrong(case.ran, case.expected, case.program.inputs)  # eager rounds each term of this sum in 16 bits as well

    return cell.each(judge, "reference")


LOOSE = {dtypes.bfloat16: 2e-2, dtypes.float16: 2e-3}


def meta(cell: Cell) -> Outcome | None:
    """Every line returns what its meta function promises: shape, dtype, strides, device, aliasing, requires_grad; and a tensor of eager's kind."""

    def judge(case: Case) -> str | None:
        ran = case.call(case.compiled_once("meta", passes=[checked]), fresh(case.program.inputs), grad=True)
        if ran.error is not None:
            return None if case.ran.error is not None or case.expected.error is not None else whole(ran.error)
        for x in tensors(ran.result):
            if x.requires_grad:
                return "the result requires grad, and none of its inputs does"
        unlike = unlike_kind(ran.result, case.expected.result) if case.reference is not None and case.expected.error is None else None
        return unlike or (_breach_with_gradients(case) if case in differentiable else None)

    differentiable = _differentiable(cell, 4)
    return cell.each(judge, "meta")


def _breach_with_gradients(case: Case) -> str | None:
    """Return how a line of a forward or a backward of a grad rule differs from its meta; None where none does, or another error comes first."""
    function = case.compiled_once("meta of gradients", passes=[checked])
    try:
        _gradients(case, None, lambda call_inputs, grad: case.call(function, call_inputs, grad=grad))
    except Broke as broke:
        return str(broke) if "broke the contract of" in str(broke) else None  # `backward` fails for other errors
    return None


def inputs(cell: Cell) -> Outcome | None:
    """Inputs that are only read stay unchanged, as do grad mode, the default dtype and the random generator."""

    def judge(case: Case) -> str | None:
        call_inputs = fresh(case.program.inputs)
        seed_generators(SEED)
        before = _surroundings()
        ran = case.call(case.function, call_inputs)
        after = _surroundings()
        if ran.error is not None:
            return None
        written = Tag.MEMORY in cell.info.symbol.tags  # the first input is written by definition
        for i, (x, was, wanted) in enumerate(zip(call_inputs, case.program.inputs, case.expected.inputs if case.reference else case.program.inputs)):
            if not same_bits(x, was) and not (written and i == 0) and same_bits(wanted, was):
                return f"it wrote into x{i}, which it only reads"
        if not cell.info.random and not torch.equal(after[0], before[0]):
            return "it drew from the random generator, and the operation draws nothing"
        return None if after[1:] == before[1:] else "it left grad mode, the default dtype or the number of threads changed"

    return cell.each(judge, "inputs")


def _surroundings() -> tuple[Any, ...]:
    return torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(), torch.is_inference_mode_enabled()


def determinism(cell: Cell) -> Outcome | None:
    """Two calls return the same bits; those of a random operation after the same seed."""

    def judge(case: Case) -> str | None:
        for _ in range(2):
            again = case.call(case.function, fresh(case.program.inputs))
            if case.ran.error is not None or again.error is not None:
                return None
            if not same_bits(again.result, case.ran.result):
                return "a second call with the same values and seed returned different bits"
        return None

    return cell.each(judge, "determinism")


def repeat(cell: Cell) -> Outcome | None:
    """A compiled function is right for other values, and earlier results stay unchanged."""

    def judge(case: Case) -> str | None:
        if case.ran.error is not None or not case.program.inputs:
            return None
        first = case.call(case.function, fresh(case.program.inputs))
        kept = [x.clone() if isinstance(x, Tensor) else x for x in flat(first.result)]
        other = rolled(case.program.inputs)
        expected = case.eager(fresh(other)) if case.reference is not None else case.call(case.compiled(), fresh(other))
        ran = case.call(case.function, fresh(other))
        if not same_bits(flat(first.result), kept):
            return "the second call changed the result of the first"
        if expected.error is not None:
            return None
        difference = right(case, ran, expected, other) if case.reference is not None or not cell.info.random else None
        return None if difference is None else f"with other values: {difference}"

    return cell.each(judge, "repeat")


def shapes(cell: Cell) -> Outcome | None:
    """One compiled function is right for one shape after another, and for the first again."""
    groups: dict[Any, list[Case]] = {}
    for case in cell.claimed:
        if case.ran.error is None and case.program.inputs and case.reference is not None:
            groups.setdefault(case.program.template, []).append(case)
    chosen = max(groups.values(), key=len, default=[])[:4]
    if len(chosen) < 2:
        return None
    function = chosen[0].compiled()

    def judge(case: Case) -> str | None:
        difference = right(case, case.call(function, fresh(case.program.inputs)), case.expected, case.program.inputs)
        return None if difference is None else f"called after others with the same compiled function: {difference}"

    alike = groups[chosen[0].program.template]
    deepest = max(alike, key=lambda case: (min(x.numel() for x in case.program.inputs) > 1, max(x.ndim for x in case.program.inputs)))
    turned = [deepest, other] if not cell.level.dealt and (other := _turned(deepest)) is not None else []
    return cell.each(judge, "shapes", [*chosen, *turned, chosen[0]])


def _turned(case: Case) -> Case | None:
    """Return the case with its tensors in another shape of as many elements, their sizes in reverse; None where eager refuses that."""
    if case.sample is None or all(x.shape == x.shape[::-1] for x in case.program.inputs):
        return None
    sample = mapped(case.sample, lambda x: x.detach().resolve_conj().resolve_neg().reshape(x.shape[::-1]))
    program = program_of(case.info.symbol, sample)
    other = Case(case.subject, case.info, program, message(sample), sample)
    return other if other.expected.error is None else None


def backward(cell: Cell) -> Outcome | None:
    """Gradients are those of eager PyTorch's autograd, in shape, dtype and value."""
    chosen = _differentiable(cell, 4)
    if not chosen:
        expected = cell.info.grad and cell.dtype.inexact and not cell.dtype.storage_only and cell.claimed and cell.claimed[0].reference is not None
        return Outcome("not-claimed", "it ran no sample that has a gradient", 0, len(cell.cases)) if expected else None
    differentiated = ran_any = 0

    def judge(case: Case) -> str | None:
        nonlocal differentiated, ran_any
        try:
            want = _gradients(case, case.reference, case.eager)
        except Broke:
            return None  # eager has no such gradient
        if want is None:
            return None
        differentiated += 1
        function = case.differentiated
        got = _gradients(case, function, lambda call_inputs, grad: case.call(function, call_inputs, grad=grad), twice=case is chosen[0])
        ran_any += case.subject.lines(*executed(function))[0] > 0
        if got is None:
            return "the gradient is missing"
        difference = differs(got, want, slack=SLACK)
        if difference is None:
            return None
        if case.draws:
            draws = (partial(case.call, function), case.eager)
            return unlike_draws(*(lambda seed, call=call: _gradients(case, None, partial(call, seed=seed)) for call in draws))
        exact = _gradients(case, case.reference, case.eager, wide=True)
        return differs(got, want, exact, slack=SLACK) if exact is not None else difference

    outcome = cell.each(judge, "backward", chosen, grad=True)
    if outcome.state in ("pass", "partly") and not ran_any:
        why = "other executors ran the program with gradients" if differentiated else "eager takes no gradient of these samples"
        return Outcome("not-claimed", why, 0, len(chosen))
    return outcome


def _differentiable(cell: Cell, most: int) -> list[Case]:
    """Cases with a gradient."""
    if not cell.info.grad or not cell.dtype.inexact or cell.dtype.storage_only or not cell.claimed:
        return []
    candidates = [case for case in cell.claimed if case.ran.error is None and case.sample is not None and case.reference is not None]
    return [case for case in candidates if any(map(inexact, case.program.inputs))][:most]


def _gradients(
    case: Case, function: Callable[..., Any] | None, call: Callable[..., Ran], *, wide: bool = False, twice: bool = False
) -> list[Any] | None:
    """Return the gradient of each input that can have one, for fixed cotangents; None where no result requires grad.

    With `twice`, run the backward of the same call again: Broke tells that it has other gradients then.
    """
    call_inputs = widened(fresh(case.program.inputs)) if wide else fresh(case.program.inputs)
    leaves = [call_inputs[i].requires_grad_() for i in case.differentiable]
    ran = call(call_inputs, grad=True)
    if ran.error is not None:
        if wide:
            return None
        raise Broke(whole(ran.error))
    outs = [x for x in flat(ran.result) if isinstance(x, Tensor) and x.requires_grad]
    if not outs or not leaves:
        return None
    try:
        with calm():
            first = torch.autograd.grad(outs, leaves, cotangents(ran.result), allow_unused=True, retain_graph=twice)
            again = torch.autograd.grad(outs, leaves, cotangents(ran.result), allow_unused=True) if twice else first
    except Exception as error:
        if wide:
            return None
        raise Broke(f"in the backward, {whole(error)}") from error
    if not same_bits(list(first), list(again)):
        raise Broke("a second backward of the same call has other gradients than the first")
    return list(first)


def gradcheck(cell: Cell) -> Outcome | None:
    """Gradients in float64 are the derivatives, by finite differences; gradients of gradients are eager's, or refused."""
    if cell.dtype not in (dtypes.float64, dtypes.complex128):
        return None
    chosen = [c for c in _differentiable_without(cell) if 0 < sum(x.numel() for x in c.program.inputs) <= SMALL]
    chosen = [c for c in chosen if not any(map(overlaps, c.program.inputs))][:2]
    if not chosen or cell.info.random:
        return None

    def judge(case: Case) -> str | None:
        function, call_inputs = case.compiled_once("gradcheck"), fresh(case.program.inputs)
        for i in case.differentiable:
            call_inputs[i].requires_grad_()
        with calm():
            out = [x for x in flat(function(*call_inputs)) if isinstance(x, Tensor) and x.requires_grad]
        if not out or any(bool(x.isnan().any()) for x in out) or any(x.dtype not in (torch.float64, torch.complex128) for x in out):
            return None

        def outputs(*xs: Tensor) -> tuple[Tensor, ...]:
            return tuple(x for x in flat(function(*xs)) if isinstance(x, Tensor) and x.requires_grad)

        try:
            with calm():
                torch.autograd.gradcheck(outputs, call_inputs, eps=1e-6, atol=1e-4, rtol=1e-4, check_undefined_grad=False)
        except RuntimeError as error:
            return whole(error)
        return _unlike_again(case, function) if case is chosen[0] and case.reference is not None else None

    return cell.each(judge, "gradcheck", chosen, grad=True)


def _unlike_again(case: Case, function: Callable[..., Any]) -> str | None:
    """Describe how gradients of gradients differ from eager's; None where they do not, or where either of the two has none."""
    try:
        theirs, ours = _second(case, case.reference), _second(case, function)
    except Exception:
        return None
    if theirs is None or ours is None:
        return None
    difference = differs(ours, theirs, slack=SLACK)
    return None if difference is None else f"the gradients of gradients: {difference}"


def _second(case: Case, function: Callable[..., Any]) -> list[Any] | None:
    """Return the gradients of the sum of the gradients; None where these require none."""
    inputs = fresh(case.program.inputs)
    leaves = [inputs[i].requires_grad_() for i in case.differentiable]
    seed_generators(SEED)
    with calm():
        result = function(*inputs)
        outs = [x for x in flat(result) if isinstance(x, Tensor) and x.requires_grad]
        first = torch.autograd.grad(outs, leaves, cotangents(result), allow_unused=True, create_graph=True)
        ends = [x for x in first if x is not None and x.requires_grad]
        if not ends:
            return None
        second = torch.autograd.grad(ends, leaves, [torch.ones_like(x) for x in ends], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, second)]


def _differentiable_without(cell: Cell) -> list[Case]:
    """Cases with a gradient, also those that nothing can be compared with."""
    if not cell.info.grad or not cell.claimed:
        return []
    candidates = [case for case in cell.claimed if case.ran.error is None and case.sample is not None]
    return [case for case in candidates if any(map(inexact, case.program.inputs))]


def recompiles(cell: Cell) -> Outcome | None:
    """Calls that differ in values alone run one program."""

    def judge(case: Case) -> str | None:
        if case.ran.error is not None or not case.program.inputs:
            return None
        function = case.compiled()
        for call_inputs in (case.program.inputs, rolled(case.program.inputs)):
            case.call(function, fresh(call_inputs))
        why = dovetail.cache_misses(function)
        return None if len(why) == 1 else f"{len(why)} programs were compiled for calls that differ in values alone: {why[-1]}"

    return cell.each(judge, "recompiles", cell.claimed[:2])


def speed(cell: Cell) -> Outcome | None:
    """The time of a call relative to eager's, for information only."""
    if (case := _largest(cell)) is None:
        return None
    ours, theirs = [], []
    call_inputs = fresh(case.program.inputs)
    with calm(), torch.no_grad():
        for _ in range(7):
            for fn, times in ((case.function, ours), (case.program.fn, theirs)):
                began = perf_counter()
                fn(*call_inputs)
                times.append(perf_counter() - began)
    return Outcome("pass", "", len(cell.claimed), len(cell.cases), against=round(sorted(ours)[3] / sorted(theirs)[3], 3))


def memory(cell: Cell) -> Outcome | None:
    """The peak memory of a call relative to eager's, for information only."""
    if (case := _largest(cell)) is None:
        return None
    call_inputs = fresh(case.program.inputs)
    with calm(), torch.no_grad():
        ours, theirs = (peak(lambda fn=fn: fn(*call_inputs), cell.device.type) for fn in (case.function, case.program.fn))
    return Outcome("pass", "", len(cell.claimed), len(cell.cases), against=round(ours / theirs, 3)) if theirs else None


def _largest(cell: Cell) -> Case | None:
    """Return the case for measuring time and memory, in one dtype of the operation; None where eager has nothing to compare."""
    if not cell.first:
        return None
    case = max((c for c in cell.claimed if c.ran.error is None), key=lambda c: sum(x.numel() for x in c.program.inputs), default=None)
    return case if case is not None and case.expected.error is None and case.program.eager else None


CHECKS: tuple[Check, ...] = (  # what takes little time comes first
    Check("forward", forward, 0),
    Check("reference", reference, 0),
    Check("meta", meta, 0, once=True),
    Check("inputs", inputs, 0),
    Check("surroundings", surroundings, 0, once=True),
    Check("resources", resources, 1, once=True),
    Check("backward", backward, 1),
    Check("gradcheck", gradcheck, 1),
    Check("determinism", determinism, 1, once=True),
    Check("repeat", repeat, 1),
    Check("shapes", shapes, 1, once=True),
    Check("threads", threads, 1, once=True),
    Check("errors", errors, 0),
    Check("calls", calls, 1),
    Check("variants", variants, 1),
    Check("branches", branches, 1, once=True),
    Check("scale", scale, 1, once=True),
    Check("sizes", sizes, 1, once=True),
    Check("verdicts", verdicts, 1, once=True),
    Check("search", search, 2),
    Check("recompiles", recompiles, 2),
    Check("speed", speed, 2),
    Check("memory", memory, 2),
)
