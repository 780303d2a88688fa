"""One answer to whether two results agree, for `verify`, trials and the conformance suite.

A result agrees with the reference's when it is within the tolerances of `torch.testing`.  Beyond them it agrees all the same when it is no
further from the result in twice the precision than rounding explains: than the reference's own result, and than results of the same
program with other rounding, where those are at hand.  Then the absolute tolerance shrinks with the largest element of results below 1, such
as gradients of a mean over many numbers: what cancellation leaves there, rounding explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dovetail.executors.dispatching.same_bytes import same_bytes
from dovetail.trace import leaves

TOLERANCE = {  # (relative, absolute) by dtype, as torch.testing.assert_close has them
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
NO_WORSE = 2.0  # how many times as large as those of the reference the errors of a result may be
NO_MORE = 4  # how many times as many elements may have an error of some size
ORDINARY = 256.0  # times the size of the median element: up to there errors are compared as they are
NARROW = (torch.float16, torch.bfloat16)


class Agreement(NamedTuple):
    """Whether two results agree: `difference` has the figures where they do not, `ulps` is the largest error where they do.

    Errors are in units in the last place of the result's largest element; those of results that hold no floats are 0.
    """

    difference: str | None
    ulps: float = 0.0


def differs(
    got: Any, expected: Any, exact: Any = None, *, slack: float = 1.0, rounded: Sequence[Any] = (), positions: Tensor | None = None
) -> str | None:
    """Describe how `got` differs from the reference's result, in figures; None where it does not.

    `exact` is the result in twice the precision, `rounded` are results with other rounding.  `slack` times the tolerances are allowed.
    `positions` are the indices in dimension 0 that the figures give, where only some rows are compared.
    """
    ours, theirs = list(leaves(got)), list(leaves(expected))
    if len(ours) != len(theirs):
        return f"{len(ours)} results in place of {len(theirs)}"
    exacts = list(leaves(exact)) if exact is not None else []
    others = [list(leaves(sample)) for sample in rounded]
    for i, (a, b) in enumerate(zip(ours, theirs)):
        wide = exacts[i] if len(exacts) == len(theirs) else None
        samples = [sample[i] for sample in others if len(sample) == len(theirs)]
        if (message := _differs(a, b, wide, slack, samples, positions, scaled=bool(samples))) is not None:
            return message if len(theirs) == 1 else f"result {i}: {message}"
    return None


def agreement(got: Any, expected: Any, *, slack: float = 1.0) -> Agreement:
    """Return whether two results are within `slack` times the tolerances, in few passes over their memory."""
    if not isinstance(got, Tensor) or not isinstance(expected, Tensor) or _kind(got) != _kind(expected):
        return Agreement(_differs(got, expected, slack=slack))
    if got.numel() == 0 or same_bytes(got, expected) or torch.equal(got, expected):
        return Agreement(None)
    if not got.is_floating_point() or got.dtype not in TOLERANCE:
        return Agreement(_differs(got, expected, slack=slack))
    got, expected = got.detach(), expected.detach()
    relative, absolute = (slack * n for n in TOLERANCE[got.dtype])
    a, b = (got.float(), expected.float()) if got.dtype in NARROW else (got, expected)
    off = torch.sub(a, b).abs_()
    largest, scale = float(off.max()), float(torch.stack(torch.aminmax(b)).abs().max())
    if not math.isfinite(largest):  # which no tolerance allows
        return Agreement(_differs(got, expected, slack=slack))
    absolute = _absolute(absolute, scale, got.dtype)
    within = largest <= absolute or bool((off <= b.abs().mul_(relative).add_(absolute)).all())
    if not within and (message := _differs(got, expected, slack=slack)) is not None:
        return Agreement(message)
    ulp = torch.finfo(got.dtype).eps * scale
    return Agreement(None, largest / ulp if ulp > 0 else 0.0)


def _absolute(absolute: float, scale: float, dtype: torch.dtype) -> float:
    """Return the absolute tolerance of a result with `scale` as its largest element; subnormal numbers may be 0."""
    info = torch.finfo(dtype)
    subnormal = info.smallest_normal * (info.eps if dtype is torch.float16 else 1.0)
    return max(absolute * min(scale, 1.0), subnormal)


def _kind(x: Tensor) -> tuple:
    return x.dtype, x.shape, x.device


def _differs(
    got: Any,
    expected: Any,
    exact: Any = None,
    slack: float = 1.0,
    rounded: Sequence[Any] = (),
    positions: Tensor | None = None,
    *,
    scaled: bool = True,
) -> str | None:
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor):
        same = type(got) is type(expected) and (got == expected or (got != got and expected != expected))
        return None if same or _explained_number(got, exact, rounded) else f"{got!r} in place of {expected!r}"
    if _kind(got) != _kind(expected):
        a, b = (f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)} on {x.device}" for x in (got, expected))
        return f"{a} in place of {b}"
    if got.numel() == 0 or same_bytes(got, expected) or torch.equal(got, expected):
        return None
    wide = torch.complex128 if got.is_complex() else torch.int64 if expected.dtype in (torch.int64, torch.int32) else torch.float64
    a, b = got.detach().to(wide), expected.detach().to(wide)
    relative, absolute = (slack * n for n in TOLERANCE.get(got.dtype, (0.0, 0.0)))
    if scaled and relative:
        absolute = _absolute(absolute, float(b.abs().nan_to_num(0.0, 0.0, 0.0).max()), got.dtype)
    off = ~torch.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True) if wide is not torch.int64 else a != b
    if not bool(off.any()):
        return None
    if isinstance(exact, Tensor) and exact.shape == got.shape:
        exact, *rounded = (_in_range(x, got.dtype) if isinstance(x, Tensor) else x for x in (exact, *rounded))
        if _explained(a, b, exact, off, rounded):
            return None
    return _figures(a, b, off, got, relative, absolute, positions)


def _explained_number(got: Any, exact: Any, rounded: Sequence[Any]) -> bool:
    """Whether a Python number is one that some rounding of the program gives."""
    return type(got) in (bool, int, float) and any([type(got) is type(each) and got == each for each in (exact, *rounded)])


def _explained(a: Tensor, b: Tensor, exact: Tensor, off: Tensor, rounded: Sequence[Any]) -> bool:
    """Whether the errors of what is `off` are no larger, and where there are samples no more in number, than rounding explains.

    With samples, errors of elements that are many times as large as the median one are relative to them: rounding of an element near 1e9
    explains no error of one near 1.
    """
    samples = [each for each in rounded if isinstance(each, Tensor) and each.shape == exact.shape]
    scale = _scale(exact) if samples else 1.0
    ours = (_errors(a, exact) / scale)[off]
    theirs = [(_errors(each, exact) / scale).flatten() for each in (b, *samples)]
    if not samples:
        if not exact.is_floating_point() and not exact.is_complex():
            return False
        return bool(torch.isfinite(ours).all()) and float(ours.max()) <= NO_WORSE * float(theirs[0].max())
    count = -(-ours.numel() // NO_MORE)
    allowed = torch.stack([each.topk(count).values for each in theirs]).amax(0)
    return bool((ours.sort(descending=True).values[::NO_MORE] <= NO_WORSE * allowed).all())


def _in_range(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `x` with infinities for what overflows in `dtype`."""
    if not x.is_floating_point() or not dtype.is_floating_point:
        return x
    return torch.where(x.to(dtype).isinf(), x.sign() * torch.inf, x)


def _errors(x: Tensor, exact: Tensor) -> Tensor:
    """How far each element is from the exact one; infinitely far where only one of them is finite, or a number."""
    wide = torch.complex128 if exact.is_complex() else torch.float64
    x, exact = x.to(wide), exact.to(wide)
    same = (x == exact) | (x.isnan() & exact.isnan())
    return (x - exact).abs().nan_to_num(nan=float("inf"), posinf=float("inf")).masked_fill_(same, 0.0)


def _scale(exact: Tensor) -> Tensor:
    """The size of each element, at least so many times the median of those that are finite and not 0."""
    sizes = (exact if exact.is_complex() else exact.to(torch.float64)).abs().nan_to_num(0.0, 0.0)
    typical = sizes[sizes > 0]
    return sizes.clamp(min=ORDINARY * float(typical.median())) if typical.numel() else torch.ones_like(sizes)


def _place(number: int, shape: Sequence[int]) -> list[int]:
    """Return the position of the element of a row-major number; torch.unravel_index imports sympy."""
    place = []
    for size in reversed(shape):
        number, index = divmod(number, size)
        place.append(index)
    return place[::-1]


def _figures(a: Tensor, b: Tensor, off: Tensor, got: Tensor, relative: float, absolute: float, positions: Tensor | None) -> str:
    gap = torch.where(off, (a - b).abs().to(torch.float64), 0.0).nan_to_num(nan=float("inf"))
    at = int(gap.argmax())
    place = _place(at, got.shape)
    if positions is not None:
        place[0] = int(positions[place[0]])
    ours, theirs = a.flatten()[at].item(), b.flatten()[at].item()
    allowed = f"; allowed are {absolute:.2g} + {relative:.2g} of the value" if relative else ""
    by = f"{ours:.7g} in place of {theirs:.7g}, by {gap.flatten()[at].item():.3g}"
    return f"{int(off.sum())} of {got.numel()} elements differ, most at {place}: {by}{allowed}"
