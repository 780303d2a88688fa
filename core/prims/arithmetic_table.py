"""What Python computes of numbers: how a program writes each operation, and what it is."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _as_int(compare: Callable) -> Callable:
    return lambda x, y: int(compare(x, y))


def _real_power(x: float, y: float) -> float:
    """Return x ** y.  Raises TypeError where that is complex."""
    return float(x**y)


_MATH = {  # functions of Python's module `math` that compute floats, by how they are called
    "({})": "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh fabs erf erfc gamma lgamma "
    "degrees radians",
    "({}, {})": "pow atan2 hypot copysign fmod remainder",
}
ARITHMETIC: dict[str, tuple[str, Callable]] = {  # how a program writes an operation on numbers, and what it is
    **{
        name: (f"{{}} {sign} {{}}", getattr(operator, name))
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("floordiv", "//"), ("mod", "%"), ("pow", "**"))
    },
    "neg": ("-{}", operator.neg),
    "pos": ("+{}", operator.pos),
    "abs": ("abs({})", abs),
    "len": ("len({})", len),  # of text
    "min": ("min({}, {})", min),
    "max": ("max({}, {})", max),
    "round": ("round({}, {})", round),
    "rounded": ("round({})", round),
    "trunc": ("int({})", math.trunc),
    "floor": ("int({} // 1)", math.floor),
    "ceil": ("-int(-{} // 1)", math.ceil),
    "int": ("int({})", int),
    "float": ("float({})", float),
    **{name: (f"int({{}} {sign} {{}})", _as_int(getattr(operator, name))) for name, sign in COMPARISONS.items()},
    "power": ("float({} ** {})", _real_power),
    **{f"math.{name}": (f"math.{name}{form}", getattr(math, name)) for form, names in _MATH.items() for name in names.split()},
}
