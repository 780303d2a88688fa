"""Programs that count in an outside object and look at values do what they do in eager mode, without a notice, and are not compiled at each call."""

from __future__ import annotations

import warnings

import pytest
import torch
from decisions.stateful_programs import CALLS, LARGEST, arguments, loaded

import dovetail

SEEDS = 360


@pytest.mark.one_in(12)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_counts_and_results_are_those_of_eager_mode(seed):
    eager, compiled = loaded(seed), dovetail.jit(loaded(seed))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for values in arguments(seed):
            want = eager(*values)
            if want[0].numel() > 1000 or not (want[0].abs() < LARGEST).all():
                break
            got = compiled(*values)
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-8)
            assert list(map(type, got)) == list(map(type, want))
    assert not [str(each.message) for each in caught if "bug" in str(each.message) or "twice" in str(each.message)]


def test_most_are_compiled_a_few_times():
    programs = []
    for seed in range(12):
        compiled = dovetail.jit(loaded(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for values in arguments(seed):
                compiled(*values)
        programs.append(compiled.cache_info().programs)
    assert sorted(programs)[len(programs) // 2] <= CALLS / 3
