"""A compiled function against eager PyTorch: results, layouts, and the gradients of what requires them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import dovetail
from dovetail.extend import BoundSymbol
from dovetail.extend.advanced import Executor, checked


def leaves(nest: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(nest) if isinstance(x, torch.Tensor)]


def compiled(fn: Callable, ex: Executor) -> Callable:
    """`fn` with every result of the executors held to its contract."""
    return dovetail.jit(fn, executors=[ex, "torch"], passes=[checked])


def largest(x: torch.Tensor) -> float:
    """The largest absolute value, at least 1."""
    return max(1.0, x.float().abs().max().item()) if x.numel() else 1.0


def same_results(run: Callable, fn: Callable, *args: Any, tolerance: float = 1e-4) -> None:
    for got, want in zip(leaves(run(*args)), leaves(fn(*args)), strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * largest(want))
        assert got.stride() == want.stride() or 1 in got.shape or got.numel() == 0


def gradients(run: Callable, wanted: list[torch.Tensor], *args: Any) -> list[torch.Tensor]:
    """The gradients of `wanted` of a number made of every floating result."""
    results = [x for x in leaves(run(*args)) if x.is_floating_point()]
    return torch.autograd.grad(sum(x.float().square().mean() for x in results), wanted)


def same_gradients(run: Callable, fn: Callable, wanted: list[torch.Tensor], *args: Any, tolerance: float = 1e-4) -> None:
    for got, want in zip(gradients(run, wanted, *args), gradients(fn, wanted, *args), strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * largest(want))


def regions(run: Callable) -> list[BoundSymbol]:
    """The regions that the last call's programs run: the forward's, then the backward's."""
    traces = [dovetail.last_traces(run)[-2], *dovetail.last_backward_traces(run)[-2:-1]]  # before `checked` put itself around what runs
    return [line for trace in traces for line in trace.lines if line.symbol.module == "inductor"]
