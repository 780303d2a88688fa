"""Which samples of an operation level quick runs: each layout and style with its first dtype, a share of all with each of the others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from dovetail_conformance.layout import layout_of, overlaps

if TYPE_CHECKING:
    from dovetail_conformance.case import Case

SMALL, DEALT = 24, 1  # elements of a plain sample, of which finite differences can be taken; samples dealt to a dtype besides it


def covering(cases: Sequence[Case]) -> list[Case]:
    """Choose cases so that each layout and each style of arguments comes once: the one that adds two of them, else the first that adds one."""
    pairs = [(("layout", _layout(case)), ("style", _style(case))) for case in cases]
    missing, chosen = {value for pair in pairs for value in pair}, []
    for wanted in (2, 1):
        for at, pair in enumerate(pairs):
            if len(missing.intersection(pair)) >= wanted:
                missing.difference_update(pair)
                chosen.append(at)
    return [cases[at] for at in sorted(chosen)]


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
