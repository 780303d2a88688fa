"""How elements are held: in memory, and while they are computed with."""

from __future__ import annotations

import math
import struct
from typing import Any

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, bits_of_half, is_float, like, to_float32, vector
from dovetail_llvm_exec.vmath import halves

STORED = {
    **{dtypes.bool_: "i8", dtypes.uint8: "i8", dtypes.int8: "i8", dtypes.int16: "i16", dtypes.int32: "i32", dtypes.int64: "i64"},
    **{dtypes.bfloat16: "i16", dtypes.float16: "i16", dtypes.float32: "float", dtypes.float64: "double"},
}
COMPUTED = STORED | {dtypes.bool_: "i1", dtypes.bfloat16: "float", dtypes.float16: "float"}
HALVES = (dtypes.bfloat16, dtypes.float16)


def computed(dtype: DType, lanes: int = 1) -> str:
    """Return the type that values of `dtype` are computed with."""
    return vector(COMPUTED[dtype], lanes)


def stored(dtype: DType, lanes: int = 1) -> str:
    """Return the type that they have in memory."""
    return vector(STORED[dtype], lanes)


def narrowed(b: Builder, x: Value, dtype: DType) -> Value:
    """float32 rounded to bfloat16 or float16, to nearest; NaN stays NaN."""
    return (halves.to_bfloat if dtype is dtypes.bfloat16 else halves.to_half)(b, x)


def first_half(b: Builder, x: Value) -> Value:
    """Return a float32 that bfloat16 holds as it is in memory."""
    return b.cast("trunc", b.lshr(b.bits(x), 16), like(x.type, "i16"))


def widened(b: Builder, x: Value, dtype: DType) -> Value:
    """bfloat16 or float16 as float32."""
    return (halves.from_bfloat if dtype is dtypes.bfloat16 else halves.from_half)(b, x)


def rounded(b: Builder, x: Value, dtype: DType) -> Value:
    """`x` as the nearest number that `dtype` holds, still as it is computed with."""
    return widened(b, narrowed(b, x, dtype), dtype) if dtype in HALVES else x


def from_memory(b: Builder, x: Value, dtype: DType) -> Value:
    """Convert a loaded value to the type it is computed in."""
    if dtype is dtypes.bool_:
        return b.compare("ne", x, 0)
    return widened(b, x, dtype) if dtype in HALVES else x


def to_memory(b: Builder, x: Value, dtype: DType) -> Value:
    """Return what is stored."""
    if dtype is dtypes.bool_:
        return b.cast("zext", x, like(x.type, "i8"))
    return narrowed(b, x, dtype) if dtype in HALVES else x


def converted(b: Builder, x: Value, source: DType, dtype: DType) -> Value:
    """Convert a number, not yet rounded to 16 bits: floats to integers towards zero, to bool as x != 0, out of range as PyTorch's
    processor has it."""
    if source is dtype:
        return x
    if dtype is dtypes.bool_:
        return b.compare("ne", x, 0)
    if dtype.kind == "float":
        return _to_float(b, x, source, dtype)
    if source.kind != "float":
        return b.convert(x, COMPUTED[dtype], signed=source.signed)
    through = "i64" if dtype.bytes == 8 or dtype is dtypes.uint8 else "i32"
    whole = b.convert(x, through)
    return b.convert(whole, COMPUTED[dtype])


def _to_float(b: Builder, x: Value, source: DType, dtype: DType) -> Value:
    element = COMPUTED[dtype]
    if is_float(x.type) and source is dtypes.float64 and dtype in HALVES:
        return b.convert(x, element)  # by way of float32, as PyTorch does
    return b.convert(x, element, signed=source.signed)


def number(b: Builder, value: Any, dtype: DType, lanes: int = 1) -> Value:
    """Return a Python number as a constant."""
    if dtype.kind == "int":
        value = int(value)
        bits = dtype.bytes * 8
        value = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)  # as LLVM reads it
    elif dtype is dtypes.bool_:
        value = bool(value)
    return b.constant(value, computed(dtype, lanes))


def stored_half(b: Builder, value: float, dtype: DType, lanes: int = 1) -> Value:
    """Return the nearest number that bfloat16 or float16 holds, as it lies in memory."""
    bits = bits_of_half(nearest(value, dtype), "bfloat" if dtype is dtypes.bfloat16 else "half")
    return number(b, bits, dtypes.int16, lanes)


def nearest(value: float, dtype: DType) -> float:
    """Return the number nearest to `value` that a float of 16 bits holds; `value` itself for other dtypes."""
    if dtype not in HALVES or value != value or abs(value) == math.inf:
        return value
    if dtype is dtypes.float16:
        try:
            return struct.unpack("e", struct.pack("e", value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)
    bits = int.from_bytes(struct.pack("<f", to_float32(value)), "little")
    bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return struct.unpack("<f", bits.to_bytes(4, "little"))[0]
