"""Joins, pads and shifts: conditions on positions are decided for ranges of elements, not for each."""

from __future__ import annotations

import math

import pytest
import torch
from llvm_against_eager import assert_like_eager, program_of
from torch.nn import functional as F

JOINS = {
    "cat": lambda x, y: torch.cat([x, y], 1),
    "cat of rows": lambda x, y: torch.cat([x, y, x, y], 0),
    "cat of computed": lambda x, y: torch.cat([x, y + y, x.abs()], -1),
    "cat of cats": lambda x, y: torch.cat([torch.cat([x, y], 1), torch.cat([y, x], 1)], 0),
    "cat of gathered": lambda x, y: torch.cat([x[:, [3, 1, 2]], y], 1),
    "cat of transposed": lambda x, y: torch.cat([x.t(), y.t()], 1).abs(),
    "cat of flipped": lambda x, y: torch.cat([x.flip(1), y.flip(0)], 1),
    "stack": lambda x, y: torch.stack([x, y]),
    "stack inside": lambda x, y: torch.stack([x, y], -1),
    "roll": lambda x, y: x.roll(3, -1),
    "roll of two": lambda x, y: x.roll((2, 5), (0, 1)),
    "pad": lambda x, y: F.pad(x, (1, 2, 3, 4)),
    "pad and cut": lambda x, y: F.pad(x, (-1, 5)),
    "rotated halves": lambda x, y: x * y + torch.cat([-x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1),
    "slice written": lambda x, y: torch.slice_scatter(x, y[:, :3], 1, 2, 5),
}


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((7, 100), torch.float32), ((3, 9001), torch.float32), ((6, 129), torch.bfloat16), ((5, 64), torch.int64)]
)
def test_ranges_of_a_join(name, shape, dtype):
    x, y = torch.randn(shape).mul(9).to(dtype), torch.randn(shape).mul(9).to(dtype)
    assert_like_eager(JOINS[name], x, y)


@pytest.mark.parametrize("dim", [0, 1])
def test_a_join_asks_no_element_where_it_is(dim):
    text = program_of(lambda x, y: torch.cat([x, y], dim), torch.randn(64, 128), torch.randn(64, 128)).text
    assert "masked" not in text and "select" not in text


def test_bfloat16_that_is_moved_is_not_rounded():
    x = torch.tensor([0x7F81, 0xFFC1, 0x0001, 0x8000] * 32, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    ours = assert_like_eager(lambda x: torch.cat([x, x]), x)
    assert torch.equal(ours(x).view(torch.int16), torch.cat([x, x]).view(torch.int16))  # NaN keeps its bits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -3.0, 1e-7, 60000.0, math.inf, -math.inf, math.nan])
def test_16_bits_chosen_between_an_element_and_a_number_are_not_rounded(dtype, value):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)  # all there are
    x, mask = bits.view(dtype), torch.arange(2**16) % 3 == 0
    ours = assert_like_eager(lambda x: torch.where(mask, x, value), x)
    got, want = ours(x), torch.where(mask, x, value)
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got[mask].view(torch.int16), x[mask].view(torch.int16))
    assert torch.equal(got[~want.isnan()].view(torch.int16), want[~want.isnan()].view(torch.int16))
