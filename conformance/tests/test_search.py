"""The search finds an error that no sample shows, and says at which input; a right kernel is not accused."""

from __future__ import annotations

import pytest
import torch

from dovetail_conformance import check
from dovetail_conformance.broken import running


def growing(x: torch.Tensor) -> torch.Tensor:
    """A sine whose error grows beside a value that no sample holds."""
    return torch.sin(x) * (1 + 3e-7 * torch.exp(-((x.abs() - 7) ** 2)).to(x.dtype) * 40)


@pytest.mark.parametrize(("kernel", "wrong"), [(growing, True), (torch.sin, False)], ids=["wrong", "right"])
def test_what_is_wrong_near_one_value_is_found(kernel, wrong: bool) -> None:
    report = check(running(kernel), operations=["torch.sin"], checks=["search"], dtypes=["float32"], devices=["cpu"], level="full")

    (row,) = [row for row in report if row.check == "search"]
    assert row.failed == wrong, row.message
    assert not wrong or "found by search with seed 0, at " in row.message
