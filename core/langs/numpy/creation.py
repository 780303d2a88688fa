"""Arrays made of numbers, of other arrays and of nested lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.numpy.symbol import FROM_NUMPY, FUNCTIONS, array, dtype_of, full, not_traced, numpy_dtype, numpysymbol, weak
from dovetail.trace import NumberProxy, TensorProxy, leaves


def filled_like(x: TensorProxy, value: Any, dtype: DType) -> TensorProxy:
    """Fill an array of x's shape with a number."""
    if isinstance(value, TensorProxy):
        return core.expand(core.convert(value, dtype), x.spec.shape)
    return prims.full(shape=x.spec.shape, value=core.fit(value, (), dtype), dtype=dtype, device=x.spec.device)


def _sizes(a: Any, shape: Any) -> Any:
    return array(a).spec.shape if shape is None else shape


@numpysymbol("numpy.full_like", scalar="never")
def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None):
    """`fill_value` in a's shape."""
    return full(_sizes(a, shape), fill_value, numpy_dtype(array(a).spec.dtype) if dtype is None else dtype)


@numpysymbol("numpy.zeros_like", "numpy.empty_like", scalar="never")
def zeros_like(a: Any, dtype: Any = None, shape: Any = None):
    """Zeros in a's shape."""
    return full_like(a, 0, dtype, shape)


@numpysymbol("numpy.ones_like", scalar="never")
def ones_like(a: Any, dtype: Any = None, shape: Any = None):
    """Ones in a's shape."""
    return full_like(a, 1, dtype, shape)


@numpysymbol("numpy.zeros", "numpy.empty", scalar="never")
def zeros(shape: Any, dtype: Any = float):
    """Zeros."""
    return full(shape, 0, np.dtype(float) if dtype is None else dtype)


@numpysymbol("numpy.ones", scalar="never")
def ones(shape: Any, dtype: Any = float):
    """Ones."""
    return full(shape, 1, np.dtype(float) if dtype is None else dtype)


@numpysymbol("numpy.linspace", scalar="never")
def linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None):
    """`num` numbers at equal distances between two scalars."""
    first, last = array(start), array(stop)
    if retstep or first.spec.shape or last.spec.shape or not isinstance(num, int):
        raise not_traced("numpy.linspace of arrays, with retstep= or of a traced length", "write it with np.arange")
    require(num >= 0, "Number of samples, {}, must be non-negative.", num, error=ValueError)
    common = dtype_of(np.result_type(weak(first), weak(last), float(num)))
    first, last = core.convert(first, common), core.convert(last, common)
    parts = max(num - 1 if endpoint else num, 0)
    steps = core.convert(prims.iota(length=num, start=0, step=1, dtype=dtypes.int64, device=first.spec.device), common)
    delta = core.sub(last, first)
    step = core.div(delta, parts) if parts else delta
    by_step = core.mul(steps, step)
    values = core.where(core.eq(step, 0), core.mul(core.div(steps, parts), delta), by_step) if parts else by_step  # steps that underflow to 0
    values = core.add(values, first)
    if endpoint and num > 1:
        values = core.where(core.eq(steps, num - 1), last, values)
    if dtype is None:
        return values
    return core.convert(core.floor(values) if dtype_of(dtype).kind == "int" else values, dtype_of(dtype))


CREATION = {np.zeros: 1, np.ones: 1, np.empty: 1, np.full: 2}  # function -> the place of its dtype among its arguments


def records(function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call without traced arguments makes an array that the program computes; others are made while tracing."""
    if function not in CREATION:
        return False
    place = CREATION[function]
    dtype = kwargs.get("dtype", args[place] if len(args) > place else None)
    try:
        return dtype is None or np.dtype(dtype) in FROM_NUMPY
    except TypeError:
        return False


def _stacked(items: list | tuple, dtype: DType) -> TensorProxy:
    parts = [_stacked(item, dtype) if isinstance(item, (list, tuple)) else array(item, dtype) for item in items]
    shapes = {part.spec.shape for part in parts}
    require(len(shapes) == 1, "setting an array element with a sequence: the parts have different shapes {}", sorted(shapes), error=ValueError)
    (shape,) = shapes
    return prims.cat([prims.reshape(core.clone(part), shape=(1, *shape)) for part in parts], dim=0)


def _leaf_dtype(x: Any) -> np.dtype:
    return numpy_dtype(x.spec.dtype) if isinstance(x, TensorProxy) else np.asarray(x).dtype


@numpysymbol("numpy.array", scalar="never")
def array_of(object: Any, dtype: Any = None):
    """An array of a nest of lists, in storage of its own."""
    if isinstance(object, (list, tuple)) and any(isinstance(x, TensorProxy) for x in leaves(object)):
        common = np.result_type(*map(_leaf_dtype, leaves(object)))
        return _stacked(object, dtype_of(common if dtype is None else dtype))
    return prims.clone(array(object, None if dtype is None else dtype_of(dtype)))


@numpysymbol("numpy.ascontiguousarray", scalar="never", view=True)
def ascontiguousarray(a: Any, dtype: Any = None):
    """The array in row-major order, itself where it is that already."""
    x = _asarray(a, dtype)
    x = x if x.spec.shape else prims.reshape(x, shape=(1,))
    return x if x.spec.strides is None else prims.clone(x)


def _asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None) -> Any:
    """a as an array, itself where it is one."""
    require(not isinstance(a, NumberProxy), "a number that the program computes is no array; use it as it is", error=TypeError)
    if not isinstance(a, TensorProxy) or a.scalar or copy:
        return array_of(a, dtype)
    return a if dtype is None or dtype_of(dtype) is a.spec.dtype else array_of(a, dtype)


def _array(object: Any, dtype: Any = None, *, copy: bool | None = True, order: Any = "K", subok: bool = False, ndmin: int = 0) -> Any:
    x = array_of(object, dtype) if copy else _asarray(object, dtype)
    missing = ndmin - len(x.spec.shape)
    return FUNCTIONS[np.expand_dims](x, tuple(range(missing))) if missing > 0 else x


FUNCTIONS |= {np.asarray: _asarray, np.asanyarray: _asarray, np.array: _array}
