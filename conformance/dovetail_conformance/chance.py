"""Random results: where they are not eager's for the same seed, they have to be distributed as eager's are, and to follow torch's generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.case import SEED, Case, Ran
from dovetail_conformance.distribution import coarser, unlike_in_frequency
from dovetail_conformance.independence import Numbers, dependent, uneven
from dovetail_conformance.opinfo import unlike
from dovetail_conformance.oracle import flat, same_bits

RUNS, FEW, LEAST, FAR = 192, 64, 24, 7.0  # seeds that are compared; of a variant; of a large result; how many standard errors two means may be apart
ELEMENTS = 1 << 21  # of all runs together, before there are fewer of them
MOST, END = 4096, 1 << 20  # numbers of a result that are compared; at each end of one, by their parts
ROUNDINGS = 64  # of a result, by which numbers that are not random may differ
APART = 10_000  # between the seeds of calls and those of eager's that they are compared with
VARYING = 0.2  # of the runs in which a number may differ from one that eager always returns
REPEATS = "eager draws from torch's generator, and this does not: the next call repeats its numbers"
Draw = Callable[[int], Sequence[Any] | None]  # the leaves of a result for a seed; None where the call raised an error


def unlike_in_chance(case: Case, function: Callable[..., Any], inputs: Callable[[], Sequence[Tensor]], runs: int = RUNS) -> str | None:
    """Describe how the random results of calls of `function` are distributed otherwise than eager's; None where they are alike."""

    def ours(seed: int) -> Sequence[Any] | None:
        ran = case.call(function, inputs(), seed=seed)
        return None if ran.error is not None else flat(ran.result)

    def theirs(seed: int) -> Sequence[Any] | None:
        ran = case.eager(inputs(), seed=seed)
        return None if ran.error is not None else flat(ran.result)

    if not case.call(function, inputs()).drew:
        return REPEATS
    return unlike_draws(ours, theirs, runs)


def unlike_once(case: Case, function: Callable[..., Any], inputs: Callable[[], Sequence[Tensor]]) -> str | None:
    """Describe how a random result of many elements is distributed otherwise than eager's, by two calls and their parts; None where it is alike."""
    runs = [(case.call(function, inputs(), seed=SEED + i), case.eager(inputs(), seed=SEED + APART + i)) for i in range(2)]
    if any(each.error is not None for pair in runs for each in pair):
        return None  # another check reports it
    if not runs[0][0].drew:
        return REPEATS
    results = [(flat(a.result), flat(b.result)) for a, b in runs]
    if (problem := differs_in_kind(*results[0])) is not None:
        return problem
    for i, x in enumerate(results[0][1]):
        if isinstance(x, Tensor) and x.numel():
            problem = uneven(*([_all_numbers(pair[side][i]) for pair in results] for side in (0, 1)))
            if problem is not None:
                return problem
    return None


def unknown_numbers(case: Case, ran: Ran) -> str | None:
    """Describe what the reference knows to be wrong with single numbers of a random result, where eager's own are right; None where nothing is."""
    if case.info.reference is None or case.sample is None or case.expected.error is not None:
        return None
    try:
        known = case.info.reference(*case.sample.args, **case.sample.kwargs)
        if not any(callable(each) for each in (known if isinstance(known, tuple) else (known,))):
            return None
        problem = unlike(ran.result, known, case.info.tolerance)
        return None if problem is None or unlike(case.expected.result, known, case.info.tolerance) is not None else problem
    except Exception:
        return None  # the reference does not take these arguments


def differs_in_kind(got: Any, expected: Any) -> str | None:
    """Describe the first result that has another shape, dtype or device than eager's; None where none has."""
    ours, theirs = flat(got), flat(expected)
    for i, wanted in enumerate(theirs):
        mine = ours[i] if len(ours) == len(theirs) else None
        if isinstance(wanted, Tensor) and not _alike(mine, wanted):
            return f"result {i} is {_kind(mine)} in place of {_kind(wanted)}"
    return None


def unlike_draws(ours: Draw, theirs: Draw, runs: int = RUNS) -> str | None:
    """Describe how random results differ: between two calls with one seed, or in their distribution from eager's; None where they do not."""
    first, wanted = ours(SEED), theirs(SEED)
    if wanted is None:
        return None  # eager raises an error for some numbers
    if first is None:
        return "it raised an error with another seed, and eager does not"
    if not same_bits(list(ours(SEED) or ()), list(first)):
        return "two calls with the same seed returned different numbers"
    if (problem := differs_in_kind(first, wanted)) is not None:
        return problem
    size = max((x.numel() for x in wanted if isinstance(x, Tensor)), default=1)
    runs = max(LEAST, min(runs, ELEMENTS // max(1, size)))
    pairs = Pairs()
    pairs.add(first, theirs(SEED + APART) or wanted)
    for i in range(1, runs):
        a, b = ours(SEED + i), theirs(SEED + APART + i)  # two different functions of one number are not independent
        if b is None:
            return None  # eager raises an error for some numbers
        if a is None:
            return "it raised an error with another seed, and eager does not"
        if (problem := differs_in_kind(a, b)) is not None:
            return f"with another seed, {problem}"
        pairs.add(a, b)
    return pairs.problem()


@dataclass
class Pairs:
    """Results of many calls and those of eager: some numbers of each, and all of the first few."""

    whole: list[tuple[Sequence[Any], Sequence[Any]]] = field(default_factory=list)
    ours: dict[int, list[Tensor]] = field(default_factory=dict)
    theirs: dict[int, list[Tensor]] = field(default_factory=dict)

    def add(self, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
        """Keep the results of a call, and eager's."""
        if len(self.whole) < 4:
            self.whole.append((ours, theirs))
        for kept, leaves in ((self.ours, ours), (self.theirs, theirs)):
            for i, x in enumerate(leaves):
                if isinstance(x, Tensor) and x.numel():
                    kept.setdefault(i, []).append(_numbers(x))

    def problem(self) -> str | None:
        """Describe how results are distributed otherwise than eager's, or depend on each other; None where they are alike."""
        for i, theirs in self.theirs.items():
            runs = torch.stack(self.ours[i]), torch.stack(theirs)
            like = self.whole[0][1][i]
            if (problem := _unlike(*runs, like) or unlike_in_frequency(*runs, ROUNDINGS * _eps(like))) is not None:
                return problem
            raw = [torch.cat([numbers_of(pair[side][i])[:END] for pair in self.whole]) for side in (0, 1)]
            if (problem := coarser(*raw)) is not None:
                return problem
            draws: list[list[Numbers]] = [[_all_numbers(pair[side][i]) for pair in self.whole] for side in (0, 1)]
            if (problem := uneven(*draws) or dependent(*draws)) is not None:
                return problem
        return None


def _alike(got: Any, expected: Tensor) -> bool:
    return isinstance(got, Tensor) and (got.shape, got.dtype, got.device) == (expected.shape, expected.dtype, expected.device)


def _kind(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, Tensor) else repr(x)


def _all_numbers(x: Tensor) -> Tensor:
    """Return the real numbers of a tensor in float64, in a row; of very many, those at both ends."""
    numbers = numbers_of(x)
    return (numbers if len(numbers) <= 2 * END else torch.cat([numbers[:END], numbers[-END:]])).to(torch.float64)


def numbers_of(x: Tensor) -> Tensor:
    """Return the real numbers of a tensor in a row, the parts of complex ones."""
    x = x.detach().cpu()
    return (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).flatten()


def _numbers(x: Tensor) -> Tensor:
    """Return the real numbers of a tensor in float64, in a row; of many, some from all over it."""
    numbers = numbers_of(x)
    return numbers[:: 1 + len(numbers) // MOST].to(torch.float64)


def _unlike(ours: Tensor, theirs: Tensor, like: Tensor) -> str | None:
    """Compare numbers of many runs, a run in each row."""
    finite = torch.isfinite(theirs).all(0)
    if not bool(torch.isfinite(ours[:, finite]).all()) or bool(torch.isfinite(ours[:, ~torch.isfinite(theirs).any(0)]).any()):
        return "numbers are not finite where eager's are, or finite where eager's are not"
    ours, theirs = ours[:, finite], theirs[:, finite]
    if not ours.numel():
        return None
    size = theirs.abs().amax(0)
    size = torch.where(size > 0, size, 1.0)  # squares of the smallest numbers vanish
    ours, theirs = ours / size, theirs / size
    eps = _eps(like)
    third = len(theirs) // 3
    known, others = theirs[:third], theirs[third:]  # what both are measured by depends on neither
    for (what, a), (_, b) in zip(_statistics(ours, ours, known), _statistics(theirs, others, known)):
        error = FAR * (a.var(0) / len(a) + b.var(0) / len(b)).sqrt() + ROUNDINGS * eps * b.abs().amax(0)
        apart = (a.mean(0) - b.mean(0)).abs()
        if bool((apart > error).any()):
            at = int((apart / error.clamp_min(1e-300)).argmax())
            unit = f" times {float(size[at]):.4g}" if what == "element" else ""
            return f"over {len(a)} seeds, the mean of {what} {at} is {float(a.mean(0)[at]):.4g}, and eager's {float(b.mean(0)[at]):.4g}{unit}"
    if len(ours) < FEW:
        return None  # a rare number may be missing from so few runs
    fixed = theirs.amin(0) == theirs.amax(0)
    moving = (ours - theirs[0]).abs() > ROUNDINGS * eps * theirs[0].abs()
    often = fixed & (moving.to(torch.float64).mean(0) > (VARYING if len(ours) >= RUNS else 2 * VARYING))
    if bool(often.any()):
        at = int(often.int().argmax())
        return f"over {len(ours)} seeds, element {at} is random, and eager's is always {float(theirs[0, at] * size[at]):.4g}"
    return None


def _eps(x: Tensor) -> float:
    return torch.finfo(x.dtype).eps if x.is_floating_point() or x.is_complex() else 0.0


def _statistics(x: Tensor, some: Tensor, known: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what is compared of each run: the elements; of some runs, all of them together, their spread, and how much they move together."""
    centre = known.mean(0)
    scale = known.std(0).clamp_min(1e-300)
    random = known.std(0) > 0
    yield "element", x
    if bool(random.any()):
        away = ((some - centre) / scale)[:, random].clamp(-1e6, 1e6)
        yield "all deviations", away.mean(1, keepdim=True)
        yield "all deviations away from 0", (away * centre[random].sign()).mean(1, keepdim=True)
        yield "the squared deviation", away.square().mean(1, keepdim=True)
        yield "the squared deviation of their sum", away.mean(1, keepdim=True).square()
