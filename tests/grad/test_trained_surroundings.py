"""Transforms of torch.func inside a compiled function, of functions that read a trained tensor around them: its gradients are right."""

from __future__ import annotations

import pytest
import torch
from eager_versions import RELEASE
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import func
from torch.autograd import gradcheck
from torch.nn import functional as F

import dovetail


def written(a, x):
    y = a * 2
    y[0] = x.sum()
    return y


def written_view(a, x):
    y = torch.zeros_like(a) + a
    y.view(1, 3)[0, 1:].mul_(x[1:])
    return y * x


def written_and_viewed(a, x):
    y = x * a
    rows = y[None].expand(2, -1)
    y.mul_(x)
    return rows.sum(0)


def rectified_view(a, x):
    y, z = a * x, x * x * a
    y[1:].sigmoid_()
    z.unsqueeze(0)[0, 1] = a[0]
    return z + y.flip(0)


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a):
        return a * a

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return 2 * a * g


FUNCTIONS = {
    "written": written,
    "written view": written_view,
    "written and viewed": written_and_viewed,
    "rectified view": rectified_view,
    "softmax": lambda a, x: (a @ torch.outer(x, x)).softmax(-1),
    "logsumexp": lambda a, x: torch.stack([a, x]).prod(0) + torch.logsumexp(a * x, 0),
    "softplus": lambda a, x: F.softplus(a * x) + F.gelu(x * a),
    "extrema": lambda a, x: (a * x).clamp(-0.5, 0.5) + a.amax() * x.amin(),
    "layer_norm": lambda a, x: F.layer_norm(a * x, (3,), weight=x, eps=0.1),
    "attention": lambda a, x: F.scaled_dot_product_attention((a * x).view(1, 3, 1), x.view(1, 3, 1), a.view(1, 3, 1)).view(3),
    "linear": lambda a, x: F.linear(a, torch.outer(x, x) + 1, x).tanh(),
    "convolution": lambda a, x: F.conv1d((a * x)[None, None], x[None, None], padding=1)[0, 0],
    "custom function": lambda a, x: Square.apply(a * x) + x,
    "opaque": lambda a, x: torch.linalg.solve(torch.eye(3, dtype=a.dtype) * 4 + torch.outer(a, x), x),
    "opaque, one result": lambda a, x: torch.linalg.slogdet(torch.outer(a, x) + 4 * torch.eye(3, dtype=a.dtype))[1] + x,
}
TRANSFORMS = {
    "vmap": lambda f: lambda a, x: func.vmap(f, (0, None))(torch.stack([a, a + 1]), x).sum(0),
    "vmap of a factor": lambda f: lambda a, x: func.vmap(lambda s: f(a * s, x))(torch.ones(2, dtype=a.dtype)).sum(0),
    "grad": lambda f: lambda a, x: func.grad(lambda u: f(u, x).sin().sum())(a),
    "jvp": lambda f: lambda a, x: func.jvp(lambda u: f(u, x), (a,), (x,))[1],
    "vjp": lambda f: lambda a, x: func.vjp(lambda u: f(u, x), a)[1](f(a, x))[0],
    "jacrev": lambda f: lambda a, x: func.jacrev(lambda u: f(u, x))(a).sum(0),
    "jacfwd": lambda f: lambda a, x: func.jacfwd(lambda u: f(u, x))(a).sum(0),
}
POINTS = torch.tensor([0.7, -1.1, 0.4], dtype=torch.double), torch.tensor([1.3, 0.6, -0.8], dtype=torch.double, requires_grad=True)


PAIRS = [(f, t) for f in FUNCTIONS for t in TRANSFORMS if f != "custom function" or t not in ("jvp", "jacfwd")]  # it has no forward mode


def check(function):
    compiled = dovetail.jit(function)
    assert gradcheck(lambda x: compiled(POINTS[0], x) + 0 * x.sum(), POINTS[1:])  # without a gradient, the differences have to be zero


@pytest.mark.parametrize(("function", "transform"), PAIRS)
def test_gradients_agree_with_differences(function, transform):
    transformed = TRANSFORMS[transform](FUNCTIONS[function])
    if RELEASE < (2, 15) or function != "attention" or transform not in ("jvp", "jacfwd"):  # torch 2.15 has no tangents of attention
        torch.testing.assert_close(dovetail.jit(transformed)(*POINTS), transformed(*POINTS))
    check(transformed)


@settings(max_examples=15)
@given(st.sampled_from([pair for pair in PAIRS if not pair[0].startswith("opaque")]), st.sampled_from(list(TRANSFORMS)))
def test_gradients_of_two_transforms_agree_with_differences(pair, outer):
    function, inner = pair
    assume((function, outer) in PAIRS)
    check(TRANSFORMS[outer](TRANSFORMS[inner](FUNCTIONS[function])))


def constant_factor(a, x):
    with torch.no_grad():
        scale = (a * x).sum() * x
    return a * scale + x


def constant_written(a, x):
    y = a.clone()
    with torch.no_grad():
        scale = x.sum()
    y[0] = y[1] * scale
    return y * x


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", [constant_factor, constant_written])
def test_what_was_computed_with_grad_mode_off_gets_no_gradient(function, transform):
    transformed = TRANSFORMS[transform](function)

    def gradients(f):
        x = POINTS[1].detach().clone().requires_grad_()
        out = f(POINTS[0], x)
        return [out.requires_grad, out.detach(), *(torch.autograd.grad(out.square().sum(), x) if out.requires_grad else ())]

    torch.testing.assert_close(gradients(dovetail.jit(transformed)), gradients(transformed))
