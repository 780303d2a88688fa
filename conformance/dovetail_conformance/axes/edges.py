"""Edges of a function: numbers beside which its result becomes infinite, 0 or not a number."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import torch
from torch import Tensor

STEP = 0.5  # of the exponents between which an edge is looked for
SHIFT = 0.37  # so that no exponent is whole: poles lie at whole numbers, and say nothing of what is beside them
HALVINGS = 20
BESIDE = 2.0**-14  # how far beside an edge values are, relative to it: a kernel may round the edge itself to the other side
FEW_UNITS = 2  # the same in units in the last place, where these are larger
MOST = 24


def beside_edges(function: Callable[[Tensor], Tensor | None], dtype: torch.dtype, domain: tuple[float, float]) -> Tensor | None:
    """Return the numbers on both sides of each edge of an elementwise function, in its domain; None where it has none, or gives no numbers."""
    info = torch.finfo(dtype)
    exponents = torch.arange(log2(info.smallest_normal) + SHIFT, log2(info.max), STEP, dtype=torch.float64)
    sizes = 2.0**exponents
    grid = torch.cat([-sizes.flip(0), sizes])
    grid = grid[(grid >= domain[0]) & (grid <= domain[1])].to(dtype).to(torch.float64)
    known = _kinds(function, grid.to(dtype))
    if known is None or len(grid) < 2:
        return None
    at = torch.nonzero((known[:-1] != known[1:]) & (grid[:-1] * grid[1:] > 0)).flatten()[:MOST]
    if not len(at):
        return None
    left, right, kind = grid[at], grid[at + 1], known[at]
    for _ in range(HALVINGS):
        middle = ((left + right) / 2).to(dtype).to(torch.float64)
        middle_kind = _kinds(function, middle.to(dtype))
        if middle_kind is None:
            return None
        same = middle_kind == kind
        left, right = torch.where(same, middle, left), torch.where(same, right, middle)
    distance = max(BESIDE, FEW_UNITS * info.eps)
    near = torch.stack([left - distance * left.abs(), right + distance * right.abs()], 1).flatten()
    return near[(near >= domain[0]) & (near <= domain[1]) & (near.abs() <= info.max)].to(dtype)


def _kinds(function: Callable[[Tensor], Tensor | None], x: Tensor) -> Tensor | None:
    """Return what each result is: a number, 0, one of both infinities, or NaN."""
    y = function(x)
    if not isinstance(y, Tensor) or y.shape != x.shape or not y.is_floating_point():
        return None
    return (y == 0) + 2 * (y == torch.inf) + 3 * (y == -torch.inf) + 4 * y.isnan()
