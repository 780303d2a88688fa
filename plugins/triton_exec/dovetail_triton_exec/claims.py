"""Which lines the executor takes: True, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.dtypes import bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from dovetail.extend import BoundSymbol, TensorSpec, Verdict
from dovetail_triton_exec.graph import COPIES, GATHERS, LOW, REDUCTIONS, VIEWS
from dovetail_triton_exec.ops import KINDS, MOST_MULTIPLICATIONS

STORED = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
KNOWN = ", ".join(d.short for d in STORED)
ELSEWHERE = {
    "matmul": "leaves matrix products to cuBLAS",
    "linear": "leaves matrix products to cuBLAS",
    "convolution": "leaves convolutions to cuDNN",
    "embedding_backward": "has no kernel without atomics for sums at repeated positions",
    "index_add": "has no kernel without atomics for sums at repeated positions",
    "uniform": "draws by counters alone: uniform_philox, not the generator of the device",
    "normal": "draws by counters alone: normal_philox, not the generator of the device",
    "bernoulli": "draws by counters alone: uniform_philox, not the generator of the device",
}


def verdict(line: BoundSymbol) -> Verdict:
    """Return whether a prim can be part of a kernel."""
    name = line.symbol.name
    check = CHECKS.get(name)
    if line.symbol.module != "prims" or (check is None and name not in PLAIN):
        return ELSEWHERE.get(name, f"has no kernel for {line.symbol}")
    for p in (*line.reads, *line.writes):
        if type(p.spec) is not TensorSpec:
            return f"expected numbers that are known when the program is compiled, and {p.name} is computed"
        if p.spec.dtype not in STORED:
            return f"computes with {KNOWN}, and {p.name} is of {p.spec.dtype.short}"
    if len({p.spec.device for p in (*line.reads, *line.writes)}) > 1:
        return "expected all tensors on one device"
    return True if check is None else check(line)


def _elementwise(line: BoundSymbol) -> Verdict:
    name = line.symbol.name
    operands = [a.spec for a in (line.args[1:] if name == "where" else line.args) if hasattr(a, "spec")]
    spec = operands[0] if operands else None
    if spec is not None and spec.dtype.kind not in KINDS[name]:
        return f"has no kernel for {line.symbol} of {spec.dtype.short}"
    if name == "pow" and spec.dtype.kind == "int":
        exponent = line.args[1]
        simple = type(exponent) is int and hasattr(line.args[0], "spec") and 0 <= exponent <= MOST_MULTIPLICATIONS
        return simple or f"raises integers to powers from 0 to {MOST_MULTIPLICATIONS} that are known when the program is compiled"
    if name == "floordiv" and spec.dtype in LOW:
        return f"leaves floor division of {spec.dtype.short} to eager, which rounds between its steps"
    if name in ("bitwise_left_shift", "bitwise_right_shift") and any(not hasattr(a, "spec") for a in line.args):
        return "shifts by tensors, not by numbers"
    return True


def _scatter(line: BoundSymbol) -> Verdict:
    x, index = line.args[0].spec, line.args[1].spec
    dim = line.kwargs["dim"]
    single = index.rank > 0 and index.shape[dim] == 1 and all(n == m for d, (n, m) in enumerate(zip(x.shape, index.shape)) if d != dim)
    if x.dtype is bool_ and line.symbol.name == "scatter_add":
        return "adds numbers, not booleans"
    return single or f"puts one element for each row along dim {dim}, got an index {index}"


def _gather(line: BoundSymbol) -> Verdict:
    x = line.args[0].spec
    return (x.numel > 0 and x.rank > 0) or f"expected rows to pick from, got {x}"


def _pad(line: BoundSymbol) -> Verdict:
    return not any(line.kwargs["interior"]) or "pads around a tensor, not between its elements"


def _put_slice(line: BoundSymbol) -> Verdict:
    return all(n == 1 for n in line.kwargs["steps"]) or "writes slices without gaps"


def _iota(line: BoundSymbol) -> Verdict:
    dtype: Any = line.kwargs["dtype"]
    return dtype in STORED or f"computes with {KNOWN}"


CHECKS: dict[str, Callable[[BoundSymbol], Verdict]] = {
    **dict.fromkeys(KINDS, _elementwise),
    **dict.fromkeys(GATHERS, _gather),
    **dict.fromkeys(("scatter", "scatter_add"), _scatter),
    **{"pad": _pad, "put_slice": _put_slice, "iota": _iota},
}
PLAIN = VIEWS | REDUCTIONS | COPIES | {"var", "var_mean", "full", "flip", "cat", "uniform_philox", "normal_philox"}
