"""Writes that autograd does not see, by `.data`, `detach()` or with grad mode off: the values change, and no history does."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import dovetail

BASES = {
    "created": lambda x: torch.zeros(3, 4),
    "computed": lambda x: x * 2,
    "of an argument": lambda x: x.detach() * 2,
    "written before": lambda x: torch.zeros(3, 4).copy_(x),
    "part written before": lambda x: torch.zeros(3, 4).index_put_((torch.tensor([0]),), x[:1]),
}
VIEWS = {
    "whole": lambda k: k,
    "row": lambda k: k[1],
    "columns": lambda k: k[:, 1:3],
    "transposed": lambda k: k.t()[2],
    "diagonal": lambda k: k.diagonal(),
    "flat": lambda k: k.view(-1)[2:9:2],
}


def by_data(k, view, write):
    write(view(k.data))


def by_detach(k, view, write):
    write(view(k).detach())


def by_mode(k, view, write):
    with torch.no_grad():
        write(view(k))


WRITES = {
    "copies": lambda part, x: part.copy_(torch.tanh(x).flatten()[: part.numel()].view(part.shape)),
    "adds": lambda part, x: part.add_(x.sum()),
    "multiplies": lambda part, x: part.mul_(x[0, 0]),
    "fills": lambda part, x: part.zero_(),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("way", [by_data, by_detach, by_mode], ids=lambda way: way.__name__)
def test_an_unseen_write_changes_no_history(base, way):
    for view, write in product(VIEWS.values(), WRITES.values()):
        check(BASES[base], way, view, write)


def check(base, way, view, write):
    def program(x):
        k = base(x)
        row = k[1]
        way(k, view, lambda part: write(part, x))
        return k, (k * k.detach()).sum() + (x * row.detach()).sum() + 3 * row.sum()

    x = torch.randn(3, 4, requires_grad=True)
    (expected, loss), (actual, our_loss) = program(x), dovetail.jit(program, executors=["torch"])(x)
    assert actual.requires_grad == expected.requires_grad
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(torch.autograd.grad(our_loss, x), torch.autograd.grad(loss, x))


class Assign(torch.autograd.Function):
    """`scratch` with `value` at an index, as solvers keep the stages of a step; no write of it is seen by autograd."""

    @staticmethod
    def forward(ctx, scratch, value, index):
        ctx.index = index
        scratch.data[index] = value
        return scratch

    @staticmethod
    def backward(ctx, g):
        return g, g[ctx.index], None


@pytest.mark.parametrize("executors", [None, ["torch"]], ids=["default", "torch"])
def test_a_function_that_assigns_to_the_data_of_its_argument(executors):
    def program(x, w):
        stages, y = torch.empty(2, 3), x[0]
        for i in range(3):
            stages = Assign.apply(stages, torch.tanh(y @ w), (..., i))
            y = y + (stages[..., : i + 1] * w[0, 0]).sum(-1)
        return y.square().sum()

    compiled = dovetail.jit(program, executors=executors)
    for _ in range(2):
        x, w = torch.randn(3, 2, requires_grad=True), torch.randn(2, 2, requires_grad=True)
        expected, actual = program(x, w), compiled(x, w)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(torch.autograd.grad(actual, (x, w)), torch.autograd.grad(expected, (x, w)))
