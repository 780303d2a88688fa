"""Whole programs: chains, diamonds, views, mutation, several results; forward and backward, beside every other executor."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dovetail_conformance.draws import generator


@dataclass(frozen=True)
class Example:
    """A program and a function that creates its inputs; with `grad`, its gradients are compared, too."""

    fn: Callable[..., Any]
    inputs: Callable[[], list[Tensor]]
    grad: bool = True

    @property
    def name(self) -> str:
        return f"program.{self.fn.__name__}"

    @property
    def text(self) -> str:
        """The source of its body, for a script."""
        lines = inspect.getsource(self.fn).splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("def ")) + 1
        body = [line[4:] for line in lines[start:] if not line.strip().startswith('"""')]
        return "\n".join(body)


PROGRAMS: list[Example] = []


def example(*shapes: tuple[int, ...], grad: bool = True, positive: bool = False) -> Callable:
    """Return a decorator that makes an Example of a function with parameters x0, x1, ... of these shapes."""

    def make_inputs() -> list[Tensor]:
        inputs = generator(20)
        draw = torch.rand if positive else torch.randn
        return [draw(shape, generator=inputs) for shape in shapes]

    def wrap(fn: Callable) -> Callable:
        PROGRAMS.append(Example(fn, make_inputs, grad))
        return fn

    return wrap


@example((5, 7), (5, 7), (7,))
def chain(x0, x1, x2):
    """Elementwise operations one after the other, with a broadcast among them."""
    a = torch.tanh(x0 * x1 + x2)
    b = torch.sigmoid(a) - 0.5 * a
    return torch.exp(-b * b) + F.gelu(a)


@example((4, 6))
def diamond(x0):
    """A value with two uses that is also a result."""
    a = x0 * 2.0
    b, c = torch.sin(a), torch.cos(a)
    return a, b * c, b + c


@example((3, 5), (5,))
def several_results(x0, x1):
    """Results of several dtypes, one twice, one that is an input."""
    a = x0 * x1
    return a > 0, a, a.sum(), (a, x1), a.argmax(1)


@example((4, 8, 6), (6,), (6,))
def normalised(x0, x1, x2):
    """Two reductions over one axis, and their uses."""
    a = F.layer_norm(x0, (6,), x1, x2)
    return torch.softmax(a, -1) * a.mean(0)


@example((2, 5, 8), (8, 24), (8, 8))
def attention(x0, x1, x2):
    """Matrix products with reductions and views between them."""
    q, k, v = (x0 @ x1).chunk(3, -1)
    a = torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1)
    return (a @ v) @ x2


@example((6, 9), (4, 9))
def classified(x0, x1):
    """A loss with a gather in it."""
    logits = x0 @ x1.t()
    target = torch.arange(6, device=x0.device) % 4
    return F.cross_entropy(logits, target), logits.log_softmax(1)


@example((4, 6), grad=False)
def written_in_order(x0):
    """Reads before and after a write, which must keep their order."""
    a = x0 + 1.0
    before = a * 2.0
    a.mul_(3.0)
    between = a * 2.0
    a[1:3].add_(before[1:3])
    return before, between, a * 2.0


@example((3, 4), (3, 4), grad=False)
def input_written(x0, x1):
    """An input that is written and read again."""
    old = x0 * x1
    x0.add_(x1)
    return old, x0 * x1


@example((6, 4))
def through_views(x0):
    """Computation on transposed and strided views."""
    a = x0.t()[1:, ::2]
    b = (a * 2.0).reshape(-1)
    return b.view(3, 3).sum(0), torch.cat([a, a * a], 1)


@example((5, 6), (5, 1), (1, 6))
def broadcast_and_back(x0, x1, x2):
    """Broadcasting of size-1 dimensions, and sums over them."""
    a = x1 * x2 + x0
    return (a - a.mean(1, keepdim=True)).pow(2).sum(0) / a.shape[0], torch.where(a > 0, a, x1)


@example((4, 6))
def unused_and_constant(x0):
    """Dead code, a result without inputs, numbers among tensors."""
    _ = torch.exp(x0 * 100.0)
    return torch.ones(2, 3) * 2.5, x0.sum() * 0.25, 3


@example((4, 5))
def mixed_dtypes(x0):
    """Casts down and up, integers and booleans among them."""
    a = x0.to(torch.bfloat16).to(torch.float32)
    n = (x0 * 4.0).to(torch.int64)
    return a * n, (n % 3 == 0) & (x0 > 0), n.sum(0)
