"""Scans and sorting: what PyTorch's own samples leave out."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from test_reduction import agrees, raises_as_eager

import dovetail

X = torch.tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 6.0]])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.cumsum(x, axis=0),
        lambda x: x.cumsum(-1, dtype=torch.float64),
        lambda x: (x > 2).cumsum(1),
        lambda x: x.long().cumprod(0),
        lambda x: x.t().cummax(1),
        lambda x: torch.tensor(2.0).cumsum(0) + x,
        lambda x: x.diff(2),
        lambda x: x.t().diff(0),
        lambda x: (x > 2).diff(append=x[:, :1] > 2),
        lambda x: x.msort(),
        lambda x: x.topk(2, 0, False),
    ],
)
def test_scans_are_eagers(fn):
    agrees(fn, X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sort(),
        lambda x: x.sort(0, True),
        lambda x: x.sort(descending=True),
        lambda x: x.sort(stable=True),
        lambda x: torch.sort(x, stable=True, dim=0, descending=True),
        lambda x: x.argsort(dim=-1, stable=True),
        lambda x: torch.argsort(x, 0),
        lambda x: x.t().sort(1),
    ],
)
def test_every_spelling_of_a_sort(fn):
    agrees(fn, X)


def test_a_stable_sort_prints_as_torch_takes_it():
    program = str(dovetail.make_trace(lambda x: torch.sort(x, descending=True, dim=0, stable=True))(X))
    assert "torch.sort(t0, dim=0, descending=True, stable=True)" in program


def test_cumsum_in_place():
    def f(x):
        y = x.clone()
        y.cumsum_(1)
        return y

    agrees(f, X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.cumsum(2),
        lambda x: x.topk(4),
        lambda x: x.sort(0, stable=True),
        lambda x: (x * 1j).sort(),
        lambda x: x.diff(-1),
        lambda x: x.sum().diff(),
        lambda x: torch.cumsum(x),
    ],
)
def test_bad_calls_raise_as_in_eager(fn):
    raises_as_eager(fn, X)


def test_the_gradient_of_a_product_of_one_element_is_the_cotangent_at_infinities():
    x = torch.tensor([[[-inf, inf]], [[0.0, nan]]], requires_grad=True)
    g = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
    (got,) = torch.autograd.grad(dovetail.jit(lambda x: x.cumprod(1))(x), x, g)
    torch.testing.assert_close(got, g)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16])
@pytest.mark.parametrize("zeros", [0, 1, 5])
def test_the_gradient_of_a_long_product_is_that_of_eager_mode(dtype, zeros):
    x = (torch.randn(2, 70, 40, dtype=torch.float64) / 8 + 1).to(dtype)
    x.view(-1)[::900][:zeros] = 0
    x.requires_grad_()
    fn = lambda x: torch.cumprod(x * 1, 1)  # noqa: E731
    ours = dovetail.jit(fn)
    g = torch.randn(x.shape).to(dtype)
    scale = 2e-2 if dtype is torch.bfloat16 else 1e-4
    for _ in range(2):
        got, want = (torch.autograd.grad(f(x), x, g)[0] for f in (ours, fn))
        torch.testing.assert_close(got, want, rtol=scale, atol=scale * want.abs().max().item())
    assert "cumprod_backward" in str(dovetail.last_backward_traces(ours)[-1])
    assert "cumprod_backward" not in str(dovetail.last_backward_traces(trained(fn, x[:, :4, :4].detach()))[-1])  # calls take longer there than scans


def trained(fn, x):
    """Return the function, compiled, after a forward and a backward of `x`."""
    ours = dovetail.jit(fn)
    ours(x.requires_grad_()).abs().sum().backward()
    return ours


def test_the_gradient_of_the_gradient_of_a_long_product():
    x = (torch.randn(80, 80, dtype=torch.float64) / 8 + 1).requires_grad_()

    def penalty(x):
        (g,) = torch.autograd.grad(torch.cumprod(x, 0).sum(), x, create_graph=True)
        return g.square().mean()

    got, want = (torch.autograd.grad(f(x), x)[0] for f in (dovetail.jit(penalty), penalty))
    torch.testing.assert_close(got, want)
