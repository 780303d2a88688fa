"""Extreme numbers: reductions, norms and losses give what eager gives, or what is nearer to float64, and their gradients do."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from extreme_values import ALL, DTYPES, SHAPES, Program, check, near, wrong

ONCE_WRONG = ("torch.prod(x, {d})", "torch.prod(x)", "torch.logsumexp(x, {d})", "torch.cumprod(x, {d})", "torch.var_mean(x, {d})")
PROGRAMS = [Program(text, dtype, shape) for text, dtype, shape in product(ALL, DTYPES, SHAPES)]
SHARE = [each for i, each in enumerate(PROGRAMS) if i % 23 == 0 or (each.text in ONCE_WRONG and each.dtype is torch.float32)]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("program", SHARE, ids=str)
def test_extreme_numbers_give_what_eager_gives(program):
    assert not list(check(program, range(16)))


def test_an_infinity_keeps_its_sign_beside_a_product_of_the_others_that_underflows():
    assert not list(check(Program("torch.prod(x, {d})", torch.float32, (5,)), [55]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_many_draws_of_extreme_numbers_give_what_eager_gives(program):
    assert not list(check(program, range(60)))


def judged(ours: float, eager: float, exact: float, room: float = 0.0) -> bool:
    """Return whether the judge takes a number for right."""
    a, b, e, r = (
        torch.tensor([n], dtype=dtype) for n, dtype in ((ours, torch.float32), (eager, torch.float32), (exact, torch.float64), (room, torch.float64))
    )
    return not wrong(a, [b], e, r).any()


def test_what_the_judge_takes_for_right():
    inf, nan = torch.inf, torch.nan
    assert judged(1.0, 1.0, 2.0) and judged(nan, nan, 1.0) and judged(2.0, 1.0, 2.0) and judged(1.9, 1.0, 2.0)  # as eager, or nearer to float64
    assert judged(inf, nan, 1e39) and judged(nan, 5.0, 1.0) and judged(nan, inf, 1.0)  # float64, rounded; no number where eager's is wrong
    assert judged(0.0, 1.0, 1.0, room=1e30)  # where 1e38 - 1e38 + 1 cancels
    assert not judged(1.0, nan, nan) and not judged(0.0, nan, 1.0) and not judged(nan, 1.0, 1.0) and not judged(inf, -inf, -inf)
    assert not judged(1.5, 1.0, 1.0) and not judged(0.5, 1.0, 1.0) and not judged(2.5, 1.7, 2.0)
    assert not near(torch.tensor([nan]), torch.tensor([0.0]), torch.tensor([1.0])).any()
