"""Which samples of an operation level quick runs: pairs of layout and style with its first dtype, a share of all with each of the others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from dovetail_conformance.layout import layout_of, overlaps

if TYPE_CHECKING:
    from dovetail_conformance.case import Case

SMALL, DEALT = 24, 1  # elements of a plain sample, of which finite differences can be taken; samples dealt to a dtype besides it


def pairwise(cases: Sequence[Case]) -> list[Case]:
    """Choose the first case for each pair of a layout and a style of arguments."""
    first: dict[Hashable, Case] = {}
    for case in cases:
        first.setdefault((_layout(case), _style(case)), case)
    return list(first.values())


def dealt(cases: Sequence[Case], at: int, of: int) -> list[Case]:
    """Choose the cases of the `at`-th of `of` dtypes: a plain one, and DEALT of those that no other dtype is dealt."""
    if not cases:
        return []
    plain = next((i for i, case in enumerate(cases) if _is_plain(case)), len(cases) - 1)
    others = [i for i in range(len(cases)) if i != plain][at::of]
    return [cases[i] for i in sorted({plain, *others[:: max(1, -(-len(others) // DEALT))]})]


def _is_plain(case: Case) -> bool:
    """Return whether a case has few elements, more than one, and no two of them in one place."""
    return 1 < sum(x.numel() for x in case.program.inputs) <= SMALL and not any(map(overlaps, case.program.inputs))


def _layout(case: Case) -> Hashable:
    """Return how the first tensor lies in memory, and whether the others are contiguous."""
    head, *others = case.program.inputs or [None]
    return (layout_of(head) if head is not None else None, all(x.is_contiguous() for x in others))


def _style(case: Case) -> Hashable:
    """Return how the arguments are passed: the types of those by position, and the names of the others."""
    sample = case.sample
    if sample is None:
        return None
    return tuple("Tensor" if isinstance(x, Tensor) else type(x).__name__ for x in sample.args), tuple(sorted(sample.kwargs))
