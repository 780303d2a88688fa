"""Which lines the executor takes: True, or a sentence that says why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dovetail.dtypes import bfloat16, bool_, float16, float32, float64, int64
from dovetail.extend import BoundSymbol, TensorSpec, Verdict
from dovetail.prims.sizes import Size, is_symbolic
from dovetail_llvm_exec.region.graph import COPIES, REDUCTIONS, VIEWS
from dovetail_llvm_exec.scalars.costs import POWERS
from dovetail_llvm_exec.scalars.kinds import STORED
from dovetail_llvm_exec.scalars.ops import OPERATIONS
from dovetail_llvm_exec.vmath import FUNCTIONS

MOST_PARTS = 4  # of a cat: each element asks all of them
UNSIZED = frozenset({"iota", "uniform_philox", "normal_philox", "diagonal", "unfold"})
WITH_SIZES = frozenset({"add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"})  # take a size as a number
WHOLE = {bfloat16: 1 << 8, float16: 1 << 11}  # up to which each whole number is exact
KNOWN = ", ".join(d.short for d in STORED)


def verdict(line: BoundSymbol) -> Verdict:
    """Return whether a prim can be part of a kernel."""
    name = line.symbol.name
    check = CHECKS.get(name)
    if line.symbol.module != "prims" or (check is None and name not in PLAIN):
        return f"has no code for {line.symbol}"
    for p in (*line.reads, *line.writes):
        if type(p.spec) is not TensorSpec:
            return f"expected numbers that are known when the program is compiled, and {p.name} is computed"
        if p.spec.dtype not in STORED:
            return f"computes with {KNOWN}, and {p.name} is of {p.spec.dtype.short}"
        if p.spec.device.type != "cpu":
            return f"expected tensors on the CPU, and {p.name} is on {p.spec.device}"
    if is_symbolic((line.args, line.kwargs)) and (refusal := _sized(line)) is not None:
        return refusal
    return True if check is None else check(line)


def whole_verdict(line: BoundSymbol) -> Verdict:
    """Return whether to claim a composite that there is code for.

    Positions that are computed for each element, and looked up, take several times as long as kernels that compute those of a row once.
    """
    symbol = line.symbol
    if "upsample_" in symbol.name or (symbol.id == "torch.nn.functional.pad" and _mode(*line.args[2:], **line.kwargs) != "constant"):
        return f"leaves {line.symbol} whole to executors that compute positions once for each row"
    if symbol.id == "torch.linspace" and line.out.spec.dtype in WHOLE:
        return f"leaves {line.symbol} of {line.out.spec.dtype.short} to PyTorch, which rounds the distance of its numbers, too"
    if _rounds_quotients(line):
        return f"leaves whole quotients of {line.out.spec.dtype.short} to PyTorch, which rounds what it computes them of, too"
    return True


def _rounds_quotients(line: BoundSymbol) -> bool:
    """Return whether a line divides 16-bit numbers by those of a tensor, and drops the fraction: PyTorch divides by one number in float32."""
    if line.symbol.id != "torch.floor_divide" and line.kwargs.get("rounding_mode") is None:
        return False
    return line.out.spec.dtype in WHOLE and hasattr(line.args[1], "spec") and line.args[1].spec.numel != 1


def _mode(mode: str = "constant", value: Any = None, **_: Any) -> str:
    """Return how a pad fills, from what follows its tensor and its widths."""
    return mode


def _sized(line: BoundSymbol) -> str | None:
    """Return why a line with symbolic sizes among its arguments has no code, None where it has."""
    name = line.symbol.name
    if name in UNSIZED or is_symbolic([line.kwargs.get(key) for key in ("value", "steps")]):
        return f"has no code for {line.symbol} of symbolic sizes"
    if any(type(a) is Size for a in line.args):
        spec = next((x.spec for x in line.args if hasattr(x, "spec")), None)
        if name not in WITH_SIZES or spec is None or spec.dtype not in (float32, float64, int64):
            return f"has no code for {line.symbol} with a symbolic size as a number"
    return None


def _elementwise(line: BoundSymbol) -> Verdict:
    name = line.symbol.name
    kinds, _ = OPERATIONS[name]
    operands = line.args[1:] if name == "where" else line.args
    spec = next(x.spec for x in operands if hasattr(x, "spec")) if any(hasattr(x, "spec") for x in operands) else None
    if spec is not None and spec.dtype.kind not in kinds:
        return f"has no code for {line.symbol} of {spec.dtype.short}"
    if name == "pow":
        return _power(line, spec)
    return True


def _power(line: BoundSymbol, spec: Any) -> Verdict:
    base, exponent = line.args
    if spec.dtype.kind == "int":
        fits = type(exponent) is int and hasattr(base, "spec")
        return fits or "raises integers to a power that is known when the program is compiled"
    simple = not hasattr(exponent, "spec") and exponent in POWERS
    return simple or "pow" in FUNCTIONS or "raises floats to simple powers only"


def _scatter(line: BoundSymbol) -> Verdict:
    x, index = line.args[0].spec, line.args[1].spec
    dim = line.kwargs["dim"]
    single = index.shape[dim] == 1 and all(n == m for d, (n, m) in enumerate(zip(x.shape, index.shape)) if d != dim)
    if x.dtype is bool_ and line.symbol.name == "scatter_add":
        return "adds numbers"
    return single or f"puts one element for each row along dim {dim}, got an index {index}"


def _gather(line: BoundSymbol) -> Verdict:
    x = line.args[0].spec
    return x.numel > 0 or f"expected rows to pick from, got {x}"


def _pad(line: BoundSymbol) -> Verdict:
    return not any(line.kwargs["interior"]) or "pads around a tensor, not between its elements"


def _put_slice(line: BoundSymbol) -> Verdict:
    return all(n == 1 for n in line.kwargs["steps"]) or "writes slices without gaps"


def _cat(line: BoundSymbol) -> Verdict:
    parts = len(line.args[0])
    return parts <= MOST_PARTS or f"joins up to {MOST_PARTS} tensors, got {parts}"


def _iota(line: BoundSymbol) -> Verdict:
    """Leave 16-bit numbers that are not exact to PyTorch, which rounds the first of each of its vectors before it counts on from it."""
    dtype, start, step, length = (line.kwargs[key] for key in ("dtype", "start", "step", "length"))
    whole = float(start).is_integer() and float(step).is_integer()
    exact = whole and max(abs(start), abs(start + step * length)) <= WHOLE.get(dtype, math.inf)
    return dtype not in WHOLE or exact or f"counts in {dtype.short} where each number is exact"


def _device_put(line: BoundSymbol) -> Verdict:
    return "leaves moves between devices to others"


CHECKS: dict[str, Callable[[BoundSymbol], Verdict]] = {
    **dict.fromkeys(OPERATIONS, _elementwise),
    **dict.fromkeys(("embedding", "take", "take_along_axis"), _gather),
    **dict.fromkeys(("scatter", "scatter_add"), _scatter),
    "cat": _cat,
    "iota": _iota,
    "pad": _pad,
    "put_slice": _put_slice,
    "device_put": _device_put,
}
PLAIN = VIEWS | REDUCTIONS | COPIES | {"detach", "var", "var_mean", "full", "flip", "uniform_philox", "normal_philox"}
