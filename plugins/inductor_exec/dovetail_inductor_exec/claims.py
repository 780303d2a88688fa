"""Which lines the executor takes: True, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail import prims
from dovetail.extend import BoundSymbol, Verdict
from dovetail.extend.advanced import Symbol

_NAMES = """
    neg abs signbit ceil floor round trunc reciprocal isnan isinf isfinite bitwise_not sqrt rsqrt exp exp2 expm1 log log2 log10 log1p
    sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv sign convert_element_type
    add sub mul div floordiv truncdiv remainder fmod pow atan2 maximum minimum copysign where eq ne lt le gt ge
    bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
    sum prod amax amin any all var var_mean argmax argmin
    broadcast_in_dim reshape transpose squeeze strided_slice put_slice pad cat flip full iota clone stride_order detach
"""
OPERATIONS = frozenset[Symbol](getattr(prims, name) for name in _NAMES.split())
PRODUCTS = frozenset[Symbol]((prims.linear, prims.matmul))
POSITIONS = "take take_along_axis index index_add index_copy index_put scatter scatter_add embedding embedding_backward"
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
REASONS = dict.fromkeys(
    (getattr(prims, name) for name in POSITIONS.split()),
    "leaves positions that a tensor holds to others: its kernels end the process where one is out of bounds",
)
INEXACT_IN_CPP = {  # where the vectors of its C++ kernels are further from the result than PyTorch is
    prims.expm1: "would compute exp(x) - 1 on a CPU, of which no digits are left where x is small",
    prims.atanh: "would compute log((1 + x) / (1 - x)) / 2 on a CPU, of which no digits are left where x is small",
    prims.acosh: "would overflow on a CPU: acosh(3e38) is 89.29, and Inductor's is infinite",
}
_FLOORED = {prims.floordiv, prims.remainder}
_DIVISIONS = _FLOORED | {prims.truncdiv, prims.fmod}


def verdict(line: BoundSymbol, options: Mapping[str, Any]) -> Verdict:
    """Return whether a prim can be part of a region."""
    if line.symbol in PRODUCTS:
        return bool(options["matmul"]) or "leaves sums of products to executors that call a library; its option `matmul` takes them in"
    if line.symbol not in OPERATIONS:
        return REASONS.get(line.symbol, f"does not fuse {line.symbol}")
    for p in line.reads:
        if not hasattr(p.spec, "shape"):
            return f"bakes numbers into its kernels, and the number {p.name} is known only when the program runs"
    if line.symbol in INEXACT_IN_CPP and all([p.spec.device.type == "cpu" for p in line.reads]):
        return INEXACT_IN_CPP[line.symbol]
    if line.symbol in _FLOORED and any([p.spec.dtype.kind == "float" for p in line.reads]):
        return "would round on the way to a floor or a remainder, as PyTorch does not: 1.0 // 0.1 is 9, and Inductor's is 10"
    if line.symbol is prims.var_mean and any([n == 0 for n in line.args[0].spec.shape]):
        return "would give 0 for the mean of no elements, which is NaN"
    if line.symbol in _DIVISIONS and not _safe(line):
        return "divides integers by a number other than 0 only: by a tensor, a 0 in it would have to be an error"
    return True


def _safe(line: BoundSymbol) -> bool:
    """Return whether a division cannot meet an integer 0."""
    if all([p.spec.dtype.kind == "float" for p in line.reads]):
        return True
    divisor = line.args[1]
    return not hasattr(divisor, "spec") and divisor != 0
