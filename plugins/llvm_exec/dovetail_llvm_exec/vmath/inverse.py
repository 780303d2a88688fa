"""asin, acos, atan and atan2: odd polynomials on [0, 1/2] and [0, 1], and the identities that lead there."""

from __future__ import annotations

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, element_of
from dovetail_llvm_exec.vmath.arithmetic import PI, format_of, nan, polynomial, rounded_parts
from dovetail_llvm_exec.vmath.coefficients import ASIN, ATAN


def pi_parts(x: Value, times: float) -> tuple[float, float]:
    """Return a multiple of pi by a power of 2 in two parts"""
    high, low = rounded_parts(PI, format_of(x).digits + 1)
    return high * times, low * times


def tail(b: Builder, z: Value, coefficients: dict[str, tuple[float, ...]]) -> Value:
    """z T(z): what the polynomial adds to 1"""
    return b.mul(polynomial(b, z, coefficients[element_of(z.type)]), z)


def asin_parts(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return whether abs(x) > 1/2; u, which is then sqrt((1 - abs(x)) / 2), else abs(x); and asin(u) - u"""
    a = b.abs(x)
    far = b.compare("gt", a, 0.5)
    half = b.mul(b.sub(b.constant(1.0, x.type), a), 0.5)  # below 0, and its root NaN, where abs(x) > 1
    z = b.select(far, half, b.mul(a, a))
    u = b.select(far, b.sqrt(half), a)
    return far, u, b.mul(u, tail(b, z, ASIN))


def asin(b: Builder, x: Value) -> Value:
    """Return the arc sine, in [-pi/2, pi/2]; pi/2 - 2 asin(u) beyond 1/2"""
    far, u, more = asin_parts(b, x)
    high, low = pi_parts(x, 0.5)
    beyond = b.sub(b.constant(high, x.type), b.sub(b.add(b.add(u, u), b.add(more, more)), low))
    return b.copysign(b.select(far, beyond, b.add(u, more)), x)


def acos(b: Builder, x: Value) -> Value:
    """Return the arc cosine, in [0, pi]: pi/2 - asin(x) up to 1/2, else 2 asin(u), or pi less that for negative x"""
    far, u, more = asin_parts(b, x)
    negative = b.compare("lt", x, 0.0)
    high, low = pi_parts(x, 0.5)
    signed_u, signed_more = b.copysign(u, x), b.copysign(more, x)
    near = b.sub(b.constant(high, x.type), b.sub(signed_u, b.sub(b.constant(low, x.type), signed_more)))
    beyond = b.add(b.add(u, u), b.add(more, more))
    flipped = b.sub(b.constant(2 * high, x.type), b.sub(beyond, 2 * low))
    return b.select(far, b.select(negative, flipped, beyond), near)


def atan_of_ratio(b: Builder, low: Value, high: Value) -> tuple[Value, Value]:
    """q = low / high and atan(q) - q, for 0 <= low <= high"""
    q = b.div(low, high)
    return q, b.mul(q, tail(b, b.mul(q, q), ATAN))


def atan(b: Builder, x: Value) -> Value:
    """Return the arc tangent, in [-pi/2, pi/2]; pi/2 - atan(1/x) beyond 1"""
    a = b.abs(x)
    far = b.compare("gt", a, 1.0)
    one = b.constant(1.0, x.type)
    q, more = atan_of_ratio(b, b.select(far, one, a), b.select(far, a, one))
    high, low = pi_parts(x, 0.5)
    beyond = b.sub(b.constant(high, x.type), b.sub(q, b.sub(b.constant(low, x.type), more)))
    return b.copysign(b.select(far, beyond, b.add(q, more)), x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """Return the angle of the point (x, y), in [-pi, pi], with the sign of y"""
    ax, ay = b.abs(x), b.abs(y)
    steep = b.compare("gt", ay, ax)
    small, large = b.select(steep, ax, ay), b.select(steep, ay, ax)
    one = b.constant(1.0, x.type)
    same = b.compare("eq", small, large)  # the ratio is 1, also of infinities; of two zeros it is 0
    top = b.select(same, b.select(b.compare("eq", small, 0.0), small, one), small)
    q, more = atan_of_ratio(b, top, b.select(same, one, large))
    left = b.compare("lt", b.copysign(one, x), 0.0)
    q, more = _flipped(b, left, q), _flipped(b, left, more)  # pi - angle, and below pi/2 - angle
    high, low = pi_parts(x, 1.0)
    zero = b.zero(x.type)
    straight = b.select(left, b.constant(high, x.type), zero)
    straight_low = b.select(left, b.constant(low, x.type), zero)
    flat = b.add(straight, b.add(q, b.add(straight_low, more)))
    upright = b.sub(b.constant(high / 2, x.type), b.sub(q, b.sub(b.constant(low / 2, x.type), more)))
    angle = b.select(steep, upright, flat)
    return b.copysign(b.select(b.compare("uno", x, y), nan(b, x), angle), y)


def _flipped(b: Builder, where: Value, x: Value) -> Value:
    return b.select(where, b.neg(x), x)
