"""Reductions of overlapping windows, as in pooling: what the windows show is computed once, and vectors of results lie side by side."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import assert_like_eager, compiled, program_of
from torch.nn import functional as F

POOLS = {
    "average": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "average of what is inside": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "average, apart": lambda x: F.avg_pool2d(x, 2, 2),
    "average, 5 wide": lambda x: F.avg_pool2d(x, (1, 5), 1, (0, 2)),
    "average of 25": lambda x: F.avg_pool2d(x, 5, 1, 2),
    "average of 49": lambda x: F.avg_pool2d(x, 7, 1, 3),
    "average, rounded up": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average, with gaps": lambda x: F.avg_pool2d(x, 2, 5),
    "largest": lambda x: F.max_pool2d(x, 3, 1, 1),
    "largest, apart": lambda x: F.max_pool2d(x, 3, 2, 1),
    "largest, dilated": lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2),
    "of rows": lambda x: F.avg_pool1d(x.flatten(2), 4, 1, 2),
    "of a volume": lambda x: F.avg_pool3d(x[None], 3, 1, 1),
    "unfolded": lambda x: x.unfold(-1, 4, 1).sum(-1) - x.unfold(-2, 2, 1).prod(-1).amax(),
}
SOURCES = {
    "input": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "normalized": lambda x: F.relu((x - 0.1) * torch.rsqrt(x[:, :1] ** 2 + 1) * 1.5 + 0.2),
    "softmax": lambda x: x.softmax(1),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("pool", POOLS)
def test_windows_of_what_was_computed(pool, source):
    x = torch.randn(2, 3, 13, 19)
    assert_like_eager(lambda x: POOLS[pool](SOURCES[source](x)), x, scale=8.0)


@pytest.mark.parametrize("pool", POOLS)
def test_what_windows_show_is_a_result_too(pool):
    def fn(x):
        y = F.gelu(x) * 2
        return y, POOLS[pool](y), y.sum((2, 3)), y + 1

    assert_like_eager(fn, torch.randn(2, 3, 13, 19), scale=8.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_dtypes_and_layouts(dtype, format):
    x = torch.randn(2, 8, 14, 15).to(dtype).to(memory_format=format)
    for pool in ("average", "average of what is inside", "largest"):
        assert_like_eager(lambda x, pool=pool: POOLS[pool](F.gelu(x)), x, scale=8.0)


def test_nan_and_infinities_in_windows():
    x = torch.randn(1, 2, 9, 33)
    x[0, 0, 4, 5], x[0, 1, 0, 0], x[0, 1, 8, 32] = float("nan"), float("inf"), -float("inf")
    for pool in ("average", "largest", "largest, apart"):
        assert_like_eager(lambda x, pool=pool: POOLS[pool](F.relu(x)), x, scale=8.0)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_windows_with_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        fn = compiled(lambda x, s: (lambda y: y + s * (POOLS["average of what is inside"](y) - y))(SOURCES["normalized"](x)))
        for seed in range(3):
            torch.manual_seed(seed)
            x, s = torch.randn(4, 31, 57, 61), torch.randn(31, 1, 1)
            y = SOURCES["normalized"](x)
            torch.testing.assert_close(fn(x, s), y + s * (POOLS["average of what is inside"](y) - y), rtol=1e-4, atol=1e-5)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("source", "nests"), [("input", 1), ("relu", 1), ("gelu", 2), ("normalized", 2)])
def test_what_takes_several_operations_is_stored_for_windows(source, nests):
    for pool, sums in (("average", 1), ("largest", 0), ("average, apart", 1)):  # those of one dimension are stored for the other
        assert program_of(lambda x, pool=pool: POOLS[pool](SOURCES[source](x)), torch.randn(2, 3, 40, 40)).groups == nests + sums


@pytest.mark.parametrize("fn", [lambda x: F.max_pool1d(x, 2), lambda x: F.avg_pool1d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1)])
@pytest.mark.parametrize("source", ["input", "relu"])
def test_vectors_of_windows_that_lie_a_few_steps_apart(source, fn):
    text = program_of(lambda x: fn(SOURCES[source](x)), torch.randn(4, 64, 64)).module.text()
    assert "phi <" not in text and "store <" in text  # no reduction of each window: vectors hold elements of the result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_short_rows(length, dtype):
    x = (torch.randn(77, length) * 8).to(dtype)
    assert_like_eager(lambda x: x.sum(-1) - (x * x).sum(-1) + x.amax(-1), x, scale=8.0)
    assert_like_eager(lambda x: (x.float().softmax(-1), x / x.float().abs().sum(-1, keepdim=True).clamp(min=1)), x, scale=8.0)


def test_gradients_of_windows():
    def loss(x):
        return (POOLS["average"](F.gelu(x)) * POOLS["largest"](F.gelu(x * 2))).sum()

    x = torch.randn(2, 3, 17, 16, requires_grad=True)
    (ours,), (theirs,) = (torch.autograd.grad(fn(x), x) for fn in (compiled(loss), loss))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_windows_of_sizes_that_change():
    fn = compiled(lambda x: POOLS["average of what is inside"](F.gelu(x)) + POOLS["largest"](F.silu(x)))
    for shape in ((2, 3, 12, 12), (3, 3, 12, 12), (5, 3, 16, 14), (4, 3, 9, 21), (7, 3, 30, 31)):
        x = torch.randn(shape)
        torch.testing.assert_close(fn(x), POOLS["average of what is inside"](F.gelu(x)) + POOLS["largest"](F.silu(x)), rtol=1e-4, atol=1e-5)


def differences(x):
    """The steps of x along both dimensions, written into windows of zeros one after another."""
    steps = torch.zeros(2, *x.shape)
    steps[0, :-1] = steps[0, :-1] - x[:-1]
    steps[0, :-1] = steps[0, :-1] + x[1:]
    steps[1, :, :-1] = steps[1, :, :-1] - x[:, :-1]
    steps[1, :, :-1] = steps[1, :, :-1] + x[:, 1:]
    return steps


def divergence(steps):
    x = torch.zeros(steps.shape[1:])
    x[:-1] = x[:-1] - steps[0, :-1]
    x[1:] = x[1:] + steps[0, :-1]
    x[:, :-1] = x[:, :-1] - steps[1, :, :-1]
    x[:, 1:] = x[:, 1:] + steps[1, :, :-1]
    return x


def test_windows_of_windows_are_stored_before_they_double_once_more():
    def smoothed(x):
        steps = differences(x)
        for _ in range(6):  # each turn reads windows of what the last one wrote into windows
            steps = (steps - 0.1 * differences(divergence(steps))).clamp(-1, 1)
        return divergence(steps)

    x = torch.rand(12, 12)
    assert_like_eager(smoothed, x)
