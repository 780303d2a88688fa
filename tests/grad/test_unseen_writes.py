"""Writes that autograd does not see, by `.data`, `detach()`, bytes or with grad mode off: the values change, and no history does."""

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


def by_bytes(k, view, write):
    write(view(k.view(torch.complex64).view(torch.float32)))


WRITES = {
    "copies": lambda part, x: part.copy_(torch.tanh(x).flatten()[: part.numel()].view(part.shape)),
    "adds": lambda part, x: part.add_(x.sum()),
    "multiplies": lambda part, x: part.mul_(x[0, 0]),
    "fills": lambda part, x: part.zero_(),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("way", [by_data, by_detach, by_mode, by_bytes], ids=lambda way: way.__name__)
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


def added_later(x, w):
    with torch.no_grad():
        y = x * w
    y.add_(w)
    return y.square().sum()


def row_added_later(x, w):
    with torch.no_grad():
        y = x * w
    y[0].add_(w[1])
    return (y * x.sum()).square().sum()


def gradient_changed(x, w):
    (g,) = torch.autograd.grad((x * w).square().sum(), x)
    g.add_(w)
    return (g * x).sum()


def followed_by_a_gradient(x, w):
    y = x * 1.5
    y.detach().mul_(2.0)
    (g,) = torch.autograd.grad((x * w).square().sum(), w)
    return (y * g).sum()


def filled_behind_a_view(x, w):
    y = x * w
    y.data[0] = x[1]
    y.t().fill_(0.5)
    return (y * x).sum()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.mark_dirty(a)
        return a.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


def doubled_before_a_gradient(x, w):
    y = Doubled.apply(x * w)
    (g,) = torch.autograd.grad((x * w).square().sum(), w)
    return (y * g).sum()


@pytest.mark.parametrize(
    "program", [added_later, row_added_later, gradient_changed, followed_by_a_gradient, filled_behind_a_view, doubled_before_a_gradient]
)
def test_history_begins_where_eager_mode_begins_it(program):
    compiled = dovetail.jit(program)
    for _ in range(2):
        x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
        expected, actual = program(x, w), compiled(x, w)
        assert actual.requires_grad == expected.requires_grad
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(torch.autograd.grad(actual, (x, w), allow_unused=True), torch.autograd.grad(expected, (x, w), allow_unused=True))


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_a_result_that_is_an_argument_is_not_written_beside_it():
    def program(x):
        y = x * 2
        same = Same.apply(y)
        same.data.add_(1)
        return y + same

    with pytest.raises(dovetail.errors.Unsupported, match=r"returned its argument or a view of it.*x\.clone\(\)"):
        dovetail.jit(program)(torch.ones(3, requires_grad=True))


def detached_written(x):
    y = (x * 2).detach()
    y[0] = x[0]
    return y, y[1:], y * x


def rows_of_data(x):
    y = torch.zeros(4, 3).data
    for t in range(3):
        y[t + 1] = y[t] * 0.5 + x[t]
    return y


def written_under_it(x):
    z = x * 2
    y = z.detach()
    y[0] = x[0]
    z.add_(1)
    return y, z


def of_an_odd_layout(x):
    y = (x * 2).t()[::2].detach()
    y[0] = x[:, 0]
    return y, y[:, 1:]


def filled_at_last(x):
    y = (x * 2).detach()
    y.copy_(x)
    y.zero_()
    return y


def differentiated_inside(x):
    y = (x * 2).detach()
    y[0] = x[0]
    (g,) = torch.autograd.grad((y * x).sum(), x, retain_graph=True)
    y[1] = x[1] * g[0]
    return g, y


def decided(x):
    y = (x * 2).detach()
    y[0] = x[0]
    if y.sum() > 0:
        y[1] = x[1] * 2
    return y


WRITTEN_APART = [
    lambda x: torch.zeros(4, 3).detach().copy_(x),
    lambda x: torch.zeros(4, 3).data.add_(x),
    lambda x: torch.zeros(4, 12, dtype=torch.uint8).view(torch.float32).copy_(x),
    *(detached_written, rows_of_data, written_under_it, of_an_odd_layout, filled_at_last, differentiated_inside, decided),
]


@pytest.mark.parametrize("program", WRITTEN_APART)
def test_a_view_without_history_gets_that_of_what_is_written(program):
    ours, theirs = torch.ones(4, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    for actual, expected in zip(*map(torch.utils._pytree.tree_leaves, (dovetail.jit(program)(ours), program(theirs))), strict=True):
        torch.testing.assert_close(actual, expected)
        assert actual.requires_grad == expected.requires_grad
        if expected.requires_grad:
            torch.testing.assert_close(gradient(actual, ours), gradient(expected, theirs))


def gradient(y, x):
    (g,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True, allow_unused=True)
    return torch.zeros_like(x) if g is None else g
