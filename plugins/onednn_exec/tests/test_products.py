"""Products and convolutions, whatever the measurements say: values, layouts, gradients, and what is refused."""

from __future__ import annotations

import pickle
import types

import pytest
import torch
import torch.nn.functional as F
from onednn_against_eager import ALWAYS, assert_like_eager, assert_same, compiled, ran, refusals, verdicts_of

from dovetail.devices import cpu
from dovetail.dtypes import float32
from dovetail.extend import TensorSpec
from dovetail_onednn_exec import claims, library
from dovetail_onednn_exec.cases import Convolution

BF16 = pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not library.computes_bfloat16(), reason="oneDNN has no bf16 on this CPU"))
DECLARED = "bf16 or f32" if library.computes_bfloat16() else "f32"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, BF16])


@DTYPES
@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 5, 7), (1, 1, 7), (1, 7)])
def test_linear(dtype, shape):
    x, w, b = torch.randn(*shape, dtype=dtype), torch.randn(3, 7, dtype=dtype), torch.randn(3, dtype=dtype)
    assert_like_eager(F.linear, x, w, b)
    assert_like_eager(F.linear, x, w)


@DTYPES
@pytest.mark.parametrize("x_turned", [False, True])
@pytest.mark.parametrize("w_turned", [False, True])
def test_matrices_that_lie_by_columns(dtype, x_turned, w_turned):
    x = torch.randn(7, 5, dtype=dtype).t() if x_turned else torch.randn(5, 7, dtype=dtype)
    w = torch.randn(7, 3, dtype=dtype).t() if w_turned else torch.randn(3, 7, dtype=dtype)
    assert_like_eager(F.linear, x, w)
    assert_like_eager(lambda x, w: x @ w.t(), x, w)
    assert_like_eager(torch.mm, x, w.t().contiguous())
    assert_like_eager(torch.mm, x, w.t())


@DTYPES
def test_products_and_sums(dtype):
    a, b = torch.randn(5, 7, dtype=dtype), torch.randn(7, 3, dtype=dtype)
    assert_like_eager(torch.addmm, torch.randn(3, dtype=dtype), a, b)
    assert_like_eager(torch.addmm, torch.randn(5, 3, dtype=dtype), a, b)
    assert_like_eager(torch.matmul, torch.randn(2, 5, 7, dtype=dtype), b)
    assert_like_eager(torch.matmul, a[0], b)


@DTYPES
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("how", [{}, {"stride": 2, "padding": 1}, {"padding": (2, 1), "dilation": (2, 1)}, {"groups": 2}], ids=str)
def test_convolutions(dtype, last, how):
    x, b = torch.randn(2, 4, 9, 8, dtype=dtype), torch.randn(6, dtype=dtype)
    w = torch.randn(6, 4 // how.get("groups", 1), 3, 3, dtype=dtype)
    if last:
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    assert_like_eager(lambda x, w, b: F.conv2d(x, w, b, **how), x, w, b)
    assert_like_eager(lambda x, w: F.conv2d(x, w, **how), x, w)


def test_channels_last_images_meet_a_row_major_weight():
    x = torch.randn(2, 4, 9, 8).to(memory_format=torch.channels_last)
    w = torch.randn(6, 4, 3, 3)
    assert_like_eager(F.conv2d, x, w)
    assert_like_eager(F.conv2d, x.contiguous(), w.to(memory_format=torch.channels_last))


def test_float32_is_computed_in_float32():
    x, w = torch.randn(64, 512), torch.randn(32, 512)
    exact = x.double() @ w.double().t()
    with torch.no_grad():
        ours = compiled(F.linear)
        assert (ours(x, w).double() - exact).abs().max() < 1e-3  # bfloat16 would be off by 0.2
    assert len(ran(ours)) == 1


def test_gradients_are_autograd_s():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x, ours = torch.randn(5, 8, requires_grad=True), compiled(model)
    model(x).square().sum().backward()
    want = [p.grad.clone() for p in (x, *model.parameters())]
    for p in (x, *model.parameters()):
        p.grad = None
    ours(x).square().sum().backward()
    for p, g in zip((x, *model.parameters()), want, strict=True):
        assert_same(p.grad, g)
    assert len(ran(ours)) == 6  # two products forward, and two for each of them backward


def test_what_autograd_would_record_is_recorded():
    layer = torch.nn.Linear(8, 4)
    ours = compiled(lambda x: layer(x))
    ours(torch.ones(3, 8)).sum().backward()
    assert_same(layer.weight.grad, torch.full((4, 8), 3.0))


def test_a_trained_convolution_stays_with_pytorch():
    layer, x = torch.nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8)
    ours = compiled(layer)
    ours(x).sum().backward()
    assert ran(ours) == []
    assert any("is for programs without gradients" in message for message in refusals(ours))
    with torch.no_grad():
        assert_same(ours(x), layer(x))
    assert len(ran(ours)) == 1


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (F.linear, (torch.ones(5, 7).double(), torch.ones(3, 7).double()), f"expected tensors of {DECLARED}"),
        (F.linear, (torch.ones(5, 7).int(), torch.ones(3, 7).int()), f"expected tensors of {DECLARED}"),
        (F.linear, (torch.ones(0, 7), torch.ones(3, 7)), "needs elements to sum"),
        (F.linear, (torch.ones(5, 0), torch.ones(3, 0)), "needs elements to sum"),
        (F.linear, (torch.ones(5, 14)[:, ::2], torch.ones(3, 7)), "expected dense row-major or column-major matrices"),
        (F.linear, (torch.ones(1, 7).expand(5, 7), torch.ones(3, 7)), "expected dense row-major or column-major matrices"),
        (F.linear, (torch.ones(5, 7), torch.ones(7)), "expected a weight [m, k]"),
        (F.linear, (torch.ones(5, 7), torch.ones(3, 7), torch.ones(1)), "one number for each row"),
        (torch.bmm, (torch.ones(2, 5, 7), torch.ones(2, 7, 3)), "no oneDNN operation for batched products"),
        (lambda x, a, b: torch.addmm(x, a, b, alpha=2), (torch.ones(3), torch.ones(5, 7), torch.ones(7, 3)), "expected beta and alpha to be 1"),
        (torch.addmm, (torch.ones(1, 3), torch.ones(5, 7), torch.ones(7, 3)), "adds a row for all of"),
        (F.conv2d, (torch.ones(2, 3, 8, 16)[..., ::2], torch.ones(4, 3, 3, 3)), "row-major or with channels innermost"),
        (F.conv2d, (torch.ones(8, 2, 6, 3).permute(1, 3, 0, 2), torch.ones(4, 3, 3, 3)), "row-major or with channels innermost"),
        (F.conv2d, (torch.ones(3, 8, 8), torch.ones(4, 3, 3, 3)), "expected images [batch"),
        (lambda x, w: F.conv2d(x, w, padding="same"), (torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)), "expected padding in numbers"),
        (F.conv_transpose2d, (torch.ones(2, 3, 8, 8), torch.ones(3, 4, 3, 3)), "that are not transposed"),
    ],
)
def test_a_refusal_is_a_sentence(fn, args, message):
    sentences = [each for each in verdicts_of(fn, *args) if each is not True]
    assert any(message in each for each in sentences), sentences


def test_it_is_off_where_pytorch_s_onednn_is():
    x, w = torch.randn(5, 7), torch.randn(3, 7)
    with torch.backends.mkldnn.flags(enabled=False), torch.no_grad():
        ours = compiled(F.linear)
        assert torch.equal(ours(x, w), F.linear(x, w))
    assert refusals(ours) == ["torch.backends.mkldnn.enabled is off"]


def test_programs_can_be_pickled():
    x, w = torch.randn(5, 7), torch.randn(3, 7)
    states = [
        pickle.loads(pickle.dumps(implementation.stateful()))(x, w) for implementation in ALWAYS.table.values() if implementation.name == "linear"
    ]
    assert states and all(torch.equal(out, F.linear(x, w)) or torch.allclose(out, F.linear(x, w), atol=1e-5) for out in states)


def test_what_does_not_fit_together_is_refused_before_anything_is_measured():
    def spec(*shape):
        return types.SimpleNamespace(spec=TensorSpec(shape, float32, cpu))

    assert "rows of as many elements" in claims.linear(spec(2, 3), spec(4, 5))
    assert "for as many channels" in claims.conv2d(spec(1, 2, 4, 4), spec(3, 3, 2, 2))
    assert "for as many channels" in claims.conv2d(spec(1, 4, 4, 4), spec(4, 4, 2, 2), groups=2)
    assert isinstance(claims.conv2d(spec(1, 4, 4, 4), spec(4, 2, 2, 2), groups=2), Convolution)
