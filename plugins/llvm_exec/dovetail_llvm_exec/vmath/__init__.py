"""The elementary functions as straight-line IR: FUNCTIONS maps a prim's name to what writes it, for scalars and vectors of float and double.

Every function is right for every number: denormal numbers, infinities, zeros of both signs, and NaN of all bits, which stays NaN.  None calls
another library, depends on its neighbours in a vector, or converts to an integer what may not fit one.  How precise and how fast each is
stands in fit/README.md; the tests hold the precision.

Besides: `exponential.exp_nonpositive` for a softmax, and `halves` for the formats of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.vmath import error, exponential, hyperbolic, inverse, logarithm, power, roots, rounding, trigonometric

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "tanh": hyperbolic.tanh,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "erf": error.erf,
    "erfc": error.erfc,
    "asin": inverse.asin,
    "acos": inverse.acos,
    "atan": inverse.atan,
    "atan2": inverse.atan2,
    "sqrt": roots.sqrt,
    "rsqrt": roots.rsqrt,
    "reciprocal": roots.reciprocal,
    "pow": power.pow,
    "floor": rounding.floor,
    "ceil": rounding.ceil,
    "trunc": rounding.trunc,
    "round": rounding.round,
}
