"""tanh, sinh, cosh and their inverses.

Near 0 the first two are odd polynomials; further out they come from one exp.  The inverses are log1p of something small where they are small.
"""

from __future__ import annotations

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, element_of
from dovetail_llvm_exec.vmath.arithmetic import format_of, infinity, nan, polynomial, ratio, scaled, scaled_quickly, two_sum
from dovetail_llvm_exec.vmath.coefficients import SINH, TANH
from dovetail_llvm_exec.vmath.exponential import exp_reduced, reduced, sigmoid
from dovetail_llvm_exec.vmath.logarithm import log_of_sum

TANH_TURN = 0.6  # the polynomial up to here
TANH_ONE = {"float": 9.25, "double": 19.5}  # tanh is 1 beyond
SINH_TURN = 1.0
OVERFLOW = {"float": 90.0, "double": 711.0}  # sinh and cosh are infinite beyond


def odd(b: Builder, x: Value, coefficients: dict[str, tuple[float, ...]]) -> Value:
    """x + x z T(z), z = x**2"""
    z = b.mul(x, x)
    return b.muladd(b.mul(polynomial(b, z, coefficients[element_of(x.type)]), z), x, x)


def tanh(b: Builder, x: Value) -> Value:
    """Return the hyperbolic tangent: 1 - 2 / (exp(2 abs(x)) + 1) beyond the polynomial"""
    a = b.abs(x)
    y = b.at_most(a, TANH_ONE[element_of(x.type)])
    t, _, r = reduced(b, b.add(y, y))
    e = scaled_quickly(b, exp_reduced(b, r), t)
    far = b.sub(b.constant(1.0, x.type), ratio(b, b.constant(2.0, x.type), b.add(e, 1.0)))
    near = odd(b, x, TANH)
    return b.copysign(b.select(b.compare("gt", a, TANH_TURN), far, near), x)  # NaN takes the polynomial; -0 stays -0


def tanh_plus_one(b: Builder, x: Value) -> Value:
    """tanh(x) + 1 = 2 / (1 + exp(-2 x)): what gelu multiplies by, precise also where it is small"""
    y = sigmoid(b, b.add(x, x))
    return b.add(y, y)


def half_exp(b: Builder, a: Value) -> Value:
    """exp(a) / 2 for a >= 0, also where exp(a) itself overflows"""
    t, _, r = reduced(b, b.at_most(a, OVERFLOW[element_of(a.type)]))
    return scaled(b, exp_reduced(b, r), t, -1)


def sinh(b: Builder, x: Value) -> Value:
    """Return the hyperbolic sine"""
    a = b.abs(x)
    h = half_exp(b, a)
    far = b.sub(h, b.div(b.constant(0.25, x.type), h))
    near = odd(b, x, SINH)
    return b.copysign(b.select(b.compare("gt", a, SINH_TURN), far, near), x)


def cosh(b: Builder, x: Value) -> Value:
    """Return the hyperbolic cosine"""
    h = half_exp(b, b.abs(x))
    return b.add(h, b.div(b.constant(0.25, x.type), h))


def log1p_or_log(b: Builder, y: Value, big: Value, x: Value) -> Value:
    """log(1 + y), and log(2 x) where `big`; y and x are finite there"""
    high, low = two_sum(b, y, b.constant(1.0, y.type))
    one, zero = b.constant(1.0, y.type), b.zero(y.type)
    return log_of_sum(b, b.select(big, x, high), b.select(big, zero, low), b.select(big, one, zero))


def asinh(b: Builder, x: Value) -> Value:
    """log(a + sqrt(a**2 + 1)), a = abs(x), with the sign of x"""
    a = b.abs(x)
    big = b.compare("gt", a, 2.0 ** (format_of(x).digits // 2 + 2))
    square = b.mul(a, a)
    y = b.add(a, b.div(square, b.add(b.sqrt(b.add(square, 1.0)), 1.0)))
    y = log1p_or_log(b, y, big, a)
    y = b.select(b.compare("lt", a, infinity(b, x)), y, a)
    return b.copysign(y, x)


def acosh(b: Builder, x: Value) -> Value:
    """log(x + sqrt(x**2 - 1)); NaN below 1"""
    big = b.compare("gt", x, 2.0 ** (format_of(x).digits // 2 + 2))
    t = b.sub(x, 1.0)
    y = b.add(t, b.sqrt(b.muladd(t, t, b.add(t, t))))
    y = log1p_or_log(b, y, big, x)
    y = b.select(b.compare("lt", x, infinity(b, x)), y, x)
    return b.select(b.compare("lt", x, 1.0), nan(b, x), y)


def atanh(b: Builder, x: Value) -> Value:
    """log((1 + a) / (1 - a)) / 2, a = abs(x), with the sign of x; NaN beyond 1"""
    a = b.abs(x)
    rest = b.sub(b.constant(1.0, x.type), a)
    twice = b.add(a, a)
    near = b.muladd(twice, b.div(a, rest), twice)
    y = b.select(b.compare("lt", a, 0.5), near, b.div(twice, rest))
    high, low = two_sum(b, y, b.constant(1.0, x.type))
    y = b.mul(log_of_sum(b, high, low), 0.5)
    y = b.select(b.compare("lt", a, 1.0), y, a)
    y = b.select(b.compare("eq", a, 1.0), infinity(b, x), y)
    return b.copysign(b.select(b.compare("gt", a, 1.0), nan(b, x), y), x)
