"""Backwards of torch.autograd.Function that cannot be traced are left to eager autograd."""

from __future__ import annotations

import random
import warnings
from types import SimpleNamespace

import numpy
import pytest
import torch

import dovetail
from dovetail.errors import Unsupported


class ByValues(torch.autograd.Function):
    """Branches on what it saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 if x.sum() > 0 else -g


class ByCotangent(torch.autograd.Function):
    """Branches on what it is given."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.cos() if g.sum() > 0 else g


LOG = []
WEIGHT = torch.tensor(2.0)


class Logged(torch.autograd.Function):
    """Writes to a list outside in both directions."""

    @staticmethod
    def forward(ctx, x):
        LOG.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        LOG.append("backward")
        return g


class LoggedLater(torch.autograd.Function):
    """Writes to a list outside in its backward, and reads a tensor that it has not saved."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        LOG.append("backward")
        return g * WEIGHT


@pytest.mark.parametrize("function", [ByValues, ByCotangent, Logged, LoggedLater])
def test_what_cannot_be_traced_is_left_to_autograd(function):
    def program(x):
        return function.apply(function.apply(x.sin()).exp() * 2).sum()

    results = []
    for fn in (program, dovetail.jit(program)):
        LOG.clear()
        seen = []
        for value in (1.0, -1.0, 2.0, -0.5):
            x = torch.full((3,), value, requires_grad=True)
            out = fn(x)
            LOG.append("between")
            (out * value).backward()
            seen.append((out, x.grad))
        with torch.no_grad():
            seen.append((fn(x), None))
        results.append((seen, list(LOG)))

    torch.testing.assert_close(results[1][0], results[0][0])
    assert results[1][1] == results[0][1]


def test_a_function_that_is_left_to_autograd_lies_between_two_segments():
    fast = dovetail.jit(lambda x: ByValues.apply(x.sin() * 2).exp().sum())
    for value in (1.0, -1.0):
        fast(torch.full((3,), value, requires_grad=True)).backward()

    assert fast.cache_info().segments == 2


def test_a_backward_that_raises_does_so_when_it_runs():
    class Raising(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no gradient")

    out = dovetail.jit(lambda x: Raising.apply(x).sum())(torch.ones(2, requires_grad=True))

    with pytest.raises(ValueError, match="no gradient"):
        out.backward()


def test_a_backward_that_cannot_be_traced_is_refused_without_decisions():
    with pytest.raises(Unsupported, match="no gradient"):
        dovetail.jit(lambda x: Refusing.apply(x).sum(), decisions="error")(torch.ones(2, requires_grad=True))


class Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no gradient")


class Settings:
    scale = 2.0


class Scaled(torch.autograd.Function):
    """Reads an attribute in its backward."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * Settings.scale


def test_what_a_backward_reads_may_not_change_before_it_runs(monkeypatch):
    fast = dovetail.jit(lambda x: Scaled.apply(x).sum())
    for scale in (2.0, 3.0):
        monkeypatch.setattr(Settings, "scale", scale)
        x = torch.ones(2, requires_grad=True)
        fast(x).backward()
        torch.testing.assert_close(x.grad, torch.full((2,), scale))

    out = fast(x)
    monkeypatch.setattr(Settings, "scale", 4.0)
    with pytest.raises(RuntimeError, match=r"scale is no longer 3\.0.*keep in ctx what the backward needs"):
        out.backward()


class Held(torch.autograd.Function):
    """Keeps an argument in its context, and reads it in its backward."""

    @staticmethod
    def forward(ctx, x, held):
        ctx.held = held
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * (sum(ctx.held) if isinstance(ctx.held, list) else ctx.held.scale), None


@pytest.mark.parametrize("kind", ["list", "object"])
def test_an_argument_may_change_before_a_backward_reads_it(kind):
    fast = dovetail.jit(lambda x, held: Held.apply(x, held).sum())
    for before, after in ((1.0, 1.0), (1.0, 3.0), (2.0, 2.0)):
        held = [before] if kind == "list" else SimpleNamespace(scale=before)
        x = torch.ones(2, requires_grad=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "calls of Held.apply")
            out = fast(x, held)
        if kind == "list":
            held[0] = after
        else:
            held.scale = after
        out.backward()
        torch.testing.assert_close(x.grad, torch.full((2,), after))


TABLE = {"scale": 2.0}


class OfTable(torch.autograd.Function):
    """Reads a dict outside in its backward."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * TABLE["scale"]


def test_a_dict_may_change_before_a_backward_reads_it(monkeypatch):
    fast = dovetail.jit(lambda x: OfTable.apply(x.exp()).sum())
    for scale in (2.0, 3.0):
        x = torch.zeros(2, requires_grad=True)
        out = fast(x)
        monkeypatch.setitem(TABLE, "scale", scale)
        out.backward()
        torch.testing.assert_close(x.grad, torch.full((2,), scale))


class Layer(torch.nn.Module):
    """Passes itself to a Function."""

    scale = 3.0

    def forward(self, x):
        return Held.apply(x, self)


def test_a_context_holds_a_module():
    x = torch.ones(2, requires_grad=True)
    dovetail.jit(Layer())(x).sum().backward()

    torch.testing.assert_close(x.grad, torch.full((2,), 3.0))


class Counting(torch.autograd.Function):
    """A backward that counts in a tensor from outside, without a look at the gradient."""

    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.count.mul_(3).add_(1)
        return g * 2, None


class Adding(Counting):
    """A backward that adds gradients up in a view of a tensor from outside."""

    @staticmethod
    def backward(ctx, g):
        ctx.count[:1].mul_(3).add_(g[:1])
        return g * 2, None


class Filling(Counting):
    """A backward that has an operation write its result into a tensor from outside, which its forward has written into."""

    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        torch.add(ctx.count, 1, out=ctx.count)
        return g * 2, None


@pytest.mark.filterwarnings("ignore:calls of Filling")
@pytest.mark.parametrize("function", [Counting, Adding, Filling])
def test_a_backward_writes_when_it_runs(function):
    def program(x, count):
        return function.apply(x, count).sin()

    histories = []
    for call in (dovetail.jit(program), program):
        x, count = torch.ones(2, requires_grad=True), torch.ones(2)
        losses = [call(x, count).sum() for _ in range(2)]
        history = [count.clone()]
        for loss in losses:
            loss.backward()
            history += [count.clone(), x.grad.clone()]
        histories.append(history)
    torch.testing.assert_close(*histories)


def test_a_backward_inside_the_program_writes_in_its_place():
    def program(x, count):
        count.add_(1)
        Counting.apply(x, count).sum().backward()
        return count * 10

    results = []
    for call in (dovetail.jit(program), program):
        x, count = torch.ones(2, requires_grad=True), torch.ones(2)
        results.append((call(x, count).tolist(), call(x, count).tolist(), count.tolist(), x.grad.tolist()))
    assert results[0] == results[1]


class Noisy(torch.autograd.Function):
    """Draws in its forward, and branches on values in its backward."""

    @staticmethod
    def forward(ctx, x, draw):
        ctx.save_for_backward(noise := draw(x))
        return x * noise

    @staticmethod
    def backward(ctx, g):
        (noise,) = ctx.saved_tensors
        return (g * noise if noise.sum() > -100 else g), None


@pytest.mark.parametrize(
    "draw",
    [torch.rand_like, lambda x: torch.full_like(x, random.random()), lambda x: torch.full_like(x, numpy.random.rand())],
    ids=["torch", "random", "numpy"],
)
def test_a_call_that_starts_again_draws_the_same_numbers(draw):
    def program(x):
        return Noisy.apply(x.sin(), draw).exp()

    results = []
    for fn in (program, dovetail.jit(program)):
        seen = []
        for rows in (2, 3, 2, 4):  # the third call begins without symbols for the rows, and starts again with them
            torch.manual_seed(rows), random.seed(rows), numpy.random.seed(rows)
            x = torch.ones(rows, 3, requires_grad=True)
            out = fn(x)
            out.sum().backward()
            seen.append((out, x.grad, torch.rand(1), random.random(), numpy.random.rand()))
        results.append(seen)

    torch.testing.assert_close(results[1], results[0])
