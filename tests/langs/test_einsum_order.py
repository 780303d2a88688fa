"""The order in which einsum contracts three and more operands: that of opt_einsum where it is installed, and it decides the layout of the result."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dovetail

EQUATIONS = {
    "b,cs,sbf->cbf": ((2,), (3, 7), (7, 2, 4)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)),
    "ij,jk,kl->li": ((2, 3), (3, 4), (4, 5)),
    "...i,oij,...j->...o": ((5, 2), (3, 2, 4), (5, 4)),
    "a,ab,bc,cd->da": ((2,), (2, 3), (3, 4), (4, 5)),
}


def from_the_right(equation: str, *operands: Any, **options: Any) -> tuple[list[tuple[int, int]], str]:
    """Stand in for opt_einsum.contract_path."""
    return [(n - 2, n - 1) for n in range(len(operands), 1, -1)], ""


def from_both_ends(equation: str, *operands: Any, **options: Any) -> tuple[list[tuple[int, int]], str]:
    """Contract the first and the last one."""
    return [(0, n - 1) for n in range(len(operands), 1, -1)], ""


@pytest.mark.parametrize("contract_path", [from_the_right, from_both_ends])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_has_the_order_and_the_layout_of_opt_einsum(equation: str, contract_path, monkeypatch) -> None:
    module = SimpleNamespace(contract_path=contract_path)
    optimizer = SimpleNamespace(enabled=True, strategy="auto", is_available=lambda: True, get_opt_einsum=lambda: module)
    monkeypatch.setattr(torch.backends, "opt_einsum", optimizer)

    def rows(mask: torch.Tensor, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = torch.einsum(equation, *operands)
        return product, product[0][mask] * 2, product.sum(-1)

    compiled = dovetail.jit(rows)
    for seed in range(3):
        torch.manual_seed(seed)
        operands = [torch.randn(shape) for shape in EQUATIONS[equation]]
        mask = torch.rand(torch.einsum(equation, *operands).shape[1]) > 0.3
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as where a kernel disagrees with the reference
            results = compiled(mask, *operands)
        for ours, theirs in zip(results, rows(mask, *operands), strict=True):
            torch.testing.assert_close(ours, theirs)
            assert ours.stride() == theirs.stride()
