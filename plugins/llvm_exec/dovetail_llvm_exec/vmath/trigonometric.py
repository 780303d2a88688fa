"""sin, cos and tan of every number.

With n = round(x 2/pi) and r = x - n pi/2, sin(x) and cos(x) are sin or cos of r, up to sign, by the last two bits of n.  Up to a limit pi/2 in
three parts gives r.  Beyond it x = M 2**E is multiplied by those bits of 2/pi that matter (Payne and Hanek's reduction), in integers and lane
by lane, behind a branch that is taken when a vector has such a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, bits_of, element_of, lanes_of
from dovetail_llvm_exec.vmath.arithmetic import (
    PI,
    constant_pair,
    infinity,
    nan,
    pair_product,
    parts,
    polynomial,
    quick_sum,
    rounding_sum,
    two_product,
    two_sum,
    with_sign,
)
from dovetail_llvm_exec.vmath.coefficients import COS, SIN

LIMITS = {"float": 30000.0, "double": 1e9}
TWO_OVER_PI = float(2 / PI)
WINDOWS = 7  # of 2/pi that the greatest float32 can need
WORDS = 20  # and the greatest float64


@cache
def half_pi_parts(element: str) -> tuple[float, ...]:
    """pi / 2 in three parts."""
    return parts(PI / 2, 24, 24, 24) if element == "float" else parts(PI / 2, 53, 53, 53)


@cache
def two_over_pi(bits: int) -> int:
    """Return that many bits of 2/pi after the point, as an integer; pi = 16 atan(1/5) - 4 atan(1/239)."""
    one = 1 << (bits + 64)

    def arctan_of_inverse(x: int) -> int:
        total = term = one // x
        for k in range(3, 2 * bits, 2):
            term //= -x * x
            total += term // k
        return total

    return (2 << (2 * bits + 64)) // (16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239))


@cache
def windows() -> tuple[int, ...]:
    """64 bits of 2/pi from every 32nd on, the first with 32 zeros in front; as signed integers."""
    digits = two_over_pi(32 * (WINDOWS + 1))
    return tuple(_signed(digits >> (32 * (WINDOWS - i)) & (2**64 - 1)) for i in range(WINDOWS))


@cache
def words() -> tuple[int, ...]:
    """2/pi in words of 64 bits, a zero first; as signed integers."""
    digits = two_over_pi(64 * (WORDS - 1))
    return tuple(_signed(digits >> (64 * (WORDS - 1 - i)) & (2**64 - 1)) for i in range(WORDS))


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def reduced_float(b: Builder, x: Value) -> tuple[Value, Value]:
    """n in the low bits of an integer, and r, up to the limit"""
    t, n = rounding_sum(b, x, TWO_OVER_PI)
    if b.target.fma:
        r = x
        for part in half_pi_parts("float"):
            r = b.fma(n, b.constant(-part, x.type), r)
        return b.bits(t), r
    high, low = parts(PI / 2, 33, 53)  # in float64, where n times the first is exact
    wide_n, wide = b.convert(n, "double"), b.convert(x, "double")
    r = b.sub(b.sub(wide, b.mul(wide_n, high)), b.mul(wide_n, low))
    return b.bits(t), b.convert(r, "float")


def float_by_bits(b: Builder, x: Value) -> tuple[Value, Value]:
    """n and r of one float32 with abs(x) of 2**14 and more; M times 96 bits of 2/pi has two bits before the point that counts"""
    bits = b.bits(x)
    start = b.convert(b.sub(b.and_(b.lshr(bits, 23), 255), 150 - 30), "i64")  # E - 2 + 32: the first bit of 2/pi, with the zeros in front
    mantissa = b.convert(b.or_(b.and_(bits, 0x7FFFFF), 0x800000), "i64")
    table = b.module.table("two_over_pi_windows", "i64", windows())
    first, shift = b.lshr(start, 5), b.and_(start, 31)
    digits = [b.load("i64", b.address(table, "i64", b.add(first, i))) for i in range(3)]
    digits = [b.lshr(b.shl(window, shift), 32) for window in digits]
    product = b.add(b.shl(b.mul(mantissa, digits[0]), 32), b.mul(mantissa, digits[1]))
    product = b.add(product, b.lshr(b.mul(mantissa, digits[2]), 32))  # 64 bits, the point after two
    n = b.lshr(b.add(product, 1 << 61), 62)
    rest = b.convert(b.sub(product, b.shl(n, 62)), "double")
    r = b.convert(b.mul(rest, float(PI / 2) * 2.0**-62), "float")
    return signed_and_finite(b, x, b.convert(n, "i32"), r)


def double_by_bits(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """n and r in two parts of one float64 with abs(x) of 2**29 and more; M times 192 bits of 2/pi has two bits before the point that counts"""
    bits = b.bits(x)
    start = b.sub(b.and_(b.lshr(bits, 52), 2047), 1075 - 62)  # E - 2 + 64: the first bit of 2/pi, with the zeros in front
    mantissa = b.or_(b.and_(bits, (1 << 52) - 1), 1 << 52)
    table = b.module.table("two_over_pi_words", "i64", words())
    first, shift = b.lshr(start, 6), b.and_(start, 63)
    digits = [b.load("i64", b.address(table, "i64", b.add(first, i))) for i in range(4)]
    digits = [b.intrinsic("fshl", digits[i], digits[i + 1], shift) for i in range(3)]
    wide = b.convert(mantissa, "i128", signed=False)
    last = b.lshr(b.mul(wide, b.convert(digits[2], "i128", signed=False)), 64)
    middle = b.add(b.mul(wide, b.convert(digits[1], "i128", signed=False)), last)
    low = b.convert(middle, "i64")
    high = b.add(b.mul(mantissa, digits[0]), b.convert(b.lshr(middle, 64), "i64"))  # with `low` 128 bits, the point after two
    n = b.lshr(b.add(high, 1 << 61), 62)
    high = b.sub(high, b.shl(n, 62))
    pieces = (b.ashr(high, 32), b.and_(high, 2**32 - 1), b.lshr(low, 32), b.and_(low, 2**32 - 1))  # 32 bits each: exact as floats
    scaled = [b.mul(b.convert(piece, "double"), 2.0 ** (-30 - 32 * i)) for i, piece in enumerate(pieces)]
    turn, lost = quick_sum(b, scaled[0], scaled[1])
    turn, more = two_sum(b, turn, scaled[2])
    turn = quick_sum(b, turn, b.add(b.add(lost, more), scaled[3]))
    r, tail = pair_product(b, turn, constant_pair(b, PI / 2, x))
    return signed_and_finite(b, x, n, r, tail)


def signed_and_finite(b: Builder, x: Value, n: Value, *rest: Value) -> tuple[Value, ...]:
    """Turn results for abs(x) into those for x, and into NaN for an infinite one."""
    negative, finite = b.compare("lt", x, 0.0), b.compare("lt", b.abs(x), infinity(b, x))
    rest = tuple(b.select(finite, each, nan(b, x)) for each in rest)
    return b.select(negative, b.neg(n), n), *(b.select(negative, b.neg(each), each) for each in rest)


def with_large(b: Builder, x: Value, values: Sequence[Value], by_bits: Callable[[Builder, Value], tuple[Value, ...]]) -> tuple[Value, ...]:
    """`values`, and where abs(x) is beyond the limit what `by_bits` gives, lane by lane"""
    limit = LIMITS[element_of(x.type)]
    big = b.compare("gt", b.abs(x), limit)
    if x.type[0] != "<":
        return b.branch(big, lambda: by_bits(b, x), values, rarely=True)

    def lane_by_lane() -> list[Value]:
        elements = [element_of(value.type) for value in (x, *values)]
        rooms = [b.alloca(element, lanes_of(x.type)) for element in elements]
        b.store(b.select(big, x, limit), rooms[0])
        with b.loop(0, lanes_of(x.type)) as lane:
            exact = by_bits(b, b.load(elements[0], b.address(rooms[0], elements[0], lane.index)))
            for value, room, element in zip(exact, rooms[1:], elements[1:]):
                b.store(value, b.address(room, element, lane.index))
        return [b.select(big, b.load(value.type, room), value) for value, room in zip(values, rooms[1:])]

    return b.branch(b.any(big), lane_by_lane, values, rarely=True)


def sin_cos_float(b: Builder, r: Value) -> tuple[Value, Value]:
    """sin(r) and cos(r) for abs(r) <= pi / 4"""
    z = b.mul(r, r)
    sin = b.muladd(b.mul(polynomial(b, z, SIN["float"]), z), r, r)
    cos = b.muladd(b.mul(z, z), polynomial(b, z, COS["float"]), b.muladd(z, -0.5, 1.0))
    return sin, cos


def reduced_double(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """n in the low bits of an integer, and r in two parts, up to the limit"""
    t, n = rounding_sum(b, x, TWO_OVER_PI)
    first, second, third = half_pi_parts("double")
    if b.target.fma:
        rest = b.fma(n, b.constant(-first, x.type), x)
    else:
        high, low = two_product(b, n, b.constant(first, x.type))
        rest = b.sub(b.sub(x, high), low)
    # either is exact: x and n pi/2 are close, and both are multiples of 2**-53
    high, low = two_product(b, n, b.constant(second, x.type))
    r, error = two_sum(b, rest, b.neg(high))
    return b.bits(t), r, b.muladd(n, -third, b.sub(error, low))


def sin_cos_double(b: Builder, r: Value, tail: Value) -> tuple[Value, Value]:
    """sin(r + tail) and cos(r + tail) for abs(r) <= pi / 4"""
    z = b.mul(r, r)
    sin = b.add(r, b.muladd(b.mul(polynomial(b, z, SIN["double"]), z), r, tail))
    half = b.mul(z, 0.5)
    head = b.sub(b.constant(1.0, r.type), half)
    lost = b.sub(b.sub(b.constant(1.0, r.type), head), half)
    small = b.sub(b.mul(b.mul(z, z), polynomial(b, z, COS["double"])), b.mul(r, tail))
    return sin, b.add(head, b.add(lost, small))


def parts_of(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """n, sin(r) and cos(r)"""
    if element_of(x.type) == "float":
        n, r = with_large(b, x, reduced_float(b, x), float_by_bits)
        return n, *sin_cos_float(b, r)
    n, r, tail = with_large(b, x, reduced_double(b, x), double_by_bits)
    return n, *sin_cos_double(b, r, tail)


def wave(b: Builder, x: Value, quarter: int) -> Value:
    """sin(x + quarter pi / 2)"""
    n, sin, cos = parts_of(b, x)
    if quarter:
        n = b.add(n, quarter)
    odd = b.compare("ne", b.and_(n, 1), 0)
    return with_sign(b, b.select(odd, cos, sin), b.shl(b.lshr(n, 1), bits_of(x.type) - 1))


def sin(b: Builder, x: Value) -> Value:
    """Return the sine, x in radians"""
    return b.select(b.compare("eq", x, 0.0), x, wave(b, x, 0))  # -0 stays -0


def cos(b: Builder, x: Value) -> Value:
    """Return the cosine, x in radians"""
    return wave(b, x, 1)


def tan(b: Builder, x: Value) -> Value:
    """Return the tangent, x in radians"""
    n, sin, cos = parts_of(b, x)
    odd = b.compare("ne", b.and_(n, 1), 0)
    y = b.div(b.select(odd, cos, sin), b.select(odd, sin, cos))
    y = with_sign(b, y, b.shl(n, bits_of(x.type) - 1))
    return b.select(b.compare("eq", x, 0.0), x, y)  # -0 stays -0
