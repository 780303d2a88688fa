"""Fewer elements out than in, and running sums: `axis`, `keepdims` and `ddof` as NumPy means them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import require, require_traced
from dovetail.langs import core
from dovetail.langs.numpy.symbol import LANGUAGE, array, dtype_of, numpysymbol
from dovetail.prims import Symbol
from dovetail.prims.sizes import Size
from dovetail.prims.spec import prod as product
from dovetail.trace import TensorProxy

Axis = int | tuple[int, ...] | None


def axes(axis: Axis, x: TensorProxy) -> tuple[int, ...]:
    """`axis` as sorted dims: None is every one, and () is none, where PyTorch takes it for every one."""
    return () if isinstance(axis, (tuple, list)) and not axis else core.canonical_dims(axis, len(x.spec.shape))


def reduced(prim: Callable, x: TensorProxy, axis: Axis, keepdims: bool, **options: Any) -> TensorProxy:
    """`prim` over `axis` of x."""
    dims = axes(axis, x)
    out = prim(x, dims=dims, **options)
    return core.keep_dims(out, x.spec.shape, dims) if keepdims and dims else out


def count(x: TensorProxy, axis: Axis) -> int | Size:
    """Count the elements that are reduced into one."""
    return product(x.spec.shape[d] for d in axes(axis, x))


def total_dtype(x: TensorProxy, dtype: Any) -> DType:
    """Return the dtype of a sum: as requested, else int64 or uint64 for integers and booleans."""
    if dtype is not None:
        return dtype_of(dtype)
    kind = x.spec.dtype
    return kind if kind.inexact else dtypes.uint64 if not kind.signed and kind is not dtypes.bool_ else dtypes.int64


def _total(prim: Symbol, x: TensorProxy, axis: Axis, keepdims: bool, dtype: DType) -> TensorProxy:
    computed = dtypes.int64 if dtype is dtypes.uint64 else core.wide(dtype)  # modulo 2**64 both are the same
    return core.convert(reduced(prim, core.convert(x, computed), axis, keepdims), dtype)


@numpysymbol("numpy.sum", methods=("sum",))
def sum(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False):
    """The sum over `axis`; of integers in 64 bits."""
    return _total(prims.sum, array(a), axis, keepdims, total_dtype(array(a), dtype))


@numpysymbol("numpy.prod", methods=("prod",))
def prod(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False):
    """The product over `axis`; of integers in 64 bits."""
    return _total(prims.prod, array(a), axis, keepdims, total_dtype(array(a), dtype))


def _mean_dtype(x: TensorProxy, dtype: Any) -> DType:
    return dtype_of(dtype) if dtype is not None else x.spec.dtype if x.spec.dtype.inexact else dtypes.float64


@numpysymbol("numpy.mean", methods=("mean",))
def mean(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False):
    """The mean over `axis`; of integers in float64."""
    x = array(a)
    dtype = _mean_dtype(x, dtype)
    total = reduced(prims.sum, core.convert(x, core.wide(dtype)), axis, keepdims)
    n = count(x, axis)
    return core.convert(core.div(total, n if type(n) is Size else float(n)), dtype)


@numpysymbol("numpy.var", methods=("var",))
def var(a: Any, axis: Axis = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False):
    """The mean squared distance from the mean, over n - ddof; NumPy's ddof is 0 where PyTorch's correction is 1."""
    x = array(a)
    dtype = _mean_dtype(x, dtype)
    if dtype.kind == "complex":
        x = core.convert(x, dtype)
        parts = [reduced(prims.var, part(x), axis, keepdims, correction=ddof) for part in (prims.real, prims.imag)]
        return core.add(*parts)
    return core.convert(reduced(prims.var, core.convert(x, core.wide(dtype)), axis, keepdims, correction=ddof), dtype)


@numpysymbol("numpy.std", methods=("std",))
def std(a: Any, axis: Axis = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False):
    """The square root of the variance."""
    return core.sqrt(var(a, axis, dtype, ddof, keepdims))


def _extreme(prim: Symbol, ufunc: np.ufunc, a: Any, axis: Axis, keepdims: bool, initial: Any) -> TensorProxy:
    x = array(a)
    _require_real(x, ufunc.__name__)
    if initial is None:
        return reduced(prim, _not_empty(x, axis, ufunc.__name__), axis, keepdims)
    shape = tuple(n for d, n in enumerate(x.spec.shape) if d not in axes(axis, x))
    if not count(x, axis):
        out = prims.full(shape=shape, value=core.fit(initial, (), x.spec.dtype), dtype=x.spec.dtype, device=x.spec.device)
        return core.keep_dims(out, x.spec.shape, axes(axis, x)) if keepdims else out
    return LANGUAGE["_ufunc"](ufunc, "__call__", (reduced(prim, x, axis, keepdims), initial), {})


@numpysymbol("numpy.max", "numpy.amax", methods=("max",))
def max(a: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None):
    """The largest over `axis`, and `initial`."""
    return _extreme(prims.amax, np.maximum, a, axis, keepdims, initial)


@numpysymbol("numpy.min", "numpy.amin", methods=("min",))
def min(a: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None):
    """The smallest over `axis`, and `initial`."""
    return _extreme(prims.amin, np.minimum, a, axis, keepdims, initial)


@numpysymbol("numpy.ptp")
def ptp(a: Any, axis: Axis = None, keepdims: bool = False):
    """The largest minus the smallest."""
    require(array(a).spec.dtype is not dtypes.bool_, "numpy boolean subtract is not supported; use the bitwise_xor operator instead", error=TypeError)
    return core.sub(max(a, axis, keepdims), min(a, axis, keepdims))


def _not_empty(x: TensorProxy, axis: Axis, what: str) -> TensorProxy:
    require(count(x, axis) > 0, "zero-size array to reduction operation {} which has no identity", what, error=ValueError)
    return x


def _which(prim: Symbol, a: Any, axis: int | None, keepdims: bool) -> TensorProxy:
    x = _not_empty(array(a), axis, prim.name)
    _require_real(x, prim.name)
    x = core.convert(x, dtypes.uint8) if x.spec.dtype is dtypes.bool_ else x
    dim = None if axis is None else core.canonical_dim(axis, len(x.spec.shape))
    out = prim(x, dim=dim)
    return core.keep_dims(out, x.spec.shape, axes(axis, x)) if keepdims else out


@numpysymbol("numpy.argmax", methods=("argmax",))
def argmax(a: Any, axis: int | None = None, keepdims: bool = False):
    """Where the largest is: the first such position along `axis`, in the flat array for None."""
    return _which(prims.argmax, a, axis, keepdims)


@numpysymbol("numpy.argmin", methods=("argmin",))
def argmin(a: Any, axis: int | None = None, keepdims: bool = False):
    """Where the smallest is."""
    return _which(prims.argmin, a, axis, keepdims)


def _true(a: Any) -> TensorProxy:
    x = array(a)
    return x if x.spec.dtype is dtypes.bool_ else core.ne(x, 0)


@numpysymbol("numpy.any", methods=("any",))
def any(a: Any, axis: Axis = None, keepdims: bool = False):
    """Whether an element is not zero."""
    return reduced(prims.any, _true(a), axis, keepdims)


@numpysymbol("numpy.all", methods=("all",))
def all(a: Any, axis: Axis = None, keepdims: bool = False):
    """Whether no element is zero."""
    return reduced(prims.all, _true(a), axis, keepdims)


@numpysymbol("numpy.count_nonzero")
def count_nonzero(a: Any, axis: Axis = None, *, keepdims: bool = False):
    """How many elements are not zero."""
    return reduced(prims.sum, core.convert(_true(a), dtypes.int64), axis, keepdims)


def _running(prim: Symbol, a: Any, axis: int | None, dtype: Any) -> TensorProxy:
    x = array(a)
    target = total_dtype(x, dtype)
    x = core.convert(x, dtypes.int64 if target is dtypes.uint64 else target)
    if axis is None:
        x, axis = flat(x), 0
    return core.convert(prim(x, dim=core.canonical_dim(axis, len(x.spec.shape))), target)


def flat(x: TensorProxy) -> TensorProxy:
    """x with one dimension; a copy where the elements do not lie in order."""
    return prims.reshape(x if x.spec.strides is None else prims.clone(x), shape=(x.spec.numel,))


@numpysymbol("numpy.cumsum", methods=("cumsum",))
def cumsum(a: Any, axis: int | None = None, dtype: Any = None):
    """The running sum along `axis`, of the flat array for None."""
    return _running(prims.cumsum, a, axis, dtype)


@numpysymbol("numpy.cumprod", methods=("cumprod",))
def cumprod(a: Any, axis: int | None = None, dtype: Any = None):
    """The running product along `axis`."""
    return _running(prims.cumprod, a, axis, dtype)


def _known(x: TensorProxy, instead: float) -> TensorProxy:
    """x with `instead` in the place of NaN."""
    return core.where(core.isnan(x), instead, x) if x.spec.dtype.inexact else x


@numpysymbol("numpy.nansum")
def nansum(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False):
    """The sum of what is not NaN."""
    return sum(_known(array(a), 0.0), axis, dtype, keepdims)


@numpysymbol("numpy.nanprod")
def nanprod(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False):
    """The product of what is not NaN."""
    return prod(_known(array(a), 1.0), axis, dtype, keepdims)


def _known_count(x: TensorProxy, axis: Axis, keepdims: bool, dtype: DType) -> TensorProxy:
    return core.convert(reduced(prims.sum, core.convert(core.bitwise_not(core.isnan(x)), dtypes.int64), axis, keepdims), dtype)


@numpysymbol("numpy.nanmean")
def nanmean(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False):
    """The mean of what is not NaN."""
    x = array(a)
    if not x.spec.dtype.inexact:
        return mean(x, axis, dtype, keepdims)
    kind = core.wide(_mean_dtype(x, dtype))
    total = reduced(prims.sum, core.convert(_known(x, 0.0), kind), axis, keepdims)
    return core.convert(core.div(total, _known_count(x, axis, keepdims, kind)), _mean_dtype(x, dtype))


@numpysymbol("numpy.nanvar")
def nanvar(a: Any, axis: Axis = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False):
    """The variance of what is not NaN."""
    x = array(a)
    if not x.spec.dtype.inexact:
        return var(x, axis, dtype, ddof, keepdims)
    _require_real(x, "nanvar")
    kind = core.wide(_mean_dtype(x, dtype))
    wide = core.convert(x, kind)
    n = _known_count(x, axis, True, kind)
    centered = core.sub(wide, core.div(reduced(prims.sum, _known(wide, 0.0), axis, True), n))
    total = reduced(prims.sum, _known(core.mul(centered, centered), 0.0), axis, keepdims)
    left = core.sub(_known_count(x, axis, keepdims, kind), ddof)
    return core.convert(core.where(core.le(left, 0), float("nan"), core.div(total, left)), _mean_dtype(x, dtype))


@numpysymbol("numpy.nanstd")
def nanstd(a: Any, axis: Axis = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False):
    """The standard deviation of what is not NaN."""
    return core.sqrt(nanvar(a, axis, dtype, ddof, keepdims))


def _require_real(x: TensorProxy, name: str) -> None:
    require_traced(x.spec.dtype.kind != "complex", "{} of complex numbers is not traced; take real and imaginary parts", name)


def _largest(prim: Symbol, a: Any, axis: Axis, keepdims: bool, lowest: float) -> TensorProxy:
    """`prim` of what is not NaN, and NaN where nothing else is."""
    x = _not_empty(array(a), axis, prim.name)
    _require_real(x, prim.name)
    if not x.spec.dtype.inexact:
        return reduced(prim, x, axis, keepdims)
    unknown = reduced(prims.all, core.isnan(x), axis, keepdims)
    return core.where(unknown, float("nan"), reduced(prim, _known(x, lowest), axis, keepdims))


@numpysymbol("numpy.nanmax")
def nanmax(a: Any, axis: Axis = None, keepdims: bool = False):
    """The largest that is not NaN."""
    return _largest(prims.amax, a, axis, keepdims, float("-inf"))


@numpysymbol("numpy.nanmin")
def nanmin(a: Any, axis: Axis = None, keepdims: bool = False):
    """The smallest that is not NaN."""
    return _largest(prims.amin, a, axis, keepdims, float("inf"))


@numpysymbol("numpy.average")
def average(a: Any, axis: Axis = None, weights: Any = None, keepdims: bool = False):
    """The mean weighted with `weights`, which have a's shape."""
    if weights is None:
        return mean(a, axis, None, keepdims)
    x, w = array(a), array(weights)
    require(
        w.spec.shape == x.spec.shape, "expected weights of a's shape {}, got {}; broadcast them first", x.spec.shape, w.spec.shape, error=TypeError
    )
    dtype = dtype_of(np.result_type(*(np.float64 if not t.spec.dtype.inexact else t.spec.dtype.name for t in (x, w))))
    x, w = core.convert(x, dtype), core.convert(w, dtype)
    return core.div(reduced(prims.sum, core.mul(x, w), axis, keepdims), reduced(prims.sum, w, axis, keepdims))
