"""Gradients of gradients of a torch.autograd.Function flow as far as its backward lets them."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.function import once_differentiable

import dovetail


def _twice_slope(x, g):
    return 2 * x * g


def _whole_without_grad(x, g):
    with torch.no_grad():
        return 2 * x * g


def _part_without_grad(x, g):
    with torch.no_grad():
        slope = 2 * x
    return slope * g


def _squaring(slope, mark=lambda backward: backward):
    class Squaring(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @mark
        def backward(ctx, g):
            return slope(ctx.saved_tensors[0], g)

    return Squaring


SECOND_GRADIENTS = {
    "plain": (_twice_slope,),
    "with grad mode off": (_whole_without_grad,),
    "partly with grad mode off": (_part_without_grad,),
    "once differentiable": (_twice_slope, once_differentiable),
}


@pytest.mark.parametrize("name", SECOND_GRADIENTS)
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("times_x", [False, True])
def test_gradients_of_gradients_flow_as_the_backward_lets_them(name, power, times_x):
    square = _squaring(*SECOND_GRADIENTS[name]).apply

    def step(x):
        (g,) = torch.autograd.grad((square(x) ** power).sum(), x, create_graph=True)
        flag, result = g.requires_grad, (g * x if times_x else g).sum()
        return flag, torch.autograd.grad(result, x)[0]

    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    try:
        want, error = step(x), None
    except RuntimeError as raised:
        want, error = None, str(raised)
    fast = dovetail.jit(step)
    for _ in range(2):
        if error is not None:
            with pytest.raises(RuntimeError, match=error[:30]):
                fast(x)
        else:
            torch.testing.assert_close(fast(x), want)


def test_a_function_that_is_once_differentiable_raises_in_the_second_backward():
    square = _squaring(_twice_slope, once_differentiable).apply

    def gradient(x):
        return torch.autograd.grad((square(x) ** 2).sum(), x, create_graph=True)[0] * 1

    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for call in (gradient, dovetail.jit(gradient)):
        g = call(x)
        assert g.tolist() == [4.0, 32.0, 108.0]
        with pytest.raises(RuntimeError, match="differentiate twice a function that was marked with @once_differentiable"):
            g.sum().backward()
