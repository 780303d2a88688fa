"""erf and erfc.

erf is an odd polynomial near 0 and 1 - exp(-L(a)) further out.  erfc is exp(-a**2) G(t) / (1 + 2 a) with t = (a - K) / (a + K), which holds
a**2 in two parts, so that its relative error stays small as far as erfc reaches.  Where one is added to erf,
a polynomial L(a) = log2(erfc(a)) will do.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, element_of
from dovetail_llvm_exec.vmath.arithmetic import polynomial, rounding_sum, scaled, scaled_quickly, two_product
from dovetail_llvm_exec.vmath.coefficients import ERF, ERF_TAIL, ERFC, ERFC_LOG2, EXP2, EXP2_ROUGH, TAIL_LOG2, TAIL_LOG2_ROUGH
from dovetail_llvm_exec.vmath.exponential import exp_reduced, reduced

ERF_TURN = 0.9  # the polynomial up to here
ERF_ONE = {"float": 3.95, "double": 5.95}  # erf is 1 beyond
SHIFT = {"float": 0.0, "double": 1.0}  # the variable of L is a less this
CENTER = {"float": 2.0, "double": 3.75}  # K
ERFC_TURN = 0.81  # 1 - erf(x) up to here, where that is above 1/4
LOG2_NORMAL = -126.0  # 2**L is a normal number above
FARTHEST = 16.0  # both tails are 0 beyond, in float32, and the polynomials of L are below LOG2_NORMAL
ERFC_ZERO = {"float": 10.1, "double": 27.3}  # erfc is 0 beyond


def erf_near_zero(b: Builder, x: Value) -> Value:
    """erf(x) for abs(x) <= 0.9"""
    return b.muladd(polynomial(b, b.mul(x, x), ERF[element_of(x.type)]), x, x)


def erf(b: Builder, x: Value) -> Value:
    """Return the error function"""
    element = element_of(x.type)
    a = b.abs(x)
    near = erf_near_zero(b, x)
    y = b.at_most(a, ERF_ONE[element])
    if SHIFT[element]:
        y = b.sub(y, SHIFT[element])
    t, _, r = reduced(b, b.neg(polynomial(b, y, ERF_TAIL[element])))
    far = b.sub(b.constant(1.0, x.type), scaled_quickly(b, exp_reduced(b, r), t))
    return b.copysign(b.select(b.compare("gt", a, ERF_TURN), far, near), x)  # NaN takes the polynomial; -0 stays -0


def _sum_of_tails(b: Builder, x: Value, log2: Sequence[float], exp2: Sequence[float], whole: int) -> Value:
    """2**L(a) where x < 0, and `whole` - 2**L(a) above: L(a) = a Q(a) - 2 + whole, a = abs(x).  Its relative error grows as it vanishes."""
    a = b.at_most(b.abs(x), FARTHEST)
    y = b.mul(polynomial(b, a, log2), a) if whole == 2 else b.muladd(polynomial(b, a, log2), a, float(whole - 2))
    t, n = rounding_sum(b, b.at_least(y, LOG2_NORMAL), 1.0)
    r = b.sub(b.at_least(y, LOG2_NORMAL), n)
    tail = scaled(b, b.muladd(polynomial(b, r, exp2), r, 1.0), t)
    tail = b.select(b.compare("lt", y, LOG2_NORMAL), b.zero(x.type), tail)  # denormal numbers would cost a hundred cycles each
    return b.select(b.compare("lt", x, 0.0), tail, b.sub(b.constant(float(whole), x.type), tail))


def erf_plus_one(b: Builder, x: Value) -> Value:
    """erf(x) + 1; in float32 also where that is small"""
    if element_of(x.type) != "float":
        return b.add(erf(b, x), 1.0)
    return _sum_of_tails(b, x, ERFC_LOG2["float"], EXP2["float"], 2)


def normal_cdf(b: Builder, x: Value) -> Value:
    """Return how probable it is that a standard normal variable is below x, in float32: what gelu multiplies x by"""
    return _sum_of_tails(b, x, TAIL_LOG2["float"], EXP2["float"], 1)


def normal_cdf_roughly(b: Builder, x: Value) -> Value:
    """`normal_cdf` to 2**-16 of its value, for what is then rounded to 16 bits"""
    return _sum_of_tails(b, x, TAIL_LOG2_ROUGH["float"], EXP2_ROUGH["float"], 1)


def erfc(b: Builder, x: Value) -> Value:
    """1 - erf(x), precise also where that is small"""
    element = element_of(x.type)
    a = b.at_most(b.abs(x), ERFC_ZERO[element])
    square, rest = two_product(b, a, a)
    t, _, r = reduced(b, b.neg(square))
    ratio = b.div(b.sub(a, CENTER[element]), b.add(a, CENTER[element]))
    y = b.div(polynomial(b, ratio, ERFC[element]), b.muladd(a, 2.0, 1.0))
    e = exp_reduced(b, r)
    e = b.muladd(e, b.neg(rest), e)
    y = scaled(b, b.mul(e, y), t)
    y = b.select(b.compare("lt", x, 0.0), b.sub(b.constant(2.0, x.type), y), y)
    near = b.sub(b.constant(1.0, x.type), erf_near_zero(b, x))
    return b.select(b.compare("lt", a, ERFC_TURN), near, y)
