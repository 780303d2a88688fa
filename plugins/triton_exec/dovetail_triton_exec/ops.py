"""What each operation is in Triton: its text, for which kinds of dtype, and nothing about where its operands come from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dovetail.dtypes import DType, bool_, float32, float64, int8, int16, int32, int64, uint8

TRITON = {
    **{bool_: "tl.int1", uint8: "tl.uint8", int8: "tl.int8", int16: "tl.int16", int32: "tl.int32", int64: "tl.int64"},
    **{float32: "tl.float32", float64: "tl.float64"},
}
ALL, NUMBERS, FLOATS, INTEGERS, BITS = ("bool", "int", "float"), ("int", "float"), ("float",), ("int",), ("bool", "int")

UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "sigmoid", "reciprocal"),
)
BINARY = ("div", "atan2", "copysign")  # of floats
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OURS = frozenset({"sigmoid", "reciprocal"})  # of device.py; the others are native
NATIVE = frozenset(UNARY + BINARY) - OURS
TAKE_LITERALS = frozenset({"add", "sub", "mul", "where", "maximum", "minimum", *COMPARISONS})  # where a plain number may be an operand
SIMPLE_POWERS = (0, 0.5, 1, 2, 3, -0.5, -1, -2)
MOST_MULTIPLICATIONS = 64  # the largest power of an integer that is written out

KINDS = {
    **dict.fromkeys(UNARY, FLOATS),
    **dict.fromkeys(BINARY, FLOATS),
    **dict.fromkeys(("neg", "add", "mul", "sub", "abs", "ceil", "floor", "round", "trunc", "remainder", "fmod", "floordiv", "pow"), NUMBERS),
    **dict.fromkeys(("sign", "signbit", "isnan", "isinf", "isfinite", "maximum", "minimum", "where", *COMPARISONS), ALL),
    **{"add": ALL, "mul": ALL, "truncdiv": INTEGERS, "convert_element_type": ALL},
    **dict.fromkeys(("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"), BITS),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), INTEGERS),
}


def literal(value: Any, dtype: DType) -> str:
    """Return a number as an operand of `dtype`."""
    if dtype is float32 and not _negative_zero(value):
        return _float(value)
    if dtype in (int32, int64):
        value = wrapped(int(value), dtype)
        return repr(value) if value >= 0 else f"({value})"
    return filled(value, dtype)


def wrapped(value: int, dtype: DType) -> int:
    """Return an integer as `dtype` holds it: what does not fit goes around."""
    if dtype is bool_:
        return int(bool(value))
    size = 2 ** (8 * dtype.bytes)
    return (value + size // 2) % size - size // 2 if dtype.signed else value % size


def _negative_zero(value: Any) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def _float(value: Any) -> str:
    """Return a floating number as text; the sign of a zero gets lost, in a literal and in `tl.full` alike."""
    text = repr(float(value))
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else f"({text})" if text.startswith("-") else text


def filled(value: Any, dtype: DType) -> str:
    """Return a number as a value of its own: a block of one element, whose shape the writer knows."""
    if dtype.kind == "float" and _negative_zero(value):
        return f"(tl.full(ONE, -1.0, {TRITON[dtype]}) * 0.0)"
    return f"tl.full(ONE, {_float(value) if dtype.kind == 'float' else wrapped(int(value), dtype)}, {TRITON[dtype]})"


def filled_text(text: str, dtype: DType) -> str:
    """Return a number that is text already, as a value."""
    return f"tl.full(ONE, {text}, {TRITON[dtype]})"


def converted(text: str, old: DType, new: DType) -> str:
    """Return a value as another dtype that computes."""
    if new is bool_:
        return f"({text} != 0)"
    if old.kind == "float" and new is uint8:
        return f"{text}.to(tl.int64).to(tl.uint8)"
    return f"{text}.to({TRITON[new]})"


def text_of(op: str, args: list[str], kinds: DType, numbers: list[Any]) -> str:
    """Return an operation on operands of one dtype, written in Triton.  `numbers` are the operands' values where they are Python numbers."""
    special = TEXTS.get(op)
    if special is not None:
        return special(args, kinds, numbers)
    if op in COMPARISONS:
        a, b = (f"{x}.to(tl.int8)" if kinds is bool_ else x for x in args)
        return f"{a} {COMPARISONS[op]} {b}"
    return f"{'native' if op in NATIVE else 'device'}.{op}({', '.join(args)})"


def _infix(sign: str, boolean: str | None = None) -> Callable[..., str]:
    def text(args: list[str], dtype: DType, numbers: list[Any]) -> str:
        return f"{args[0]} {boolean if dtype is bool_ and boolean else sign} {args[1]}"

    return text


def _identity_of_integers(args: list[str], dtype: DType, op: str) -> str:
    return args[0] if dtype.kind != "float" else f"native.{op}({args[0]})"


def _rounding(op: str) -> Callable[..., str]:
    return lambda args, dtype, numbers: _identity_of_integers(args, dtype, op)


def _of_floats(op: str, otherwise: str) -> Callable[..., str]:
    """Return a predicate of floats that has one answer for integers."""
    return lambda args, dtype, numbers: f"device.{op}({args[0]})" if dtype.kind == "float" else f"{args[0]} {otherwise} {args[0]}"


def _extreme(op: str, boolean: str) -> Callable[..., str]:
    def text(args: list[str], dtype: DType, numbers: list[Any]) -> str:
        if dtype is bool_:
            return f"{args[0]} {boolean} {args[1]}"
        nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.kind == "float" else ""
        return f"tl.{op}({args[0]}, {args[1]}{nan})"

    return text


def _by_kind(op: str) -> Callable[..., str]:
    """Return an operation with one function for floats and one for integers."""
    return lambda args, dtype, numbers: f"device.{op}_{dtype.kind}({', '.join(args)})"


def _signed(op: str, unsigned: str) -> Callable[..., str]:
    """Return an operation that unsigned integers and booleans have no use for."""

    def text(args: list[str], dtype: DType, numbers: list[Any]) -> str:
        return f"device.{op}_{dtype.kind}({args[0]})" if dtype.signed and dtype.kind != "bool" else unsigned.format(*args)

    return text


def _where(args: list[str], dtype: DType, numbers: list[Any]) -> str:
    return f"tl.where({', '.join(args)})"


def _negated(args: list[str], dtype: DType, numbers: list[Any]) -> str:
    return f"{args[0]} * {literal(-1.0, dtype)}" if dtype.kind == "float" else f"0 - {args[0]}"


def _not(args: list[str], dtype: DType, numbers: list[Any]) -> str:
    if dtype is uint8:
        return f"{args[0]} ^ {filled(255, dtype)}"  # the interpreter's ~ takes -1, which is none of its numbers
    return f"{args[0]} == 0" if dtype is bool_ else f"~{args[0]}"


def _shift(op: str) -> Callable[..., str]:
    return lambda args, dtype, numbers: f"device.shift_{op}({args[0]}, {args[1]}, {dtype.bytes * 8})"


def _power(args: list[str], dtype: DType, numbers: list[Any]) -> str:
    """Write x ** n: products for the powers that eager PyTorch treats as products, and for integers."""
    x, n = args[0], numbers[1]
    if dtype.kind == "int":
        return " * ".join([x] * n) if n else f"{x} * 0 + 1"
    if n is None or n not in SIMPLE_POWERS:
        return f"native.pow({x}, {args[1]})"
    products = {0: f"{x} * 0.0 + 1.0", 1: x, 2: f"{x} * {x}", 3: f"{x} * {x} * {x}", 0.5: f"native.sqrt({x})", -0.5: f"native.rsqrt({x})"}
    products |= {-1: f"device.reciprocal({x})", -2: f"device.reciprocal({x} * {x})"}
    if n == 0:
        return f"native.pow({x}, {args[1]})"  # 1, of NaN too
    return products[n]


TEXTS: dict[str, Callable[..., str]] = {
    **{"add": _infix("+", "|"), "sub": _infix("-"), "mul": _infix("*", "&")},
    **{"bitwise_and": _infix("&"), "bitwise_or": _infix("|"), "bitwise_xor": _infix("^"), "bitwise_not": _not},
    **{op: _rounding(op) for op in ("ceil", "floor", "round", "trunc")},
    **{"isnan": _of_floats("isnan", "!="), "isinf": _of_floats("isinf", "!="), "isfinite": _of_floats("isfinite", "==")},
    **{"maximum": _extreme("maximum", "|"), "minimum": _extreme("minimum", "&")},
    **{op: _by_kind(op) for op in ("remainder", "fmod", "floordiv")},
    **{"sign": _signed("sign", "({0} != 0).to({0}.dtype)"), "signbit": _signed("signbit", "{0} != {0}")},
    **{"abs": lambda args, dtype, numbers: f"tl.abs({args[0]})" if dtype.signed else args[0]},
    **{"truncdiv": lambda args, dtype, numbers: f"{args[0]} // {args[1]}"},
    **{"bitwise_left_shift": _shift("left"), "bitwise_right_shift": _shift("right")},
    **{"where": _where, "neg": _negated, "pow": _power},
}
