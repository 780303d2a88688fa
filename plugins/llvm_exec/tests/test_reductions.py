"""Reductions over rows, over columns, over everything, alone and with what stands around them."""

from __future__ import annotations

import math

import pytest
import torch
from llvm_against_eager import assert_like_eager, assert_same, compiled, program_of, runs_kernels
from torch.nn import functional as F

from dovetail_llvm_exec.ir import jit

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
SHAPES = [(5, 7), (3, 64), (4, 65), (2, 3, 100), (33, 4), (1, 9), (6, 1)]


def filled(shape, dtype):
    torch.manual_seed(1)
    if dtype is torch.bool:
        return torch.rand(shape) > 0.3
    return torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 5, shape).to(dtype)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["sum", "mean", "amax", "amin", "var", "prod"])
def test_over_each_dimension(op, dtype, shape):
    x = filled(shape, dtype)
    scale = 20.0 if op in ("var", "prod", "sum") else 4.0
    for dim in range(len(shape)):
        if op == "var" and shape[dim] == 1:
            continue
        assert_like_eager(lambda x, dim=dim: getattr(torch, op)(x * 1.5, dim), x, scale=scale)
    if op not in ("prod",):
        assert_like_eager(lambda x: getattr(torch, op)(x * 1.5), x, scale=scale)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["sum", "amax", "amin", "prod"])
def test_of_integers(op, dtype):
    x = filled((6, 37), dtype)
    assert_like_eager(lambda x: (getattr(torch, op)(x, 0), getattr(torch, op)(x, 1)), x)


@pytest.mark.parametrize("op", ["any", "all", "amax", "amin"])
def test_of_booleans(op):
    x = filled((6, 37), torch.bool)
    assert_like_eager(lambda x: (getattr(torch, op)(x, 0), getattr(torch, op)(x, 1), getattr(torch, op)(x)), x)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions(op, dtype):
    x = filled((5, 40), dtype)
    assert_like_eager(lambda x: (getattr(torch, op)(x, 0), getattr(torch, op)(x, 1), getattr(torch, op)(x)), x)


@pytest.mark.parametrize("op", ["argmax", "argmin", "amax", "amin", "sum"])
def test_nan_and_infinities(op):
    x = torch.randn(9, 33)
    x[0, 5] = x[0, 20] = x[1, 32] = x[2, 0] = math.nan
    x[3] = -math.inf
    x[4] = math.inf
    x[5, 3], x[5, 4] = math.inf, -math.inf
    x[6] = 0.0
    assert_like_eager(lambda x: getattr(torch, op)(x, 1), x)
    assert_like_eager(lambda x: getattr(torch, op)(x, 0), x)


def test_over_nothing():
    x = torch.randn(0, 4)
    ours = compiled(lambda x: (x.sum(0), x.prod(0), (x > 0).any(0), (x > 0).all(0), x.sum(1)))
    assert_same(ours(x), (x.sum(0), x.prod(0), (x > 0).any(0), (x > 0).all(0), x.sum(1)))


@pytest.mark.parametrize("correction", [0, 1, 2])
def test_var_mean(correction):
    x = torch.randn(5, 6, 7) + 100
    assert_like_eager(lambda x: torch.var_mean(x, (0, 2), correction=correction), x, scale=200)
    assert_like_eager(lambda x: torch.var_mean(x, (1,), correction=correction), x, scale=200)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 2, 3), (0, 1, 2), (1, 2, 3)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_over_any_dimensions(dims, layout):
    x = torch.randn(3, 4, 5, 18).to(memory_format=layout)
    assert_like_eager(lambda x: (x * 2).sum(dims), x, scale=8)
    assert_like_eager(lambda x: (x * 2).amax(dims), x)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 200, 2049])
def test_down_the_rows_in_blocks(rows):
    x, y = torch.randn(rows, 70), torch.randn(rows, 70)
    assert_like_eager(lambda x, y: ((x * y).sum(0), x.sum(0), (x * 2).amax(0), x * 3), x, y, scale=50)
    assert_like_eager(lambda x: x.sum(0), x.to(torch.bfloat16), scale=4)


@pytest.mark.parametrize("n", [131072, 131073, 200001, 16384 * 9])
def test_over_long_rows(n):
    x = torch.randn(n)
    assert_like_eager(lambda x: ((x * 2).sum(), (x * 2).amax(), x + 1), x, scale=2000)
    assert_like_eager(lambda x: (x * 2).mean() * 3 + 1, x, scale=20)
    assert_like_eager(lambda x: (x - x.mean()).pow(2).mean(), x, scale=20)
    assert_like_eager(lambda x: F.softmax(x, -1), torch.randn(2, n), scale=20)
    assert_like_eager(lambda x: (x > 3).any(), x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(5, 10), (4, 64), (3, 65), (2, 3, 1000), (7, 1)])
def test_softmax_and_log_softmax(shape, dtype):
    x = filled(shape, dtype) * 4
    for dim in range(len(shape)):
        assert_like_eager(lambda x, dim=dim: F.softmax(x, dim), x, scale=4)
        assert_like_eager(lambda x, dim=dim: F.log_softmax(x, dim), x, scale=4)


def test_softmax_of_infinities():
    x = torch.randn(5, 20)
    x[0, 3], x[1], x[2, 4], x[3, 2] = -math.inf, -math.inf, math.nan, math.inf
    assert_like_eager(lambda x: F.softmax(x, -1), x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [3, 16, 100, 256])
def test_layer_norm_and_rms_norm(width, dtype):
    x, w, b = filled((9, width), dtype), filled((width,), dtype), filled((width,), dtype)
    assert_like_eager(lambda x, w, b: F.layer_norm(x, (width,), w, b), x, w, b, scale=10)
    assert_like_eager(lambda x, w: F.rms_norm(x, (width,), w), x, w, scale=10)


def test_division_by_a_result_of_the_row_is_exact_where_it_is():
    x = torch.randn(50, 37).abs() + 0.1
    ours = compiled(lambda x: x / x.amax(-1, keepdim=True))
    assert (ours(x).amax(-1) == 1.0).all()
    tiny = torch.full((4, 20), 1e-40)
    assert_like_eager(lambda x: x / x.sum(-1, keepdim=True), tiny, scale=10)
    assert_like_eager(lambda x: x / x.sum(-1, keepdim=True), torch.tensor([[0.0, 0.0] * 9, [math.inf, 1.0] * 9, [3e38, 0.0] + [0.0, 1.0] * 8]))


def test_results_that_need_results():
    def fn(x):
        mean = x.mean(-1, keepdim=True)
        off = x - mean
        spread = (off * off).mean(-1, keepdim=True).sqrt()
        return off / spread, (off / spread).abs().amax(-1), mean.squeeze(-1).sum()

    assert_like_eager(fn, torch.randn(12, 50), scale=10)


def test_the_same_bits_with_any_number_of_threads():
    x, y = torch.randn(2000, 300), torch.randn(2000, 300)
    ours = compiled(lambda x, y: ((x * y).sum(0), F.softmax(x, -1), (x * y).sum(), x.var(0)))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = ours(x, y)
        for n in (2, 3):
            torch.set_num_threads(n)
            assert all(torch.equal(a, b) for a, b in zip(alone, ours(x, y), strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(4096, 3), (65536, 8), (5000, 7), (64, 64, 5), (2049, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_many_short_rows(shape, dtype):
    x, dims = filled(shape, dtype), tuple(range(len(shape) - 1))
    assert_like_eager(lambda x: ((x * 2).sum(dims, dtype=x.dtype), x.amax(dims), x > 1), x, scale=2000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_variances_whose_squares_overflow_are_infinite_and_norms_of_such_rows_zero(dtype):
    x = torch.randn(7, 65, dtype=dtype)
    x[3, 5] = torch.finfo(dtype).max * 2.0**-8
    assert_same(compiled(lambda x: x.var(1))(x), x.var(1), scale=100)
    assert_same(compiled(lambda x: F.layer_norm(x, (65,)))(x), F.layer_norm(x, (65,)), scale=100)


@pytest.mark.parametrize("shape, dim", [((5000, 3), 0), ((64, 500, 7), 1), ((300, 200, 2), (0, 1))])
@pytest.mark.parametrize("op", [torch.sum, torch.mean])
def test_lone_sums_down_a_few_columns_are_left_to_others(op, shape, dim):
    x = torch.randn(shape)
    alone, fused, short = (compiled(fn) for fn in (lambda x: op(x, dim), lambda x: op(x * x, dim), lambda x: op(x[:4], 0)))
    for ours, fn in ((alone, lambda x: op(x, dim)), (fused, lambda x: op(x * x, dim)), (short, lambda x: op(x[:4], 0))):
        assert_same(ours(x), fn(x), scale=200)
    assert [runs_kernels(ours) for ours in (alone, fused, short)] == [False, True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32])
@pytest.mark.parametrize("op", [torch.amax, torch.amin])
def test_the_largest_down_rows_is_no_store_under_a_mask(op, dtype):
    x = (torch.randn(5, 9, 64) * 100).to(dtype)
    assert_like_eager(lambda x: op(x, 1), x)
    if dtype.is_floating_point:
        x[2, 3, ::7], x[4, 8, 5] = torch.nan, -torch.inf
        assert_like_eager(lambda x: op(x, 1), x)
    assembly = jit.compiler().assembly(program_of(lambda x: op(x, 1), x).text)
    assert "maskmov" not in assembly  # vmaskmovps and its like take some 20 cycles on Zen


@pytest.mark.parametrize("weights", [lambda x: F.softmax(x, -1), lambda x: F.softmax(x, 0), lambda x: torch.exp(x - x.amax(-1, keepdim=True))])
def test_small_weights_of_a_softmax_keep_their_logarithms(weights):
    """A weight below the normal numbers that became 0 would make the entropy 0 * -inf."""
    x = -90 - 10 * torch.rand(35, 35)
    x.fill_diagonal_(0.0)
    ours = compiled(lambda x: (-(weights(x) * weights(x).log()).sum(), weights(x)))
    torch.testing.assert_close(ours(x)[1], weights(x.double()).float(), atol=1.5e-45, rtol=1e-6)
    assert ours(x)[0].isfinite()
