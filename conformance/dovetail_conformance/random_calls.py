"""Many calls that draw random numbers: one after another without a seed between, in threads, and from a generator that is passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dovetail.errors import Unsupported
from dovetail_conformance.axes.arguments import parameters_of, with_arguments
from dovetail_conformance.case import SEED, Case, Ran, executed
from dovetail_conformance.cell import Broke, whole
from dovetail_conformance.chance import APART, RUNS, Pairs, differs_in_kind, numbers_of, unknown_numbers, unlike_draws
from dovetail_conformance.independence import alike_in_a_row
from dovetail_conformance.noise import Noise, recording_noise
from dovetail_conformance.oracle import flat, same_bits, tensors
from dovetail_conformance.program import fresh, message, program_of, seed_generators

SMALL, OTHERS = 1 << 12, 3  # elements of a call that is repeated; one call in so many is of another sample
SEEDS = 4  # sequences of calls that are compared for dependence
REPEATED = 3  # calls that may return earlier numbers where eager's never do


def chosen(cases: Sequence[Case]) -> list[Case]:
    """Return up to two samples that draw, the largest of those that are small first, and the second with other arguments or sizes."""
    usable = [c for c in cases if c.ran.error is None and c.reference is not None and c.expected.error is None and c.draws]
    sized = [(sum(x.numel() for x in tensors(c.expected.result)), c) for c in usable]
    ordered = [c for n, c in sorted(sized, key=lambda each: -each[0]) if 0 < n <= SMALL]
    return ordered[:1] + [c for c in ordered[1:] if c.program.template != ordered[0].program.template][:1]


def in_a_row(case: Case, other: Case, count: int) -> str | None:
    """Describe how calls in a row, without a seed between them, return other numbers than eager's; None where they are alike.

    One call in three is of another sample, in the same sequence of numbers.
    """
    functions = (case.compiled(), other.compiled()) if other is not case else (case.compiled(),) * 2
    ours, louder = _sequence((case, other), functions, count)
    theirs, usual = _sequence((case, other), (case.reference, other.reference), count)
    if isinstance(ours, Exception):
        return f"one of {count} calls raised {whole(ours)}"
    if isinstance(theirs, Exception):
        return None
    if (problem := louder.beyond(usual)) is not None:
        return problem
    if all(same_bits(a, b) for a, b in zip(ours, theirs)):
        return None
    theirs, _ = _sequence((case, other), (case.reference, other.reference), count, seed=SEED + APART)
    if isinstance(theirs, Exception):
        return None
    if (problem := _repeated(ours, theirs)) is not None:
        return problem
    for some in (slice(None), slice(-RUNS, None)):
        pairs = Pairs()
        for i, (a, b) in list(enumerate(zip(ours, theirs)))[some]:
            if i % OTHERS:
                if (problem := differs_in_kind(a, b)) is not None:
                    return f"call {i + 1}: {problem}"
                pairs.add(a, b)
        if (problem := pairs.problem()) is not None:
            return f"in {'' if some.start is None else 'the last of '}{count} calls in a row, {problem}"
    return _following(case, functions[0])


def _sequence(
    cases: Sequence[Case], functions: Sequence[Callable[..., Any]], count: int, seed: int = SEED
) -> tuple[list[list[Any]] | Exception, Noise]:
    """Call functions in turn after one seed; return the leaves of their results, or the first error, and what they printed and warned of."""
    seed_generators(seed)
    results = []
    with recording_noise() as noise, torch.no_grad():
        for i in range(count):
            at = int(i % OTHERS == 0)
            try:
                results.append([x.clone() if isinstance(x, Tensor) else x for x in flat(functions[at](*fresh(cases[at].program.inputs)))])
            except Exception as error:
                return error, noise
    return results, noise


def _repeated(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> str | None:
    """Describe calls that return what an earlier one has returned, where eager's hardly ever do."""
    distinct = [len({b"".join(_bytes(x) for x in tensors(leaves)) for i, leaves in enumerate(side) if i % OTHERS}) for side in (ours, theirs)]
    many = len([i for i in range(len(theirs)) if i % OTHERS])
    if distinct[1] == many and distinct[0] < many - REPEATED:
        return f"{many} calls in a row returned {distinct[0]} different results, and eager's {distinct[1]}"
    return None


def _bytes(x: Tensor) -> bytes:
    return x.detach().cpu().resolve_conj().resolve_neg().contiguous().view(torch.uint8).numpy().tobytes() if x.ndim else str(x.item()).encode()


def _following(case: Case, function: Callable[..., Any]) -> str | None:
    """Describe how the numbers of a call depend on those of the call before it; None where they do not."""
    before, after = [], []
    for seed in range(SEEDS):
        first = case.call(function, fresh(case.program.inputs), seed=SEED + seed)
        with torch.no_grad():
            second = flat(function(*fresh(case.program.inputs)))
        if first.error is not None:
            return None
        before.append(_row(flat(first.result)))
        after.append(_row(second))
    return alike_in_a_row(before, after)


def _row(leaves: Sequence[Any]) -> Tensor:
    return torch.cat([numbers_of(x).to(torch.float64) for x in tensors(leaves)])


def from_generator(case: Case) -> str | None:
    """Describe how a call does otherwise than eager where a generator of its own is passed: which one moves, and what it draws."""
    parameters = list(parameters_of(case.info))
    if "generator" not in parameters or case.sample is None:
        return None
    source = torch.Generator()
    sample = with_arguments(parameters, case.sample, {"generator": source})
    passed = Case(case.subject, case.info, program_of(case.info.symbol, sample), message(sample), sample)
    try:
        function = passed.compiled()
        ours = partial(passed.call, function)
        first = _from(passed, ours, source, SEED)
    except Exception:
        return None
    if isinstance(first.error, Unsupported):
        return None
    theirs = _from(passed, passed.eager, source, SEED)
    if theirs.error is not None:
        return None
    if first.error is not None:
        raise Broke(f"with a generator, {whole(first.error)}")
    if passed.subject.lines(*executed(function))[0] == 0:
        return None
    if first.drew and not theirs.drew:
        return "with a generator, it draws from torch's default generator, and eager does not"
    if theirs.changed and not first.changed:
        return "with a generator, it does not draw from that"
    if same_bits(flat(first.result), flat(theirs.result)):
        return None

    def draw(call: Callable[..., Ran], seed: int) -> Sequence[Any] | None:
        ran = _from(passed, call, source, seed)
        return None if ran.error is not None else flat(ran.result)

    problem = unlike_draws(partial(draw, ours), partial(draw, passed.eager))
    return None if problem is None else f"with a generator, {problem}"


def _from(case: Case, call: Callable[..., Ran], source: torch.Generator, seed: int) -> Ran:
    """Make a call with the generator at a seed; `changed` tells that it has drawn from it."""
    source.manual_seed(seed)
    before = source.get_state()
    ran = call(fresh(case.program.inputs), seed=SEED)
    return replace(ran, changed=[] if torch.equal(before, source.get_state()) else ["the generator"])


def in_threads(case: Case, results: Sequence[Ran]) -> str | None:
    """Describe what is wrong with results of several threads: an error, another kind of result, or single numbers."""
    for ran in results:
        if isinstance(ran.error, Unsupported):
            continue  # Dovetail refuses to trace where another thread draws
        if ran.error is not None:
            return f"in a thread, {whole(ran.error)}"
        if (problem := differs_in_kind(ran.result, case.expected.result) or unknown_numbers(case, ran)) is not None:
            return f"in a thread, {problem}"
    return None
