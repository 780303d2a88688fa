"""What generated kernels call in Triton's interpreter: NumPy's functions in the place of libdevice's, on the arrays that blocks are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
import triton.language as tl
from triton.runtime.interpreter import TensorHandle


def _wrapped(data: np.ndarray, dtype: Any, *, scalar: bool = False) -> Any:
    """Return an array as a block; a scalar is an array of one element too."""
    if scalar:
        return tl.tensor(TensorHandle(data.reshape(1), dtype), dtype)
    return tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))


def _function(fn: Callable[..., np.ndarray]) -> Callable[..., Any]:
    """Apply `fn` to blocks, scalars and numbers; the result has the dtype of the first operand that is no number."""

    def call(*args: Any) -> Any:
        tensors = [x for x in args if isinstance(x, tl.tensor)]
        dtype, kind = tensors[0].dtype.scalar, tensors[0].handle.data.dtype
        arrays = [x.handle.data if isinstance(x, tl.tensor) else kind.type(getattr(x, "value", x)) for x in args]
        with np.errstate(all="ignore"):
            return _wrapped(np.asarray(fn(*arrays)).astype(kind), dtype, scalar=not any(x.type.is_block() for x in tensors))

    return call


acos, acosh, asin, asinh = map(_function, (np.arccos, np.arccosh, np.arcsin, np.arcsinh))
atan, atan2, atanh = map(_function, (np.arctan, np.arctan2, np.arctanh))
ceil, floor, round, trunc, copysign = map(_function, (np.ceil, np.floor, np.rint, np.trunc, np.copysign))
cos, cosh, sin, sinh, tan, tanh = map(_function, (np.cos, np.cosh, np.sin, np.sinh, np.tan, np.tanh))
erf, erfc, erfinv = map(_function, (scipy.special.erf, scipy.special.erfc, scipy.special.erfinv))
lgamma = _function(lambda x: np.where(np.isinf(x), np.inf, scipy.special.gammaln(x)))
exp, exp2, expm1, log, log1p, log2, log10 = map(_function, (np.exp, np.exp2, np.expm1, np.log, np.log1p, np.log2, np.log10))
div, fmod, pow, sqrt = map(_function, (np.divide, np.fmod, np.power, np.sqrt))
rsqrt = _function(lambda x: 1 / np.sqrt(x))


def to_bfloat16(x: Any) -> Any:
    """Round float32 to bfloat16, to the nearest and of two the even one; the interpreter holds the bits in uint16, and would cut them off."""
    bits = np.ascontiguousarray(x.handle.data, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = np.isnan(x.handle.data)
    return _wrapped(
        np.where(nan, np.uint32(0x7FC0), rounded).astype(np.uint16).reshape(x.handle.data.shape), tl.bfloat16, scalar=not x.type.is_block()
    )


def check(index: Any, size: Any, mask: Any) -> Any:
    """Return the index; an error where it is out of bounds."""
    held = np.broadcast_arrays(index.handle.data, mask.handle.data)
    wrong = ((held[0] < 0) | (held[0] >= int(getattr(size, "value", size)))) & held[1].astype(bool)
    if wrong.any():
        raise IndexError(f"index {held[0][wrong][0]} is out of bounds for a dimension of size {size}")
    return index


def _row(fn: Callable[..., np.ndarray]) -> Callable[[Any], Any]:
    """Return a reduction of the second dimension, which stays with size 1; NaN as NumPy has it, which is as eager."""

    def reduce(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return _wrapped(fn(x.handle.data, axis=1, keepdims=True).astype(x.handle.data.dtype), x.dtype.scalar)

    return reduce


reduce_amax, reduce_amin, reduce_prod = map(_row, (np.max, np.min, np.prod))


def _place(fn: Callable[..., np.ndarray]) -> Callable[[Any, Any], Any]:
    """Return the position of the element that is picked, the least of several."""

    def reduce(x: Any, position: Any) -> Any:
        data, places = np.broadcast_arrays(x.handle.data, position.handle.data)
        best = np.take_along_axis(data, fn(data, axis=1)[:, None], axis=1)
        ties = np.isnan(data) if data.dtype.kind == "f" else np.zeros(data.shape, bool)
        same = np.where(np.isnan(best), ties, data == best) if data.dtype.kind == "f" else data == best
        return _wrapped(np.where(same, places, np.iinfo(places.dtype).max).min(axis=1, keepdims=True), position.dtype.scalar)

    return reduce


reduce_argmax, reduce_argmin = map(_place, (np.argmax, np.argmin))
