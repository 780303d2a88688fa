"""What an element costs, in nanoseconds of one thread with float32 vectors of 16 lanes: relative weights, for choices and for the grain."""

from __future__ import annotations

from dovetail.dtypes import DType

CHEAP = 0.02
OPERATIONS = {
    **{"const": 0.0, "row": 0.0, "index": 0.01, "load": 0.03, "checked": 0.05},
    **{"div": 0.25, "reciprocal": 0.25, "sqrt": 0.25, "rsqrt": 0.4, "remainder": 1.5, "fmod": 1.2, "floordiv": 1.5, "truncdiv": 1.0, "pow": 1.0},
    **{"exp": 0.1, "exp2": 0.1, "expm1": 0.2, "log": 0.2, "log2": 0.2, "log10": 0.2, "log1p": 0.25, "sigmoid": 0.2, "tanh": 0.2, "erf": 0.25},
    **{"exp_nonpositive": 0.1, "exp_negative": 0.1, "erf_plus_one": 0.15, "normal_cdf": 0.15, "normal_cdf_roughly": 0.12, "tanh_plus_one": 0.2},
    **{"sin": 0.15, "cos": 0.15, "tan": 0.4, "erfc": 0.5, "erfinv": 0.5, "atan2": 0.6, "uniform_philox": 1.0, "normal_philox": 2.0},
}
# The exponents that make no call of `pow`, and what each is computed as.
POWERS = {0: "const", 1: "mul", 2: "mul", 3: "mul", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal", -2: "reciprocal"}
ELEMENTARY = frozenset({"asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma", "digamma", "ndtri"})
GRAIN = 4000.0  # nanoseconds of work below which a second thread does not pay


def cost_of(op: str, dtype: DType) -> float:
    """Return the cost of one operation on one element."""
    base = OPERATIONS.get(op, 0.4 if op in ELEMENTARY else CHEAP)
    if dtype.kind == "float" and dtype.bytes == 2 and op != "const":
        base += 0.03  # rounding
    return base * (2.5 if dtype.bytes == 8 and dtype.kind == "float" else 1.0)
