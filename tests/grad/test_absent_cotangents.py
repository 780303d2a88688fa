"""Results that no gradient flows into: theirs is absent, and not zero, where the gradient of an operation divides by what may be 0."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dovetail

REPEATED = torch.diag(torch.tensor([1.0, 1.0, 2.0]))  # singular values and eigenvalues repeat: vectors have no gradient there


def svd(x):
    return torch.linalg.svd(x, full_matrices=False)


def nuclear(x):
    return svd(x)[1].sum()


def backward_inside(x):
    x = x.detach().requires_grad_()
    nuclear(x).backward()
    return x.grad


def decided(x):
    u, s, _ = svd(x)
    return s * 2 if s.sum() > 0 else u


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


PROGRAMS = {  # a program, and which of its results the gradient is of
    "svd": (svd, 1),
    "eigh": (lambda x: tuple(torch.linalg.eigh(x)), 0),
    "eig": (lambda x: tuple(torch.linalg.eig(x)), 0),
    "inside": (nuclear, None),
    "beside other results": (lambda x: (*svd(x), x * 3), 1),
    "of what is computed of the results": (lambda x: [part * 2 for part in torch.linalg.eigh(x)], 0),
    "after a decision": (decided, None),
    "checkpointed": (lambda x: checkpoint(svd, x, use_reentrant=False)[1], None),
    "after a function with a backward": (lambda x: svd(Double.apply(x)), 1),
}


def gradient(fn, place, *, history):
    x = REPEATED.clone().requires_grad_()
    result = fn(x)
    result = result if place is None else result[place]
    (g,) = torch.autograd.grad(result.real.sum(), x, create_graph=history)
    return g.detach()


@pytest.mark.parametrize("history", [False, True], ids=["plain", "with a history"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_gradient_of_one_result_is_finite_where_that_of_others_is_not(name, history):
    fn, place = PROGRAMS[name]
    compiled, expected = dovetail.jit(fn), gradient(fn, place, history=history)
    assert expected.isfinite().all()
    for _ in range(3):
        torch.testing.assert_close(gradient(compiled, place, history=history), expected)


INSIDE = {
    "backward": backward_inside,
    "grad": torch.func.grad(nuclear),
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(nuclear))(x.expand(2, 3, 3)),
    "vjp": lambda x: torch.func.vjp(nuclear, x)[1](torch.tensor(1.0)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_so_it_is_inside(name):
    torch.testing.assert_close(dovetail.jit(INSIDE[name])(REPEATED), INSIDE[name](REPEATED))


def test_all_gradients_together_are_those_of_eager_mode():
    def loss(fn, x):
        return sum(part.sum() for part in fn(x))

    x = torch.randn(3, 3, dtype=torch.float64)
    for fn in (svd, lambda x: torch.linalg.eigh(x + x.T)[:1]):
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        loss(dovetail.jit(fn), a).backward()
        loss(fn, b).backward()
        torch.testing.assert_close(a.grad, b.grad)
