"""Faults of a stranger's executor that depend on sizes, threads, layouts, memory, or on which gradients are asked for."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from stand_ins import F, Pointwise, of

import dovetail
from dovetail.extend import OperatorExecutor, get_grad, put_grad
from dovetail.extend.advanced import requires_grad

pytestmark = pytest.mark.usefixtures("folder")


class Fault(NamedTuple):
    """A wrong kernel of an operation, and the arguments of the first and of the second call."""

    operation: Callable
    kernel: Callable
    first: Callable[[], tuple]
    second: Callable[[], tuple]


def odd_rows(input, dim, **_):
    """Handles rows by pairs: the last of an odd number has the values of the one before."""
    out = F.softmax(input, dim)
    if len(out) % 2:
        out[-1] = out[-2]
    return out


def on_another_thread(input):
    """Computes its second half on a thread of its own, in another mode: halves are rounded to bfloat16 there."""
    out = torch.empty_like(input)
    half = len(input) // 2
    work = threading.Thread(target=lambda: out[half:].copy_(torch.sin(input[half:]).bfloat16()))
    work.start()
    out[:half] = torch.sin(input[:half])
    work.join()
    return out


def on_the_second_thread():
    """Right on the thread that it ran first on."""
    home = []

    def sin(input):
        home[:] = home or [threading.get_ident()]
        return torch.sin(input) if threading.get_ident() == home[0] else torch.sin(input) + 1

    return sin


def running_sum(input, dim=None, **_):
    """Adds up in bfloat16, eight numbers at a time."""
    out = torch.zeros(input.shape[0], dtype=torch.bfloat16)
    for part in input.split(8, 1):
        out += part.sum(1).bfloat16()
    return out.to(input.dtype)


def without_nan(input, dim=None, **_):
    return input.nan_to_num(-torch.inf).amax(dim)


def in_rows(input):
    """Reads the memory of its argument in order, whatever its strides."""
    return torch.exp(torch.as_strided(input, input.shape, torch.empty(input.shape).stride()))


def as_int32(input, other):
    return (input.int() * other.int()).long()


def beyond_its_result(input):
    """Writes one element more than its result has, into what lies behind its argument's last."""
    out = torch.cos(input)
    torch.as_strided(input, (input.storage_offset() + input.numel() + 1,), (1,), 0)[-1:] = 7.0
    return out


def before_the_shift(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """E(x**2) - E(x)**2, which cancels far from 0."""
    mean = input.mean(-1, keepdim=True)
    return (input - mean) * (input.square().mean(-1, keepdim=True) - mean.square() + eps).rsqrt() * weight + bias


def by_count(start):
    """Wrong from some call on."""
    calls = [0]

    def fault(input):
        calls[0] += 1
        return torch.sin(input) + (calls[0] > start)

    return fault


def halved_rounding(input):
    return torch.trunc(input + 0.5 * input.sign())


def first_index(input, dim=None):
    return torch.argmax(input.nan_to_num(0.0), dim)


def clamped_index(input, weight, *rest, **_):
    return F.embedding(input.clamp(max=99), weight)


def of_batch_one(input, other):
    return (input[:1] @ other[:1]).expand(len(input), -1, -1).clone() if len(input) > 4 else input @ other


BEHIND = torch.zeros(101)
layers = lambda offset: (torch.randn(8, 64) + offset, (64,), torch.ones(64), torch.zeros(64))  # noqa: E731
FAULTS = {
    "odd numbers of rows": Fault(F.softmax, odd_rows, lambda: (torch.randn(32, 9), -1), lambda: (torch.randn(33, 9), -1)),
    "half on another thread": Fault(torch.sin, on_another_thread, lambda: (torch.zeros(64),), lambda: (torch.randn(64),)),
    "sums in bfloat16": Fault(torch.sum, running_sum, lambda: (torch.ones(4, 64), 1), lambda: (torch.rand(4, 4096), 1)),
    "NaN dropped": Fault(torch.amax, without_nan, lambda: (torch.randn(9, 9), 1), lambda: (torch.randn(9, 9).log(), 1)),
    "strides ignored": Fault(torch.exp, in_rows, lambda: (torch.randn(20, 30),), lambda: (torch.randn(20, 60)[:, ::2],)),
    "products in int32": Fault(torch.mul, as_int32, *(lambda n=n: (torch.full((50,), n), torch.arange(50) + n) for n in (1000, 70_000))),
    "an element beyond": Fault(torch.cos, beyond_its_result, lambda: (BEHIND[:100],), lambda: (BEHIND[:100].uniform_(),)),
    "cancelling variances": Fault(F.layer_norm, before_the_shift, lambda: layers(0.0), lambda: layers(3000.0)),
    "from the second call on": Fault(torch.sin, by_count(5), lambda: (torch.randn(40),), lambda: (torch.randn(40),)),
    "halves away from zero": Fault(torch.round, halved_rounding, lambda: (torch.randn(99),), lambda: (torch.arange(-20, 20) / 2,)),
    "NaN is no largest": Fault(torch.argmax, first_index, lambda: (torch.randn(9, 9), 1), lambda: (torch.randn(9, 9).log(), 1)),
    "large indices": Fault(F.embedding, clamped_index, *(lambda n=n: (torch.randint(n, (64,)), torch.randn(1000, 8)) for n in (100, 1000))),
    "one product for a batch": Fault(torch.bmm, of_batch_one, *(lambda n=n: (torch.randn(n, 5, 6), torch.randn(n, 6, 7)) for n in (1, 8))),
}


def compared(fn, operation, args):
    """Call `fn`, and return whether its result is eager's, and the disagreements that were warned of."""
    kept = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = fn(*args)
    expected = operation(*kept)
    torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-4, atol=1e-4)
    return [str(w.message) for w in caught if isinstance(w.message, dovetail.DisagreementWarning)]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_by_the_second_call_and_results_are_right(name):
    operation, kernel, first, second = FAULTS[name]
    fn = dovetail.jit(lambda *args: operation(*args), executors=[of("own", operation, kernel)])
    warned = compared(fn, operation, first()) + compared(fn, operation, second())
    assert len(warned) == 1, warned
    assert BEHIND[100] == 0, "the call wrote beside its argument"


def test_a_kernel_that_is_right_on_one_thread_only_is_caught_on_another():
    fn = dovetail.jit(lambda x: torch.sin(x), executors=[of("own", torch.sin, on_the_second_thread())])
    warned = compared(fn, torch.sin, (torch.randn(40),))
    work = threading.Thread(target=lambda: warned.extend(compared(fn, torch.sin, (torch.randn(40),))))
    work.start()
    work.join()
    assert len(warned) == 1


def ruled(times):
    """An executor of torch.mul with a grad rule; `times(g, x)` computes the gradient of an argument where the other one needs none."""
    own = OperatorExecutor("own")
    alone = own.operation("alone", times, meta=lambda g, x: g, replace=True)

    def rule(input, other):
        out = torch.mul(input, other)
        g = get_grad(out)
        put_grad(input, alone(g, other) if not requires_grad(other) else g * other)
        put_grad(other, alone(g, input) if not requires_grad(input) else g * input)
        return out

    own.implements(torch.mul, torch.mul, grad=rule)
    return own


@pytest.mark.parametrize("needed", [(True, False), (False, True)])
def test_a_gradient_that_is_wrong_where_the_other_argument_needs_none_is_caught(needed):
    fn, warned = dovetail.jit(lambda a, b: torch.mul(a, b), executors=[ruled(lambda g, x: g * x + 1)]), []
    for flags in ((True, True), needed):
        a, b = (torch.randn(30).requires_grad_(flag) for flag in flags)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fn(a, b).sum().backward()
        warned += [w for w in caught if isinstance(w.message, dovetail.DisagreementWarning)]
        for x, other in ((a, b), (b, a)):
            assert not x.requires_grad or torch.allclose(x.grad, other.detach())
    assert len(warned) == 1


@pytest.mark.parametrize(
    "change", [torch.Tensor.double, torch.Tensor.bfloat16, lambda x: x[:-1], lambda x: x.unsqueeze(0)], ids=["f64", "bf16", "short", "rank"]
)
def test_a_gradient_of_another_dtype_or_shape_is_caught(change):
    fn, warned = dovetail.jit(lambda a, b: torch.mul(a, b), executors=[ruled(lambda g, x: change(g * x))]), []
    for _ in range(2):
        a, b = torch.randn(30, requires_grad=True), torch.randn(30)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fn(a, b).sum().backward()
        warned += [w for w in caught if isinstance(w.message, dovetail.DisagreementWarning)]
        assert torch.allclose(a.grad, b) and a.grad.dtype is torch.float32
    assert len(warned) == 1


class Fusing(Pointwise):
    """Fuses, with `wrong` in place of what it computes."""

    def __init__(self, wrong):
        super().__init__("own")
        self.wrong = wrong

    def fuse(self, region):
        run = super().fuse(region)
        names = [line.symbol.name for line in region.lines]
        return lambda *inputs: tuple(self.wrong(names, inputs, run(*inputs)))


def swapped(names, inputs, results):
    """a - b and b - a are one line to it."""
    return [results[0]] * len(results)


def factored(names, inputs, results):
    """Computes a * b + a as a * (b + a)."""
    return [inputs[0] * (inputs[1] + inputs[0])] if names == ["mul", "add"] else results


def aliasing(names, inputs, results):
    """Returns an argument where it has the right values."""
    return [inputs[0] if torch.equal(x, inputs[0]) else x for x in results]


def reused(names, inputs, results):
    """Returns two results in one memory."""
    whole = torch.empty_like(results[0])
    return [whole.copy_(x) for x in results]


FUSIONS = {
    "two lines as one": (swapped, lambda a, b: (a - b, b - a), lambda: (torch.randn(70), torch.randn(70))),
    "two lines in another order": (factored, lambda a, b: ((a * b) + a,), lambda: (torch.randn(70), torch.randn(70))),
    "its argument": (aliasing, lambda a, b: (torch.relu(a) + b * 0,), lambda: (torch.rand(70), torch.rand(70))),
    "two results in one memory": (reused, lambda a, b: (a + b, a * b), lambda: (torch.randn(70), torch.randn(70))),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_a_wrong_fusion_is_caught_by_the_second_call(name):
    wrong, function, make = FUSIONS[name]
    fn, warned = dovetail.jit(function, executors=[Fusing(wrong)]), []
    for _ in range(2):
        args = make()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = fn(*args)
        warned += [w for w in caught if isinstance(w.message, dovetail.DisagreementWarning)]
        for got, expected in zip(results, function(*args)):
            torch.testing.assert_close(got, expected)
            assert all(got.data_ptr() != x.data_ptr() for x in args)
    assert len(warned) == 1


def late(run):
    """In one of three calls the last element is what it was in the call before."""
    generator, last = torch.Generator().manual_seed(5), []

    def fault(*inputs):
        out = run(*inputs)
        if last and torch.rand((), generator=generator) < 1 / 3:
            out[-1] = last[0]
        last[:] = [out[-1].clone()]
        return out

    return fault


def torn(run):
    """In one of three calls a block of the result is not written yet."""
    generator = torch.Generator().manual_seed(6)

    def fault(*inputs):
        out = run(*inputs)
        if torch.rand((), generator=generator) < 1 / 3:
            out[8:16] = 0
        return out

    return fault


@pytest.mark.parametrize("race", [late, torn])
def test_races_are_caught_within_64_calls(race):
    fn, warned = dovetail.jit(lambda x: torch.exp(x), executors=[of("own", torch.exp, race(torch.exp))]), 0
    for _ in range(64):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fn(torch.randn(40))
        warned += sum(isinstance(w.message, dovetail.DisagreementWarning) for w in caught)
    assert warned == 1


def test_a_kernel_that_is_wrong_for_a_dtype_of_the_third_call_is_caught_by_that_call():

    def kernel(input):
        return torch.sin(input.float()).to(input.dtype) if input.dtype is torch.float64 else torch.sin(input)

    fn = dovetail.jit(lambda x: torch.sin(x), executors=[of("own", torch.sin, kernel)])
    warned = [*compared(fn, torch.sin, (torch.randn(9),)), *compared(fn, torch.sin, (torch.randn(9),))]
    with pytest.warns(dovetail.DisagreementWarning):
        x = torch.randn(9, dtype=torch.float64)
        assert torch.equal(fn(x), torch.sin(x))
    assert not warned
