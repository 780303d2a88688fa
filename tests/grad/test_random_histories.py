"""Random programs of writes, views, grad modes and gradients inside, beside eager mode."""

from __future__ import annotations

from collections import Counter

import pytest
import random_histories
import torch


@pytest.mark.parametrize(
    ("first", "programs", "executors"),
    [(0, 60, ["torch"]), (1000, 60, ["torch"]), (2000, 30, None), pytest.param(3000, 1500, ["torch"], marks=pytest.mark.slow)],
)
def test_histories_are_those_of_eager_mode(first, programs, executors):
    verdicts = Counter()
    for seed in range(first, first + programs):
        source = random_histories.draw(seed)
        verdict = random_histories.check(source, executors)
        verdicts[verdict] += 1
        assert verdict != "differs", f"seed {seed}:\n{source}"
    assert verdicts["agrees"] > programs / 2


def test_a_lost_gradient_is_a_difference():
    x = torch.ones(2)
    assert random_histories.agrees([[x, True, (x, None)]], [[x, True, (x, x * 0)]])
    assert not random_histories.agrees([[x, True, (x, None)]], [[x, True, (x, x)]])
    assert not random_histories.agrees([[x, False, None]], [[x, True, None]])
