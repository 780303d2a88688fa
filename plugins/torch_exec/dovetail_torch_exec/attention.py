"""Attention on CUDA devices, forward and backward, by the kernels that PyTorch has for it: flash attention, else the memory-efficient one.

Both keep one number for each row, the logarithm of its sum of exponentials, where the decomposition would keep the weights themselves.
Neither draws here, so the states of the generator that they ask for are empty.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.extend import Tag, TensorSpec, get_grad, put_grad
from dovetail.extend.advanced import Symbol
from dovetail.prims.spec import dense, laid_out
from dovetail_torch_exec.fused import aten, fused

WIDEST = 256  # elements of a head that flash attention takes
ALIGNED = 16  # bytes that the memory-efficient kernel reads at once
HEADS_INSIDE = (0, 2, 1, 3)  # [batch, length, heads, width] in memory


def rule(query: Any, key: Any, value: Any, is_causal: bool, scale: float | None) -> Any:
    """Return the grad rule of attention without mask and dropout; NotImplemented where no kernel takes these tensors."""
    q, k, v = query.spec, key.spec, value.spec
    kernels = _kernel(q, k, v, is_causal)
    if kernels is None:
        return NotImplemented
    forward, backward = kernels
    out, sums = forward(query, key, value, is_causal=is_causal, scale=scale)
    grads = backward(get_grad(out), query, key, value, out, sums, is_causal=is_causal, scale=scale)
    for x, gx in zip((query, key, value), grads, strict=True):
        put_grad(x, gx)
    return out


def _kernel(q: TensorSpec, k: TensorSpec, v: TensorSpec, is_causal: bool) -> tuple[Symbol, Symbol] | None:
    """Return the forward and the backward that take these tensors, as eager PyTorch would choose."""
    heads = q.device.type == "cuda" and q.rank == k.rank == v.rank == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2]
    square = not is_causal or (heads and q.shape[2] == k.shape[2])
    if not heads or not square or not (q.numel and k.numel) or q.shape[3] != v.shape[3] or not (q.steps[3] == k.steps[3] == v.steps[3] == 1):
        return None
    width = q.shape[3]
    if q.dtype in (dtypes.float16, dtypes.bfloat16) and width % 8 == 0 and width <= WIDEST and torch.backends.cuda.flash_sdp_enabled() and _ampere():
        return flash_forward, flash_backward
    narrow = q.dtype is dtypes.float32 or (q.dtype is dtypes.bfloat16 and _ampere()) or q.dtype is dtypes.float16
    even = all([step * q.dtype.bytes % ALIGNED == 0 for x in (q, k, v) for step in x.steps[:3]])
    if narrow and even and width * q.dtype.bytes % ALIGNED == 0 and torch.backends.cuda.mem_efficient_sdp_enabled():
        return efficient_forward, efficient_backward
    return None


def _ampere() -> bool:
    """Return whether the device is of compute capability 8.0 or more; one that is not here is taken for one."""
    return not torch.cuda.is_available() or (torch.version.hip is None and torch.cuda.get_device_capability() >= (8, 0))


def _laid_out(x: Tensor, like: tuple[int, ...]) -> Tensor:
    """Return x with the strides that the program was planned with; a copy where a kernel chose others."""
    return x if x.stride() == like or all(n == 1 or a == b for n, a, b in zip(x.shape, x.stride(), like, strict=True)) else _copied(x, like)


def _copied(x: Tensor, like: tuple[int, ...]) -> Tensor:
    return torch.empty_strided(x.shape, like, dtype=x.dtype, device=x.device).copy_(x)


def _steps(x: Tensor) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose dimensions lie in the order of those of x."""
    return torch.empty_like(x, device="meta").stride()


def _inside(x: Tensor) -> tuple[int, ...]:
    """Return the strides of a dense tensor of this shape with its heads inside."""
    _, heads, length, width = x.shape
    return (heads * length * width, width, heads * width, 1)


def _flash(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float | None) -> tuple[Tensor, Tensor]:
    out, sums, *_ = aten("_scaled_dot_product_flash_attention.default")(q, k, v, 0.0, is_causal, False, scale=scale)
    return _laid_out(out, _steps(q)), sums


def _flash_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, *, is_causal: bool, scale: float | None
) -> tuple[Tensor, ...]:
    state = torch.empty(2, dtype=torch.uint64, device=q.device), torch.empty((), dtype=torch.uint64, device=q.device)
    grads = aten("_scaled_dot_product_flash_attention_backward.default")(
        g, q, k, v, out, sums, None, None, q.shape[2], k.shape[2], 0.0, is_causal, *state, scale=scale
    )
    return tuple(_laid_out(gx, _inside(x)) for gx, x in zip(grads, (q, k, v), strict=True))


def _efficient(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float | None) -> tuple[Tensor, Tensor]:
    out, sums, *_ = aten("_scaled_dot_product_efficient_attention.default")(q, k, v, None, True, 0.0, is_causal, scale=scale)
    return _laid_out(out, _inside(q)), sums


def _efficient_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, *, is_causal: bool, scale: float | None
) -> tuple[Tensor, ...]:
    state = [torch.empty((), dtype=torch.int64, device=q.device) for _ in range(2)]
    grads = aten("_scaled_dot_product_efficient_attention_backward.default")(
        g, q, k, v, None, out, sums, *state, 0.0, [True, True, True, False], is_causal, scale=scale
    )
    return tuple(_laid_out(gx, _inside(x)) for gx, x in zip(grads, (q, k, v)))


def _flash_meta(q: TensorSpec, k: TensorSpec, v: TensorSpec, **_: Any) -> tuple[TensorSpec, TensorSpec]:
    return dense(q), q.fresh(q.shape[:3], dtypes.float32)


def _efficient_meta(q: TensorSpec, k: TensorSpec, v: TensorSpec, **_: Any) -> tuple[TensorSpec, TensorSpec]:
    rows = -(-q.shape[2] // 32) * 32
    return laid_out(q.fresh(), HEADS_INSIDE), q.fresh((*q.shape[:2], rows), dtypes.float32)


def _grads_meta(g: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, **__: Any) -> tuple[TensorSpec, ...]:
    return tuple(laid_out(x.fresh(), HEADS_INSIDE) for x in (q, k, v))


flash_forward = fused("flash_attention", _flash, _flash_meta, (Tag.MATMUL,), ("cuda",))
flash_backward = fused("flash_attention_backward", _flash_backward, _grads_meta, (Tag.MATMUL,), ("cuda",))
efficient_forward = fused("efficient_attention", _efficient, _efficient_meta, (Tag.MATMUL,), ("cuda",))
efficient_backward = fused("efficient_attention_backward", _efficient_backward, _grads_meta, (Tag.MATMUL,), ("cuda",))
