"""What is known of random results: each way to be wrong is said, and a right one is let pass."""

from __future__ import annotations

import pytest
import torch

from dovetail_conformance.drawn import Drawn
from dovetail_conformance.opinfo import unlike

UNIFORM = Drawn((50,), torch.float32, 0.0, 1.0, 0.5, 12**-0.5)
EVEN = torch.linspace(0, 1, 50)

WRONG = {
    "another shape": (UNIFORM, EVEN[:49], r"\(49,\) in place of a tensor of shape \(50,\)"),
    "another dtype": (UNIFORM, EVEN.double(), "torch.float64 in place of torch.float32"),
    "a number": (UNIFORM, 0.5, "0.5 in place of a tensor"),
    "beyond the bounds": (UNIFORM, EVEN * 1.1, r"lies outside \[0.0, 1.0\]"),
    "NaN": (UNIFORM, EVEN * float("nan"), "lies outside"),
    "another mean": (UNIFORM, EVEN * 0.4, "the mean of 50 numbers is 0.2"),
    "all alike": (UNIFORM, torch.full((50,), 0.5), "the standard deviation of 50 numbers is 0"),
    "no whole number": (Drawn((2,), whole=True), torch.tensor([1.0, 0.5]), "0.5 is not a whole number"),
    "parts of another variance": (Drawn((50,), mean=0.0, std=0.2), torch.complex(EVEN - 0.5, EVEN - 0.5) * 3, "standard deviation of 100 numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name):
    known, got, message = WRONG[name]

    assert unlike(got, known, 0.0) is not None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(unlike(got, known, 0.0))


def test_a_right_draw_passes():
    assert unlike(EVEN, UNIFORM, 0.0) is None
    assert unlike((EVEN, torch.ones(2)), (UNIFORM, Drawn((2,), whole=True)), 0.0) is None


def test_few_numbers_tell_nothing_of_their_mean():
    assert Drawn((3,), mean=0.0, std=1.0)(torch.full((3,), 2.0)) is None
