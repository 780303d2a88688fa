"""Random results: others than eager's for the same seed are right where they are distributed alike and follow torch's generator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dovetail_conformance import check
from dovetail_conformance.broken import running
from dovetail_conformance.chance import unlike_draws
from dovetail_conformance.independence import alike_in_a_row, uneven

Fill = Callable[[torch.Generator], torch.Tensor]


def drawing(fill: Fill) -> Callable[[int], list[torch.Tensor]]:
    return lambda seed: [fill(torch.Generator().manual_seed(seed))]


def normal(g: torch.Generator) -> torch.Tensor:
    return torch.randn(40, generator=g)


@pytest.mark.parametrize(
    ("fill", "wrong"),
    [
        (lambda g: torch.randn(80, generator=g)[40:], None),
        (lambda g: -torch.randn(40, generator=g), None),
        (lambda g: torch.randn(40, generator=g) + torch.tensor([2.0] + [0.0] * 39), "the mean of element 0"),
        (lambda g: torch.randn(40, generator=g) * 1.5, "the mean of the squared deviation"),
        (lambda g: torch.randn(1, generator=g).expand(40), "the squared deviation of their sum"),
        (lambda g: torch.randn(41, generator=g)[1:].double(), "torch.float64"),
        (lambda g: torch.randn(40), "same seed"),
        (lambda g: (torch.rand(40, generator=g) - 0.5) * 12**0.5, "other frequencies"),
    ],
    ids=["later numbers", "the other sign", "another mean", "a wider spread", "one number", "another dtype", "another generator", "another shape"],
)
def test_a_distribution_is_told_from_another(fill: Fill, wrong: str | None) -> None:
    problem = unlike_draws(drawing(fill), drawing(normal))

    assert problem is None if wrong is None else wrong in problem


DROPOUT = "torch.nn.functional.dropout"


def dropped(x: torch.Tensor, p: float, generator: torch.Generator | None = None) -> torch.Tensor:
    return x * (torch.rand(x.shape, generator=generator) >= p) / (1 - p)


OWN = {
    "other numbers": (dropped, None),
    "another chance": (lambda x, p: dropped(x, p / 4), "seeds, the mean of"),
    "the same in every call": (lambda x, p: dropped(x, p, torch.Generator().manual_seed(1)), "torch's generator"),
}


@pytest.mark.parametrize("name", OWN)
def test_a_dropout_of_its_own_is_judged_by_its_chance(name: str) -> None:
    drop, wrong = OWN[name]

    def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        kept = drop(input.contiguous(), p) if training and 0 < p < 1 else torch.nn.functional.dropout(input, p, training)
        return torch.empty_like(input).copy_(kept)

    report = check(running(dropout, DROPOUT, checker=lambda *args, inplace=False, **kwargs: not inplace or "has no kernel that writes"),
                   operations=[DROPOUT], dtypes=["float32"], checks=["forward"], devices=["cpu"], level="quick")  # fmt: skip

    (row,) = [row for row in report if row.check == "forward"]
    assert row.state == ("pass" if wrong is None else "fail"), row.message
    assert wrong is None or wrong in row.message


def in_blocks(g: torch.Generator) -> torch.Tensor:
    return torch.randn(1024, generator=g).repeat(3)


def many(g: torch.Generator) -> torch.Tensor:
    return torch.randn(3072, generator=g)


@pytest.mark.parametrize(
    ("fill", "wrong"),
    [(many, None), (in_blocks, "1024 apart"), (lambda g: many(g) + torch.arange(3072) * 1e-4, "the mean of")],
    ids=["independent", "blocks that come again", "a drift"],
)
def test_numbers_that_depend_on_each_other_are_noticed(fill: Fill, wrong: str | None) -> None:
    problem = unlike_draws(drawing(fill), drawing(many))

    assert problem is None if wrong is None else wrong in problem


def test_a_part_of_a_large_result_is_compared_with_eagers() -> None:
    theirs = [torch.rand(70_000, dtype=torch.float64) for _ in range(2)]
    ours = [torch.rand(70_000, dtype=torch.float64) for _ in range(2)]
    late = [torch.cat([x[:65_536], x[65_536:] * 0.8]) for x in ours]

    assert uneven(ours, theirs) is None
    assert "elements 65," in uneven(late, theirs)


def test_a_call_that_repeats_the_numbers_of_the_one_before_is_noticed() -> None:
    first, second = ([torch.rand(100, dtype=torch.float64) for _ in range(4)] for _ in range(2))

    assert alike_in_a_row(first, second) is None
    assert "0 elements apart" in alike_in_a_row(first, [1 - x for x in first])
