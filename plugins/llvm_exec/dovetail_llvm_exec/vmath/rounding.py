"""floor, ceil, trunc and round to even: one instruction, or where a machine has none, a sum that is too large to keep a fraction."""

from __future__ import annotations

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.vmath.arithmetic import format_of


def nearest(b: Builder, x: Value) -> Value:
    """Return the nearest integer to abs(x), the even one of two; abs(x) itself where it is that large or NaN"""
    a, large = b.abs(x), 2.0 ** format_of(x).digits
    return b.select(b.compare("lt", a, large), b.sub(b.add(a, large), large), a)


def round(b: Builder, x: Value) -> Value:
    """Return the nearest integer, the even one of two"""
    return b.intrinsic("roundeven", x) if b.target.rounding else b.copysign(nearest(b, x), x)


def trunc(b: Builder, x: Value) -> Value:
    """x without its fraction"""
    if b.target.rounding:
        return b.intrinsic("trunc", x)
    y = nearest(b, x)
    return b.copysign(b.sub(y, b.select(b.compare("gt", y, b.abs(x)), b.constant(1.0, x.type), 0.0)), x)


def floor(b: Builder, x: Value) -> Value:
    """Return the greatest integer that is not above x"""
    if b.target.rounding:
        return b.intrinsic("floor", x)
    y = b.copysign(nearest(b, x), x)
    return b.copysign(b.sub(y, b.select(b.compare("gt", y, x), b.constant(1.0, x.type), 0.0)), x)


def ceil(b: Builder, x: Value) -> Value:
    """Return the least integer that is not below x"""
    if b.target.rounding:
        return b.intrinsic("ceil", x)
    y = b.copysign(nearest(b, x), x)
    return b.copysign(b.add(y, b.select(b.compare("lt", y, x), b.constant(1.0, x.type), 0.0)), x)
