"""Backwards through kernels: norms, activations, losses, and the models of the zoo, forward and backward."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch
from llvm_against_eager import assert_same, compiled, flat, runs_kernels
from torch.nn import functional as F

sys.path[1:1] = [str(Path(__file__).parents[3] / "tests" / part) for part in ("models", "langs")]
import zoo  # noqa: E402  - the models of the repository's own tests

NAMES = list(zoo.cases())


def gradients(fn, *args):
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in args]
    out = fn(*leaves)
    torch.manual_seed(3)
    sum((x.double() * torch.rand(x.shape)).sum() for x in flat(out)).backward()
    return out, [x.grad for x in leaves if x.requires_grad]


def assert_gradients(fn, *args, scale=10.0):
    ours = compiled(fn)
    assert_same(gradients(ours, *args), gradients(fn, *args), scale=scale)
    assert runs_kernels(ours)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [5, 300])
def test_layer_norm(rows, dtype):
    x, w, b = torch.randn(rows, 48).to(dtype), torch.randn(48).to(dtype), torch.randn(48).to(dtype)
    assert_gradients(lambda x, w, b: F.layer_norm(x, (48,), w, b), x, w, b, scale=30 if dtype is not torch.bfloat16 else 60)


@pytest.mark.parametrize("width", [16, 50])
def test_rms_norm(width):
    assert_gradients(lambda x, w: F.rms_norm(x, (width,), w), torch.randn(4, 9, width), torch.randn(width), scale=30)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim):
    assert_gradients(lambda x: F.softmax(x, dim), torch.randn(6, 7, 20))
    assert_gradients(lambda x: F.log_softmax(x, dim), torch.randn(6, 7, 20))


@pytest.mark.parametrize("fn", [F.gelu, F.silu, F.softplus, F.elu, F.relu, torch.sigmoid, torch.tanh, lambda x: F.gelu(x, approximate="tanh")])
def test_activations(fn):
    assert_gradients(lambda x, b: fn(x + b), torch.randn(30, 33), torch.randn(33), scale=40)


def test_tanh_is_differentiated_exactly_near_1():
    """The gradient of log(1 + tanh(x)) is 1 - tanh(x), but for roundings of 1 - tanh(x) ** 2 that division by a small number would show."""
    x = torch.linspace(-8, 8, 1001)
    assert_gradients(lambda x: torch.log1p(torch.tanh(x)), x, scale=1)
    assert_gradients(lambda x: torch.log1p(-torch.tanh(x)), x, scale=1)


def test_batch_norm_and_group_norm():
    x, w, b = torch.randn(4, 6, 5, 5), torch.randn(6), torch.randn(6)
    assert_gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, w, b, scale=60)
    assert_gradients(lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b, scale=60)


def test_broadcasts_and_slices():
    x, y = torch.randn(6, 5, 8), torch.randn(5, 1)
    assert_gradients(lambda x, y: (x * y)[:, 1:].sum(0) * 2, x, y)
    assert_gradients(lambda x, y: torch.cat([x * 2, x[:, :2] * y[:2]], 1).pow(2).mean((0, 1)), x, y)
    assert_gradients(lambda x, y: torch.stack([p.exp() for p in (x * y).chunk(2, -1)], 0), x, y)


@pytest.fixture(params=NAMES)
def case(request):
    torch.manual_seed(0)
    return zoo.cases()[request.param]


@pytest.mark.one_in(2)
def test_models_forward(case):
    model, args = case
    ours = compiled(model.eval())
    with torch.no_grad():
        got, want = flat(ours(*args)), flat(model(*args))
        assert all(torch.equal(a, b) for a, b in zip(got, flat(ours(*args)), strict=True))
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, rtol=2e-5, atol=2e-5 * y.abs().max().item())
    assert runs_kernels(ours)


def test_models_backward(case):
    model, args = case
    model.eval()  # no dropout: its numbers are torch's own in either
    other = copy.deepcopy(model)
    ours = compiled(model)
    for run in (ours, other):
        sum(x.float().pow(2).mean() for x in flat(run(*args)) if x.is_floating_point()).backward()
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        if q.grad is None:
            assert p.grad is None or not p.grad.any(), name
            continue
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=2e-4 * q.grad.abs().max().item() + 1e-7, msg=lambda m, n=name: f"{n}: {m}")
    assert runs_kernels(ours)


@pytest.mark.one_in(2)
def test_models_keep_the_contract(case, monkeypatch):
    monkeypatch.setenv("DOVETAIL_CHECK", "1")
    model, args = case
    ours = compiled(model.eval())
    sum(x.float().pow(2).mean() for x in flat(ours(*args)) if x.is_floating_point()).backward()
    assert runs_kernels(ours)
