"""Whether random numbers have another distribution than eager's though their means and spreads are alike: frequencies of what each element is."""

from __future__ import annotations

import torch
from torch import Tensor

DISTINCT, COARSE, COARSE_WHOLE = 40, 8, 3  # different numbers from which on their digits are compared; how many bits fewer these may have
SHUFFLES, FAR = 200, 3.0  # of the runs of both sides; how many times as far as the furthest of these the frequencies may be apart
FEWEST, ELEMENTS, VALUES, BINS = 48, 128, 32, 8  # runs; elements that are looked at; values of whole numbers; parts of other numbers


def unlike_in_frequency(ours: Tensor, theirs: Tensor, rounding: float) -> str | None:
    """Describe the element with values of other frequencies than eager's, of runs in rows; None where they have the same.

    All frequencies together are as far apart as their chi-squared statistic says. How far chance takes that, whichever elements depend on each other,
    show runs that are dealt to both sides at random. Values that differ by `rounding`, relative to the largest, are one.
    """
    if min(len(ours), len(theirs)) < FEWEST:
        return None
    step = 1 + ours.shape[1] // ELEMENTS
    runs = torch.cat([ours, theirs])[:, ::step].nan_to_num(0.0, 0.0, 0.0)
    room = rounding * runs.abs().amax(0)
    parts = _values(runs, float(room.max()))
    cells = torch.nn.functional.one_hot(_ranges(runs, runs, room) if parts is None else parts).to(torch.float32)
    if (at := _apart(cells.flatten(1), len(ours))) is not None:
        return f"over {len(ours)} seeds, the values of element {at // cells.shape[-1] * step} have other frequencies than eager's"
    distinct = (runs.sort(0)[0].diff(dim=0) > 0).sum(0)  # elements of a few values each have other values than their neighbours
    if parts is not None or not bool((many := distinct > len(runs) // 2).any()):
        return None
    runs, room = runs[:, many], room[many]
    spread = runs.std(0)
    away, room = (runs - runs.mean(0)) / spread.clamp_min(1e-300), room / spread.clamp_min(1e-300)
    cells = torch.nn.functional.one_hot(_ranges(away, away.flatten()[:, None], room)).to(torch.float32)
    if _apart(cells.sum(1), len(ours)) is not None:
        return f"over {len(ours)} seeds, the values of all elements have other frequencies than eager's"
    return None


def coarser(ours: Tensor, theirs: Tensor) -> str | None:
    """Describe numbers of fewer bits than eager's, such as float32 ones that are scaled to a wide range; None where they have as many."""
    ours, theirs = (x[torch.isfinite(x)] for x in (ours, theirs))
    if min(len(x.unique()) for x in (ours, theirs)) < DISTINCT:
        return None
    mine, eager = _bits(ours), _bits(theirs)
    if eager - mine < (COARSE if ours.is_floating_point() else COARSE_WHOLE):
        return None
    return f"the numbers have {mine} bits, and eager's {eager}"


def _bits(x: Tensor) -> int:
    """Return how many bits the numbers have from the highest on to the last in which any two of them differ."""
    whole = (torch.frexp(x.to(torch.float64))[0].abs() * 2.0**53).to(torch.int64) if x.is_floating_point() else x.to(torch.int64) ^ x[0]
    while len(whole) > 1:
        half = (len(whole) + 1) // 2
        whole = torch.cat([whole[: len(whole) - half] | whole[half:], whole[len(whole) - half : half]])
    union = int(whole[0]) & (1 << 64) - 1
    return union.bit_length() - (union & -union).bit_length() + 1 if union else 0


def _values(runs: Tensor, room: float) -> Tensor | None:
    """Return which value each number is; None where there are many."""
    values = runs.unique()
    firsts = values[torch.cat([torch.ones(1, dtype=torch.bool), values.diff() > room])]
    return torch.searchsorted(firsts, runs.contiguous(), right=True) - 1 if len(firsts) <= VALUES else None


def _ranges(runs: Tensor, all_runs: Tensor, room: Tensor) -> Tensor:
    """Return in which of a few ranges, with as many of `all_runs` each, the numbers are."""
    edges = torch.quantile(all_runs, torch.linspace(0, 1, BINS + 1, dtype=runs.dtype)[1:-1], dim=0)
    return (runs[None] > edges[:, None] + room).sum(0)


def _apart(cells: Tensor, first: int) -> int | None:
    """Return the cell of which the first runs have another share than the others, further than chance explains; None where there is none."""
    shuffle = torch.Generator().manual_seed(0)
    labels = torch.zeros(1 + SHUFFLES, len(cells), dtype=cells.dtype)
    labels[0, :first] = 1
    for row in labels[1:]:
        row[torch.randperm(len(cells), generator=shuffle)[:first]] = 1
    share = first / len(cells)
    expected = cells.sum(0) * share
    apart = (labels @ cells - expected).square() / (expected * (1 - share)).clamp_min(1e-9)
    statistic = apart.sum(1)
    usual = float(statistic[1:].mean())
    if float(statistic[0]) - usual <= FAR * (float(statistic[1:].max()) - usual) + 1.0:
        return None
    return int(apart[0].argmax())
