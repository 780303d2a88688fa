"""The translation of each prim to nvFuser's operations.

nvFuser computes with float16 and bfloat16 in float32 and leaves results there, so a value of a low-precision dtype is either of it, or "wide": a
float32 that is not rounded yet.  Arithmetic widens its operands; data movement keeps them.  `settle` rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from dovetail.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64
from dovetail.langs.torch import TO_TORCH

DTYPES = {float64: "Double", float32: "Float", float16: "Half", bfloat16: "BFloat16", int64: "Int", int32: "Int32", bool_: "Bool"}
LOW = frozenset({float16, bfloat16})
NUMBERS = {"float": "Double", "int": "Int", "bool": "Bool"}  # kinds of numbers that the program computes

FLOAT, INT, BOOL = frozenset({"float"}), frozenset({"int"}), frozenset({"bool"})
NUMERIC, INTEGERS, REAL = FLOAT | INT, INT | BOOL, FLOAT | INT | BOOL


class Builder:
    """A definition under construction, `fd`, and nvFuser's names for dtypes, `types`."""

    def __init__(self, fd: Any, types: Any):
        self.fd, self.ops, self.types = fd, fd.ops, types

    def type(self, dtype: DType) -> Any:
        """Return nvFuser's name for a dtype."""
        return getattr(self.types, DTYPES[dtype])

    def cast(self, x: Any, dtype: DType) -> Any:
        """Cast x to `dtype` unless it has it."""
        wanted = self.type(dtype)
        return x if x.dtype() == wanted else self.ops.cast(x, dtype=wanted)

    def is_low(self, x: Any) -> bool:
        """Return whether a value is of float16 or bfloat16."""
        return x.dtype() in (self.types.Half, self.types.BFloat16)

    def wide(self, x: Any) -> Any:
        """Cast x for arithmetic: to float32 where it is of a low dtype; numbers stay unchanged."""
        return self.cast(x, float32) if hasattr(x, "dtype") and self.is_low(x) else x

    def settle(self, x: Any, dtype: DType, shown: bool) -> Any:
        """Cast a result to its dtype; one of a low dtype stays wide where only its own composite reads it."""
        return x if dtype in LOW and not shown and x.dtype() == self.types.Float else self.cast(x, dtype)

    def number(self, value: Any, dtype: DType, rounded: bool = False) -> Any:
        """Convert a Python number among operands of `dtype`, rounded to that where eager PyTorch rounds it."""
        if type(value) not in (bool, int, float):
            return value  # a number that the program computes
        if dtype is bool_:
            return self.fd.define_scalar(bool(value), dtype=self.types.Bool)
        if dtype.kind == "float":
            return torch.tensor(value, dtype=TO_TORCH[dtype]).item() if rounded and dtype in LOW else float(value)
        return int(value)


class Call(NamedTuple):
    """One prim: its operands as values or numbers, their dtype, its keyword arguments, and the dtype of its result."""

    name: str
    args: tuple
    dtype: DType
    params: dict[str, Any]
    out: DType


class Rule(NamedTuple):
    """The kinds of dtype with a translation, and the translation: (builder, call) -> value or values."""

    kinds: frozenset[str]
    build: Callable[[Builder, Call], Any]


def _arithmetic(op: str, rounded: bool = False) -> Callable[[Builder, Call], Any]:
    """Return an operation on numbers, in float32 at least."""

    def build(b: Builder, call: Call) -> Any:
        return getattr(b.ops, op)(*[b.wide(b.number(a, call.dtype, rounded)) for a in call.args])

    return build


def _by_kind(rounded: bool = False, **ops: str) -> Callable[[Builder, Call], Any]:
    """Return a translation to another operation for each kind of dtype."""
    builds = {kind: _arithmetic(op, rounded) for kind, op in ops.items()}
    return lambda b, call: builds[call.dtype.kind](b, call)


def _same(b: Builder, call: Call) -> Any:
    return b.ops.set(call.args[0])


def _rounding(op: str) -> Callable[[Builder, Call], Any]:
    """Return an operation that rounds floats, and leaves integers as they are."""
    of_floats = _arithmetic(op)
    return lambda b, call: of_floats(b, call) if call.dtype.kind == "float" else _same(b, call)


def _convert(b: Builder, call: Call) -> Any:
    (x,) = call.args
    if call.out in LOW or call.dtype not in LOW:
        return b.ops.cast(x, dtype=b.type(call.out))
    return b.cast(b.wide(x), call.out) if call.out is not float32 else b.wide(x)


def _alike(b: Builder, values: list[Any]) -> list[Any]:
    """Cast values to one dtype: wide ones make the others wide."""
    mixed = len({v.dtype() for v in values if hasattr(v, "dtype")}) > 1
    return [b.wide(v) for v in values] if mixed else values


def _where(b: Builder, call: Call) -> Any:
    condition, *rest = call.args
    return b.ops.where(condition, *_alike(b, [b.number(v, call.dtype, rounded=True) for v in rest]))


def _reduction(op: str) -> Callable[[Builder, Call], Any]:
    def build(b: Builder, call: Call) -> Any:
        (x,), dims = call.args, list(call.params["dims"])
        return getattr(b.ops, op)(b.wide(x), dims) if dims else b.ops.set(x)

    return build


def _counted(op: str) -> Callable[[Builder, Call], Any]:
    """Return a reduction of booleans, which are 0 and 1."""
    reduce = _reduction(op)

    def build(b: Builder, call: Call) -> Any:
        x = b.cast(call.args[0], int32) if call.dtype is bool_ else call.args[0]
        return reduce(b, call._replace(args=(x,)))

    return build


def _moments(op: str) -> Callable[[Builder, Call], Any]:
    def build(b: Builder, call: Call) -> Any:
        return getattr(b.ops, op)(b.wide(call.args[0]), list(call.params["dims"]), int(call.params["correction"]))

    return build


def _scan(op: str) -> Callable[[Builder, Call], Any]:
    return lambda b, call: getattr(b.ops, op)(b.wide(call.args[0]), call.params["dim"])


def _broadcast(b: Builder, call: Call) -> Any:
    return b.ops.broadcast_in_dim(call.args[0], list(call.params["shape"]), list(call.params["dims"]))


def _reshape(b: Builder, call: Call) -> Any:
    return b.ops.reshape(call.args[0], list(call.params["shape"]))


def _squeeze(b: Builder, call: Call) -> Any:
    dims = list(call.params["dims"])
    return b.ops.squeeze(call.args[0], dims) if dims else call.args[0]


def _transpose(b: Builder, call: Call) -> Any:
    return b.ops.permute(call.args[0], list(call.params["order"]))


def _slice(b: Builder, call: Call) -> Any:
    return b.ops.slice(call.args[0], list(call.params["starts"]), list(call.params["stops"]), list(call.params["steps"]))


def _detach(b: Builder, call: Call) -> Any:
    return call.args[0]


def _pad(b: Builder, call: Call) -> Any:
    """Count widths from the last dimension, as nvFuser does, and pass a value of the tensor's dtype."""
    x, value = call.args[0], b.number(call.params["value"], call.dtype, rounded=True)
    widths = [n for low, high in reversed(list(zip(call.params["low"], call.params["high"], strict=True))) for n in (low, high)]
    known = value if call.dtype is bool_ else b.fd.define_scalar(value, dtype=x.dtype())
    return b.ops.pad(x, widths, known) if widths else b.ops.set(x)


def _cat(b: Builder, call: Call) -> Any:
    return b.ops.cat(_alike(b, list(call.args[0])), call.params["dim"])


def _full(b: Builder, call: Call) -> Any:
    return b.ops.full(list(call.params["shape"]), b.number(call.params["value"], call.out, rounded=True), b.type(call.out))


def _iota(b: Builder, call: Call) -> Any:
    dtype = float64 if call.out.kind == "float" else call.out
    start, step = (b.number(call.params[name], dtype) for name in ("start", "step"))
    return b.ops.iota(call.params["length"], start, step, b.type(dtype))


def _product(op: str) -> Callable[[Builder, Call], Any]:
    """Return a translation to a sum of products, of operands in their own dtype."""
    return lambda b, call: getattr(b.ops, op)(*[b.cast(x, call.dtype) for x in call.args])


def _embedding(b: Builder, call: Call) -> Any:
    weight, index = call.args
    return b.ops.embedding_fwd(index, b.cast(weight, call.dtype))


def _take(b: Builder, call: Call) -> Any:
    return b.ops.index_select(*call.args, call.params["dim"])


def _take_along(b: Builder, call: Call) -> Any:
    return b.ops.take_along_axis(*call.args, call.params["dim"])


_SAME_NAME = """
    exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid
    erf erfc erfinv lgamma reciprocal isnan isinf isfinite signbit div nextafter
"""
OPT_IN: dict[str, dict[str, Rule]] = {  # options, and the prims that they enable
    "matmul": {"matmul": Rule(FLOAT, _product("matmul"))},
    "linear": {"linear": Rule(FLOAT, _product("linear"))},
    "embedding": {"embedding": Rule(FLOAT, _embedding)},
    "indexing": {"take": Rule(REAL, _take), "take_along_axis": Rule(REAL, _take_along)},
}
RULES: dict[str, Rule] = {
    **{name: Rule(FLOAT, _arithmetic(name)) for name in _SAME_NAME.split()},
    **{name: Rule(NUMERIC, _arithmetic(name)) for name in ("abs", "neg", "sign", "sub", "pow")},
    **{name: Rule(NUMERIC, _rounding(name)) for name in ("ceil", "floor", "round", "trunc")},
    **{name: Rule(REAL, _arithmetic(name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: Rule(INTEGERS, _arithmetic(name)) for name in ("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: Rule(INT, _arithmetic(name)) for name in ("bitwise_left_shift", "bitwise_right_shift")},
    "add": Rule(REAL, _by_kind(float="add", int="add", bool="bitwise_or")),
    "mul": Rule(REAL, _by_kind(float="mul", int="mul", bool="bitwise_and")),
    "maximum": Rule(REAL, _by_kind(rounded=True, float="maximum", int="maximum", bool="bitwise_or")),
    "minimum": Rule(REAL, _by_kind(rounded=True, float="minimum", int="minimum", bool="bitwise_and")),
    "remainder": Rule(NUMERIC, _arithmetic("remainder", rounded=True)),
    "atan2": Rule(FLOAT, _arithmetic("atan2", rounded=True)),
    "fmod": Rule(NUMERIC, _by_kind(rounded=True, float="fmod", int="mod")),
    "where": Rule(REAL, _where),
    "convert_element_type": Rule(REAL, _convert),
    "sum": Rule(NUMERIC, _reduction("sum")),
    "prod": Rule(NUMERIC, _reduction("prod")),
    "amax": Rule(REAL, _counted("max")),
    "amin": Rule(REAL, _counted("min")),
    "any": Rule(BOOL, _counted("max")),
    "all": Rule(BOOL, _counted("min")),
    "var": Rule(FLOAT, _moments("var")),
    "var_mean": Rule(FLOAT, _moments("var_mean")),
    "cumsum": Rule(NUMERIC, _scan("cumsum")),
    "cumprod": Rule(NUMERIC, _scan("cumprod")),
    "broadcast_in_dim": Rule(REAL, _broadcast),
    "reshape": Rule(REAL, _reshape),
    "squeeze": Rule(REAL, _squeeze),
    "transpose": Rule(REAL, _transpose),
    "strided_slice": Rule(REAL, _slice),
    "detach": Rule(REAL, _detach),
    "clone": Rule(REAL, _same),
    "stride_order": Rule(REAL, _same),
    "pad": Rule(REAL, _pad),
    "cat": Rule(REAL, _cat),
    "full": Rule(REAL, _full),
    "iota": Rule(NUMERIC, _iota),
    **{name: rule for rules in OPT_IN.values() for name, rule in rules.items()},
}
VIEWS = frozenset({"broadcast_in_dim", "reshape", "squeeze", "transpose", "strided_slice", "detach"})
MOVES = VIEWS | {"clone", "stride_order", "pad", "cat", "full", "iota", "take", "take_along_axis", "embedding", "copy_"}  # without computing
RESIZES = frozenset({"reshape", "strided_slice", "pad", "cat", "take", "take_along_axis", "embedding"})
