"""Branches on values that ranks have computed together: compiled functions run as eager mode does."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, distributed

import dovetail
from dovetail_conformance.ranks import Ranks

pytestmark = pytest.mark.xdist_group("distributed")


def step(weight: Tensor, x: Tensor) -> Tensor | None:
    """Descend unless the mean loss of all ranks is small enough."""
    loss = (x @ weight - 1).square().mean()
    total = loss.detach().clone()
    distributed.all_reduce(total)
    if total < 0.5:
        return None
    (grad,) = torch.autograd.grad(loss, weight)
    distributed.all_reduce(grad)
    with torch.no_grad():
        weight -= 0.02 * grad
    return total


def stopped_early() -> list[tuple[list[float], list[float], list[str]]]:
    """Train until the loss is small, compiled and in eager mode; return the losses, the weights and the warnings of both."""
    rows = []
    for fn in (dovetail.jit(step), step):
        weight, losses = torch.zeros(2, requires_grad=True), []
        x = torch.tensor([[1.0, 0.5], [0.5, 1.0]]) * (1 + distributed.get_rank())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            while (total := fn(weight, x)) is not None:
                losses.append(total.item())
        rows.append((losses, weight.tolist(), [str(each.message) for each in caught]))
    return rows


def test_a_loop_stops_early_by_a_reduced_loss(two: Ranks) -> None:
    for (losses, weight, told), expected in two.run(stopped_early):
        assert (losses, weight, []) == expected and len(losses) > 1
        assert len(told) == 1 and "it runs eagerly, since dist.all_reduce has an effect of its own before the value at" in told[0]
