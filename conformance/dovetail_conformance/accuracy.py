"""How far a result may lie from the exact one, in units in the last place of its own dtype.

The exact result is that of eager PyTorch in float64. An element is right when its error is no larger than the sum of

- ULPS units in the last place, and the square root of the number of terms where sums are taken, of float32 in 16 bits;
- NO_WORSE times the largest error that eager makes itself in elements of the same magnitude;
- NO_WORSE times the same for inputs that are off by a rounding, since eager may be lucky;
- in float64, NO_WORSE times the same for eager in float32, scaled down: there is no wider dtype to compute an exact result in;
- SPREAD times as far as the exact element moves when the inputs move by one rounding, but for functions of single numbers such as pow and sin.

So an error that a rounding of the inputs explains is allowed, and no other: log1p(1e-9) has to be 1e-9. Integers and booleans have to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.oracle import differs, flat

ULPS, NO_WORSE, SPREAD, MOVES = 8.0, 8.0, 4.0, 8
FEW_MOVES, LARGE = 2, 1 << 22  # of so many elements that each move takes seconds
COARSE = {torch.float16: (3.0, 3.0, 2.0), torch.bfloat16: (3.0, 3.0, 2.0)}  # the first three for dtypes in which one unit is a lot
Place = tuple[int, Tensor | None]  # the number of a result, and which of its elements are wrong; None for all
Problem = tuple[str, Tensor | None]  # what is wrong with a result, and with which of its elements
DOUBLE = torch.finfo(torch.float64).eps
LOWEST, HIGHEST = -1100, 1100  # exponents of float64


@dataclass(frozen=True)
class Truth:
    """The expected result of a call: eager's and the exact one.

    `moved` returns the exact result for inputs that are off by a rounding, or None. `length` is how many terms a sum has.
    `own` returns the errors that eager makes in float64, as those that it makes in float32 suggest: there the exact result is eager's. The first
    are those for these inputs, the others for inputs nearby.
    `extra` are absolute errors that are allowed besides, of each result, or None.
    `others` returns the errors that eager makes for inputs that are off by a rounding, or None; all are called `moves` times at most.
    `cancellation` is allowed as an absolute error of float32 results, and in other dtypes as many of their units.
    `rounded` tells that the inputs are floats, so that a comparison may fall on the other side of a rounding; `zeros` that the sign of zero counts,
    `kinds` that NaN and the infinities are told apart. `sharp` tells that a rounding of the inputs explains no error: the operation rounds once.
    """

    eager: Any
    exact: Any = None
    moved: Callable[[int], Any] | None = None
    length: int = 1
    cancellation: float = 0.0
    rounded: bool = True
    zeros: bool = False
    kinds: bool = True
    sharp: bool = False
    own: Callable[[int], Any] | None = None
    others: Callable[[int], Any] | None = None
    extra: Sequence[Any] = ()
    moves: int = MOVES


def inaccuracy(got: Any, truth: Truth) -> str | None:
    """Describe the first result that is wrong; None where all are right."""
    return next((text for text, _ in inaccuracies(got, truth)), None)


def inaccuracies(got: Any, truth: Truth) -> Iterator[tuple[str, Place]]:
    """Yield each result that is wrong: a description, and its number and elements, which are None where it is wrong as a whole."""
    ours, theirs = flat(got), flat(truth.eager)
    if len(ours) != len(theirs):
        yield f"{len(ours)} results in place of {len(theirs)}", (-1, None)
        return
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if (problem := _problem(a, b, i, len(theirs), truth)) is not None:
            text, elements = problem
            yield text if len(theirs) == 1 else f"result {i}: {text}", (i, elements)


def excess(got: Any, truth: Truth) -> Tensor | None:
    """Return the error of each element of the first result, relative to the error allowed for fixed inputs; None where it is not a float."""
    ours, theirs, exact = (flat(x)[0] if x is not None else None for x in (got, truth.eager, truth.exact))
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor) or not isinstance(exact, Tensor):
        return None
    if not ours.is_floating_point() or not ours.numel() or not ours.shape == theirs.shape == exact.shape:
        return None
    elements = _Elements(ours.detach(), theirs.detach(), exact.detach(), truth)
    return elements.error(elements.got) / elements.room(elements.error(elements.eager))


def _problem(got: Any, eager: Any, i: int, of: int, truth: Truth) -> Problem | None:
    exact = _leaf(truth.exact, i, of, eager)
    if not isinstance(got, Tensor) or not isinstance(eager, Tensor) or (got.dtype, got.shape, got.device) != (eager.dtype, eager.shape, eager.device):
        text = differs(got, eager, exact)
        return None if text is None else (text, None)
    if got.numel() == 0 or (not truth.zeros and torch.equal(got, eager)):
        return None
    if not got.is_floating_point() and not got.is_complex():
        return _whole(got, eager, exact if truth.rounded else None)
    elements = _Elements(got.detach(), eager.detach(), exact, truth)
    elements.extra = truth.extra[i] if i < len(truth.extra) else None
    return elements.problem(
        lambda k: _leaf(truth.moved(k), i, of, eager) if truth.moved and not truth.sharp else None,
        lambda k: _leaf(truth.own(k), i, of, eager) if truth.own else None,
        lambda k: _leaf(truth.others(k), i, of, eager) if truth.others else None,
    )


def _leaf(result: Any, i: int, of: int, like: Any) -> Any:
    """Return leaf `i` of a result in float64; None where it cannot be compared with `like`."""
    leaves = flat(result) if result is not None else []
    if len(leaves) != of or type(leaves[i]) is not type(like):
        return None
    x = leaves[i]
    if isinstance(x, Tensor):
        return x.detach() if x.shape == like.shape and x.is_complex() == like.is_complex() else None
    return x


def _whole(got: Tensor, eager: Tensor, exact: Tensor | None) -> Problem | None:
    """Compare integers and booleans; where a rounding decides, float64 and eager have two answers, and neither is required."""
    wrong = got != eager
    if isinstance(exact, Tensor) and exact.dtype == eager.dtype:
        wrong &= eager == exact
    if not bool(wrong.any()):
        return None
    place = [int(n) for n in wrong.nonzero()[0]]
    text = f"{int(wrong.sum())} of {got.numel()} elements are wrong, first at {place}: {got[tuple(place)]} in place of {eager[tuple(place)]}"
    return text, wrong


class _Elements:
    """The elements of one result, of eager's, and of the exact one, as real numbers in float64."""

    def __init__(self, got: Tensor, eager: Tensor, exact: Tensor | None, truth: Truth):
        self.truth, self.dtype, self.shape = truth, got.dtype, got.shape
        self.extra: Tensor | None = None
        self.complex = got.is_complex()
        self.ulps, self.no_worse, self.spread = COARSE.get(got.dtype, (ULPS, NO_WORSE, SPREAD))
        self.got, self.eager = _numbers(got), _numbers(eager)
        self.exact = self.eager if exact is None else _numbers(exact)
        self.exact = torch.where(torch.isfinite(self.exact) | ~torch.isfinite(self.eager), self.exact, self.eager)
        self.size = self._size(self.exact)
        info = torch.finfo(got.dtype)
        self.eps, self.normal, self.least = info.eps, info.smallest_normal, info.smallest_normal * info.eps
        self.terms = sqrt(truth.length) * min(1.0, torch.finfo(torch.float32).eps / info.eps)  # 16 bits are added up in float32

    def _size(self, x: Tensor) -> Tensor:
        """Return the magnitude of each number; of both parts of a complex number, the larger."""
        return x.abs().amax(-1, keepdim=True).expand(x.shape) if self.complex else x.abs()

    def problem(
        self,
        moved: Callable[[int], Tensor | None],
        own: Callable[[int], Tensor | None] = lambda k: None,
        others: Callable[[int], Tensor | None] = lambda k: None,
    ) -> Problem | None:
        """Describe the worst element; None where all are right."""
        error, theirs = self.error(self.got), self.error(self.eager)
        room = self.room(theirs)
        if bool((error <= room).all()):
            return self._sign()
        factor = self.spread + sqrt(self.truth.length) / 4
        spread = torch.zeros_like(room)
        for k in range(self.truth.moves):
            other = moved(k)
            if other is None:
                break
            step = (_numbers(other) - self.exact).abs()
            spread = torch.maximum(spread, torch.where(torch.isfinite(step), step, 0.0))
            if bool((error <= room + factor * spread).all()):
                return self._sign()
        room = room + factor * spread
        for errors in (own, others) if self.dtype in (torch.float64, torch.complex128) else (others,):
            room = room + self.no_worse * self._alike_in_size(self._worst(errors, error, room))
        return self._described(error, room) if bool((error > room).any()) else self._sign()

    def _worst(self, errors: Callable[[int], Tensor | None], error: Tensor, room: Tensor) -> Tensor:
        """Return the largest error that eager makes in each element, looked for until it explains what is beyond the room."""
        worst = torch.zeros_like(room)
        for k in range(self.truth.moves):
            if not bool((error > room + self.no_worse * self._alike_in_size(worst)).any()):
                break
            if (theirs := errors(k)) is None or (sizes := _numbers(theirs).abs()).shape != worst.shape:
                break
            worst = torch.maximum(worst, torch.where(torch.isfinite(sizes), sizes, 0.0))
        return worst

    def error(self, x: Tensor) -> Tensor:
        """Return the error of each element: 0 where it is the expected infinity or NaN, infinity where it is another."""
        error = (x - self.exact).abs()
        if bool(torch.isfinite(error).all()):
            return error
        alike = [(x == other) | (x.isnan() & other.isnan()) for other in (self.exact, self.eager)]
        if not self.truth.kinds:
            alike.append(~torch.isfinite(x))
        special = ~torch.isfinite(self.exact) | ~torch.isfinite(self.eager)
        if self.complex and not self.truth.kinds:  # which part of the number is not finite is open as well
            alike = [each.any(-1, keepdim=True).expand(x.shape) for each in alike]
            special = special.any(-1, keepdim=True).expand(x.shape)
        error = torch.where(special & torch.stack(alike).any(0), 0.0, error)
        return error.nan_to_num(nan=torch.inf, posinf=torch.inf)

    def room(self, theirs: Tensor) -> Tensor:
        """Return the error allowed for each element, for fixed inputs."""
        ulps = self.ulps + (self.terms if self.truth.length > 1 else 0.0)
        cancelled = self.truth.cancellation * self.eps / torch.finfo(torch.float32).eps
        room = cancelled + ulps * torch.where(torch.isfinite(self.size), self.size * self.eps, 0.0).clamp_min(self.least)
        room = room if self.extra is None else room + self.extra
        if bool((zero := self.size == 0).any()):  # float64 cancels to zero what is not quite zero
            room = torch.where(zero, room + ULPS * DOUBLE * float(torch.where(torch.isfinite(self.size), self.size, 0.0).max()), room)
        finite = torch.where(torch.isfinite(theirs), theirs, 0.0)
        return room + self.no_worse * self._alike_in_size(finite) if bool(finite.any()) else room

    def _alike_in_size(self, error: Tensor) -> Tensor:
        """Return, for each element, the largest error among those whose exact values are at most four times as large or as small."""
        exponents = torch.frexp(torch.where(torch.isfinite(self.size), self.size, 0.0))[1].to(torch.int64)
        at = exponents.clamp(LOWEST, HIGHEST) - LOWEST
        most = torch.zeros(HIGHEST - LOWEST + 1, dtype=torch.float64).scatter_reduce(0, at.flatten(), error.flatten(), "amax")
        around = torch.nn.functional.max_pool1d(most[None, None], 5, 1, 2)[0, 0]
        zero = self.size == 0
        return torch.where(zero, error[zero].max() if bool(zero.any()) else 0.0, around[at])

    def _sign(self) -> Problem | None:
        """Compare the signs of zeros, where eager has the exact one."""
        if not self.truth.zeros:
            return None
        signs = [x.signbit() for x in (self.got, self.eager, self.exact)]
        zero = (self.got == 0) & (self.eager == 0) & (self.exact == 0)
        wrong = zero & (signs[0] != signs[1]) & (signs[1] == signs[2])
        if not bool(wrong.any()):
            return None
        first = self._place(int(wrong.flatten().int().argmax()))
        return f"{int(wrong.sum())} of {wrong.numel()} elements are zeros of the other sign, first at {first}", wrong

    def _described(self, error: Tensor, room: Tensor) -> Problem:
        wrong = error > room
        at = int(torch.where(wrong, error / (room + 1e-300), -1.0).argmax())
        got, exact = self.got.flatten()[at].item(), self.exact.flatten()[at].item()
        unit = max(self.eps * abs(exact), self.least)
        ulps, allowed = error.flatten()[at].item() / unit, room.flatten()[at].item() / unit
        worst = f"most at {self._place(at)}: {got:.9g} in place of {exact:.9g}"
        text = f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, {worst}, by {ulps:.3g} units in the last place; {allowed:.3g} are allowed"
        return text, wrong

    def _place(self, at: int) -> list[int]:
        return [int(n) for n in torch.unravel_index(torch.tensor(at // (1 + self.complex)), self.shape)]


def _numbers(x: Tensor) -> Tensor:
    """Convert to real numbers in float64; a complex tensor gets a dimension of two."""
    x = x.detach().cpu()
    return (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).to(torch.float64)
