"""What each elementwise prim computes: OPERATIONS maps a name to the kinds of dtype that it takes and a function that writes it.

A function gets an `Op` and the operands as values.  Floats of 16 bits come as float32 and are rounded after each operation, as eager
PyTorch rounds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from dovetail.dtypes import DType, bool_, float16
from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, like
from dovetail_llvm_exec.scalars import kinds
from dovetail_llvm_exec.scalars.costs import POWERS
from dovetail_llvm_exec.vmath import FUNCTIONS
from dovetail_llvm_exec.vmath.error import erf_plus_one, normal_cdf, normal_cdf_roughly
from dovetail_llvm_exec.vmath.exponential import exp_negative, exp_nonpositive
from dovetail_llvm_exec.vmath.hyperbolic import tanh_plus_one


class Op(NamedTuple):
    """One operation: `dtype` is that of its result, `source` that of its operands; `fail(mask)` reports lanes that divide by zero."""

    b: Builder
    dtype: DType
    source: DType
    fail: Callable[[Value, str], None]
    numbers: tuple[Any, ...]  # the operands that are Python numbers, None for others


REAL = ("bool", "int", "float")
NUMBERS = ("int", "float")
INTEGERS = ("bool", "int")
FLOAT = ("float",)


def unsigned(op: Op) -> bool:
    """Return whether the operands have no sign."""
    return not op.source.signed


def _compare(test: str) -> Callable:
    def write(op: Op, x: Value, y: Value) -> Value:
        if op.source is bool_:
            x, y = (op.b.cast("zext", v, like(v.type, "i8")) for v in (x, y))
        return op.b.compare(test, x, y, unsigned=unsigned(op))

    return write


def add(op: Op, x: Value, y: Value) -> Value:
    return op.b.or_(x, y) if op.source is bool_ else op.b.add(x, y)


def mul(op: Op, x: Value, y: Value) -> Value:
    return op.b.and_(x, y) if op.source is bool_ else op.b.mul(x, y)


def absolute(op: Op, x: Value) -> Value:
    return x if unsigned(op) else op.b.abs(x)


def sign(op: Op, x: Value) -> Value:
    b = op.b
    if op.source is bool_:
        return x
    above = b.select(b.compare("gt", x, 0, unsigned=unsigned(op)), b.constant(1, x.type), b.constant(0, x.type))
    if unsigned(op):
        return above
    return b.select(b.compare("lt", x, 0), b.constant(-1, x.type), above)


def signbit(op: Op, x: Value) -> Value:
    b = op.b
    if unsigned(op):
        return b.constant(False, like(x.type, "i1"))
    return b.compare("lt", b.bits(x) if op.source.kind == "float" else x, 0)


def _rounding(name: str) -> Callable:
    def write(op: Op, x: Value) -> Value:
        return FUNCTIONS[name](op.b, x) if op.source.kind == "float" else x

    return write


def isnan(op: Op, x: Value) -> Value:
    b = op.b
    return b.compare("uno", x, x) if op.source.kind == "float" else b.constant(False, like(x.type, "i1"))


def isinf(op: Op, x: Value) -> Value:
    b = op.b
    return b.compare("eq", b.abs(x), math.inf) if op.source.kind == "float" else b.constant(False, like(x.type, "i1"))


def isfinite(op: Op, x: Value) -> Value:
    b = op.b
    return b.compare("lt", b.abs(x), math.inf) if op.source.kind == "float" else b.constant(True, like(x.type, "i1"))


def extreme(op: Op, x: Value, y: Value, larger: bool) -> Value:
    """Return the larger (or smaller) operand, NaN where one of them is."""
    b = op.b
    if op.source is bool_:
        return b.or_(x, y) if larger else b.and_(x, y)
    chosen = b.select(b.compare("gt" if larger else "lt", x, y, unsigned=unsigned(op)), x, y)  # y where one is NaN
    return b.select(b.compare("uno", x, x), x, chosen) if op.source.kind == "float" else chosen


def maximum(op: Op, x: Value, y: Value) -> Value:
    return extreme(op, x, y, True)


def minimum(op: Op, x: Value, y: Value) -> Value:
    return extreme(op, x, y, False)


def _divisor(op: Op, x: Value, y: Value) -> tuple[Value, Value]:
    """(x, y) with which dividing never traps; zeros are reported, and -1 is divided by as 1 of the negated x."""
    b = op.b
    if not isinstance(op.numbers[1], int) or op.numbers[1] == 0:
        zero = b.compare("eq", y, 0)
        op.fail(zero, "ZeroDivisionError")
        y = b.select(zero, b.constant(1, y.type), y)
    if op.source.signed and not (isinstance(op.numbers[1], int) and op.numbers[1] != -1):
        minus = b.compare("eq", y, -1)
        x, y = b.select(minus, b.neg(x), x), b.select(minus, b.constant(1, y.type), y)
    return x, y


def truncdiv(op: Op, x: Value, y: Value) -> Value:
    x, y = _divisor(op, x, y)
    return op.b.udiv(x, y) if unsigned(op) else op.b.div(x, y)


def floordiv(op: Op, x: Value, y: Value) -> Value:
    b = op.b
    if op.source.kind == "float":
        return _float_floordiv(op, x, y)
    x, y = _divisor(op, x, y)
    if unsigned(op):
        return b.udiv(x, y)
    quotient = b.div(x, y)
    rest = b.sub(x, b.mul(quotient, y))
    below = b.and_(b.compare("ne", rest, 0), b.compare("lt", b.xor(x, y), 0))
    return b.sub(quotient, b.cast("zext", below, x.type))


def rest_of(op: Op, x: Value, y: Value) -> Value:
    """x - y * trunc(x / y), exactly: where the quotient is an integer that the dtype holds it takes one multiply-add, else the C library."""
    b = op.b
    if not b.target.fma:
        return b.rem(x, y)
    limit = 2.0**53 if "double" in x.type else 2.0**24
    quotient = FUNCTIONS["trunc"](b, b.div(x, y))
    usual = b.and_(b.compare("lt", b.abs(quotient), limit), b.compare("lt", b.abs(y), math.inf))

    def quick() -> list[Value]:
        rest = b.fma(b.neg(quotient), y, x)
        past = b.compare("lt", b.bits(rest), 0)
        before = b.compare("lt", b.bits(x), 0)
        over = b.and_(b.compare("une", rest, 0.0), b.xor(past, before))  # the quotient was rounded up to an integer
        rest = b.select(over, b.add(rest, b.copysign(y, x)), rest)
        return [b.copysign(rest, x)]

    return b.branch(b.reduce("and", usual), quick, lambda: [b.rem(x, y)])[0]


def _float_floordiv(op: Op, x: Value, y: Value) -> Value:
    """Return floor division by way of fmod, as Python has it; x / 0 where y is 0."""
    b = op.b
    rest = rest_of(op, x, y)
    quotient = b.div(b.sub(x, rest), y)
    other = b.and_(b.compare("une", rest, 0.0), b.compare("ne", b.compare("lt", y, 0.0), b.compare("lt", rest, 0.0)))
    quotient = b.select(other, b.sub(quotient, 1.0), quotient)
    floor = b.intrinsic("floor", quotient)
    floor = b.select(b.compare("gt", b.sub(quotient, floor), 0.5), b.add(floor, 1.0), floor)
    floor = b.select(b.compare("une", quotient, 0.0), floor, b.copysign(b.constant(0.0, x.type), b.div(x, y)))
    return b.select(b.compare("eq", y, 0.0), b.div(x, y), floor)


def remainder(op: Op, x: Value, y: Value) -> Value:
    b = op.b
    if op.source.kind == "float":
        rest = rest_of(op, x, y)
        other = b.and_(b.compare("une", rest, 0.0), b.compare("ne", b.compare("lt", y, 0.0), b.compare("lt", rest, 0.0)))
        return b.select(other, b.add(rest, y), rest)
    x, y = _divisor(op, x, y)
    if unsigned(op):
        return b.urem(x, y)
    rest = b.rem(x, y)
    other = b.and_(b.compare("ne", rest, 0), b.compare("lt", b.xor(rest, y), 0))
    return b.select(other, b.add(rest, y), rest)


def fmod(op: Op, x: Value, y: Value) -> Value:
    if op.source.kind == "float":
        return rest_of(op, x, y)
    x, y = _divisor(op, x, y)
    return op.b.urem(x, y) if unsigned(op) else op.b.rem(x, y)


def power(op: Op, x: Value, y: Value) -> Value:
    b, n = op.b, op.numbers[1]
    if op.source.kind == "int":
        return _integer_power(op, x, int(n))
    if n in POWERS and not (op.dtype is float16 and n in (0.5, -0.5)):  # PyTorch's float16 has -inf ** 0.5 as C does
        square = b.mul(x, x) if abs(n) in (2, 3) else x
        known = {0: lambda: b.constant(1.0, x.type), 1: lambda: x, 2: lambda: square, 3: lambda: b.mul(square, x), 0.5: lambda: b.sqrt(x)}
        known |= {-2: lambda: FUNCTIONS["reciprocal"](b, square), -1: lambda: FUNCTIONS["reciprocal"](b, x), -0.5: lambda: FUNCTIONS["rsqrt"](b, x)}
        return known[n]()
    return FUNCTIONS["pow"](b, x, y)


def _integer_power(op: Op, x: Value, n: int) -> Value:
    result = op.b.constant(1, x.type)
    while n:
        if n & 1:
            result = op.b.mul(result, x)
        x, n = op.b.mul(x, x) if n > 1 else x, n >> 1
    return result


def shift_left(op: Op, x: Value, y: Value) -> Value:
    b, bits = op.b, op.source.bytes * 8
    inside = b.compare("lt", y, bits, unsigned=True)
    return b.select(inside, b.shl(x, b.select(inside, y, b.zero(y.type))), b.zero(x.type))


def shift_right(op: Op, x: Value, y: Value) -> Value:
    b, bits = op.b, op.source.bytes * 8
    inside = b.compare("lt", y, bits if bits < 128 else -128, unsigned=True)
    by = b.select(inside, y, b.constant(bits - 1, y.type))
    if not unsigned(op):
        return b.ashr(x, by)
    return b.select(inside, b.lshr(x, by), b.zero(x.type))


def invert(op: Op, x: Value) -> Value:
    return op.b.not_(x)


def where(op: Op, condition: Value, x: Value, y: Value) -> Value:
    return op.b.select(condition, x, y)


def convert(op: Op, x: Value) -> Value:
    return kinds.converted(op.b, x, op.source, op.dtype)


def _function(name: str) -> Callable:
    def write(op: Op, *operands: Value) -> Value:
        return FUNCTIONS[name](op.b, *operands)

    return write


Writer = Callable[..., Value]
OPERATIONS: dict[str, tuple[tuple[str, ...], Writer]] = {
    "add": (REAL, add),
    "sub": (NUMBERS, lambda op, x, y: op.b.sub(x, y)),
    "mul": (REAL, mul),
    "div": (FLOAT, lambda op, x, y: op.b.div(x, y)),
    "neg": (NUMBERS, lambda op, x: op.b.neg(x)),
    "abs": (NUMBERS, absolute),
    "sign": (REAL, sign),
    "signbit": (REAL, signbit),
    "ceil": (NUMBERS, _rounding("ceil")),
    "floor": (NUMBERS, _rounding("floor")),
    "trunc": (NUMBERS, _rounding("trunc")),
    "round": (NUMBERS, _rounding("round")),
    "isnan": (REAL, isnan),
    "isinf": (REAL, isinf),
    "isfinite": (REAL, isfinite),
    "maximum": (REAL, maximum),
    "minimum": (REAL, minimum),
    "floordiv": (NUMBERS, floordiv),
    "truncdiv": (("int",), truncdiv),
    "remainder": (NUMBERS, remainder),
    "fmod": (NUMBERS, fmod),
    "pow": (NUMBERS, power),
    "bitwise_and": (INTEGERS, lambda op, x, y: op.b.and_(x, y)),
    "bitwise_or": (INTEGERS, lambda op, x, y: op.b.or_(x, y)),
    "bitwise_xor": (INTEGERS, lambda op, x, y: op.b.xor(x, y)),
    "bitwise_not": (INTEGERS, invert),
    "bitwise_left_shift": (("int",), shift_left),
    "bitwise_right_shift": (("int",), shift_right),
    "copysign": (FLOAT, lambda op, x, y: op.b.copysign(x, y)),
    "where": (REAL, where),
    "convert_element_type": (REAL, convert),
    **{test: (REAL, _compare(test)) for test in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: (FLOAT, _function(name)) for name in FUNCTIONS if name not in ("pow", "floor", "ceil", "trunc", "round")},
}
FUSED = {  # what expressions become where they are a part of others
    "muladd": lambda op, p, q, x: op.b.muladd(p, q, x),
    "erf_plus_one": lambda op, x: erf_plus_one(op.b, x),
    "normal_cdf": lambda op, x: normal_cdf(op.b, x),
    "normal_cdf_roughly": lambda op, x: normal_cdf_roughly(op.b, x),
    "exp_nonpositive": lambda op, x: exp_nonpositive(op.b, x),
    "exp_negative": lambda op, x: exp_negative(op.b, x),
    "tanh_plus_one": lambda op, x: tanh_plus_one(op.b, x),
}
PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit"})
EXACT = PREDICATES | {"where", "neg", "abs", "maximum", "minimum", "floor", "ceil", "trunc", "round", "sign"}  # round nothing


def written(op: Op, name: str, operands: list[Value]) -> Value:
    """Return the result of the operation `name`, not yet rounded."""
    return FUSED[name](op, *operands) if name in FUSED else OPERATIONS[name][1](op, *operands)
