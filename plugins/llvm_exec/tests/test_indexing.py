"""Gathers, slices, joins, padding, and the losses made of them."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import assert_like_eager, assert_same, compiled, runs_kernels
from torch.nn import functional as F


def test_embedding_with_what_follows():
    w, i, p = torch.randn(11, 20), torch.randint(0, 11, (3, 5)), torch.randn(5, 20)
    assert_like_eager(lambda w, i, p: F.embedding(i, w) * 2 + p, w, i, p)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_select_and_gather(dim):
    x = torch.randn(4, 5, 6)
    assert_like_eager(lambda x, i: torch.index_select(x * 2, dim, i) + 1, x, torch.randint(0, x.shape[dim], (9,)))
    shape = [4, 5, 6]
    shape[dim] = 3
    assert_like_eager(lambda x, i: torch.gather(x * 2, dim, i) + 1, x, torch.randint(0, x.shape[dim], shape))


@pytest.mark.parametrize("columns", [7, 100])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: x - x.gather(-1, x.argmax(-1, keepdim=True)),
        lambda x, w: x * x.gather(-1, (x > 0).sum(-1, keepdim=True).clamp(max=x.shape[-1] - 1)),
        lambda x, w: (w[(x > 0).sum(-1, keepdim=True)] * x).sum(-1),
        lambda x, w: x.gather(-1, (torch.arange(x.shape[-1]) + (x > 0).sum(-1, keepdim=True)) % x.shape[-1]),
        lambda x, w: torch.softmax(x, -1).gather(-1, x.argmin(-1, keepdim=True)) - x,
    ],
    ids=["argmax", "count", "table", "rotated", "of another result"],
)
def test_positions_that_are_computed_of_whole_rows(fn, columns):
    ours, x, w = compiled(fn), torch.randn(5, columns), torch.randn(101)
    assert_same(ours(x, w), fn(x, w))
    assert runs_kernels(ours)


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (lambda x, i: F.embedding(i, x), IndexError),
        (lambda x, i: torch.index_select(x, 0, i), IndexError),
        (lambda x, i: torch.index_select(x.t(), 1, i), RuntimeError),
        (lambda x, i: torch.gather(x, 0, i[:, None]), RuntimeError),
    ],
)
@pytest.mark.parametrize("bad", [7, -1, 1 << 40])
def test_an_index_out_of_range_is_an_error(fn, kind, bad):
    ours, x = compiled(fn), torch.randn(7, 3)
    index = torch.arange(7)
    assert_same(ours(x, index), fn(x, index))
    assert runs_kernels(ours)
    index[3] = bad
    with pytest.raises(kind, match="out of"):
        ours(x, index)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: torch.ones(7)[i] * 2,
        lambda x, i: F.embedding(i, torch.zeros(7, 3)) + 1,
        lambda x, i: torch.gather(torch.ones(7, 3), 0, i[:, None]) + 1,
        lambda x, i: torch.index_select(x.sum().expand(7), 0, i) + 1,
        lambda x, i: torch.ones(1, dtype=torch.bool).expand(7)[i] & True,
    ],
)
def test_an_index_into_equal_elements_is_checked(fn):
    ours, x, index = compiled(fn), torch.randn(7, 3), torch.arange(7)
    assert_same(ours(x, index), fn(x, index))
    assert runs_kernels(ours)
    index[3] = 7
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        ours(x, index)


def test_cat_of_computed_parts():
    x, y, z = torch.randn(4, 5), torch.randn(4, 1), torch.randn(4, 30)
    assert_like_eager(lambda x, y, z: torch.cat([x * 2, y + 1, z], 1), x, y, z)
    assert_like_eager(lambda x, y, z: torch.cat([x.t(), y.t(), z.t() * 2], 0) + 1, x, y, z)
    assert_like_eager(lambda x, y: torch.stack([x * 2, y + x], 1), x, y)
    assert_like_eager(lambda x: torch.cat([x[:, :0], x * 2, x[:, 3:]], 1).sum(1), x)


def test_rotation_by_halves():
    x, c, s = torch.randn(2, 3, 7, 32), torch.randn(7, 32), torch.randn(7, 32)
    assert_like_eager(lambda x, c, s: x * c + torch.cat([-x[..., 16:], x[..., :16]], -1) * s, x, c, s)


@pytest.mark.parametrize("pads", [(1, 2), (0, 3), (-1, 2), (2, -2, 1, 0), (0, 0, 3, 1)])
def test_pad(pads):
    assert_like_eager(lambda x: F.pad(x * 2, pads, value=1.5) + 1, torch.randn(3, 4, 17))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wider", [torch.float64, torch.int64, torch.float32])
def test_floats_of_16_bits_are_read_in_part_beside_wider_numbers(dtype, wider):
    x, y = torch.randn(16, 64).to(dtype), torch.randint(-9, 9, (16, 1)).to(wider)
    assert_like_eager(lambda x, y: F.pad(x, (1, 2), value=3) + y, x, y)
    assert_like_eager(lambda x, y: torch.cat([x[:, 3:], x * 2], 1).to(wider) * y, x, y)
    assert_like_eager(lambda x, y: x[:, :11].flip(1).to(wider) + y, x, y)


def test_writing_a_slice():
    def fn(x, y):
        x = x * 2
        x[:, 3:9] = y
        x[1] = 0.0
        return x + 1

    assert_like_eager(fn, torch.randn(4, 20), torch.randn(4, 6))


def test_putting_one_element_in_each_row():
    assert_like_eager(lambda x, i, v: torch.scatter_add(x * 2, 1, i, v) + 1, torch.randn(6, 9), torch.randint(0, 9, (6, 1)), torch.randn(6, 1))
    assert_like_eager(lambda x, i, v: torch.scatter(x * 2, 1, i, v) + 1, torch.randn(6, 9), torch.randint(0, 9, (6, 1)), torch.randn(6, 1))


def test_positions_as_values():
    assert_like_eager(lambda x: torch.arange(20) * 2 + x, torch.randint(0, 9, (3, 20)))
    assert_like_eager(lambda x: torch.where(torch.arange(20)[None] <= torch.arange(20)[:, None], x, -1e9), torch.randn(20, 20))
    assert_like_eager(lambda x: torch.linspace(0, 1, 20) * x, torch.randn(20), scale=4)
    assert_like_eager(lambda x: x.tril() + x.triu(1) * 2, torch.randn(20, 20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_and_its_gradient(reduction, ignored, dtype):
    x, t = (torch.randn(33, 70) * 5).to(dtype), torch.randint(0, 70, (33,))
    if ignored:
        t[::3] = -100
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours = compiled(lambda x, t: F.cross_entropy(x, t, reduction=reduction))
    got, want = ours(mine, t), F.cross_entropy(theirs, t, reduction=reduction)
    assert_same(got, want, scale=6)
    got.sum().backward(), want.sum().backward()
    assert_same(mine.grad, theirs.grad, scale=6)
    assert runs_kernels(ours)


@pytest.mark.parametrize("size", [1e4, 1e-4])
def test_cross_entropy_of_large_logits_is_as_exact_as_eagers(size):
    x, t = torch.randn(64, 1000) * size, torch.randint(0, 1000, (64,))
    exact = F.cross_entropy(x.double(), t)
    ours = compiled(F.cross_entropy)(x, t)
    assert abs(ours.double() - exact) <= 4 * abs(F.cross_entropy(x, t).double() - exact) + 1e-6 * exact


def test_a_target_out_of_range_is_an_error():
    ours, x = compiled(F.cross_entropy), torch.randn(4, 10)
    assert_same(ours(x, torch.tensor([1, 2, 3, 4])), F.cross_entropy(x, torch.tensor([1, 2, 3, 4])))
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        ours(x, torch.tensor([1, 2, 10, 4]))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: F.pad((x * 2).reshape(0, 3), (1, 1, 2, 2), value=7.0) + y,
        lambda x, y: (y * 2).index_put((torch.zeros(0, dtype=torch.int64),), x.reshape(0, 5)) + 1,
        lambda x, y: torch.slice_scatter(y * 2, (x * 2).reshape(0, 5), 0, 1, 1) + 1,
        lambda x, y: torch.cat([(x * 2).reshape(0, 5), y * 2]) + 1,
    ],
)
def test_nothing_is_padded_and_written(fn):
    assert_like_eager(fn, torch.randn(3, 0), torch.randn(4, 5))
