"""Whether random numbers depend on each other: on others of one result, on those of the call before, and on where they stand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FAR = 7.0  # standard errors
FEWEST, MOST = 64, 1 << 21  # numbers of which correlations are computed
PARTS, PART = 64, 256  # of a large result that are compared, and how many numbers each has at least
Numbers = Tensor  # all numbers of one result, in float64, in a row


def dependent(ours: Sequence[Numbers], theirs: Sequence[Numbers]) -> str | None:
    """Describe at which distance the numbers of one result depend on each other; None where they do at none, or where some of eager's do.

    Of each side there are four results or more, of different seeds. A distance counts where two pairs of results show it.
    """
    if len(ours) < 4 or not FEWEST <= len(ours[0]) <= MOST:
        return None
    far = FAR / len(ours[0]) ** 0.5
    shown = torch.ones(len(ours[0]), dtype=torch.bool)
    for i in (0, 2):
        signs = _signs(ours[i], ours[i + 1])
        shown &= correlation(signs, signs).abs() > far
    shown[0] = False
    if not bool(shown.any()):
        return None
    for i in (0, 2):
        signs = _signs(theirs[i], theirs[i + 1])
        if bool((correlation(signs, signs)[1:].abs() > far).any()):
            return None  # as where whole channels are dropped
    distance = int(shown.int().argmax())
    return f"elements that are {distance} apart depend on each other, and eager's do not"


def alike_in_a_row(before: Sequence[Numbers], after: Sequence[Numbers]) -> str | None:
    """Describe at which distance the numbers of calls depend on those of the calls before them; None where they do at none.

    `before` are the results of four seeds or more, `after` those of the next calls.
    """
    if len(before) < 4 or not FEWEST <= len(before[0]) <= MOST:
        return None
    far = FAR / len(before[0]) ** 0.5
    shown = torch.ones(len(before[0]), dtype=torch.bool)
    for i in (0, 2):
        shown &= correlation(_signs(before[i], before[i + 1]), _signs(after[i], after[i + 1])).abs() > far
    return f"the numbers of a call depend on those of the call before, {int(shown.int().argmax())} elements apart" if bool(shown.any()) else None


def _signs(a: Numbers, b: Numbers) -> Tensor:
    """Return which of two results of one distribution is larger, element by element: 1, 0 or -1, with a mean of 0 wherever numbers lie."""
    return (a - b).nan_to_num(0.0, 0.0, 0.0).sign()


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return the correlation of two rows of numbers for each distance between them; zeros where one of them is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = float(a.norm() * b.norm())
    if size == 0:
        return torch.zeros(len(a), dtype=torch.float64)
    long = 1 << (len(a) - 1).bit_length()  # other lengths take far longer
    return torch.fft.irfft(torch.fft.rfft(a, long).conj() * torch.fft.rfft(b, long), long)[: len(a)] / size


def uneven(ours: Sequence[Numbers], theirs: Sequence[Numbers]) -> str | None:
    """Describe which part of a large result has another mean or spread than eager's, in two results; None where none has, or where eager's differ."""
    if len(ours) < 2 or len(ours[0]) < PARTS * PART or bool((_apart(*theirs[:2], 1) | _apart(*theirs[:2], 2)).any()):
        return None
    for what, power in (("mean", 1), ("mean square", 2)):
        shown = torch.ones(PARTS, dtype=torch.bool)
        for a, b in list(zip(ours, theirs))[:2]:
            shown &= _apart(a, b, power)
        if bool(shown.any()):
            at, size = int(shown.int().argmax()), len(ours[0]) // PARTS
            return f"the {what} of elements {at * size:,} to {(at + 1) * size:,} is not eager's"
    return None


def _apart(a: Numbers, b: Numbers, power: int) -> Tensor:
    """Return in which parts the means of two results are further apart than chance explains."""
    size = len(a) // PARTS
    parts = [x[: PARTS * size].nan_to_num(0.0, 0.0, 0.0).pow(power).view(PARTS, size) for x in (a, b)]
    error = FAR * (sum(x.var(1) for x in parts) / size).sqrt() + 1e-6 * parts[1].abs().amax(1)
    return (parts[0].mean(1) - parts[1].mean(1)).abs() > error
