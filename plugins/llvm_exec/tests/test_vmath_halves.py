"""The formats of 16 bits: every number of them, and float32 next to each place where rounding turns."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
import torch

from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir import module as ir
from dovetail_llvm_exec.ir.target import host
from dovetail_llvm_exec.ir.values import vector
from dovetail_llvm_exec.vmath import halves

TARGETS = {"instructions": host(), "integers": replace(host(), half=False, bfloat=False, quick_bfloat=False)}
FORMATS = {"half": (torch.float16, halves.to_half, halves.from_half), "bfloat": (torch.bfloat16, halves.to_bfloat, halves.from_bfloat)}


def mapped(target, write, source: str, result: str, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """`write(b, x)` over a tensor whose size the number of lanes divides."""
    lanes = target.lanes("float")
    module = ir.Module(target)
    b = module.function("f", "void", [("x", "ptr"), ("out", "ptr"), ("n", "i64")])
    px, po, n = b.params
    with ir.for_range(b, 0, n, lanes) as i:
        b.store(write(b, b.load(vector(source, lanes), b.address(px, source, i))), b.address(po, result, i))
    b.ret()
    kernel = jit.Compiler().compile(module.text(), "f")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(kernel.address)(x.data_ptr(), out.data_ptr(), x.numel())
    return out


def assert_same(computed: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal by their bits, and NaN wherever the other is."""
    assert torch.equal(computed.isnan(), expected.isnan())
    bits = torch.int32 if computed.dtype is torch.float32 else torch.int16
    numbers = ~computed.isnan()
    assert torch.equal(computed[numbers].view(bits), expected[numbers].view(bits))


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_number_widens(target, element):
    dtype, _, widen = FORMATS[element]
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    assert_same(mapped(TARGETS[target], widen, "i16", "float", x, torch.empty(x.numel())), x.float())


def hard_to_round(dtype: torch.dtype) -> torch.Tensor:
    """float32 of all sorts, and those next to where rounding turns."""
    anywhere = torch.from_numpy(np.arange(0, 1 << 32, 4099, dtype=np.uint32).view(np.float32).copy())
    around = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    bits = around.view(torch.int32)
    ties = [(bits + shift).view(torch.float32) for at in (1 << 12, 1 << 15) for shift in (at - 1, at, at + 1, -1, 1)]
    halfway = [around * factor for factor in (1 + 2.0**-11, 1 - 2.0**-11, 1.5, 0.5)]  # among them ties of denormal numbers
    x = torch.cat([anywhere, around, *ties, *halfway])
    return x[: x.numel() // 64 * 64].contiguous()


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
def test_rounding_is_torchs(target, element):
    dtype, narrow, _ = FORMATS[element]
    x = hard_to_round(dtype)
    assert_same(mapped(TARGETS[target], narrow, "float", "i16", x, torch.empty(x.numel(), dtype=dtype)), x.to(dtype))
