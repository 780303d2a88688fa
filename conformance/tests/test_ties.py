"""Which of equal elements comes first is undetermined, unless a sort is stable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dovetail.extend import OperatorExecutor
from dovetail_conformance import SampleInput, check
from dovetail_conformance.plan import opinfos
from dovetail_conformance.ties import settled

X = torch.tensor([[2.0, 1.0, 1.0, float("nan"), float("nan")]])
SORTED = torch.sort(X)[0]


def sort_settled(positions: list[int], **kwargs: Any) -> list[int]:
    """Return the positions of a sort of X that are compared with those of eager, [1, 2, 0, 3, 4]."""
    ours, theirs = (SORTED, torch.tensor([positions])), (SORTED, torch.tensor([[1, 2, 0, 3, 4]]))
    return list(settled(opinfos()["torch.sort"], SampleInput((X,), kwargs), ours, theirs, [X]))[1].tolist()[0]


def test_equal_elements_may_come_in_any_order() -> None:
    assert sort_settled([2, 1, 0, 4, 3]) == [1, 2, 0, 3, 4]


@pytest.mark.parametrize("positions", [[0, 2, 1, 3, 4], [1, 1, 0, 3, 4], [1, 2, 0, 3, 5]], ids=["another element", "twice", "out of bounds"])
def test_a_wrong_position_stays_wrong(positions: list[int]) -> None:
    assert sort_settled(positions) != [1, 2, 0, 3, 4]


def test_a_stable_sort_keeps_their_order() -> None:
    assert sort_settled([2, 1, 0, 3, 4], stable=True) == [2, 1, 0, 3, 4]


def stable_sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Tensor, ...]:
    return tuple(torch.sort(input, dim=dim, descending=descending, stable=True))


def unstable_sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Tensor, ...]:
    values, positions = torch.sort(input.flip(dim) if input.ndim else input, dim=dim, descending=descending, stable=True)
    return values, input.shape[dim] - 1 - positions if input.ndim else positions


@pytest.mark.slow  # level core of an operation takes seconds
@pytest.mark.parametrize(("fn", "right"), [(stable_sort, True), (unstable_sort, False)])
def test_a_sort_that_is_always_stable_is_right_and_one_that_never_is_is_wrong(fn: Callable, right: bool) -> None:
    ex = OperatorExecutor("sorting", dtypes=["float32"])
    ex.implements("torch.sort", fn, name="sort")

    report = check(ex, operations=["torch.sort"], devices=["cpu"], level="core")

    assert (not report.failures) == right, [row.message for row in report.failures[:1]]
