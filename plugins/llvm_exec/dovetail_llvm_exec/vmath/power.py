"""pow: 2**(y log2(abs(x))), with as many digits in the product as the result needs, and the special cases of IEEE 754.

float32 computes in float64.  float64 holds log2 as a pair: with s = f / (2 + f) and w = s**2,

    log(1 + f) = 2 s + s w (2/3 + w Q(w)),

where all but w Q(w) is in twice the digits.
"""

from __future__ import annotations

from fractions import Fraction

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, bits_of, element_of
from dovetail_llvm_exec.vmath.arithmetic import (
    LN2,
    Pair,
    constant_pair,
    format_of,
    infinity,
    nan,
    polynomial,
    quick_sum,
    rough_product,
    rounding_sum,
    scaled,
    scaled_quickly,
    split_float,
    two_product,
    with_sign,
)
from dovetail_llvm_exec.vmath.coefficients import EXP2, LOG2S, POW
from dovetail_llvm_exec.vmath.exponential import RANGE2

LARGEST = {"float": 2.0**40, "double": 2.0**80}  # beyond, a y does to every x but 1 what infinity does


def log2_wide(b: Builder, x: Value) -> Value:
    """log2(x) of normal float64 to some 38 digits"""
    e, m = split_float(b, x)
    f = b.sub(m, 1.0)
    s = b.div(f, b.add(f, 2.0))
    return b.muladd(s, polynomial(b, b.mul(s, s), LOG2S["double"]), e)


def magnitude_float(b: Builder, x: Value, y: Value) -> Value:
    """x**y of positive float32, through float64"""
    product = b.mul(b.convert(y, "double"), log2_wide(b, b.convert(x, "double")))
    low, high = RANGE2["float"]
    product = b.at_least(b.at_most(product, high), low)
    t, n = rounding_sum(b, product, 1.0)
    r = b.sub(product, n)
    power = b.muladd(polynomial(b, r, EXP2["float"]), r, 1.0)
    return b.convert(scaled_quickly(b, power, t), "float")


def log2_pair(b: Builder, x: Value) -> Pair:
    """log2(x) of positive float64 to some 65 digits; each sum is of a larger and a smaller term"""
    e, m = split_float(b, x)
    f = b.sub(m, 1.0)
    below, below_low = quick_sum(b, b.constant(2.0, x.type), f)
    inverse = b.div(b.constant(1.0, x.type), below)
    s = b.mul(f, inverse)
    product, error = two_product(b, s, below)
    s_low = b.mul(b.sub(b.sub(b.sub(f, product), error), b.mul(s, below_low)), inverse)
    w, w_low = two_product(b, s, s)
    w_low = b.muladd(b.add(s, s), s_low, w_low)
    third, third_low = rough_product(b, (w, w_low), constant_pair(b, Fraction(2, 3), x))
    third_low = b.muladd(b.mul(w, w), polynomial(b, w, POW["double"]), third_low)
    more, more_low = rough_product(b, (s, s_low), (third, third_low))
    whole, whole_low = quick_sum(b, b.add(s, s), more)
    whole_low = b.add(whole_low, b.muladd(s_low, 2.0, more_low))
    fraction, fraction_low = rough_product(b, (whole, whole_low), constant_pair(b, 1 / LN2, x))
    high, low = quick_sum(b, e, fraction)
    return quick_sum(b, high, b.add(low, fraction_low))


def magnitude_double(b: Builder, x: Value, y: Value) -> Value:
    """x**y of positive float64"""
    log2, log2_low = log2_pair(b, x)
    high, low = two_product(b, log2, y)
    low = b.muladd(log2_low, y, low)
    least, most = RANGE2["double"]
    within = b.at_least(b.at_most(high, most), least)
    low = b.select(b.compare("eq", within, high), low, 0.0)
    t, n = rounding_sum(b, within, 1.0)
    r = b.add(b.sub(within, n), low)
    return scaled(b, b.muladd(polynomial(b, r, EXP2["double"]), r, 1.0), t)


def is_whole(b: Builder, x: Value) -> Value:
    """Return whether x >= 0 is an integer; infinity is one"""
    large = 2.0 ** format_of(x).digits
    return b.or_(b.compare("ge", x, large), b.compare("eq", b.sub(b.add(x, large), large), x))


def pow(b: Builder, x: Value, y: Value) -> Value:
    """x to the power of y"""
    ax, ay = b.abs(x), b.abs(y)
    limit = LARGEST[element_of(x.type)]
    magnitude = magnitude_float if element_of(x.type) == "float" else magnitude_double
    z = magnitude(b, ax, b.at_least(b.at_most(y, limit), -limit))
    zero, top = b.zero(x.type), infinity(b, x)
    falling = b.compare("lt", y, 0.0)
    z = b.select(b.compare("eq", ax, 0.0), b.select(falling, top, zero), z)
    z = b.select(b.compare("eq", ax, top), b.select(falling, zero, top), z)
    whole = is_whole(b, ay)
    odd = b.and_(whole, b.not_(is_whole(b, b.mul(ay, 0.5))))
    sign = b.and_(b.bits(x), -(1 << (bits_of(x.type) - 1)))
    z = b.select(odd, with_sign(b, z, sign), z)
    undefined = b.and_(b.and_(b.compare("lt", x, 0.0), b.compare("lt", ax, top)), b.not_(whole))
    z = b.select(b.or_(undefined, b.compare("uno", x, y)), nan(b, x), z)
    return b.select(b.or_(b.compare("eq", y, 0.0), b.compare("eq", x, 1.0)), b.constant(1.0, x.type), z)
