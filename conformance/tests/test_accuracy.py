"""What an element may be off by: units in the last place beside float64, beside eager's errors, and what the inputs' rounding explains."""

from __future__ import annotations

import pytest
import torch

from dovetail_conformance.accuracy import FEW_MOVES, Truth, inaccuracy


def truth(fn, x: torch.Tensor, **how) -> Truth:
    """What `fn` of a float32 tensor has to give."""
    wide = x.double()

    def moved(k: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(k)
        return fn(wide * (1 + torch.finfo(x.dtype).eps * torch.randn(x.shape, generator=generator, dtype=torch.float64)))

    return Truth(fn(x), fn(wide), moved, **how)


def test_a_small_result_counts_as_much_as_a_large_one() -> None:
    x = torch.tensor([1e-9, 0.5, 3.0])

    assert inaccuracy(torch.log1p(x), truth(torch.log1p, x)) is None
    assert "most at [0]" in inaccuracy(torch.tensor([0.0, *torch.log1p(x)[1:]]), truth(torch.log1p, x))


def test_what_the_rounding_of_an_input_explains_is_allowed() -> None:
    x = torch.tensor([31.415926, 100.0])
    got = torch.tensor([torch.sin(x)[0] + 2e-6, torch.sin(x)[1]])  # the sine near 10 pi loses six digits

    assert inaccuracy(got, truth(torch.sin, x)) is None
    assert inaccuracy(torch.sin(x) + torch.tensor([1e-4, 0.0]), truth(torch.sin, x)) is not None


@pytest.mark.parametrize(("dtype", "wrong"), [(torch.float32, 1e-4), (torch.bfloat16, 0.2), (torch.float16, 0.03)])
def test_a_large_error_is_one_in_every_dtype(dtype: torch.dtype, wrong: float) -> None:
    x = torch.linspace(0.1, 2.0, 20).to(dtype)

    assert inaccuracy(torch.exp(x), truth(torch.exp, x)) is None
    assert inaccuracy(torch.exp(x) * (1 + wrong), truth(torch.exp, x)) is not None


def test_a_long_sum_may_be_off_by_more() -> None:
    x = torch.full((65536,), 0.1)
    one_after_the_other = torch.tensor(x.sum().item() * (1 + 8e-6))

    assert inaccuracy(one_after_the_other, truth(torch.sum, x, length=65536)) is None
    assert inaccuracy(one_after_the_other, truth(torch.sum, x)) is not None
    assert inaccuracy(x.sum() * 1.01, truth(torch.sum, x, length=65536)) is not None


def test_zeros_have_signs_where_they_count() -> None:
    x = torch.tensor([-0.0, 1.0])

    assert inaccuracy(torch.tensor([0.0, 1.0]), Truth(x, x.double())) is None
    assert "zeros of the other sign" in inaccuracy(torch.tensor([0.0, 1.0]), Truth(x, x.double(), zeros=True))


def test_nan_and_infinities_have_their_places() -> None:
    x = torch.tensor([float("nan"), float("inf"), 1.0])

    assert inaccuracy(x.clone(), Truth(x, x.double())) is None
    for wrong in (x.nan_to_num(0.0), -x, torch.full((3,), float("nan"))):
        assert inaccuracy(wrong, Truth(x, x.double())) is not None


def test_whole_numbers_are_equal_but_where_a_rounding_decides() -> None:
    assert inaccuracy(torch.tensor([1, 2]), Truth(torch.tensor([1, 3]))) is not None
    eager, exact = torch.tensor([True, False]), torch.tensor([True, True])
    assert inaccuracy(torch.tensor([True, True]), Truth(eager, exact)) is None
    assert inaccuracy(torch.tensor([False, True]), Truth(eager, exact)) is not None


def test_in_float64_eager_is_allowed_what_it_loses_in_float32() -> None:
    x = torch.tensor([-2.98], dtype=torch.float64)
    exact = 0.5 * x * torch.special.erfc(-x * 0.5**0.5)
    eager = 0.5 * x * (1 + torch.erf(x * 0.5**0.5))
    lost = (eager - exact).abs() / 4

    assert inaccuracy(exact, Truth(eager, eager)) is not None
    assert inaccuracy(exact, Truth(eager, eager, own=lambda k: lost)) is None
    assert inaccuracy(exact, Truth(eager, eager, own=lambda k: lost if k == 3 else 0 * lost)) is None
    assert inaccuracy(exact * (1 + 1e-9), Truth(eager, eager, own=lambda k: lost)) is not None


def test_large_tensors_are_moved_a_few_times_only() -> None:
    moves: list[int] = []

    def moved(k: int) -> torch.Tensor:
        moves.append(k)
        return torch.ones(1, dtype=torch.float64)

    expected = Truth(torch.ones(1), torch.ones(1, dtype=torch.float64), moved, others=lambda k: moves.append(k), moves=FEW_MOVES)

    assert inaccuracy(torch.full((1,), 2.0), expected) is not None
    assert len(moves) <= 2 * FEW_MOVES
