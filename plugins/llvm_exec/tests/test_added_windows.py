"""Windows that are added where they overlap: each way to write the sum, dtypes, layouts, symbolic sizes, gradients of poolings."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_against_eager import EX, assert_same
from torch.nn import functional as F

import dovetail

WAYS = {  # size, step and count of windows
    "elements of each phase": (3, 2, 20),
    "one phase": (4, 1, 20),
    "three phases": (8, 3, 20),
    "side by side": (4, 4, 20),
    "side by side, large": (40, 40, 20),
    "with gaps": (2, 5, 20),
    "pieces": (20, 8, 20),
    "pieces, whole": (24, 8, 20),
    "few windows": (40, 3, 5),
    "one window": (9, 2, 1),
    "left to PyTorch": (100, 3, 20),
}


def backward(fn, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, str]:
    """The gradients of `fn` compiled and in eager mode, and the program of the former."""
    ours = dovetail.jit(fn, executors=[EX, "torch"])
    grads = []
    for each in (ours, fn):
        leaf = x.detach().clone().requires_grad_()
        out = each(leaf)
        torch.manual_seed(1)
        out.backward(torch.randn(out.shape).to(out.dtype))
        grads.append(leaf.grad)
    return *grads, dovetail.last_backward_traces(ours)[-1].python()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_windows_of_a_dimension(way, dim, dtype):
    size, step, count = WAYS[way]
    shape = [3, 4, 5]
    shape[dim] = size + (count - 1) * step + 2  # the last elements are in no window
    x = torch.randn(shape).to(dtype)
    got, want, text = backward(lambda x: x.unfold(dim, size, step) * 2, x)
    assert_same(got, want, scale=8.0)
    assert ("torch_exec.fold_add" in text) is (way == "left to PyTorch")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 20])
def test_sums_have_as_few_parts_as_windows_or_elements_of_them(count):
    """The parts of a sum in a sum multiply, and each is code that is compiled."""
    *_, text = backward(lambda x: x.unfold(0, 3, 1) * 2, torch.randn(2 + count))
    assert text.count("prims.pad(") == min(count, 3)


@settings(deadline=None, max_examples=40)
@given(st.tuples(*[st.integers(1, 12)] * 3), st.integers(0, 11), st.integers(0, 1))
def test_any_windows(window, rest, dim):
    size, step, count = window
    shape = [2, 2]
    shape[dim] = size + (count - 1) * step + rest % step
    x = torch.zeros(shape, requires_grad=True)
    out = dovetail.jit(lambda x: x.unfold(dim, size, step) * 2, executors=[EX, "torch"])(x)
    windows = torch.randint(-4, 5, out.shape).float()
    out.backward(windows)
    want = torch.zeros(shape)
    for i in range(count):
        want.narrow(dim, i * step, size).add_(2 * windows.select(dim, i).movedim(-1, dim))
    assert torch.equal(x.grad, want)


POOLS = {
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average, every place": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "average, apart": lambda x: F.avg_pool2d(x, 2),
    "average of what is inside": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "average, rounded up": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "of rows": lambda x: F.avg_pool1d(x.flatten(2), 4, 3, 2),
    "of a volume": lambda x: F.avg_pool3d(x[None], 3, 2, 1),
    "norm": lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 3, 2),
    "unfolded": lambda x: F.unfold(x, 3, padding=1),
    "unfolded, dilated": lambda x: F.unfold(x, 3, dilation=2, padding=2),
    "unfolded, dilated and strided": lambda x: F.unfold(x, (3, 2), dilation=(2, 3), padding=2, stride=(2, 3)),
    "folded": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1),
    "folded, dilated and strided": lambda x: F.fold(
        F.unfold(x, 3, dilation=2, padding=2, stride=3), x.shape[-2:], 3, dilation=2, padding=2, stride=3
    ),
}


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("pool", POOLS)
def test_gradients_of_pools(pool, format):
    x = torch.randn(2, 3, 13, 19).to(memory_format=format)
    got, want, _ = backward(POOLS[pool], x)
    assert_same(got, want, scale=8.0)


@pytest.mark.parametrize("pool", POOLS)
def test_gradients_with_symbolic_sizes(pool):
    ours = dovetail.jit(POOLS[pool], executors=[EX, "torch"])
    for height, width in ((13, 19), (14, 21), (17, 16), (31, 40), (32, 41), (15, 12), (29, 44)):
        grads = []
        for each in (ours, POOLS[pool]):
            torch.manual_seed(0)
            leaf = torch.randn(2, 3, height, width).requires_grad_()
            each(leaf).square().sum().backward()
            grads.append(leaf.grad)
        assert_same(*grads, scale=16.0)
    assert len(dovetail.cache_misses(ours)) <= 4
