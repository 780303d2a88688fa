"""The axes of variants: every two levels meet, samples of every operation grow, lie otherwise and are filled as their level says."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch

from dovetail import devices, dtypes
from dovetail.extend import OperatorExecutor
from dovetail_conformance.axes.covering import AXES, rows
from dovetail_conformance.axes.layouts import laid_out
from dovetail_conformance.axes.sizes import resized
from dovetail_conformance.axes.values import filled
from dovetail_conformance.axes.variants import Variants
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.plan import opinfos
from dovetail_conformance.program import fresh
from dovetail_conformance.subject import Subject

FIRST = torch.Generator()


def test_every_two_levels_of_two_axes_meet() -> None:
    for a, b in combinations(AXES, 2):
        met = {(getattr(row, a), getattr(row, b)) for row in rows()}
        assert met >= set(product(AXES[a], AXES[b])), (a, b)


def test_one_size_grows_wherever_it_stands() -> None:
    sample = SampleInput((torch.ones(2, 3), torch.ones(3, 4)))

    grown = next(resized(sample, "long", "first", FIRST))

    assert [tuple(x.shape) for x in grown.args] == [(2, 4099), (4099, 4)]
    assert torch.matmul(*grown.args).shape == (2, 4)


@pytest.mark.parametrize("layout", ["row-major", "offset", "column-major", "gapped", "repeated", "flagged", "channels-last", "overlapping"])
def test_a_layout_survives_a_copy(layout: str) -> None:
    x = laid_out(torch.arange(24.0).reshape(2, 3, 4), layout)
    (copy,) = fresh([x])

    assert torch.equal(copy, x) and copy.shape == x.shape == (2, 3, 4)
    assert (copy.stride(), copy.storage_offset() % 64, copy.is_neg()) == (x.stride(), x.storage_offset() % 64, x.is_neg())
    assert layout in ("row-major", "offset", "flagged") or not x.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_stay_in_the_domain(dtype: torch.dtype) -> None:
    x = torch.linspace(0.5, 2.5, 40).to(dtype)
    for values in ("kinks", "moderate", "wide", "tiny"):
        drawn = filled(x, values, (0.0, float("inf")), (), FIRST)
        assert drawn is not None and drawn.dtype is dtype and bool((drawn >= 0).all()) and bool(drawn.isfinite().all()), values


@pytest.mark.parametrize("operation", ["torch.tanh", "torch.mul", "torch.softmax", "torch.matmul", "torch.nn.functional.mse_loss"])
def test_complete_variants_have_every_size_and_value(operation: str) -> None:
    info = opinfos()[operation]
    variants_of = Variants(Subject(OperatorExecutor("idle")), info, dtypes.float32, list(info.samples(dtypes.float32, devices.cpu)))

    variants = variants_of.chosen(24, complete=True)

    assert {variant.row.size for variant in variants} >= {*AXES["size"], "huge"} - ({"deep"} if operation == "torch.matmul" else set())
    assert {variant.row.values for variant in variants} >= {"kinks", "moderate", "wide", "tiny"}
    assert max(x.numel() for variant in variants for x in variant.case.program.inputs) > 1 << 20
    assert len(variants) < 60
