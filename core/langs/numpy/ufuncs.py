"""NumPy's ufuncs: a table over the core language, with NumPy's own promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail import dtypes, prims
from dovetail.errors import InputRuntimeError, require, require_traced
from dovetail.langs import core
from dovetail.langs.numpy.symbol import LANGUAGE, NumpySymbol, array, dtype_of, not_traced, numpy_dtype, of_truth, torch_call, weak, write
from dovetail.prims.op import register
from dovetail.trace import NumberProxy, TensorProxy


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


_LOG2 = float(np.log(2.0))


def _unless_bool(operation: Callable) -> Callable:
    """Booleans stay what they are."""
    return lambda x: _same(x) if x.spec.dtype is dtypes.bool_ else operation(x)


def _heaviside(x: TensorProxy, middle: TensorProxy) -> TensorProxy:
    return core.where(core.isnan(x), x, core.where(core.eq(x, 0), middle, core.convert(core.gt(x, 0), x.spec.dtype)))


def _same(x: TensorProxy) -> TensorProxy:
    return prims.clone(x)


def _divided(operation: Callable) -> Callable:
    """Of integers divided by zero, NumPy makes 0, and divided by -1 they are negated, which the machine's division must not meet."""

    def quotient(a: Any, b: Any) -> TensorProxy:
        x = a if isinstance(a, TensorProxy) else b
        if x.spec.dtype.inexact:
            return operation(a, b)
        if not isinstance(b, TensorProxy) and b not in (0, -1):
            return operation(a, b)
        b = b if isinstance(b, TensorProxy) else prims.full(shape=(), value=b, dtype=x.spec.dtype, device=x.spec.device)
        zero, signed = core.eq(b, 0), x.spec.dtype.signed
        special = core.bitwise_or(zero, core.eq(b, -1)) if signed else zero
        out = operation(a, core.where(special, 1, b))
        if signed:
            out = core.where(core.eq(b, -1), core.mul(b, a) if operation is core.floordiv else 0, out)
        return core.where(zero, 0, out)

    return quotient


UFUNCS: dict[str, Callable[..., TensorProxy]] = {
    **{n: core.OPERATIONS[n] for n in ("add", "maximum", "minimum", "copysign", "nextafter", "bitwise_and", "bitwise_or")},
    **{n: core.OPERATIONS[n] for n in ("sign", "signbit", "isnan", "isinf", "isfinite", "sqrt", "exp", "exp2", "expm1")},
    **{n: core.OPERATIONS[n] for n in ("log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "reciprocal", "bitwise_xor")},
    **{f"arc{n}": core.OPERATIONS[f"a{n}"] for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "subtract": core.sub,
    "multiply": core.mul,
    "divide": core.div,
    "floor_divide": _divided(core.floordiv),
    "remainder": _divided(core.remainder),
    "fmod": _divided(core.fmod),
    "power": core.pow,
    "float_power": core.pow,
    "arctan2": core.atan2,
    "hypot": lambda a, b: torch_call("hypot", a, b),
    "logaddexp": _logaddexp,
    "fmax": _ignoring_nan(core.maximum),
    "fmin": _ignoring_nan(core.minimum),
    "negative": core.neg,
    "positive": _same,
    **{n: _unless_bool(core.OPERATIONS[n]) for n in ("ceil", "floor", "trunc")},
    "absolute": _unless_bool(core.abs),
    "fabs": core.abs,
    "rint": core.round,
    "square": lambda x: core.mul(x, x),
    "conjugate": lambda x: core.conj(x) if x.spec.dtype.kind == "complex" else _same(x),
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
    "radians": lambda x: core.mul(x, float(np.pi / 180)),
    "degrees": lambda x: core.mul(x, float(180 / np.pi)),
    "heaviside": _heaviside,
    "logaddexp2": lambda a, b: core.mul(_logaddexp(core.mul(a, _LOG2), core.mul(b, _LOG2)), 1 / _LOG2),
    "matmul": of_truth(lambda a, b: torch_call("matmul", a, b)),
}
_COMPARISONS = {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}
_MODULAR = {np.add, np.subtract, np.multiply, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.equal, np.not_equal, np.positive}
_PYTHON = {"bool": bool, "int": int, "float": float, "complex": complex}
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
    kinds = tuple(weak(x) if isinstance(x, TensorProxy) else _PYTHON[x.spec.kind] if type(x) is NumberProxy else type(x) for x in xs)
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
    if ufunc in _COMPARISONS and (known := _compared(ufunc, xs, resolved)) is not None:
        return known
    xs = tuple(x if isinstance(x, TensorProxy) else _number(x, t) for x, t in zip(xs, resolved, strict=False))
    resolved = tuple(map(_computed, resolved)) if (kept := resolved[-1]) is not None else resolved
    operands = [core.convert(x, dtype_of(t)) if isinstance(x, TensorProxy) else x for x, t in zip(xs, resolved, strict=False)]
    if np.dtype(np.uint64) in resolved[:-1] and ufunc not in _MODULAR:
        raise not_traced(f"numpy.{ufunc.__name__} of uint64", "PyTorch computes no such numbers; convert with astype(np.int64), or to float64")
    if np.dtype(np.uint64) in resolved[:-1]:
        operands = [core.convert(x, dtypes.int64) if isinstance(x, TensorProxy) else (x + 2**63) % 2**64 - 2**63 for x in operands]
    return core.convert(operation(*operands), dtype_of(kept))


def _computed(dtype: np.dtype) -> np.dtype:
    """What numbers are computed in: PyTorch has no arithmetic of unsigned ones of 16 and 32 bits."""
    return np.dtype(np.int64) if dtype in (np.dtype(np.uint16), np.dtype(np.uint32)) else dtype


def _number(x: Any, dtype: np.dtype) -> Any:
    """A Python number as an operand of `dtype`; OverflowError, as of NumPy, where an integer does not fit."""
    return np.array(x, dtype=dtype).item() if type(x) is int and dtype.kind in "iu" else x


def _compared(ufunc: np.ufunc, xs: tuple, dtypes_: tuple) -> TensorProxy | None:
    """What comparing an array with a Python integer gives that its dtype cannot hold: the same everywhere; None where it can."""
    for place, (x, dtype) in enumerate(zip(xs, dtypes_, strict=False)):
        if type(x) is int and dtype.kind in "iu" and not np.iinfo(dtype).min <= x <= np.iinfo(dtype).max:
            spec = xs[1 - place].spec
            held = bool(ufunc(*((0, 1 if x > 0 else -1) if place else (1 if x > 0 else -1, 0))))
            return prims.full(shape=spec.shape, value=held, dtype=dtypes.bool_, device=spec.device)
    return None


def _require_broadcast(shapes: list[tuple[int, ...]]) -> None:
    try:
        core.broadcast_shapes(*shapes)
    except InputRuntimeError:
        require(False, "operands could not be broadcast together with shapes {}", " ".join(map(str, shapes)), error=ValueError)


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple, kwargs: dict) -> Any:
    """Call np.add(x, y) or np.add.reduce(x, axis=0) while tracing."""
    symbol = SYMBOLS.get(ufunc)
    if ufunc is np.divmod and method == "__call__":
        return tuple(SYMBOLS[part](*_listed(inputs), **kwargs) for part in (np.floor_divide, np.remainder))
    if symbol is None:
        raise not_traced(f"numpy.{ufunc.__name__}", "the numpy language has no meaning for it; write it with other functions, or trace it as torch")
    if type(outs := kwargs.get("out")) is tuple and outs[0] is None:
        del kwargs["out"]
    if method == "reduce" and (name := REDUCTIONS.get(ufunc.__name__)):
        return LANGUAGE[name](*inputs, **{"axis": 0, **kwargs})
    if method != "__call__":
        raise not_traced(f"numpy.{ufunc.__name__}.{method}", "of a ufunc's methods only reduce is traced; write it with other functions")
    if kwargs.pop("where", True) is not True:
        raise not_traced(f"numpy.{ufunc.__name__} with where=", "use np.where on its result")
    if (out := kwargs.pop("out", None)) is not None:
        casting = kwargs.pop("casting", "same_kind")
        return _written(out, symbol, _listed(inputs), kwargs, casting)
    return symbol(*_listed(inputs), **kwargs)


def _written(out: Any, symbol: NumpySymbol, inputs: tuple, kwargs: dict | None = None, casting: str = "same_kind") -> TensorProxy:
    """Write a result into `out`, which it broadcasts to; a product of matrices only where its own dimensions are those of `out`."""
    value = symbol(*inputs, **(kwargs or {}))
    if symbol.name == "matmul":
        target = array(out[0] if isinstance(out, tuple) else out)
        own = sum([len(array(x).spec.shape) > 1 for x in inputs])
        fits = len(target.spec.shape) >= own and target.spec.shape[len(target.spec.shape) - own :] == value.spec.shape[len(value.spec.shape) - own :]
        require_traced(fits, "a product of the shape {} written into {} is not traced; pass an array of its shape", value.spec.shape, target.spec)
    return write(out, value, casting=casting)


def _listed(inputs: tuple) -> tuple:
    return tuple(array(x) if isinstance(x, (list, tuple)) else x for x in inputs)


def _in_place(symbol: NumpySymbol) -> Callable:
    """`x += other`; of a scalar it makes a new one, as Python does where it gets NotImplemented."""

    def operator(x: TensorProxy, other: Any) -> Any:
        if x.scalar:
            return NotImplemented
        (other,) = _listed((other,))
        if symbol.name == "matmul":
            require_traced(len(array(other).spec.shape) > 1, "x @= y is not traced where y has one dimension; write x = x @ y")
        return _written(x, symbol, (x, other))

    return operator


def _operator(symbol: NumpySymbol) -> Callable:
    def operator(*xs: Any) -> Any:
        odd = [x for x in xs if not isinstance(x, (TensorProxy, NumberProxy, bool, int, float, complex, np.generic, np.ndarray, list, tuple))]
        if odd and symbol.name in ("equal", "not_equal"):  # Python would compare identities
            raise not_traced(f"numpy.{symbol.name}", f"it compares an array with a {type(odd[0]).__name__}; use `is` for None")
        return symbol(*_listed(xs))

    return operator


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


def _conj(x: TensorProxy) -> TensorProxy:
    """The method, which returns a real array itself."""
    return SYMBOLS[np.conjugate](x) if x.spec.dtype.kind == "complex" else x


LANGUAGE["divmod"] = lambda x, y: call_ufunc(np.divmod, "__call__", (x, y), {})
LANGUAGE.update({"_ufunc": call_ufunc, "conj": _conj, "conjugate": _conj})
LANGUAGE.properties["dtype"] = lambda x: numpy_dtype(x.spec.dtype)
