"""float32 to and from the formats of 16 bits, to nearest, denormal numbers included; NaN stays NaN.

These are integers of 16 bits wherever they are held: LLVM 22 calls functions that are nowhere for single bfloat on machines that lack it, and
ends the process where vectors of either format are moved under a mask.
"""

from __future__ import annotations

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, like
from dovetail_llvm_exec.vmath.arithmetic import float_bits

QUIET = 0x7FC00000  # a NaN


def to_bfloat(b: Builder, x: Value) -> Value:
    """float32 as bfloat16, by one instruction where it rounds all numbers, or where no lane holds one that it does not round"""
    if b.target.bfloat:
        return b.bits(b.convert(x, "bfloat"))
    if not b.target.quick_bfloat:
        return _rounded_bits(b, x)
    some = b.any(b.target.denormal(b, x))
    return b.branch(some, lambda: [_rounded_bits(b, x)], lambda: [b.bits(b.convert(x, "bfloat"))], rarely=True)[0]


def _rounded_bits(b: Builder, x: Value) -> Value:
    """float32 as bfloat16 in integers: half a unit is added, and less by one where that would round a tie to odd"""
    bits = b.bits(x)
    odd = b.and_(b.lshr(bits, 16), 1)
    up = b.add(bits, b.add(odd, 0x7FFF))
    kept = b.select(b.compare("uno", x, x), b.constant(QUIET, bits.type), up)
    return b.cast("trunc", b.lshr(kept, 16), like(x.type, "i16"))


def from_bfloat(b: Builder, x: Value) -> Value:
    """bfloat16 as float32: its bits come first"""
    return b.bitcast(b.shl(b.cast("zext", x, like(x.type, "i32")), 16), like(x.type, "float"))


def to_half(b: Builder, x: Value) -> Value:
    """float32 as float16"""
    if b.target.half:
        return b.bits(b.convert(x, "half"))
    bits, a = b.bits(x), b.abs(x)
    magnitude = b.bits(a)
    odd = b.and_(b.lshr(magnitude, 13), 1)
    usual = b.lshr(b.add(b.sub(magnitude, (127 - 15 << 23) - 0xFFF), odd), 13)
    small = b.sub(b.bits(b.add(a, 0.5)), float_bits(0.5, "float"))  # the sum's last place is float16's smallest number
    y = b.select(b.compare("lt", a, 2.0**-14), small, usual)
    y = b.select(b.compare("lt", a, 65520.0), y, b.constant(0x7C00, y.type))
    y = b.select(b.compare("uno", x, x), b.constant(0x7E00, y.type), y)
    y = b.or_(y, b.and_(b.lshr(bits, 16), 0x8000))
    return b.cast("trunc", y, like(x.type, "i16"))


def from_half(b: Builder, x: Value) -> Value:
    """float16 as float32"""
    if b.target.half:
        return b.convert(b.bitcast(x, like(x.type, "half")), "float")
    bits = b.cast("zext", x, like(x.type, "i32"))
    magnitude = b.and_(bits, 0x7FFF)
    finite = b.bits(b.mul(b.bitcast(b.shl(magnitude, 13), like(x.type, "float")), 2.0 ** (127 - 15)))
    special = b.or_(b.shl(magnitude, 13), 0x7F800000)
    y = b.select(b.compare("lt", magnitude, 0x7C00), finite, special)
    return b.bitcast(b.or_(y, b.shl(b.and_(bits, 0x8000), 16)), like(x.type, "float"))
