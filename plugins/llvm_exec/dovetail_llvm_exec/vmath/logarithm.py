"""log, log2, log10 and log1p.

x = m 2**e with sqrt(1/2) <= m < sqrt(2); with f = m - 1, which is exact, log(x) = e ln 2 + log(1 + f), and

    log(1 + f) = f - f**2 / 2 + f**3 P(f)                     in float32,
    log(1 + f) = f - (h - s (h + R)), s = f / (2 + f), h = f**2 / 2    in float64,

where R = s**2 P(s**2): both add the small terms first and lose nothing of f.
"""

from __future__ import annotations

from fractions import Fraction

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, element_of, integer_like
from dovetail_llvm_exec.vmath.arithmetic import (
    LN2,
    LN10,
    constant_pair,
    format_of,
    infinity,
    nan,
    parts,
    polynomial,
    quick_sum,
    rough_product,
    split_float,
    two_product,
    two_sum,
)
from dovetail_llvm_exec.vmath.coefficients import LOG, LOG2, LOG10, LOGS
from dovetail_llvm_exec.vmath.exponential import ln2_parts

TINY = {"float": 2.0**-30, "double": 2.0**-60}  # log(1 + x) rounds to x below


def of_log1p(b: Builder, f: Value) -> tuple[Value, Value]:
    """h = f**2 / 2 and g with log(1 + f) = f - h + g, for sqrt(1/2) <= 1 + f < sqrt(2)"""
    element = element_of(f.type)
    square = b.mul(f, f)
    h = b.mul(square, 0.5)
    if element == "float":
        return h, b.mul(b.mul(polynomial(b, f, LOG[element]), f), square)
    s = b.div(f, b.add(f, 2.0))
    w = b.mul(s, s)
    return h, b.mul(s, b.muladd(polynomial(b, w, LOGS[element]), w, h))


def log_of_parts(b: Builder, e: Value, f: Value) -> Value:
    """e ln 2 + log(1 + f)"""
    high, low = ln2_parts(element_of(f.type))
    h, g = of_log1p(b, f)
    small = b.sub(b.muladd(e, low, g), h)
    return b.muladd(e, high, b.add(small, f))


def with_edges(b: Builder, y: Value, x: Value) -> Value:
    """Return a logarithm with its values at infinity, NaN, 0 and below"""
    y = b.select(b.compare("lt", x, infinity(b, x)), y, x)
    y = b.select(b.compare("eq", x, 0.0), b.constant(float("-inf"), x.type), y)
    return b.select(b.compare("lt", x, 0.0), nan(b, x), y)


def log(b: Builder, x: Value) -> Value:
    """Return the natural logarithm"""
    e, m = split_float(b, x)
    return with_edges(b, log_of_parts(b, e, b.sub(m, 1.0)), x)


def log_in_base(b: Builder, x: Value, factor: Fraction, log_of_2: Fraction, coefficients: dict[str, tuple[float, ...]]) -> Value:
    """e log_of_2 + log(1 + f) factor; the sum is rounded once, all but"""
    element = element_of(x.type)
    e, m = split_float(b, x)
    f = b.sub(m, 1.0)
    high, low = parts(log_of_2, *((15, 24) if element == "float" else (41, 53))) if log_of_2 != 1 else (1.0, 0.0)
    if element == "float":
        big, small = two_product(b, f, b.constant(coefficients[element][0], x.type))
        small = b.muladd(f, b.mul(f, polynomial(b, f, coefficients[element][1:])), small)
    else:
        h, g = of_log1p(b, f)
        big, small = quick_sum(b, f, b.neg(h))
        big, small = rough_product(b, (big, b.add(small, g)), constant_pair(b, factor, x))
    whole = b.mul(e, high)
    total, lost = quick_sum(b, whole, big)  # e is 0, or its term is the larger one
    small = b.add(lost, small)
    return with_edges(b, b.add(total, b.muladd(e, low, small) if low else small), x)


def log2(b: Builder, x: Value) -> Value:
    """Return the logarithm to base 2; exact for powers of 2"""
    return log_in_base(b, x, 1 / LN2, Fraction(1), LOG2)


def log10(b: Builder, x: Value) -> Value:
    """Return the logarithm to base 10"""
    return log_in_base(b, x, 1 / LN10, LN2 / LN10, LOG10)


def log_of_sum(b: Builder, high: Value, low: Value, offset: Value | None = None) -> Value:
    """log(high + low) + offset ln 2, where low is what rounding took from high; positive finite numbers only"""
    fmt = format_of(high)
    e, m = split_float(b, high)
    limit = float(fmt.digits + 3)  # from there on `low` counts for nothing
    near = b.select(b.compare("lt", b.abs(e), limit), e, 0.0)
    low = b.select(b.compare("lt", e, limit), low, 0.0)
    inverse = b.sub(b.constant(fmt.magic_bits + fmt.bias, integer_like(high.type)), b.bits(b.add(near, fmt.magic)))
    power = b.bitcast(b.shl(inverse, fmt.digits), high.type)  # 2**-e
    f = b.add(b.sub(m, 1.0), b.mul(low, power))
    return log_of_parts(b, e if offset is None else b.add(e, offset), f)


def log1p(b: Builder, x: Value) -> Value:
    """log(1 + x), precise near 0: x itself where that is tiny, without a product that would be a denormal number"""
    tiny = b.compare("lt", b.abs(x), TINY[element_of(x.type)])
    high, low = two_sum(b, b.select(tiny, b.zero(x.type), x), b.constant(1.0, x.type))
    y = log_of_sum(b, high, low)
    y = b.select(b.compare("lt", x, infinity(b, x)), y, x)
    y = b.select(b.compare("eq", x, -1.0), b.constant(float("-inf"), x.type), y)
    y = b.select(b.compare("lt", x, -1.0), nan(b, x), y)
    return b.select(tiny, x, y)  # -0 stays -0
