"""The grad rule of attention on CUDA devices, without one: which kernel it calls, and that results lie as PyTorch's own metas say."""

import pytest
import torch

from dovetail import dtypes
from dovetail.devices import device
from dovetail.langs.torch import FROM_TORCH
from dovetail.prims import TensorSpec
from dovetail_torch_exec import attention

aten = torch.ops.aten


def packed(batch=2, heads=4, length=48, width=16, dtype=torch.bfloat16):
    """Query, key and value as one linear layer leaves them."""
    return torch.empty(batch, length, 3, heads, width, dtype=dtype, device="meta").permute(2, 0, 3, 1, 4)


def spec(x):
    return TensorSpec(tuple(x.shape), FROM_TORCH[x.dtype], device("cuda:0"), tuple(x.stride()))


def agrees(found, wanted):
    assert (found.shape, found.steps, found.dtype) == (tuple(wanted.shape), tuple(wanted.stride()), FROM_TORCH[wanted.dtype])


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_flash_attention_lies_as_pytorch_says(dtype):
    x = packed(dtype=dtype)
    specs = [spec(t) for t in x]
    assert attention._kernel(*specs, True) == (attention.flash_forward, attention.flash_backward)
    out, sums = attention._flash(*x, is_causal=True, scale=None)
    theirs = aten._scaled_dot_product_flash_attention.default(*x, 0.0, True)
    for found, mine, wanted in zip(attention._flash_meta(*specs), (out, sums), theirs):
        agrees(found, mine)
        agrees(found, wanted)
    grads = attention._flash_backward(torch.empty_like(out), *x, out, sums, is_causal=True, scale=0.5)
    for found, mine in zip(attention._grads_meta(specs[0], *specs), grads, strict=True):
        agrees(found, mine)


def test_the_memory_efficient_kernel_lies_as_pytorch_says():
    x = packed(dtype=torch.float32)
    specs = [spec(t) for t in x]
    assert attention._kernel(*specs, False) == (attention.efficient_forward, attention.efficient_backward)
    out, sums = attention._efficient(*x, is_causal=False, scale=None)
    theirs = aten._scaled_dot_product_efficient_attention.default(*x, None, True)
    for found, mine, wanted in zip(attention._efficient_meta(*specs), (out, sums), theirs):
        agrees(found, mine)
        agrees(found, wanted)
    grads = attention._efficient_backward(torch.empty_like(out), *x, out, sums, is_causal=False, scale=None)
    for found, mine in zip(attention._grads_meta(specs[0], *specs), grads, strict=True):
        agrees(found, mine)


def test_what_no_kernel_takes_is_left_to_the_decomposition():
    q, k, v = (spec(t) for t in packed())
    longer = spec(packed(length=64)[1])
    assert attention._kernel(q, longer, longer, True) is None  # the kernels see another triangle there
    assert attention._kernel(*(spec(t) for t in packed(width=6, dtype=torch.float32)), False) is None
    assert attention._kernel(*(TensorSpec(x.shape, dtypes.float64, x.device, x.steps) for x in (q, k, v)), False) is None


def test_what_a_kernel_lays_out_otherwise_is_copied():
    x = torch.arange(24.0).reshape(2, 3, 4)
    same = attention._laid_out(x, (12, 4, 1))
    other = attention._laid_out(x, (1, 2, 6))
    assert same is x
    assert other.stride() == (1, 2, 6) and torch.equal(other, x)
