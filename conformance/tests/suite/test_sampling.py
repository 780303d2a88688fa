"""Which samples level quick runs, and which cells a declaration leaves room for."""

from __future__ import annotations

import pytest
import torch

from dovetail import devices, dtypes
from dovetail.extend import OperatorExecutor
from dovetail_conformance.case import Case, cases
from dovetail_conformance.declared import has_room, has_samples
from dovetail_conformance.layout import layout_of
from dovetail_conformance.plan import Task, opinfos
from dovetail_conformance.sampling import covering, dealt
from dovetail_conformance.subject import Subject


@pytest.fixture
def sums() -> list[Case]:
    """Every sample of torch.sum."""
    return cases(Subject(OperatorExecutor("idle")), opinfos()["torch.sum"], dtypes.float32, devices.cpu, list, False)


def test_the_first_dtype_runs_each_layout_and_each_style(sums) -> None:
    def layouts(cases: list[Case]) -> set[str]:
        return {layout_of(case.sample.args[0]) for case in cases}

    def styles(cases: list[Case]) -> set[tuple]:
        return {(len(case.sample.args), *sorted(case.sample.kwargs)) for case in cases}

    chosen = covering(sums)

    assert layouts(chosen) == layouts(sums) and styles(chosen) == styles(sums)
    assert len(chosen) < len(sums)


def test_every_other_dtype_runs_a_plain_sample_and_one_of_its_own(sums) -> None:
    hands = [dealt(sums, at, 6) for at in range(6)]

    assert all(len(hand) == 2 for hand in hands)
    assert all(any(1 < case.program.inputs[0].numel() <= 24 for case in hand) for hand in hands)
    assert len({id(case) for hand in hands for case in hand}) == 7  # the plain one, and six others
    assert dealt(sums[:1], 3, 6) == sums[:1] and dealt([], 0, 6) == []


@pytest.mark.parametrize(
    ("x", "layout"),
    [
        (torch.zeros(0, 3), "empty"),
        (torch.zeros(()), "single"),
        (torch.zeros(2, 3), "row-major"),
        (torch.zeros(2, 3).t(), "permuted"),
        (torch.zeros(2, 6)[:, ::2], "gapped"),
        (torch.zeros(2, 1).expand(2, 3), "repeated"),
    ],
)
def test_layouts_have_names(x, layout) -> None:
    assert layout_of(x) == layout


@pytest.mark.parametrize(
    ("operation", "dtype", "room"),
    [
        ("prims.matmul", dtypes.float32, True),
        ("torch.chain_matmul", dtypes.float32, True),  # in its decomposition
        ("torch.chain_matmul", dtypes.float64, False),
        ("torch.sin", dtypes.float32, False),
    ],
)
def test_a_cell_has_room_where_a_recorded_program_has_a_line_that_is_declared(operation, dtype, room) -> None:
    ex = OperatorExecutor("mine", dtypes=["float32"])
    ex.implements("prims.matmul", torch.matmul)

    assert has_room(Subject(ex), Task(operation, dtype)) == room


def test_an_operation_in_place_has_no_samples_with_a_dtype_that_cannot_hold_its_result() -> None:
    assert has_samples("torch.Tensor.sin_", dtypes.float32)
    assert not has_samples("torch.Tensor.sin_", dtypes.int64)
