"""A model and a compiled twin of it, run side by side from the same seeds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import zoo
from torch import Tensor, nn

import dovetail

SEED = 7


def inexact(nest: Any) -> list[Tensor]:
    """The floating tensors of a nest."""
    return [x for x in torch.utils._pytree.tree_leaves(nest) if isinstance(x, Tensor) and x.is_floating_point()]


@dataclass
class Twins:
    """`compiled` is made from `model`, `eager` is a copy of `model`; each has its own arguments."""

    model: nn.Module
    compiled: nn.Module
    eager: nn.Module
    args: tuple[Tensor, ...]
    eager_args: tuple[Tensor, ...]

    @classmethod
    def of(cls, model: nn.Module, *args: Tensor, dtype: torch.dtype = torch.float32) -> Twins:
        """Both in training mode and in `dtype`; floating arguments require grad."""
        model = (model.double() if dtype is torch.float64 else model).train()  # unlike to(dtype), double() leaves complex buffers alone
        given = [tuple(leaf(x, dtype) for x in args) for _ in range(2)]
        return cls(model, dovetail.jit(model), copy.deepcopy(model), *given)

    @classmethod
    def named(cls, name: str, dtype: torch.dtype = torch.float32) -> Twins:
        """Those of a case of the zoo."""
        model, args = zoo.cases()[name]
        return cls.of(model, *args, dtype=dtype)

    def sides(self) -> Iterator[tuple[Callable[[], Any], nn.Module]]:
        """For the compiled model and then the eager one: a call from the same seed, and whose parameters it uses."""
        yield lambda: seeded(self.compiled, self.args), self.model
        yield lambda: seeded(self.eager, self.eager_args), self.eager

    def backward(self) -> None:
        """One call and `loss.backward()` on each side."""
        for call, _ in self.sides():
            loss(call()).backward()

    def assert_alike(self, rtol: float) -> None:
        """Parameters, their gradients, buffers and the gradients of the arguments are equal to `rtol` of the largest element of each tensor."""
        pairs = (
            ("parameter", self.model.named_parameters(), self.eager.named_parameters()),
            ("buffer", self.model.named_buffers(), self.eager.named_buffers()),
        )
        gradients = [p.grad for p in self.eager.parameters() if p.grad is not None]
        largest = max([g.abs().max().item() for g in gradients if g.numel()], default=0.0)  # one that cancels is zero by the others' measure
        for what, ours, theirs in pairs:
            for (name, x), (_, y) in zip(ours, theirs, strict=True):
                close(x, y, rtol, f"{what} {name}")
                close(x.grad, y.grad, rtol, f"the gradient of {what} {name}", least=largest)
        for i, (x, y) in enumerate(zip(self.args, self.eager_args, strict=True)):
            close(x.grad, y.grad, rtol, f"the gradient of argument {i}")


def leaf(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.detach().to(dtype).clone().requires_grad_() if x.is_floating_point() else x.clone()


def seeded(fn: Callable, args: tuple) -> Any:
    torch.manual_seed(SEED)
    return fn(*args)


def loss(result: Any) -> Tensor:
    """What a model is trained by here: its own loss where it has one."""
    if isinstance(result, tuple) and result[-1] is not None and result[-1].ndim == 0:
        return result[-1]
    return sum(x.square().mean() + x.sin().mean() for x in inexact(result))


def close(x: Tensor | None, y: Tensor | None, rtol: float, what: str, *, strides: bool = True, least: float = 0.0) -> None:
    """x is y to `rtol` of the largest element of y, or of `least`, with the same shape, dtype and strides; or both are None.

    With `strides` False they may be laid out as they like.
    """
    assert (x is None) == (y is None), f"{what}: one is None"
    if y is not None:
        atol = rtol * max(y.abs().max().item(), least) if y.numel() else 0.0
        torch.testing.assert_close(x, y, rtol=rtol, atol=atol, check_stride=strides, msg=lambda message: f"{what}: {message}")
