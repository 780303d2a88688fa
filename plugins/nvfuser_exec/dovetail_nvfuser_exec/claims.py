"""Which lines the executor takes: True, or a sentence that says why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.extend import BoundSymbol, TensorSpec, Verdict
from dovetail_nvfuser_exec.translators import DTYPES, NUMBERS, OPT_IN, RULES

KNOWN = ", ".join(dtype.short for dtype in DTYPES)
MOST_DIMS = 8

REASONS: dict[str, str] = {
    **dict.fromkeys(("argmax", "argmin", "sort", "topk", "cummax", "cummin"), "has no operation that returns positions"),
    **dict.fromkeys(
        ("uniform", "normal", "bernoulli", "exponential", "randint", "randperm", "multinomial"), "leaves draws to the device's generator"
    ),
    **dict.fromkeys(("uniform_philox", "normal_philox"), "counts the numbers that it draws by its own threads, not as the prims' Philox does"),
    **dict.fromkeys(("index_add", "index_put", "scatter_add", "embedding_backward", "coo_mm"), "has no operation that adds up at repeated positions"),
    **dict.fromkeys(("index", "index_copy"), "has no operation for positions in several dimensions"),
    **dict.fromkeys(("convolution", "convolution_input_grad", "convolution_weight_grad"), "leaves convolutions to cuDNN"),
    **dict.fromkeys(("flip", "put_slice", "put_diagonal", "diagonal", "unfold", "fold_add"), "has no operation that permutes elements this way"),
    **dict.fromkeys(("view_as_complex", "view_as_real", "complex", "conj", "real", "imag"), "supports real numbers only here"),
    "scatter": "has no scatter whose result can be sliced or joined",
    "bitcast": "has no operation that reads bits as another dtype",
    "floordiv": "has no floor division, whose rounding eager PyTorch defines",
    "truncdiv": "divides integers in one way in its kernels and in another in its evaluator",
    "copysign": "has no copysign",
    "device_put": "works on one device",
    "item": "keeps values on the device",
    "tensor_from_sequence": "has no operation for lists of numbers",
    "with_history": "has no autograd, of which it is a part",
}
OPTIONAL = {name: option for option, rules in OPT_IN.items() for name in rules}
WHY_OPTIONAL = {
    "matmul": "leaves sums of products to cuBLAS, which it would only call; its option `matmul` takes them",
    "linear": "leaves sums of products to cuBLAS, which it would only call; its option `linear` takes them",
    "embedding": "leaves embeddings to PyTorch, which it would only call; its option `embedding` takes them",
    "indexing": "does not check positions that a tensor holds, where eager PyTorch raises; its option `indexing` takes them",
    "in_place": "leaves writes to the copy after the program; its option `in_place` takes them",
}


def verdict(line: BoundSymbol, options: Mapping[str, Any]) -> Verdict:
    """Return whether a prim can be part of a definition."""
    name = line.symbol.name
    if line.symbol.module != "prims" or (name not in RULES and name != "copy_"):
        return REASONS.get(name, f"has no operation for {line.symbol}")
    option = "in_place" if name == "copy_" else OPTIONAL.get(name)
    if option is not None and not options[option]:
        return WHY_OPTIONAL[option]
    for p in (*line.reads, *line.writes):
        if type(p.spec) is TensorSpec and (message := _tensor(p)) is not True:
            return message
    if name == "copy_":
        return line.args[0].spec.strides is None or "writes into row-major tensors only, since nvFuser lays out what it writes"
    if (message := _kind(line)) is not True:
        return message
    check = CHECKS.get(name)
    return True if check is None else check(line)


def _tensor(p: Any) -> Verdict:
    """Return whether nvFuser has tensors like this one."""
    spec = p.spec
    if spec.dtype not in DTYPES:
        return f"computes with {KNOWN}, and {p.name} is of {spec.dtype.short}"
    if spec.rank > MOST_DIMS:
        return f"takes tensors of at most {MOST_DIMS} dimensions, and {p.name} has {spec.rank}"
    if spec.numel == 0:
        return f"expected at least one element, and {p.name} is {spec}"
    return True


def _kind(line: BoundSymbol) -> Verdict:
    """Return whether the operation exists for these dtypes, and every number is a constant or an operand."""
    name, spec = line.symbol.name, operand(line)
    if spec.dtype.kind not in RULES[name].kinds:
        return f"has no {name} of {spec.dtype.short}"
    for p in line.reads:
        if type(p.spec) is TensorSpec:
            continue
        if p.spec.kind not in NUMBERS:
            return f"computes with real numbers, and {p.name} is {p.spec.kind}"
        if not any([p is a for a in line.args]):
            return f"expected the numbers that {name} is called with to be known when the program is compiled, and {p.name} is computed"
    return True


def operand(line: BoundSymbol) -> TensorSpec:
    """Return the spec that determines an operation's dtype: of its first operand, or of its result where it has none."""
    args = line.args[1:] if line.symbol.name == "where" else line.args
    flat = [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]
    tensors = [a.spec for a in flat if type(getattr(a, "spec", None)) is TensorSpec]
    return tensors[0] if tensors else line.writes[0].spec


def _pow(line: BoundSymbol) -> Verdict:
    exponent = line.args[1]
    simple = operand(line).dtype.kind == "float" or (type(exponent) is int and exponent >= 0)
    return simple or "raises integers to powers that are known when the program is compiled"


def _shift(line: BoundSymbol) -> Verdict:
    places, bits = line.args[1], 8 * operand(line).dtype.bytes
    known = type(places) is int and 0 <= places < bits
    return known or f"shifts by numbers from 0 to {bits - 1} that are known when the program is compiled"


def _nextafter(line: BoundSymbol) -> Verdict:
    return operand(line).dtype.bytes >= 4 or f"steps from one f32 or f64 to the next, got {operand(line)}"


def _divides(line: BoundSymbol) -> Verdict:
    divisor = line.args[1]
    zero = type(divisor) in (bool, int) and divisor == 0
    return operand(line).dtype.kind == "float" or not zero or "divides integers by numbers other than 0"


def _variance(line: BoundSymbol) -> Verdict:
    x, dims, correction = line.args[0].spec, line.kwargs["dims"], line.kwargs["correction"]
    count = math.prod(x.shape[d] for d in dims)
    whole = bool(dims) and type(correction) in (int, float) and correction == int(correction) and 0 <= correction <= count
    return whole or f"takes a variance over dims, with a whole correction from 0 to their {count} elements; got {correction} for dims {dims} of {x}"


def _slices(line: BoundSymbol) -> Verdict:
    return all(n == 1 for n in line.kwargs["steps"]) or "slices without gaps: its steps are 1"


def _pads(line: BoundSymbol) -> Verdict:
    if any(line.kwargs["interior"]):
        return "pads around a tensor, not between its elements"
    x, low, high = line.args[0].spec, line.kwargs["low"], line.kwargs["high"]
    left = all([n + min(a, 0) + min(b, 0) > 0 for n, a, b in zip(x.shape, low, high, strict=True)])
    return left or f"crops at most the whole dimension, got low {low} and high {high} for {x}"


def _embedding(line: BoundSymbol) -> Verdict:
    return line.args[1].spec.rank > 0 or "expected an index of at least one dimension"


def _along(line: BoundSymbol) -> Verdict:
    (x, index), dim = (p.spec for p in line.args), line.kwargs["dim"]
    equal = all([n == m for d, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if d != dim])
    return equal or f"expected an index as large as {x} but along dim {dim}, got {index}"


CHECKS: dict[str, Callable[[BoundSymbol], Verdict]] = {
    "pow": _pow,
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), _shift),
    "nextafter": _nextafter,
    **dict.fromkeys(("remainder", "fmod"), _divides),
    **dict.fromkeys(("var", "var_mean"), _variance),
    "embedding": _embedding,
    "take_along_axis": _along,
    "strided_slice": _slices,
    "pad": _pads,
}
