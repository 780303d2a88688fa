"""Pooling: what PyTorch's own samples leave out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import agrees, gradients_agree, raises_as_eager
from torch import nn

import dovetail

X = torch.randn(2, 3, 9, 8).relu()
INF = float("inf")
POOLS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max dilated": lambda x: F.max_pool2d(x, 2, 2, 1, 2, True),
    "max with indices": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[0],
    "max 1d": lambda x: F.max_pool1d(x[0], 3, 2, 1),
    "max 3d": lambda x: F.max_pool3d(x[None], 2, ceil_mode=True),
    "avg": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg of what is inside": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "avg 1d": lambda x: F.avg_pool1d(x[0], 3, 2, 1),
    "avg 3d": lambda x: F.avg_pool3d(x, 2, divisor_override=3),
    "lp": lambda x: F.lp_pool2d(x + 1, 2, 3),
    "adaptive avg": lambda x: F.adaptive_avg_pool2d(x, (4, None)),
    "adaptive avg to one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive avg 3d": lambda x: F.adaptive_avg_pool3d(x, (2, 4, 3)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (4, 5)),
    "adaptive max 1d": lambda x: F.adaptive_max_pool1d(x[0], 3),
}


@pytest.mark.parametrize("name", POOLS)
def test_gradients_go_to_the_first_of_several(name):
    gradients_agree(POOLS[name], X, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", POOLS)
def test_channels_last_and_transposed_inputs(name):
    agrees(POOLS[name], X.to(memory_format=torch.channels_last), rtol=1e-4, atol=1e-5)
    agrees(POOLS[name], X.transpose(2, 3), rtol=1e-4, atol=1e-5)
    agrees(POOLS[name], X.bfloat16(), rtol=2e-2, atol=2e-2) if "avg 3d" not in name or "adaptive" in name else None  # eager has none


@pytest.mark.parametrize("name", ["avg", "avg of what is inside", "max", "max dilated", "max with indices"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_images_with_channels_last_lie_so(name, dtype):
    x = X.to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    out, expected = dovetail.jit(POOLS[name])(x), POOLS[name](x)
    g = torch.randn_like(expected)
    ours, theirs = torch.autograd.grad(out, x, g)[0], torch.autograd.grad(expected, x, g)[0]
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("size", "count"), [(17, 5), (28, 5), (16, 29), (3, 7), (10, 4), (12, 4)])
def test_gradients_of_means_of_windows_that_differ_in_length(size, count, channels_last):
    def pooled(x):
        return F.adaptive_avg_pool2d(x, (count, 3)), F.adaptive_avg_pool1d(x.flatten(0, 1).transpose(1, 2), count)

    x = torch.randn(2, 3, size, 20, dtype=torch.float64)
    x = (x.to(memory_format=torch.channels_last) if channels_last else x).requires_grad_()
    fast = dovetail.jit(pooled)
    for _ in range(2):
        gradients = []
        for fn in (pooled, fast):
            results = fn(x)
            gradients.append(torch.autograd.grad(sum(y.sin().sum() for y in results), x)[0])
        torch.testing.assert_close(*gradients)
    single = dovetail.jit(lambda x: F.adaptive_avg_pool2d(x, (count, 3)))
    assert single(x).grad_fn is not None
    assert "index_add" not in dovetail.last_backward_traces(single)[-1].python()


def test_means_of_windows_that_differ_in_length_are_differentiated_twice():
    x = torch.randn(1, 2, 5, 17, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(dovetail.jit(lambda x: F.adaptive_avg_pool2d(x, 3)), x)


@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("value", [-INF, INF, float("nan")])
def test_places_of_special_values_in_small_and_large_windows(kernel, value):
    def places(x):
        return F.max_pool2d(x, kernel, 2, kernel // 2, 2, return_indices=True)[1]

    x = torch.randn(2, 3, 12, 11)
    x[:, :, 3:9, 2:8] = value
    x[1] = value
    agrees(places, x)
    agrees(places, x.to(memory_format=torch.channels_last))


def test_a_largest_element_with_a_gradient_lies_as_its_signal_does():
    x = torch.randn(2, 5, 8, requires_grad=True)
    for fn in (lambda x: F.max_pool1d(x.transpose(1, 2), 2), torch.no_grad()(lambda x: F.max_pool1d(x.transpose(1, 2), 2))):
        assert dovetail.jit(fn)(x).stride() == fn(x).stride()


@pytest.mark.parametrize(
    "module", [nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1, return_indices=True), nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(3), nn.LPPool2d(2, 2)]
)
def test_modules(module):
    agrees(lambda x: module(x), X, rtol=1e-4, atol=1e-5)


def test_every_spelling_of_max_pooling_is_one_operation():
    for fn in (F.max_pool2d, torch.max_pool2d, nn.MaxPool2d(2)):
        traced = dovetail.make_trace(lambda x: fn(x, 2) if not isinstance(fn, nn.Module) else fn(x))(X)  # noqa: B023
        assert [line.symbol.path for line in traced.lines] == ["torch.nn.functional.max_pool2d"]


def test_a_window_of_nothing_but_minus_infinity_points_inside():
    agrees(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), torch.full((1, 1, 4, 4), -INF))
    agrees(lambda x: F.max_pool2d(x, 2, 1, 1, 2, return_indices=True), torch.full((1, 1, 4, 4), -INF))
    agrees(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), torch.full((1, 1, 4, 4), -(2**63)))


def test_nan_wins():
    agrees(lambda x: F.max_pool2d(x, 2, return_indices=True), torch.tensor([[[1.0, float("nan")], [3.0, 4.0]]]))


def test_pooling_and_its_inverse():
    def fn(x):
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[2:])

    assert torch.equal(dovetail.jit(fn)(X), fn(X))


def test_fractional_pooling_draws_as_eager():
    for fn in (
        lambda x: F.fractional_max_pool2d(x, 2, output_size=3),
        lambda x: F.fractional_max_pool2d(x, 2, output_size=3, return_indices=True)[1],
    ):
        torch.manual_seed(1)
        want = fn(X)
        torch.manual_seed(1)
        assert torch.equal(dovetail.jit(fn)(X), want)


EMPTY = [((0, 4, 5), 3), ((2, 0, 4, 5), 2), ((3, 0, 5), 1), ((3, 0, 5), 2), ((2, 1, 2, 4, 5), 1), ((4, 5), 1)]


@pytest.mark.parametrize("shape,size", EMPTY)
@pytest.mark.parametrize("fn", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
def test_adaptive_pooling_of_other_ranks_and_of_nothing(fn, shape, size):
    x = torch.ones(shape)
    try:
        want = fn(x, size)
    except RuntimeError:
        raises_as_eager(lambda x: fn(x, size), x)
    else:
        torch.testing.assert_close(dovetail.jit(fn, executors=["torch"])(x, size), want, equal_nan=True)


BAD = {
    "rank": lambda x: F.max_pool2d(x[0, 0], 2),
    "too large a kernel": lambda x: F.avg_pool2d(x, 20),
    "padding": lambda x: F.max_pool2d(x, 2, 1, 2),
    "zero stride": lambda x: F.max_pool2d(x, 2, 0),
    "float kernel": lambda x: F.max_pool2d(x, 2.0),
    "three kernel sizes": lambda x: F.avg_pool2d(x, (2, 2, 2)),
    "zero divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=0),
    "no elements": lambda x: F.max_pool2d(x[:, :, :0], 2),
    "integers": lambda x: F.adaptive_avg_pool2d(x.long(), 2),
    "integers in one dimension": lambda x: F.max_pool1d(x[0].long(), 2),
    "negative size": lambda x: F.adaptive_avg_pool2d(x, -1),
    "three sizes": lambda x: F.adaptive_max_pool2d(x, (1, 2, 3)),
}


@pytest.mark.parametrize("bad", BAD)
def test_errors_are_eagers(bad):
    raises_as_eager(BAD[bad], X)
