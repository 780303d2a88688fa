"""Comparing the memory of tensors: equal bytes are equal tensors, and what is laid out otherwise is left to torch.equal."""

from __future__ import annotations

import math

import pytest
import torch

from dovetail.executors.dispatching.same_bytes import same_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 5), (2, 3, 4, 5), (1025,)], ids=str)
def test_each_element_counts(dtype, shape):
    x = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    assert same_bytes(x, x.clone()) is bool(x.numel())  # which torch.equal tells of empty ones
    for i in {0, x.numel() // 2, x.numel() - 1} if x.numel() else ():
        y = x.clone()
        y.view(-1)[i] = ~y.view(-1)[i] if dtype is torch.bool else -1 - y.view(-1)[i]
        assert not same_bytes(x, y)


def test_nan_is_nan_and_the_zeros_differ():
    nan = torch.tensor([1.0, math.nan])
    assert same_bytes(nan, nan.clone())
    assert not same_bytes(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_only_equal_layouts_without_gaps_are_compared():
    x = torch.randn(2, 3, 4, 5)
    last = x.to(memory_format=torch.channels_last)
    assert same_bytes(last, last.clone(memory_format=torch.channels_last))
    others = (last, x.double(), x.flatten(), x.to("meta"), x.to_sparse(), x.transpose(0, 1))
    assert not any(same_bytes(x, y) for y in others)
    assert not same_bytes(x[:, ::2], x[:, ::2].clone())
    z = torch.randn(3, dtype=torch.complex64)
    assert not same_bytes(z.conj(), z.clone())
    assert not same_bytes(x.expand(2, 2, 3, 4, 5), x.expand(2, 2, 3, 4, 5))


def test_what_has_no_memory_is_not_read():
    zeros = torch._efficientzerotensor((2, 3))
    assert not same_bytes(zeros, torch.zeros(2, 3))
    assert not same_bytes(torch.zeros(2, 3), zeros)
    freed = torch.zeros(2, 3)
    freed.untyped_storage().resize_(0)
    assert not same_bytes(freed, torch.zeros(2, 3))
