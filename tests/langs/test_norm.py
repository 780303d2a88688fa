"""Normalisations: running statistics, layouts, half precision."""

from __future__ import annotations

import harness
import pytest
import torch
import torch.nn.functional as F
from test_reduction import agrees, raises_as_eager

import dovetail
from dovetail.extend.advanced import prims_of

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_in_training_moves_the_running_statistics_as_eager(dtype):
    x, mean, var = torch.randn(4, 3, 5).to(dtype), torch.zeros(3), torch.ones(3)
    agrees(
        lambda x, mean, var: F.batch_norm(x, mean, var, training=True, momentum=0.3),
        x,
        mean,
        var,
        rtol=1e-2 if dtype is torch.bfloat16 else 1e-4,
        atol=1e-3,
    )


def test_a_batch_norm_module_counts_its_batches():
    x, ours, eager = torch.randn(2, 3, 4, 4), torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    compiled = dovetail.jit(ours)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(ours.running_var, eager.running_var)
    assert ours.num_batches_tracked.item() == 2


def test_instance_norm_moves_the_running_statistics_as_eager():
    agrees(lambda x, mean, var: F.instance_norm(x, mean, var, momentum=0.3), torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3), **CLOSE)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last),
        torch.randn(2, 4, 3, 3).transpose(2, 3),
        torch.randn(2, 4, 6, 3).to(memory_format=torch.channels_last)[:, :, ::2],
    ],
    ids=["channels_last", "transposed", "with gaps"],
)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.group_norm(x, 2),
        lambda x: F.instance_norm(x),
        lambda x: F.layer_norm(x, (3, 3)),
        lambda x: F.rms_norm(x, (3,)),
    ],
    ids=["batch", "group", "instance", "layer", "rms"],
)
def test_results_are_laid_out_as_eagers(fn, x):
    agrees(fn, x, **CLOSE)


@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # eager's own
def test_half_inputs_take_float_parameters():
    x, w = torch.randn(2, 8).bfloat16(), torch.randn(8)
    agrees(
        lambda x, w: (F.layer_norm(x, (8,), w, w), F.rms_norm(x, (8,), w), F.group_norm(x[..., None].expand(2, 8, 2), 4, w, w)),
        x,
        w,
        rtol=2e-2,
        atol=2e-2,
    )


def test_other_spellings_of_the_same():
    x = torch.randn(4, 6)
    agrees(
        lambda x: (torch.layer_norm(x, (6,)), torch.group_norm(x, 3), torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, True)), x, **CLOSE
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.layer_norm(x, (2,)),
        lambda x: F.layer_norm(x, ()),
        lambda x: F.layer_norm(x, 3),
        lambda x: F.layer_norm(x, (3,), x[0, :2]),
        lambda x: F.layer_norm(x.long(), (3,)),
        lambda x: F.rms_norm(x, (2,)),
        lambda x: F.batch_norm(x, None, None),
        lambda x: F.batch_norm(x[:1], None, None, training=True),
        lambda x: F.batch_norm(x, x[0, :2], x[0, :2]),
        lambda x: F.batch_norm(x.long(), None, None, training=True),
        lambda x: F.group_norm(x, 2),
        lambda x: F.group_norm(x[0], 1),
        lambda x: F.instance_norm(x),
    ],
)
def test_bad_calls_raise_as_in_eager(fn):
    raises_as_eager(fn, torch.randn(2, 3))


@pytest.mark.parametrize("name", ["weight", "bias", "running_mean"])
def test_instance_norm_of_parameters_with_two_dimensions_raises_as_in_eager(name):
    parameters = {"running_mean": torch.zeros(3), "running_var": torch.ones(3), name: torch.ones(3, 1)}
    for use_input_stats in (True, False):
        raises_as_eager(lambda x: F.instance_norm(x, **parameters, use_input_stats=use_input_stats), torch.randn(2, 3, 4))  # noqa: B023


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: torch.linalg.vector_norm(x, 0) + y.sum(),
        lambda x, y: torch.norm(x, p=0) + y.sum(),
        lambda x, y: F.pairwise_distance(x, y, p=0),
        lambda x, y: F.triplet_margin_loss(x, y, x, p=0),
    ],
)
def test_a_count_of_elements_gives_no_gradient(fn):
    inputs = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
    got, want = (torch.autograd.grad(each(*inputs).sum(), inputs, allow_unused=True) for each in (dovetail.jit(fn), fn))
    assert want[0] is None and [x is None for x in got] == [x is None for x in want]


@pytest.mark.parametrize(("make", "size"), [(torch.nn.BatchNorm1d, (20,)), (torch.nn.BatchNorm2d, (5, 4))])
def test_a_cumulative_average_is_no_decision(make, size):
    """With momentum=None each call moves the statistics by 1 / calls, a number that differs at each call."""
    ours, theirs = make(3, momentum=None), make(3, momentum=None)
    fast = dovetail.jit(ours)
    for batch in (4, 4, 5, 4):
        x = torch.linspace(-1, 2, batch * 60).sin().view(batch, 3, *size)
        torch.testing.assert_close(fast(x), theirs(x))
        torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))
    assert fast.cache_info().decisions == 0


FUNCTIONAL = torch.ops.aten._native_batch_norm_legit_functional


def decomposed(*args):
    return harness.call(FUNCTIONAL, args, {}, (harness.prims_only(),))


def weight_gradients(fn, x, weight, dtype):
    """The gradient of a scale, for a cotangent of the values of x; of float64 where `dtype` is."""
    x, weight = x.to(dtype), weight.to(dtype).requires_grad_()
    zero = torch.zeros(3, dtype=dtype)
    out = fn(x, weight, zero, zero, zero + 1, True, 0.1, 1e-5)[0]
    return torch.autograd.grad(out, weight, x.sin())[0].double()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_functional_batch_norm_of_half_inputs_is_as_exact_as_eagers(dtype):
    """Its statistics are computed in float32, so that their rounding does not multiply in the gradient of the scale."""
    draws = [(torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed)).to(dtype), torch.ones(3)) for seed in range(20)]
    kinds = ((decomposed, dtype), (FUNCTIONAL, dtype), (FUNCTIONAL, torch.float64))
    ours, theirs, exact = ([weight_gradients(fn, *draw, kind) for draw in draws] for fn, kind in kinds)

    errors = [sum((got - right).square().sum() for got, right in zip(each, exact)).sqrt() for each in (ours, theirs)]

    assert errors[0] <= errors[1]


def test_the_functional_batch_norm_keeps_statistics_in_the_dtype_of_the_running_ones():
    x, weight = torch.randn(2, 3, 5).bfloat16(), torch.rand(3)
    for parameters in ((None, None, weight, weight), (weight,) * 4, (weight.bfloat16(),) * 4):
        agrees(lambda x, *more: FUNCTIONAL(x, *more, True, 0.1, 1e-5), x, *parameters, rtol=2e-2, atol=2e-2)


NORMS = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), (3, 4, 6)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, torch.zeros(6).to(x), torch.ones(6).to(x), w, b, True), (4, 6, 3)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), (3, 6, 4)),
}


@pytest.mark.parametrize("norm", NORMS)
def test_closed_forms_of_gradients_can_be_differentiated_again(norm):
    fn, shape = NORMS[norm]
    x, w, b = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in (shape, (6,), (6,))]
    compiled = dovetail.jit(lambda x, w, b: fn(x, w, b).square())
    assert torch.autograd.gradcheck(compiled, (x, w, b))
    assert torch.autograd.gradgradcheck(compiled, (x, w, b))


@pytest.mark.parametrize("norm, sums", [("layer_norm", 4), ("batch_norm", 2)])
def test_a_backward_adds_up_no_more_than_it_needs(norm, sums):
    fn, shape = NORMS[norm]
    x, w, b = [torch.randn(s, requires_grad=True) for s in (shape, (6,), (6,))]
    compiled = dovetail.jit(lambda x, w, b: fn(x, w, b).sin(), executors=["llvm", "torch"])
    compiled(x, w, b).sum().backward()
    lines = prims_of(dovetail.last_backward_traces(compiled)[-1].lines)
    assert sum(line.symbol.name in ("sum", "var_mean") for line in lines) == sums


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("parameters", ["", "w", "wb"])
@pytest.mark.parametrize("norm", NORMS)
def test_gradients_of_norms_are_eagers_whichever_are_wanted(norm, parameters, dtype):
    fn, shape = NORMS[norm]
    x = torch.randn(shape).to(dtype)
    w, b = [torch.randn(6).to(dtype) if name in parameters else None for name in "wb"]
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if dtype is torch.bfloat16 else CLOSE
    harness.gradients_agree(lambda x: fn(x, w, b).sin(), x, **tolerance)
    if w is not None:
        harness.gradients_agree(lambda w: fn(x, w, b).sin(), w, **tolerance)
        harness.gradients_agree(lambda x, w: fn(x, w, b).sin(), x, w, **tolerance)
