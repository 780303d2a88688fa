"""What the functions share: the two formats, constants split into parts, pairs that hold twice the digits, scaling by powers of two.

A function here takes the builder and values of float or double, scalar or vector, and is exact where its docstring has an equation.
A *pair* is an unevaluated sum (high, low) with low at most half a unit in the last place of high.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, bits_of, element_of, mangled

Pair = tuple[Value, Value]

LN2 = Fraction("0.69314718055994530941723212145817656807550013436025525412068000949339362196969471560586332699641868754")
PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")
LN10 = Fraction("2.30258509299404568401799145468436420760110148862877297603332790096757260967735248023599720508959829834")


class Format(NamedTuple):
    """A binary format: `digits` after the leading one, the exponent's `bias`, and what follows from them."""

    digits: int
    bias: int

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def magic(self) -> float:
        """Adding it rounds to an integer, which is then in the low bits of the sum."""
        return 1.5 * 2.0**self.digits

    @property
    def magic_bits(self) -> int:
        """Its bits as an integer."""
        return ((self.bias + self.digits) << self.digits) + (1 << (self.digits - 1))


FORMATS = {"float": Format(23, 127), "double": Format(52, 1023)}


def format_of(x: Value) -> Format:
    """Return the format of the lanes of `x`."""
    return FORMATS[element_of(x.type)]


def parts(value: Fraction, *digits: int) -> tuple[float, ...]:
    """`value` as a sum of numbers with that many binary digits each, the largest first; the last is rounded, the others cut off."""
    rounded_parts = []
    for i, count in enumerate(digits):
        exponent = _exponent(value)
        scaled = abs(value) * Fraction(2) ** (count - 1 - exponent)
        whole = round(scaled) if i == len(digits) - 1 else scaled.numerator // scaled.denominator
        part = (whole if value > 0 else -whole) * Fraction(2) ** (exponent + 1 - count)
        rounded_parts.append(float(part))
        value -= part
    return tuple(rounded_parts)


def _exponent(value: Fraction) -> int:
    """e with 2**e <= abs(value) < 2**(e + 1)"""
    value = abs(value)
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


# --- pairs


def two_sum(b: Builder, x: Value, y: Value) -> Pair:
    """high + low = x + y"""
    high = b.add(x, y)
    of_y = b.sub(high, x)
    return high, b.add(b.sub(x, b.sub(high, of_y)), b.sub(y, of_y))


def quick_sum(b: Builder, x: Value, y: Value) -> Pair:
    """high + low = x + y, where abs(x) >= abs(y) or x is 0"""
    high = b.add(x, y)
    return high, b.sub(y, b.sub(high, x))


def two_product(b: Builder, x: Value, y: Value) -> Pair:
    """high + low = x * y, short of overflow and of a low part below the normal numbers"""
    high = b.mul(x, y)
    if b.target.fma:
        return high, b.fma(x, y, b.neg(high))
    (x1, x2), (y1, y2) = halves(b, x), halves(b, y)
    low = b.sub(b.mul(x1, y1), high)
    low = b.add(b.add(low, b.mul(x1, y2)), b.mul(x2, y1))
    return high, b.add(low, b.mul(x2, y2))


def halves(b: Builder, x: Value) -> Pair:
    """x as a sum of two numbers with half the digits"""
    scaled = b.mul(x, float(2 ** ((format_of(x).digits + 2) // 2) + 1))
    high = b.sub(scaled, b.sub(scaled, x))
    return high, b.sub(x, high)


def constant_pair(b: Builder, value: Fraction, like_: Value) -> Pair:
    """Return the constant with twice the digits of the format"""
    digits = format_of(like_).digits + 1
    high, low = rounded_parts(value, digits)
    return b.constant(high, like_.type), b.constant(low, like_.type)


def rounded_parts(value: Fraction, digits: int) -> tuple[float, float]:
    """Return the nearest number of that many digits, and the nearest to what it lacks."""
    (high,) = parts(value, digits)
    rest = value - Fraction(high)
    return high, parts(rest, digits)[0] if rest else 0.0


def rough_product(b: Builder, x: Pair, y: Pair) -> Pair:
    """x * y to nearly twice the digits; its low part is larger than a pair's where one of theirs is"""
    high, low = two_product(b, x[0], y[0])
    return high, b.add(low, b.muladd(x[0], y[1], b.mul(x[1], y[0])))


def pair_product(b: Builder, x: Pair, y: Pair) -> Pair:
    """x * y to nearly twice the digits"""
    return quick_sum(b, *rough_product(b, x, y))


# --- polynomials

LONG = {
    True: 8,
    False: 13,
}  # coefficients from which on, with a fused multiply-add or without, a step takes four of them: each waits for the one before


def polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """sum of coefficients[i] * x**i"""
    if len(coefficients) < LONG[b.target.fma]:
        return b.horner(x, coefficients)
    terms = [b.constant(c, x.type) for c in coefficients]
    for _ in range(2):
        terms = [b.muladd(terms[i + 1], x, terms[i]) if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
        x = b.mul(x, x)
    result = terms[-1]
    for term in reversed(terms[:-1]):
        result = b.muladd(result, x, term)
    return result


def ratio(b: Builder, x: Value, y: Value) -> Value:
    """x / y of finite numbers, y not far from 1; within an ulp, by an estimate of 1 / y where that is quicker"""
    return b.div(x, y, "arcp ninf contract" if y.type == b.target.estimated else "")


# --- exponents


def rounding_sum(b: Builder, x: Value, factor: float) -> tuple[Value, Value]:
    """t, whose low bits are the integer nearest to x * factor, and that integer as a float"""
    magic = format_of(x).magic
    t = b.muladd(x, factor, magic)
    return t, b.sub(t, magic)


def scaled(b: Builder, y: Value, t: Value, offset: int = 0) -> Value:
    """y * 2**(n + offset), n the integer in a `rounding_sum`, rounded once, also into the denormal numbers; NaN stays NaN.

    n + offset has to lie within twice the range of exponents, and y near 1.
    """
    fmt, bits = format_of(y), b.bits(t)
    quick = b.target.scaled(b, y, b.sub(t, fmt.magic - offset))
    if quick is not None:
        return quick
    if b.target.ldexp:
        n = b.convert(b.sub(bits, fmt.magic_bits - offset), "i32")
        return b.call(f"llvm.ldexp.{mangled(y.type)}.{mangled(n.type)}", y.type, y, n)
    both = b.sub(bits, fmt.magic_bits - 2 * fmt.bias - offset)  # n in two halves, each with a bias of its own
    half = b.lshr(both, 1)
    return b.mul(b.mul(y, _power(b, half, y.type)), _power(b, b.sub(both, half), y.type))


def scaled_quickly(b: Builder, y: Value, t: Value, offset: int = 0) -> Value:
    """y * 2**(n + offset) by an addition to its exponent: right for normal results alone, and a NaN may become a number"""
    fmt = format_of(y)
    power = b.shl(b.bits(t), fmt.digits)
    return b.bitcast(b.add(b.bits(y), b.add(power, offset << fmt.digits) if offset else power), y.type)


def power_of_two(b: Builder, t: Value, offset: int = 0) -> Value:
    """2**(n + offset), n the integer in a `rounding_sum`, where it is a normal number"""
    return _power(b, b.add(b.bits(t), format_of(t).bias + offset), t.type)


def _power(b: Builder, biased: Value, type: str) -> Value:
    return b.bitcast(b.shl(biased, FORMATS[element_of(type)].digits), type)


def integer_as_float(b: Builder, n: Value, type: str) -> Value:
    """Return a small integer (below 2**22) of the float's own width as a float, without the conversion that some machines lack for 64 bits."""
    fmt = FORMATS[element_of(type)]
    if fmt.digits == 23 or b.target.long_lanes:
        return b.cast("sitofp", n, type)
    return b.sub(b.bitcast(b.add(n, fmt.magic_bits), type), fmt.magic)


def split_float(b: Builder, x: Value, low: float = 0.5**0.5) -> tuple[Value, Value]:
    """e as a float and m with x = m * 2**e, low <= m < 2 * low, of positive finite x, denormal ones too; others give nonsense"""
    fmt = format_of(x)
    small = b.compare("lt", x, fmt.smallest)
    bits = b.bits(b.select(small, b.mul(x, 2.0 ** (fmt.digits + 1)), x))
    lowest = float_bits(low, element_of(x.type))
    above = b.sub(bits, lowest)
    m = b.bitcast(b.add(b.and_(above, (1 << fmt.digits) - 1), lowest), x.type)
    e = integer_as_float(b, arithmetic_shift(b, above, fmt.digits), x.type)
    return b.select(small, b.sub(e, float(fmt.digits + 1)), e), m


def arithmetic_shift(b: Builder, n: Value, count: int) -> Value:
    """n >> count with its sign, by a logical shift where n has 64 bits and the machine has no other"""
    if bits_of(n.type) < 64 or b.target.long_lanes:
        return b.ashr(n, count)
    top = 1 << 62  # makes n positive; abs(n) is below it
    return b.sub(b.lshr(b.add(n, top), count), top >> count)


def float_bits(value: float, element: str) -> int:
    """Return the bits of a number as an integer."""
    real, whole = ("<f", "<I") if element == "float" else ("<d", "<Q")
    return struct.unpack(whole, struct.pack(real, value))[0]


# --- signs and specials


def infinity(b: Builder, x: Value) -> Value:
    """Return infinity in the format of `x`"""
    return b.constant(float("inf"), x.type)


def nan(b: Builder, x: Value) -> Value:
    """NaN in the format of `x`"""
    return b.constant(float("nan"), x.type)


def with_sign(b: Builder, x: Value, bit: Value) -> Value:
    """x with its sign flipped where the sign bit of `bit` (an integer) is set"""
    return b.bitcast(b.xor(b.bits(x), bit), x.type)
