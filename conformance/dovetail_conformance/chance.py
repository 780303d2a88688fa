"""Random results: where they are not eager's for the same seed, they have to be distributed as eager's are, and to follow torch's generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.case import SEED, Case
from dovetail_conformance.oracle import flat, same_bits

RUNS, FAR = 192, 7.0  # seeds that are compared; how many standard errors two means may be apart
MOST = 4096  # numbers of a result that are compared
ROUNDINGS = 64  # of a result, by which numbers that are not random may differ
Draw = Callable[[int], Sequence[Any] | None]  # the leaves of a result for a seed; None where the call raised an error


def unlike_in_chance(case: Case, function: Callable[..., Any], inputs: Callable[[], Sequence[Tensor]]) -> str | None:
    """Describe how the random results of calls of `function` are distributed otherwise than eager's; None where they are alike."""

    def ours(seed: int) -> Sequence[Any] | None:
        ran = case.call(function, inputs(), seed=seed)
        return None if ran.error is not None else flat(ran.result)

    def theirs(seed: int) -> Sequence[Any] | None:
        ran = case.eager(inputs(), seed=seed)
        return None if ran.error is not None else flat(ran.result)

    if not case.call(function, inputs()).drew:
        return "eager draws from torch's generator, and this does not: the next call repeats its numbers"
    return unlike_draws(ours, theirs)


def unlike_draws(ours: Draw, theirs: Draw) -> str | None:
    """Describe how random results differ: between two calls with one seed, or in their distribution from eager's; None where they do not."""
    runs = [(ours(SEED + i), theirs(SEED + i)) for i in range(RUNS)]
    if any(b is None for _, b in runs):
        return None  # eager raises an error for some numbers
    if any(a is None for a, _ in runs):
        return "it raised an error with another seed, and eager does not"
    if not same_bits(list(ours(SEED)), list(runs[0][0])):
        return "two calls with the same seed returned different numbers"
    for i, expected in enumerate(runs[0][1]):
        got = runs[0][0][i] if len(runs[0][0]) == len(runs[0][1]) else None
        if not isinstance(expected, Tensor):
            continue
        if not isinstance(got, Tensor) or (got.shape, got.dtype, got.device) != (expected.shape, expected.dtype, expected.device):
            return f"result {i} is {_kind(got)} in place of {_kind(expected)}"
        if (
            expected.numel()
            and (problem := _unlike(*(torch.stack([_numbers(run[side][i]) for run in runs]) for side in (0, 1)), expected)) is not None
        ):
            return problem
    return None


def _kind(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, Tensor) else repr(x)


def _numbers(x: Tensor) -> Tensor:
    """Return the real numbers of a tensor in float64, in a row; of many, some from all over it."""
    x = x.detach().cpu()
    numbers = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).flatten()
    return numbers[:: 1 + len(numbers) // MOST].to(torch.float64)


def _unlike(ours: Tensor, theirs: Tensor, like: Tensor) -> str | None:
    """Compare numbers of many runs, a run in each row."""
    finite = torch.isfinite(theirs).all(0)
    if not bool(torch.isfinite(ours[:, finite]).all()) or bool(torch.isfinite(ours[:, ~torch.isfinite(theirs).any(0)]).any()):
        return "numbers are not finite where eager's are, or finite where eager's are not"
    ours, theirs = ours[:, finite], theirs[:, finite]
    if not ours.numel():
        return None
    eps = torch.finfo(like.dtype).eps if like.is_floating_point() or like.is_complex() else 0.0
    for (what, a), (_, b) in zip(_statistics(ours, theirs), _statistics(theirs, theirs)):
        error = FAR * ((a.var(0) + b.var(0)) / len(a)).sqrt() + ROUNDINGS * eps * b.abs().amax(0)
        apart = (a.mean(0) - b.mean(0)).abs()
        if bool((apart > error).any()):
            at = int((apart / error.clamp_min(1e-300)).argmax())
            return f"over {len(a)} seeds, the mean of {what} {at} is {float(a.mean(0)[at]):.4g}, and eager's {float(b.mean(0)[at]):.4g}"
    return None


def _statistics(x: Tensor, theirs: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what is compared of each run: the elements, their spread, and how much they move together."""
    centre = theirs.mean(0)
    scale = theirs.std(0).clamp_min(1e-300)
    random = theirs.std(0) > 0
    yield "element", x
    if bool(random.any()):
        away = ((x - centre) / scale)[:, random].clamp(-1e6, 1e6)
        yield "the squared deviation", away.square().mean(1, keepdim=True)
        yield "the squared deviation of their sum", away.mean(1, keepdim=True).square()
