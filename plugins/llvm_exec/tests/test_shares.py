"""Softmax and what stands around it: NaN and infinities in a row, and outputs that are written past the caches."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import assert_like_eager, assert_same, compiled, program_of
from torch.nn import functional as F

from dovetail_llvm_exec.loops.shares import nan_blind
from dovetail_llvm_exec.region import groups

INF, NAN = float("inf"), float("nan")
ROWS = [
    *([1.0, NAN, 2.0], [-INF, -INF, -INF], [0.0, INF, 1.0], [NAN, NAN, NAN]),
    *([-INF, 3.0, -INF], [-100.0, 0.0, -88.0], [-INF, NAN, INF], [1e4, -1e4, 0.0]),
]


def rows(dtype, columns):
    x = torch.randn(len(ROWS), columns, dtype=torch.float64)
    for i, row in enumerate(ROWS):
        x[i, -3:] = torch.tensor(row)
    x[1], x[3] = -INF, NAN
    return x.to(dtype)


def exponentials(x):
    return (x - x.amax(-1, keepdim=True)).exp()


def logsumexp(x):
    return torch.logsumexp(x, -1)


def softmax_and_largest(x):
    return F.softmax(x, -1), x.amax(-1)


def share_where_large(x):
    e = exponentials(x)
    return torch.where(x > 0, e / e.sum(-1, keepdim=True), e)


@pytest.mark.parametrize("columns", [3, 64, 100, 1025])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x, -1),
        logsumexp,
        exponentials,
        softmax_and_largest,
        share_where_large,
    ],
    ids=["softmax", "log_softmax", "logsumexp", "exponentials", "softmax_and_largest", "share_where_large"],
)
def test_every_row_is_what_eager_makes_of_it(fn, dtype, columns):
    x = rows(dtype, columns)
    if fn is not logsumexp or columns >= 8:
        assert_like_eager(fn, x, scale=4.0)
    else:  # PyTorch is left to run so short a row
        assert_same(compiled(fn)(x), fn(x), scale=4.0)


@pytest.mark.parametrize(("fn", "count"), [(lambda x: F.softmax(x, -1), 1), (exponentials, 0), (softmax_and_largest, 1), (share_where_large, 0)])
def test_only_a_largest_element_that_is_for_shares_alone_overlooks_nan(fn, count):
    (group,) = program_of(fn, torch.randn(8, 64)).plan.groups
    results = [i.expr.data for i in group.items if i.kind == "result"]
    stored = [i.expr for i in group.items if i.kind == "store"]
    assert len(nan_blind(results, group.lowering.table.known.values(), stored)) == count


CASES = {
    "elements": lambda x, w: (x + w) * 2,
    "rows": lambda x, w: F.layer_norm(x, x.shape[-1:], w),
    "a part": lambda x, w: x[:, 3:] + 1,
    "flipped": lambda x, w: x.flip(-1) + w,
    "sums of columns": lambda x, w: (x.sum(0), x * w),
    "joined": lambda x, w: torch.cat([x, x * w], -1),
    "in halves": lambda x, w: (x * w).bfloat16(),
}


@pytest.mark.parametrize("shape", [(40, 64), (7, 4097), (33, 37), (5, 70)])
@pytest.mark.parametrize("name", CASES)
def test_what_is_written_past_the_caches(name, shape, monkeypatch):
    monkeypatch.setattr(groups, "STREAMED", 0)
    assert_like_eager(CASES[name], torch.randn(shape), torch.randn(shape[-1]), scale=10.0)


def test_large_outputs_are_streamed_unless_they_are_read_again(monkeypatch):
    monkeypatch.setattr(groups, "STREAMED", 1 << 10)
    x = torch.randn(64, 64)
    assert len(program_of(lambda x: x + 1, x).plan.streamed) == 1
    assert len(program_of(lambda x: x.sum(0), x).plan.streamed) == 0
