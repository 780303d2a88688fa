"""Faults that only some data show: trials catch each in the call that shows it, and its results are right."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from stand_ins import F, Pointwise, of

import dovetail
from dovetail import prims
from dovetail.extend import OperatorExecutor, get_grad, put_grad

pytestmark = pytest.mark.usefixtures("folder")


class Fault(NamedTuple):
    """A wrong kernel of an operation, arguments that do not show it, and arguments that do."""

    operation: Callable
    fn: Callable
    ordinary: Callable[[], Any]
    telling: Callable[[], Any]


def without_tail(input):
    out = torch.sin(input)
    out.view(-1)[out.numel() - out.numel() % 8 :] = 0
    return out


def as_contiguous(input):
    return torch.sin(input.as_strided(input.shape, torch.empty(input.shape).stride()))


def last_of_ties(input, dim=None, keepdim=False):
    return input.shape[dim] - 1 - input.flip(dim).argmax(dim)


def by_address(kept={}):  # noqa: B006, the default is the cache
    return lambda input: kept.setdefault(input.data_ptr(), torch.sin(input)).clone()


def in_half(input):
    return torch.sin(input.half().float()) if input.abs().max() > 100 else torch.sin(input)


BUFFER = torch.ones(300)
FAULTS = {
    "the last elements": Fault(torch.sin, without_tail, lambda: torch.randn(1000), lambda: torch.randn(1003)),
    "values of 1e-7": Fault(
        torch.sin, lambda input: torch.sin(input) * (1 + 0.05 * (input.abs() < 1e-5)), *(lambda n=n: torch.rand(500) * n + n for n in (1.0, 1e-7))
    ),
    "values of 1e-9 in float64": Fault(
        torch.sin,
        lambda input: torch.sin(input) * (1 + 1e-4 * (input.abs() < 1e-5)),
        *(lambda n=n: (torch.rand(500) * n + n).double() for n in (1.0, 1e-9)),
    ),
    "NaN": Fault(torch.sin, lambda input: torch.sin(input.nan_to_num()), lambda: torch.randn(500), lambda: torch.tensor([1.0, torch.nan])),
    "infinity": Fault(torch.exp, lambda input: torch.exp(input).clamp(max=3.4e38), lambda: torch.randn(100), lambda: torch.randn(100) * 90),
    "a transposed input": Fault(torch.sin, as_contiguous, lambda: torch.randn(30, 40), lambda: torch.randn(40, 30).t()),
    "new data in the same memory": Fault(torch.sin, by_address(), lambda: BUFFER, lambda: BUFFER.normal_()),
    "large integers": Fault(
        torch.mul, lambda input, other: torch.mul(input.float(), other).long(), *(lambda n=n: (torch.randint(n, (100,)), 3) for n in (9, 1 << 40))
    ),
    "ties": Fault(torch.argmax, last_of_ties, lambda: (torch.randn(50, 60), 1), lambda: (torch.randint(4, (50, 60)).float(), 1)),
    "overflow in softmax": Fault(
        F.softmax,
        lambda input, dim=None, **_: input.exp() / input.exp().sum(dim, keepdim=True),
        *(lambda n=n: (torch.randn(40, 50) * n, -1) for n in (1, 100)),
    ),
    "a divisor": Fault(
        torch.mean,
        lambda input, dim=None, **_: input.sum(dim) / max(input.shape[dim] - 1, 2),
        *(lambda n=n: (torch.randn(30, n), 1) for n in (2, 1000)),
    ),
    "wrap-around": Fault(
        torch.add,
        lambda input, other, **_: (input.int() + other).clamp(max=255).byte(),
        *(lambda n=n: (torch.arange(n).byte(), 200) for n in (50, 255)),
    ),
    "one large number": Fault(torch.sin, in_half, lambda: torch.randn(100), lambda: torch.cat([torch.randn(100), torch.tensor([1000.0])])),
    "its own argument": Fault(
        torch.relu, lambda input: input if bool((input >= 0).all()) else torch.relu(input), lambda: torch.randn(100), lambda: torch.rand(100)
    ),
}


def arguments(make):
    values = make()
    return values if isinstance(values, tuple) else (values,)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_some_data_show_is_caught(name):
    operation, kernel, ordinary, telling = FAULTS[name]
    fn = dovetail.jit(lambda *args: operation(*args), executors=[of("own", operation, kernel)])
    args = arguments(ordinary)
    torch.testing.assert_close(fn(*args), operation(*args))
    args = arguments(telling)
    expected = operation(*args)
    with pytest.warns(dovetail.DisagreementWarning):
        got = fn(*args)
    torch.testing.assert_close(got, expected, rtol=1e-6 if expected.is_floating_point() else 0, atol=0, equal_nan=True)


# Rules of an executor's own


def ruled(backward, forward=torch.mul):
    """An executor of torch.mul with a grad rule that runs an operation of its own."""
    own = OperatorExecutor("own")
    times = own.operation("times", backward, meta=lambda g, x: g, replace=True)

    def rule(input, other):
        out = torch.mul(input, other)
        g = get_grad(out)
        put_grad(input, times(g, other))
        put_grad(other, times(g, input))
        return out

    own.implements(torch.mul, forward, grad=rule)
    return own


class Kept:
    """Computes twice, for the two arguments, and returns these results from then on."""

    def __init__(self):
        self.results, self.calls = [], 0

    def __call__(self, g, x):
        self.calls += 1
        if len(self.results) < 2:
            self.results.append(g * x)
        return self.results[self.calls % 2 - 1].clone()


def race():
    generator = torch.Generator().manual_seed(3)
    return lambda g, x: g * x + (torch.rand((), generator=generator) < 1 / 3)


RULES = {
    "from an earlier call": (Kept, 1.0),
    "off where they are small": (lambda: lambda g, x: g * x * 1.02, 1e-7),
    "without their cotangent": (lambda: lambda g, x: x.clone(), 1.0),
    "in bfloat16": (lambda: lambda g, x: (g.bfloat16() * x).float(), 1.0),
    "wrong in a third of the calls": (race, 1.0),
    "wrong where their cotangent is 0": (lambda: lambda g, x: torch.where(g == 0, x, g * x), 1.0),
}


@pytest.mark.parametrize("name", RULES)
def test_gradients_of_an_own_rule_are_caught_in_the_first_call(name):
    make, scale = RULES[name]
    fn = dovetail.jit(lambda a, b: torch.mul(a, b), executors=[ruled(make())])
    with pytest.warns(dovetail.DisagreementWarning) as warned:
        for _ in range(2):
            a, b = ((torch.rand(50) * scale + scale).requires_grad_() for _ in range(2))
            fn(a, b).mean().backward()
            torch.testing.assert_close(a.grad, b.detach() / 50, atol=0, rtol=1e-5)
            torch.testing.assert_close(b.grad, a.detach() / 50, atol=0, rtol=1e-5)
    assert len(warned) == 1


def test_the_forward_of_an_own_rule_is_tried_besides():
    own = ruled(lambda g, x: g * x, lambda input, other: torch.mul(input, other) * 1.01)
    a, b = (torch.randn(50, requires_grad=True) for _ in range(2))
    with pytest.warns(dovetail.DisagreementWarning, match=r"own disagrees with the reference in torch\.mul"):
        assert torch.equal(dovetail.jit(torch.mul, executors=[own])(a, b), a * b)


@pytest.mark.parametrize("kind", ["operator", "region"])
def test_small_gradients_are_tried(kind):
    class Off(Pointwise):
        def fuse(self, region):
            run = super().fuse(region)
            return lambda *inputs: tuple(x * 1.02 if x.abs().max() < 1e-3 else x for x in run(*inputs))

    own = Off("own") if kind == "region" else of("own", prims.mul, lambda x, y: torch.mul(x, y) * (1.02 if float(x.abs().max()) < 1e-3 else 1))
    fn = dovetail.jit(lambda x: torch.sin(x), executors=[own])
    x = torch.randn(100_000, requires_grad=True)
    with pytest.warns(dovetail.DisagreementWarning):
        fn(x).mean().backward()
    torch.testing.assert_close(x.grad, torch.cos(x.detach()) / 100_000, atol=0, rtol=1e-5)


def test_cancellation_is_no_disagreement():
    def other_order(input, dim=None, **_):
        wide = input.float() if input.dtype is torch.bfloat16 else input
        return wide.view(9, 16, -1).cumsum(2)[..., -1].sum(1).to(input.dtype)

    for seed in range(5):
        torch.manual_seed(seed)
        fn = dovetail.jit(lambda x: torch.sum(x, 1), executors=[of("own", torch.sum, other_order)])
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = torch.randn(9, 3000, dtype=dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("error", dovetail.DisagreementWarning)
                fn(torch.cat([x, -x.roll(1, 1), x.roll(2, 1), -x], 1))


@pytest.mark.parametrize("shape", [(8, 640), (32, 640), (1000, 64)], ids=str)
def test_the_mean_of_centred_data_is_no_disagreement(shape):
    for seed in range(3):
        torch.manual_seed(seed)
        fn = dovetail.jit(torch.nn.BatchNorm1d(shape[1]))
        x = torch.randn(shape, dtype=torch.float64)
        x = (x - x.mean(0)).float().requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("error", dovetail.DisagreementWarning)
            fn(x).square().mean().backward()


def test_a_mean_that_is_off_by_a_millionth_of_the_data_is_caught():
    def off(input, dims, correction):
        variance, mean = torch.var_mean(input, dims, correction=correction)
        return variance, mean + 2e-6

    fn = dovetail.jit(lambda x: prims.var_mean(x, dims=(0,), correction=0), executors=[of("own", prims.var_mean, off)])
    x = torch.randn(1000, 64)
    with pytest.warns(dovetail.DisagreementWarning):
        _, mean = fn(x - x.mean(0))
    assert mean.abs().max() < 1e-6
