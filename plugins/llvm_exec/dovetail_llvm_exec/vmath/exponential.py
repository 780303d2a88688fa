"""exp, exp2, expm1 and sigmoid.

exp(x) = 2**n exp(r) with n = round(x / ln 2) and r = x - n ln 2, where ln 2 has two parts: n times the first is exact.  The polynomials are
exp(r) = 1 + r + r**2 q(r), and 2**r = 1 + r q(r).
"""

from __future__ import annotations

from functools import cache

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, element_of
from dovetail_llvm_exec.vmath.arithmetic import LN2, format_of, parts, polynomial, power_of_two, ratio, rounding_sum, scaled, scaled_quickly
from dovetail_llvm_exec.vmath.coefficients import EXP, EXP2, EXPM1

LOG2E = float(1 / LN2)
RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}  # exp is 0 below, infinite above
SMALLEST = {"float": -103.972, "double": -745.13}  # it rounds to 0 below
OVERFLOW = {"float": -88.72283, "double": -709.782712893384}  # exp of the negated number is infinite below
RANGE2 = {"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)}
MINUS_ONE = {"float": -18.0, "double": -39.0}  # expm1 is -1 below


@cache
def ln2_parts(element: str) -> tuple[float, float]:
    """ln 2 in two parts, the first with so few digits that its product with an exponent is exact."""
    high, low = parts(LN2, 15, 24) if element == "float" else parts(LN2, 41, 53)
    return high, low


def clamped(b: Builder, x: Value, limits: dict[str, tuple[float, float]]) -> Value:
    """x within the limits; NaN stays"""
    low, high = limits[element_of(x.type)]
    return b.at_least(b.at_most(x, high), low)


def reduced(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """t, n and r: x = n ln 2 + r; t holds n in its low bits"""
    high, low = ln2_parts(element_of(x.type))
    t, n = rounding_sum(b, x, LOG2E)
    return t, n, b.muladd(n, -low, b.muladd(n, -high, x))


def exp_reduced(b: Builder, r: Value) -> Value:
    """exp(r) for abs(r) <= ln(2) / 2"""
    return b.muladd(b.muladd(polynomial(b, r, EXP[element_of(r.type)]), r, 1.0), r, 1.0)


def exp(b: Builder, x: Value) -> Value:
    """e to the power of x"""
    t, _, r = reduced(b, clamped(b, x, RANGE))
    return scaled(b, exp_reduced(b, r), t)


def exp_nonpositive(b: Builder, x: Value) -> Value:
    """exp(x) of x <= 0, and 0 where it rounds to 0: a softmax's exp"""
    smallest, up = SMALLEST[element_of(x.type)], format_of(x).bias // 2
    t, n, r = reduced(b, x)
    quick = b.target.scaled(b, exp_reduced(b, r), n)
    if quick is not None:
        return b.select(b.compare("uge", x, smallest), quick, b.zero(x.type))
    t, _, r = reduced(b, b.select(b.compare("lt", x, smallest), b.zero(x.type), x))  # no denormal number comes up where the result is 0
    y = b.mul(scaled_quickly(b, exp_reduced(b, r), t, up), 2.0**-up)  # rounded once, also into the denormal numbers
    return b.select(b.compare("ge", x, smallest), y, b.at_least(x, 0.0))  # NaN: x itself


def exp_negative(b: Builder, x: Value, smallest: dict[str, float] = SMALLEST) -> Value:
    """exp(x) of x <= 0, and 0 below `smallest`; no denormal number comes up on the way there, which would cost a hundred cycles"""
    zero = b.compare("lt", x, smallest[element_of(x.type)])
    t, _, r = reduced(b, b.select(zero, b.zero(x.type), x))
    return b.select(zero, b.zero(x.type), scaled(b, exp_reduced(b, r), t))  # NaN: the second, which is NaN


def exp2(b: Builder, x: Value) -> Value:
    """2 to the power of x"""
    x = clamped(b, x, RANGE2)
    t, n = rounding_sum(b, x, 1.0)
    r = b.sub(x, n)
    return scaled(b, b.muladd(polynomial(b, r, EXP2[element_of(x.type)]), r, 1.0), t)


def expm1_reduced(b: Builder, r: Value) -> Value:
    """exp(r) - 1 for abs(r) <= ln(2) / 2"""
    return b.muladd(b.mul(polynomial(b, r, EXPM1[element_of(r.type)]), r), r, r)


def expm1(b: Builder, x: Value) -> Value:
    """exp(x) - 1, precise near 0"""
    element = element_of(x.type)
    y = b.at_least(b.at_most(x, RANGE[element][1]), MINUS_ONE[element])
    t, _, r = reduced(b, y)
    half = power_of_two(b, t, -1)  # 2**n itself may be infinite where the result is not
    y = b.muladd(half, expm1_reduced(b, r), b.sub(half, 0.5))
    return b.copysign(b.add(y, y), x)  # and -0 stays -0


def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + exp(-x)), by the exp of a negative number on both sides: small results are precise, and 0 where exp(-x) overflows, as PyTorch's are"""
    e = exp_negative(b, b.neg(b.abs(x)), OVERFLOW)
    return b.mul(b.select(b.compare("lt", x, 0.0), e, 1.0), ratio(b, b.constant(1.0, x.type), b.add(e, 1.0)))
