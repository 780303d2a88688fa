"""The axes of variants: every two levels meet, samples of every operation grow, lie otherwise and are filled as their level says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, product

import pytest
import torch

from dovetail import devices, dtypes
from dovetail.extend import OperatorExecutor
from dovetail_conformance import check
from dovetail_conformance.axes.apart import moved_gradients
from dovetail_conformance.axes.arguments import with_other_values
from dovetail_conformance.axes.check import Fault
from dovetail_conformance.axes.covering import AXES, rows
from dovetail_conformance.axes.edges import beside_edges
from dovetail_conformance.axes.exact import vector_room
from dovetail_conformance.axes.gradients import gradients
from dovetail_conformance.axes.layouts import laid_out
from dovetail_conformance.axes.sizes import resized
from dovetail_conformance.axes.values import SPECIAL, crossed, filled
from dovetail_conformance.axes.variants import Variants
from dovetail_conformance.case import Case
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.plan import opinfos
from dovetail_conformance.program import fresh, nudged, program_of
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
        drawn = filled(x, values, opinfos()["torch.pow"], (), FIRST)
        assert drawn is not None and drawn.dtype is dtype and bool((drawn >= 0).all()) and bool(drawn.isfinite().all()), values


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_lie_on_both_sides_of_the_edges_of_a_function(dtype: torch.dtype) -> None:
    everywhere = -torch.inf, torch.inf
    numbers = beside_edges(torch.cosh, dtype, everywhere)

    largest = torch.finfo(dtype).max
    assert torch.equal(torch.cosh(numbers).isfinite(), torch.tensor([False, True, True, False]))
    assert torch.cosh(numbers.double())[1:3].min() > 0.1 * largest
    assert torch.equal(torch.acos(beside_edges(torch.acos, dtype, everywhere)).isnan(), torch.tensor([True, False, False, True]))
    assert torch.equal(torch.acos(beside_edges(torch.acos, dtype, (-torch.inf, 1.0))).isnan(), torch.tensor([True, False])), "no edge at 1"
    assert beside_edges(torch.sin, dtype, everywhere) is None
    assert beside_edges(torch.signbit, dtype, everywhere) is None


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
def test_integers_stay_in_their_domain(dtype: torch.dtype) -> None:
    x = torch.arange(40).to(dtype)
    for values in ("kinks", "wide", "shifted"):
        drawn = filled(x, values, opinfos()["torch.ldexp"], (), FIRST)
        assert drawn is not None and drawn.dtype is dtype and bool((drawn >= 0).all()) and bool((drawn <= 62).all()), values


@pytest.mark.parametrize("operation", ["torch.tanh", "torch.mul", "torch.softmax", "torch.matmul", "torch.nn.functional.mse_loss"])
def test_complete_variants_have_every_size_and_value(operation: str) -> None:
    info = opinfos()[operation]
    variants_of = Variants(Subject(OperatorExecutor("idle")), info, dtypes.float32, list(info.samples(dtypes.float32, devices.cpu)))

    variants = variants_of.chosen(24, complete=True)

    assert {variant.row.size for variant in variants} >= {*AXES["size"], "huge"} - ({"deep"} if operation == "torch.matmul" else set())
    assert {variant.row.values for variant in variants} >= {"kinks", "moderate", "wide", "tiny"}
    assert max(x.numel() for variant in variants for x in variant.case.program.inputs) > 1 << 20
    assert any(x.ndim == 4 and x.stride(1) == 1 and x.shape[1] > 1 for v in variants for x in v.case.program.inputs) or operation == "torch.matmul"
    assert len(variants) < 250


@pytest.mark.parametrize("operation", ["torch.add", "torch.remainder"])
def test_every_dtype_meets_others_and_every_kind_of_values(operation: str) -> None:
    info = opinfos()[operation]
    variants_of = Variants(Subject(OperatorExecutor("idle")), info, dtypes.bfloat16, list(info.samples(dtypes.bfloat16, devices.cpu)))

    variants = variants_of.of_dtype()

    assert {variant.row.values for variant in variants} >= {*AXES["values"]}
    assert {variant.row.mixed for variant in variants} >= {"wider", "other", "wider number", "other number"}
    assert any({x.dtype for x in v.case.program.inputs} == {torch.bfloat16, torch.float32} for v in variants)
    assert {(v.row.mixed, v.row.place) for v in variants} >= {("other", "all"), ("other", "first")}


def test_gradients_of_a_tensor_that_is_passed_twice_move_by_each_use() -> None:
    x = torch.tensor([[3.0, -1.0, 6.0]])
    sample = SampleInput((x, x, torch.tensor([1.0])), {"reduction": "sum"})
    info = opinfos()["torch.nn.functional.cosine_embedding_loss"]
    case = Case(Subject(OperatorExecutor("idle")), info, program_of(info.symbol, sample), "", sample)

    together = gradients(case.eager, case.widened(1), [0], "dense", 1, 1e-7)
    apart = moved_gradients(case, [0], "dense", 1, 1e-7)

    assert float(together.values[0].abs().max()) < 1e-13 < 1e-9 < float(apart.values[0].abs().max()) < 1e-6


def test_a_complex_number_moves_in_its_direction() -> None:
    z = torch.full((50,), 1 + 1j, dtype=torch.complex128)

    moved = nudged(z, 1e-8, torch.Generator().manual_seed(0))

    assert 1e-9 < float((moved.angle() - z.angle()).abs().max()) < 1e-7


WINDOW = {"stride": (1,), "dilation": (1,), "output_padding": (0,), "groups": 1}
N = 17_501  # so many columns have 20 GB in float64


@pytest.mark.parametrize(
    ("operation", "shapes", "more"),
    [
        ("torch.nn.functional.conv_transpose1d", [(2, 2, N), (2, 2, N)], {}),
        ("torch.nn.functional.conv1d", [(2, 2, N), (2, 2, N)], {"padding": N - 1}),
        ("prims.convolution_input_grad", [(2, 2, 2 * N - 1), (2, 2, N)], {"input_shape": (2, 2, N), "padding": (0,), "transposed": True} | WINDOW),
        ("prims.convolution_weight_grad", [(2, 2, N), (2, 2, N)], {"weight_shape": (2, 2, N), "padding": (N // 2,), "transposed": False} | WINDOW),
    ],
)
def test_no_sample_runs_whose_kernel_is_its_image(operation: str, shapes: list, more: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "eager", lambda *_, **__: pytest.fail("it ran"))
    sample = SampleInput(tuple(torch.ones(1).expand(shape) for shape in shapes), more)

    assert Variants(Subject(OperatorExecutor("idle")), opinfos()[operation], dtypes.float32, []).accepted(sample) is None


def test_float64_that_an_argument_asks_for_is_compared_with_float32() -> None:
    info, sample = opinfos()["torch.nn.functional.log_softmax"], SampleInput((torch.randn(3, 4), -1), {"dtype": torch.float64})
    case = Case(Subject(OperatorExecutor("idle")), info, program_of(info.symbol, sample), "", sample)

    assert case.eager(fresh(case.program.inputs)).result.dtype == torch.float64
    assert case.narrow.eager(fresh(case.program.inputs)).result.dtype == torch.float32


def test_a_gradient_of_nan_may_be_what_eager_has_in_a_large_tensor() -> None:
    info, sample = opinfos()["torch.nn.functional.selu"], SampleInput((torch.tensor([torch.nan, 1.0]),))
    case = Case(Subject(OperatorExecutor("idle")), info, program_of(info.symbol, sample), "", sample)
    theirs = gradients(case.eager, fresh(case.program.inputs), [0], "dense")
    ours = replace(theirs, values=[torch.full((2,), torch.nan)])

    assert torch.isfinite(theirs.values[0]).all()
    assert vector_room(case, ours, theirs, [0], "dense", [None])[0].tolist() == [torch.inf, 0.0]


def test_arguments_vary_on_the_tensors_that_are_claimed() -> None:
    info = opinfos()["torch.nn.functional.scaled_dot_product_attention"]
    samples = list(info.samples(dtypes.float32, devices.cpu))

    def alike(sample: SampleInput) -> bool:
        query, key, *_ = sample.args
        return query.ndim == 4 and query.shape == key.shape

    def scaled(changed: Iterable[SampleInput]) -> int:
        return sum(alike(sample) and sample.kwargs.get("scale") is not None for sample in changed)

    assert not scaled(with_other_values(info, samples))
    assert scaled(with_other_values(info, samples, alike))


UNKNOWN = {  # what the order of factors decides, and what PyTorch reads behind a tensor, each beside what is known
    "torch.prod": [(torch.tensor([1e30, 1e-30, 1e30, 1e-30]),), (torch.tensor([1e30, 1e-30]),)],
    "torch.cumprod": [(torch.tensor([1e-30, 1e30, 1e-30, 0.0]), 0), (torch.tensor([1e-30, 1e30, 0.0]), 0)],
    "torch.take_along_dim": [(torch.randn(4, 1), torch.full((1669, 3), n), -2) for n in (4, 3)],
}


@pytest.mark.parametrize("operation", UNKNOWN)
def test_no_sample_runs_whose_result_is_unknown(operation: str) -> None:
    variants_of = Variants(Subject(OperatorExecutor("idle")), opinfos()[operation], dtypes.float32, [])

    assert [variants_of.accepted(SampleInput(args)) is None for args in UNKNOWN[operation]] == [True, False]


def others(operation: str, name: str, at: int) -> list:
    """Return the other values that the suite tries for an argument."""
    info = opinfos()[operation]
    samples = list(info.samples(dtypes.float32, devices.cpu))
    calls = with_other_values(info, samples)
    return [call.kwargs[name] if name in call.kwargs else call.args[at] for call in calls if name in call.kwargs or at < len(call.args)]


def test_numbers_that_stand_for_tensors_are_equal_and_of_three_types() -> None:
    numbers = [repr(value) for value in others("torch.mul", "other", 1)]

    assert {"1", "1.0", "True", "0.1", "-0.0"} <= set(numbers)


def test_arguments_take_values_that_no_sample_has() -> None:
    assert {(1, 0), (-1, 0)} <= {value for value in others("torch.sum", "dim", 1) if isinstance(value, tuple)}
    assert {(1, 2), (2, 1)} <= {value for value in others("torch.nn.functional.conv2d", "dilation", 5) if isinstance(value, tuple)}
    assert {2.5, -1.5} <= set(others("torch.nn.functional.leaky_relu", "negative_slope", 1))
    assert not {value for value in others("torch.nn.functional.layer_norm", "eps", 4) if value <= 0}


def test_each_special_value_meets_each_other_one() -> None:
    usual = torch.full((6, 7), 2.0)

    x, y = crossed(SampleInput((usual, usual.clone()))).args

    values = {repr(value) for value in (*SPECIAL, 2.0)}
    assert set(zip(map(repr, x.flatten().tolist()), map(repr, y.flatten().tolist()))) == set(product(values, values))


def test_a_tensor_of_one_element_grows() -> None:
    for size in ("odd", "equal", "round"):
        grown = next(resized(SampleInput((torch.ones(1),)), size, "first", FIRST))
        assert grown.args[0].numel() > 4, size


@pytest.mark.parametrize(("operation", "state"), [("torch.sin", "fail"), ("torch.empty", "pass")])
def test_what_memory_held_is_compared_in_no_environment(operation: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "wrong", lambda *_: "it differs")

    report = check("torch", operations=[operation], checks=["surroundings"], devices=["cpu"], dtypes=["float32"], level="core")

    assert [row.state for row in report if row.operation == operation] == [state]


def test_operations_without_tensors_have_long_results() -> None:
    def one_block(size, fill_value, **named):
        out = torch.full(size, fill_value, **named)
        out.view(-1)[65_536:] = 0
        return out

    ex = OperatorExecutor("block", dtypes=["float32"])
    ex.implements("torch.full", one_block)

    report = check(ex, operations=["torch.full"], devices=["cpu"], level="core", checks=["variants"])

    assert [row.message for row in report.failures if "70001" in row.message], report.counts


def test_an_excuse_covers_the_elements_that_are_wrong_without_the_plugin_alone() -> None:
    first = Fault("the result", "", (0, torch.tensor([True, False])))
    both = replace(first, place=(0, torch.tensor([True, True])))

    assert first.within(both) and not both.within(first)
    assert not first.within(replace(both, part="the gradient of x0"))
    assert not first.within(replace(both, place=(1, both.place[1])))


def test_numbers_move_where_there_are_no_tensors() -> None:
    """10 to the power of linspace is off by more units than its own rounding."""

    def powers(start, end, steps, base=10.0, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, out=None):
        return torch.pow(float(base), torch.linspace(start, end, steps, dtype=dtype))

    ex = OperatorExecutor("powers", dtypes=["float32"])
    ex.implements("torch.logspace", powers, checker=lambda *args, **named: named.get("dtype") is torch.float32 and not named.get("base", 10) < 0)

    report = check(ex, operations=["torch.logspace"], devices=["cpu"], level="core", dtypes=["float32"], checks=["forward", "variants", "branches"])

    assert not report.failures, report.failures[0].message
