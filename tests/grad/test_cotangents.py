"""Cotangents as autograd hands them on: their dtype, what hooks make of them, and what backwards of the user's read and get."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

import dovetail


def of_backward(x):
    x = x.clone().requires_grad_()
    (x * 2).backward(torch.ones(3, dtype=torch.float32))
    return x.grad


def of_grad(x):
    x = x.clone().requires_grad_()
    y = x**3
    (first,) = torch.autograd.grad([y, y.sum()], x, [torch.full((3,), 1 / 3), torch.tensor(2)], create_graph=True)
    return torch.autograd.grad(first, x, torch.ones(3))[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("fn", [of_backward, of_grad, lambda x: torch.func.vjp(torch.exp, x)[1](torch.ones(3))[0]])
def test_cotangents_are_cast_to_the_dtype_of_what_they_are_for(fn, dtype):
    compiled = dovetail.jit(fn)
    for scale in (1, 2):
        x = torch.arange(3.0, dtype=dtype) * scale
        torch.testing.assert_close(compiled(x), fn(x), rtol=2e-3, atol=1e-3)


def of_another_kind(x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(x * 2, x, torch.ones(3, dtype=torch.complex64))


def hooked(change):
    def fn(x):
        x = x.clone().requires_grad_()
        x.register_hook(change)
        (x * 2).sum().backward()

    return fn


WRONG_GRADIENTS = {
    "a complex cotangent": (of_another_kind, RuntimeError),
    "another dtype": (hooked(lambda g: g.double()), RuntimeError),
    "another size": (hooked(lambda g: g[:1]), RuntimeError),
    "a tuple": (hooked(lambda g: (g,)), TypeError),
}


@pytest.mark.parametrize("name", WRONG_GRADIENTS)
def test_gradients_of_the_wrong_kind_raise(name):
    fn, error = WRONG_GRADIENTS[name]
    for function in (fn, dovetail.jit(fn)):
        with pytest.raises(error):
            function(torch.ones(3))


class Weighted(torch.autograd.Function):
    """x * number, whose backward also multiplies with x."""

    @staticmethod
    def forward(ctx, x, number):
        ctx.number = number
        ctx.save_for_backward(x)
        return x * number

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.number * x, None


def of_a_draw(x):
    number, x = random.randint(1, 9), torch.rand(3, requires_grad=True) + x
    one = torch.autograd.grad(Weighted.apply(x, number).sum(), x)
    y = Weighted.apply(x, number)
    return one, torch.autograd.grad((y * y).sum(), x)


def of_an_item(x):
    number, x = int(x.sum()), x.clone().requires_grad_()
    return torch.autograd.grad(Weighted.apply(x, number).exp().sum(), x)


@pytest.mark.parametrize("fn", [of_a_draw, of_an_item])
def test_a_backward_reads_a_number_of_the_program(fn):
    compiled = dovetail.jit(fn)
    for seed in range(4):
        x, results = torch.arange(3.0) + seed, []
        for function in (fn, compiled):
            random.seed(seed)
            torch.manual_seed(seed)
            results.append(function(x))
        torch.testing.assert_close(results[1], results[0])


class Twin(torch.autograd.Function):
    """Returns one tensor twice."""

    @staticmethod
    def forward(ctx, x):
        y = x * 2
        return y, y

    @staticmethod
    def backward(ctx, one, other):
        return one + other * 3


def returned_twice(x):
    x = x.clone().requires_grad_()
    one, other = Twin.apply(x)
    return one is other, torch.autograd.grad((one * one + other * 10).sum(), x)[0]


@pytest.mark.parametrize("fn", [returned_twice, lambda x: Twin.apply(x)[0] * x])
def test_the_last_result_has_the_gradient_of_a_tensor_that_is_returned_twice(fn):
    outcomes = []
    for function in (fn, dovetail.jit(fn)):
        x = torch.arange(3.0, requires_grad=True)
        result = function(x)
        if isinstance(result, Tensor):
            result.sum().backward()
        outcomes.append((result, x.grad))
    torch.testing.assert_close(outcomes[1], outcomes[0])
