"""NumPy's ufuncs: a table over the core language, with NumPy's own promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import InputRuntimeError, require
from dovetail.langs import core
from dovetail.langs.numpy.symbol import LANGUAGE, NumpySymbol, dtype_of, not_traced, numpy_dtype, operands, torch_call, weak, write
from dovetail.prims.op import register
from dovetail.trace import TensorProxy


def _truth(x: Any) -> Any:
    return core.ne(x, 0) if isinstance(x, TensorProxy) and x.spec.dtype is not dtypes.bool_ else x if isinstance(x, TensorProxy) else bool(x)


def _logical(operation: Callable) -> Callable:
    return lambda *xs: operation(*map(_truth, xs))


def _ignoring_nan(operation: Callable) -> Callable:
    """Of a pair in which one is NaN, the other."""

    def chosen(a: TensorProxy, b: TensorProxy) -> TensorProxy:
        if not a.spec.dtype.inexact:
            return operation(a, b)
        return core.where(core.isnan(a), b, core.where(core.isnan(b), a, operation(a, b)))

    return chosen


def _logaddexp(a: TensorProxy, b: TensorProxy) -> TensorProxy:
    high = core.maximum(a, b)
    return core.where(core.eq(a, b), core.add(high, float(np.log(2.0))), core.add(high, core.log1p(core.exp(core.neg(core.abs(core.sub(a, b)))))))


def _same(x: TensorProxy) -> TensorProxy:
    return core.mul(x, 1)


UFUNCS: dict[str, Callable[..., TensorProxy]] = {
    **{n: core.OPERATIONS[n] for n in ("add", "maximum", "minimum", "remainder", "fmod", "copysign", "nextafter", "bitwise_and", "bitwise_or")},
    **{n: core.OPERATIONS[n] for n in ("sign", "signbit", "ceil", "floor", "trunc", "isnan", "isinf", "isfinite", "sqrt", "exp", "exp2", "expm1")},
    **{n: core.OPERATIONS[n] for n in ("log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "reciprocal", "bitwise_xor")},
    **{f"arc{n}": core.OPERATIONS[f"a{n}"] for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "subtract": core.sub,
    "multiply": core.mul,
    "divide": core.div,
    "floor_divide": core.floordiv,
    "power": core.pow,
    "float_power": core.pow,
    "arctan2": core.atan2,
    "hypot": lambda a, b: torch_call("hypot", a, b),
    "logaddexp": _logaddexp,
    "fmax": _ignoring_nan(core.maximum),
    "fmin": _ignoring_nan(core.minimum),
    "negative": core.neg,
    "positive": _same,
    "absolute": core.abs,
    "fabs": core.abs,
    "rint": core.round,
    "square": lambda x: core.mul(x, x),
    "conjugate": core.conj,
    "invert": core.bitwise_not,
    "left_shift": core.bitwise_left_shift,
    "right_shift": core.bitwise_right_shift,
    "logical_and": _logical(core.bitwise_and),
    "logical_or": _logical(core.bitwise_or),
    "logical_xor": _logical(core.bitwise_xor),
    "logical_not": _logical(core.bitwise_not),
    "equal": core.eq,
    "not_equal": core.ne,
    "less": core.lt,
    "less_equal": core.le,
    "greater": core.gt,
    "greater_equal": core.ge,
    "deg2rad": lambda x: core.mul(x, float(np.pi / 180)),
    "rad2deg": lambda x: core.mul(x, float(180 / np.pi)),
    "matmul": lambda a, b: torch_call("matmul", a, b),
}
REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
SYMBOLS: dict[np.ufunc, NumpySymbol] = {}  # the registry: ufunc -> its symbol


def _symbol(name: str, operation: Callable) -> NumpySymbol:
    ufunc = getattr(np, name)

    def unary(x: Any, dtype: Any = None) -> TensorProxy:
        return _applied(ufunc, operation, (x,), dtype)

    def binary(x1: Any, x2: Any, dtype: Any = None) -> TensorProxy:
        return _applied(ufunc, operation, (x1, x2), dtype)

    meta = unary if ufunc.nin == 1 else binary
    meta.__name__, meta.__doc__ = name, (ufunc.__doc__ or "").split("\n\n")[1 if "\n\n" in (ufunc.__doc__ or "") else 0]
    return register(NumpySymbol(name, meta, id=f"numpy.{name}", path=f"numpy.{name}"))


def _applied(ufunc: np.ufunc, operation: Callable, xs: tuple, dtype: Any) -> TensorProxy:
    """`operation` on operands converted as NumPy converts them for `ufunc`: np.exp of int32 is float64, of int8 float16."""
    kinds = tuple(weak(x) if isinstance(x, TensorProxy) else type(x) for x in xs)
    require(
        all(k in (bool, int, float, complex) or isinstance(k, np.dtype) for k in kinds), "expected arrays and numbers, got {}", xs, error=TypeError
    )
    kinds = tuple(np.dtype(bool) if k is bool else k for k in kinds)
    try:
        resolved = ufunc.resolve_dtypes((*kinds, None), **({} if dtype is None else {"signature": (None,) * ufunc.nin + (np.dtype(dtype),)}))
    except TypeError as error:
        require(False, "{}", error, error=TypeError)
    shapes = [x.spec.shape for x in xs if isinstance(x, TensorProxy)]
    if ufunc.signature is None:
        _require_broadcast(shapes)
    given = [core.convert(x, dtype_of(t)) if isinstance(x, TensorProxy) else x for x, t in zip(xs, resolved, strict=False)]
    return core.convert(operation(*given), dtype_of(resolved[-1]))


def _require_broadcast(shapes: list[tuple[int, ...]]) -> None:
    try:
        core.broadcast_shapes(*shapes)
    except InputRuntimeError:
        require(False, "operands could not be broadcast together with shapes {}", " ".join(map(str, shapes)), error=ValueError)


def call(ufunc: np.ufunc, method: str, inputs: tuple, kwargs: dict) -> Any:
    """What np.add(x, y), np.add.reduce(x, axis=0) mean while tracing."""
    symbol = SYMBOLS.get(ufunc)
    if symbol is None:
        raise not_traced(f"numpy.{ufunc.__name__}", "the numpy language has no meaning for it; write it with other functions, or trace it as torch")
    if method == "reduce" and (name := REDUCTIONS.get(ufunc.__name__)):
        return LANGUAGE[name](*inputs, **{"axis": 0, **kwargs})
    if method != "__call__":
        raise not_traced(f"numpy.{ufunc.__name__}.{method}", "of a ufunc's methods only reduce is traced; write it with other functions")
    if kwargs.pop("where", True) is not True:
        raise not_traced(f"numpy.{ufunc.__name__} with where=", "use np.where on its result")
    if (out := kwargs.pop("out", None)) is not None:
        casting = kwargs.pop("casting", "same_kind")
        return write(out, symbol(*_listed(inputs), **kwargs), casting=casting)
    return symbol(*_listed(inputs), **kwargs)


def _listed(inputs: tuple) -> tuple:
    return tuple(operands(np.asarray(x)) if isinstance(x, (list, tuple)) else x for x in inputs)


def _in_place(symbol: NumpySymbol) -> Callable:
    return lambda x, other: write(x, symbol(x, *_listed((other,))))


def _operator(symbol: NumpySymbol) -> Callable:
    return lambda *xs: symbol(*_listed(xs))


for _name, _operation in UFUNCS.items():
    SYMBOLS[getattr(np, _name)] = _symbol(_name, _operation)

_OPERATORS = {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder", "pow": "power"},
    **{"matmul": "matmul", "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift"},
    **{"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"},
    **{"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"},
}
LANGUAGE.update({name: _operator(SYMBOLS[getattr(np, ufunc)]) for name, ufunc in _OPERATORS.items()})
LANGUAGE.update({f"i{name.rstrip('_')}": _in_place(SYMBOLS[getattr(np, ufunc)]) for name, ufunc in _OPERATORS.items() if getattr(np, ufunc).nin == 2})
LANGUAGE.update({"_ufunc": call, "conj": SYMBOLS[np.conjugate], "conjugate": SYMBOLS[np.conjugate]})
LANGUAGE.properties["dtype"] = lambda x: numpy_dtype(x.spec.dtype)
