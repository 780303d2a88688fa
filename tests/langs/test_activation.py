"""Activations and softmax: what PyTorch's own samples leave out."""

from __future__ import annotations

import math

import harness
import pytest
import torch
import torch.nn.functional as F
from harness import agrees, raises_as_eager
from torch import nn

import dovetail

X = torch.tensor([[0.5, -2.0, 3.0, 0.0], [4.0, -0.5, -6.5, -3.0], [0.3, 6.0, 1.0, -1.0]])
EDGES = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 100.0, -100.0, 3.0, -3.0, 6.0, 1.0, -1.0, 0.5, -0.5])


def gradient(fn, x):
    x = x.clone().requires_grad_()
    (fn(x) * torch.linspace(0.5, 1.5, x.numel()).view_as(x)).sum().backward()
    return x.grad


ACTIVATIONS = {
    **{name: getattr(F, name) for name in ("relu", "relu6", "elu", "selu", "celu", "leaky_relu", "rrelu", "gelu", "silu", "mish")},
    **{name: getattr(F, name) for name in ("hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink", "softplus", "softsign")},
    **{name: getattr(F, name) for name in ("logsigmoid", "tanhshrink", "sigmoid", "tanh")},
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "celu_alpha": lambda x: F.celu(x, 0.5),
    "softplus_beta": lambda x: F.softplus(x, 2, 5),
    "prelu": lambda x: F.prelu(x, torch.tensor(0.25)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_edges_are_eagers(name):
    x = EDGES if name not in ("gelu", "gelu_tanh") else EDGES[~EDGES.isinf()]  # eager's gelu of infinity depends on the length of the tensor
    agrees(ACTIVATIONS[name], x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_at_edges_are_eagers(name):
    x = EDGES[EDGES.isfinite()]
    fn = ACTIVATIONS[name]
    torch.testing.assert_close(gradient(dovetail.jit(fn, executors=[harness.prims_only()]), x), gradient(fn, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "mish", "softplus", "hardswish", "celu_alpha", "logsigmoid"])
def test_bfloat16_is_rounded_once(name):
    x = torch.linspace(-4, 4, 257).bfloat16()
    got = harness.ours(ACTIVATIONS[name], (x,), {}, harness.ways()["decomposed"]).leaves[0]
    torch.testing.assert_close(got, ACTIVATIONS[name](x.float()).bfloat16(), rtol=2**-8, atol=2**-16)


MODULES = (
    *(nn.ReLU, nn.ReLU6, nn.ELU, nn.SELU, nn.CELU, nn.LeakyReLU, nn.SiLU, nn.Mish, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish),
    *(lambda inplace: nn.Threshold(0.5, 7.0, inplace), lambda inplace: nn.RReLU(inplace=inplace).eval()),
)


@pytest.mark.parametrize("make", MODULES)
def test_modules_in_place_write_into_their_input(make):
    agrees(make(inplace=True), X)
    assert dovetail.make_trace(make(inplace=False))(X).lines[0].mutates is False


@pytest.mark.parametrize(
    "fn", [F.relu_, F.elu_, F.selu_, F.celu_, F.leaky_relu_, F.hardtanh_, torch.relu_, torch.sigmoid_, lambda x: F.threshold_(x, 1, 2)]
)
def test_functions_with_an_underscore_write_into_their_input(fn):
    agrees(fn, X)


def test_in_place_on_a_view_reaches_the_base():
    agrees(lambda x: (F.relu(x[0], inplace=True), x)[1], X)
    agrees(lambda x: F.elu(x.t(), inplace=True).sum(), X)


@pytest.mark.parametrize("fn", [F.relu, F.hardtanh, lambda x: F.threshold(x, 2, 0)])
def test_integers_stay_integers(fn):
    agrees(fn, X.long())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.softmax(x, -1),
        lambda x: F.softmax(x, 0, dtype=torch.float64),
        lambda x: torch.softmax(x, dim=1, dtype=torch.float64),
        lambda x: x.softmax(axis=0),
        lambda x: F.log_softmax(x, 1),
        lambda x: x.log_softmax(-2),
        lambda x: F.softmin(x, 1),
        lambda x: torch.softmax(x.t(), 0),
        lambda x: x[0, 0].softmax(0),
        lambda x: x[:0].softmax(0),
        lambda x: torch.softmax(x * 1000, 1),
    ],
)
def test_softmax_is_spelled_in_many_ways(fn):
    agrees(fn, X)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.softmax(x, 1),
        lambda x: x.softmax(axis=0),
        lambda x: F.softmax(x, -1, dtype=torch.float64),
        lambda x: F.log_softmax(x, dim=-2),
        lambda x: x.log_softmax(1, torch.float32),
        lambda x: torch.softmax(x.t(), 0),
        lambda x: torch.log_softmax(x.sum(), 0),
        lambda x: x[:0].softmax(0),
    ],
)
def test_a_softmax_is_differentiated_from_its_result(fn, dtype):
    x, mine = (X.to(dtype).requires_grad_() for _ in range(2))
    ours = dovetail.jit(fn)
    want, got = fn(x), ours(mine)
    g = torch.linspace(-1.5, 2.0, want.numel()).view_as(want).to(want.dtype)
    want.backward(g), got.backward(g)
    torch.testing.assert_close(mine.grad, x.grad)
    names = {inner.symbol.name for line in dovetail.last_backward_traces(ours)[-1].lines for inner in (line, *line.body)}
    assert not names & {"amax", "div", "log"}


def test_a_softmax_is_differentiated_twice():
    def loss(x):
        return (torch.softmax(x, 1) ** 2 + torch.log_softmax(x, 0)).square().sum()

    x = X.double().requires_grad_()
    (slope,) = torch.autograd.grad(loss(x), x, create_graph=True)
    (want,) = torch.autograd.grad(slope.square().sum(), x)
    ours = dovetail.jit(dovetail.grad(lambda x: dovetail.grad(loss)(x).square().sum()))
    torch.testing.assert_close(ours(X.double()), want)


def test_softmax_of_integers_wants_a_dtype():
    agrees(lambda x: x.softmax(0, dtype=torch.float32), X.long())
    raises_as_eager(lambda x: x.softmax(0), X.long())


def test_softmax_without_dim_warns_as_eager():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        made = dovetail.make_trace(F.softmax)(X)
    assert made.outputs.spec.shape == (3, 4)


def test_a_row_of_minus_infinity_is_nan():
    agrees(lambda x: (F.softmax(x, 1), F.log_softmax(x, 1)), torch.full((2, 3), -math.inf))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_bfloat16_is_rounded_once(name):
    x = X.bfloat16()
    got = harness.ours(lambda x: getattr(F, name)(x, 1), (x,), {}, harness.ways()["decomposed"]).leaves[0]
    torch.testing.assert_close(got, getattr(F, name)(x.float(), 1).bfloat16())


def test_prelu_has_a_weight_for_each_channel():
    agrees(F.prelu, torch.randn(2, 3, 4), torch.tensor([0.1, 0.2, 0.3]))
    agrees(F.prelu, torch.randn(5), torch.tensor([0.1]))
    agrees(F.prelu, torch.tensor(-1.0), torch.tensor([0.1]))


def test_rrelu_draws_slopes_in_training():
    x = -torch.ones(1000)
    y = -dovetail.jit(lambda x: F.rrelu(x, 0.2, 0.4, training=True), executors=[harness.prims_only()])(x)
    assert 0.2 <= y.min() < 0.22 and 0.38 < y.max() <= 0.4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rrelu_draws_as_in_eager_mode_where_a_gradient_is_needed(dtype):
    def step(x):
        out = F.rrelu(x.t(), training=True)
        return out, torch.rand(2), *torch.autograd.grad(out.sum(), x)

    x = torch.randn(5, 7, dtype=dtype, requires_grad=True)
    with torch.random.fork_rng():
        want = step(x)
    torch.testing.assert_close(dovetail.jit(step)(x), want)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.glu(x[:, :3]),
        lambda x: F.glu(x[0, 0]),
        lambda x: F.glu(x, 5),
        lambda x: F.softmax(x, 2),
        lambda x: F.gelu(x, approximate="erf"),
        lambda x: F.gelu(x.long()),
        lambda x: F.hardtanh(x, 1.0, 0.0),
        lambda x: F.softshrink(x, -1.0),
        lambda x: F.celu(x, 0.0),
        lambda x: F.prelu(x, torch.ones(5)),
        lambda x: F.prelu(x, torch.ones(1, dtype=torch.float64)),
        lambda x: F.rrelu(x, 0.4, 0.2),
        lambda x: F.relu("x"),
        lambda x: F.relu(x > 0),
        lambda x: F.elu(x.long(), inplace=True),
    ],
)
def test_bad_input_raises_as_in_eager(fn):
    raises_as_eager(fn, X)
