"""Order, selection along an axis, diagonals, and sums of products in Einstein's notation."""

from __future__ import annotations

from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import InputDimensionError, require, require_traced
from dovetail.langs import core
from dovetail.langs.numpy.reductions import flat
from dovetail.langs.numpy.symbol import array, dtype_of, not_traced, numpysymbol, of_truth, promote, torch_call
from dovetail.langs.torch import opaque
from dovetail.trace import TensorProxy


def _along(a: Any, axis: int | None) -> tuple[TensorProxy, int]:
    x = array(a)
    return (flat(x), 0) if axis is None else (x, core.canonical_dim(axis, len(x.spec.shape)))


def _real(x: TensorProxy) -> TensorProxy:
    require_traced(x.spec.dtype.kind != "complex", "sorting complex numbers is not traced; sort their absolute values")
    return x


@numpysymbol("numpy.sort")
def sort(a: Any, axis: int | None = -1, kind: Any = None, stable: Any = None):
    """The elements in order along `axis`, NaN last; of the flat array for None."""
    x, dim = _along(_real(array(a)), axis)
    if axis is not None and not x.spec.rank:
        raise InputDimensionError(f"Dimension out of range: an array without dimensions has no axis {axis}")
    return torch_call("sort", x, dim)[0]


@numpysymbol("numpy.argsort", methods=("argsort",))
def argsort(a: Any, axis: int | None = -1, kind: Any = None, stable: Any = None):
    """The positions that put the elements in order along `axis`; equal elements keep theirs, whatever the kind."""
    x, dim = _along(_real(array(a)), axis)
    return torch_call("sort", x, dim=dim, stable=True)[1]


@numpysymbol("numpy.median")
def median(a: Any, axis: int | None = None, keepdims: bool = False):
    """The middle of the sorted elements along `axis`, the mean of both in the middle; NaN where there is one."""
    x, dim = _along(_real(array(a)), axis)
    shape, n = array(a).spec.shape, x.spec.shape[dim]
    require(n > 0, "median of an empty array has no value", error=ValueError)
    x = core.convert(x, x.spec.dtype if x.spec.dtype.inexact else dtypes.float64)
    ordered = torch_call("sort", x, dim)[0]

    def at(i: int) -> TensorProxy:
        return torch_call("select", ordered, dim, i)

    middle = at(n // 2) if n % 2 else core.div(core.add(at(n // 2 - 1), at(n // 2)), 2.0)
    middle = core.where(core.isnan(at(n - 1)), at(n - 1), middle)
    return core.keep_dims(middle, shape, tuple(range(len(shape))) if axis is None else (dim,)) if keepdims else middle


@numpysymbol("numpy.take", methods=("take",))
def take(a: Any, indices: Any, axis: int | None = None):
    """The elements, or slices along `axis`, at these positions."""
    x, dim = _along(a, axis)
    positions = core.convert(array(indices), dtypes.int64)
    n, shape = x.spec.shape[dim], positions.spec.shape
    positions = core.from_front(flat(positions), n)
    picked = torch_call("index_select", x, dim, positions)
    return torch_call("reshape", picked, (*x.spec.shape[:dim], *shape, *x.spec.shape[dim + 1 :]))


@numpysymbol("numpy.take_along_axis")
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1):
    """The elements at positions along `axis`, one position for each."""
    x, dim = _along(arr, axis)
    return torch_call("take_along_dim", x, core.from_front(array(indices), x.spec.shape[dim]), dim)


@numpysymbol("numpy.isin", scalar="never")
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, kind: Any = None):
    """Which elements are among `test_elements`; which are not with `invert`."""
    x, others = array(element), array(test_elements)
    common = promote(x, others)
    common = dtypes.uint8 if common is dtypes.bool_ else common
    if common.kind == "complex":
        raise not_traced("numpy.isin of complex numbers", "PyTorch has no kernel for it; compare the real and imaginary parts")
    return opaque(torch.isin, (core.convert(x, common), core.convert(others, common)), {"invert": invert})


@numpysymbol("numpy.roll")
def roll(a: Any, shift: Any, axis: Any = None):
    """The elements moved along `axis`; what falls off comes in on the other side."""
    return torch_call("roll", array(a), shift, () if axis is None else axis)


@numpysymbol("numpy.diagonal", methods=("diagonal",), view=True)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The diagonal of two axes, as the last axis: a view."""
    return torch_call("diagonal", array(a), offset, axis1, axis2)


@numpysymbol("numpy.diag", view=True)
def diag(v: Any, k: int = 0):
    """The diagonal of a matrix, or the matrix that has the vector as its diagonal."""
    x = array(v)
    return diagonal(x, k) if len(x.spec.shape) == 2 else torch_call("diag", x, k)


@numpysymbol("numpy.trace", methods=("trace",))
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None):
    """The sum of the diagonal."""
    x = array(a)
    kind = x.spec.dtype
    kind = dtype_of(dtype) if dtype is not None else kind if kind.inexact else dtypes.int64 if kind.signed or kind is dtypes.bool_ else dtypes.uint64
    summed = torch_call("sum", core.convert(torch_call("diagonal", x, offset, axis1, axis2), dtypes.int64 if not kind.inexact else kind), -1)
    return core.convert(summed, kind)


def _matrix(m: Any) -> TensorProxy:
    """Return an array as one of matrices: a vector is each row of a square one."""
    x = array(m)
    require(x.spec.rank > 0, "tri() missing 1 required positional argument: 'N'", error=TypeError)
    return x if x.spec.rank > 1 else core.expand(x, (x.spec.numel, x.spec.numel))


@numpysymbol("numpy.tril")
def tril(m: Any, k: int = 0):
    """The matrix with zeros above the diagonal k."""
    return torch_call("tril", _matrix(m), k)


@numpysymbol("numpy.triu")
def triu(m: Any, k: int = 0):
    """The matrix with zeros below the diagonal k."""
    return torch_call("triu", _matrix(m), k)


def alike(*xs: Any) -> list[TensorProxy]:
    """Convert arrays to the dtype that NumPy promotes them to."""
    arrays = [array(x) for x in xs]
    dtype = promote(*arrays)
    return [core.convert(x, dtype) for x in arrays]


@numpysymbol("numpy.einsum")
def einsum(subscripts: str, *operands: Any):
    """Sums of products over the indices that the result lacks."""
    xs = alike(*operands)
    dtype = xs[0].spec.dtype
    if dtype.inexact:
        return torch_call("einsum", subscripts, *xs)
    result = torch_call("einsum", subscripts, *[core.convert(x, dtypes.int64) for x in xs])
    return core.ne(result, 0) if dtype is dtypes.bool_ else core.convert(result, dtype)


@numpysymbol("numpy.inner")
@of_truth
def inner(a: Any, b: Any):
    """The sums of products over the last axes."""
    a, b = alike(a, b)
    if not a.spec.shape or not b.spec.shape:
        return core.mul(a, b)
    return torch_call("tensordot", a, b, ([len(a.spec.shape) - 1], [len(b.spec.shape) - 1]))


@numpysymbol("numpy.vdot")
@of_truth
def vdot(a: Any, b: Any):
    """The sum of products of the flat arrays, the first one conjugated."""
    a, b = (flat(x) for x in alike(a, b))
    return torch_call("matmul", core.conj(a) if a.spec.dtype.kind == "complex" else a, b)


@numpysymbol("numpy.diff")
def diff(a: Any, n: int = 1, axis: int = -1):
    """What each element exceeds the one before by, `n` times."""
    x, dim = _along(a, axis)
    for _ in range(n):
        size = x.spec.shape[dim]
        later, earlier = torch_call("narrow", x, dim, min(1, size), max(size - 1, 0)), torch_call("narrow", x, dim, 0, max(size - 1, 0))
        x = core.ne(later, earlier) if x.spec.dtype is dtypes.bool_ else core.sub(later, earlier)
    return x


@numpysymbol("numpy.interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None):
    """The values at x of straight lines through the points (xp, fp), xp increasing; `left` and `right` beyond the ends."""
    require_traced(period is None, "a periodic interp is not traced; reduce x, xp and fp to one period")
    x, xp, fp = map(array, (x, xp, fp))
    for each in (x, xp):
        require(each.spec.dtype.kind != "complex", "Cannot cast array data of {} to float64; take .real or .imag", each.spec.dtype, error=TypeError)
    require_traced(fp.spec.dtype.kind != "complex", "complex values of interp are not traced; take .real and .imag")
    x, xp, fp = (core.convert(each, dtypes.float64) for each in (x, xp, fp))
    require(xp.spec.shape == fp.spec.shape and len(xp.spec.shape) == 1, "fp and xp are not of the same length", error=ValueError)
    require(xp.spec.numel > 0, "array of sample points is empty", error=ValueError)
    last = xp.spec.numel - 1
    place = torch_call("clamp", core.sub(opaque(torch.searchsorted, (xp, x), {"right": True}), 1), 0, max(last - 1, 0))

    def at(values: Any, places: Any) -> Any:
        return torch_call("take", values, places)

    start, begin = at(xp, place), at(fp, place)
    stop, end = (at(each, torch_call("clamp", core.add(place, 1), 0, last)) for each in (xp, fp))
    slope = core.div(core.sub(end, begin), core.sub(stop, start))
    inside = core.add(core.mul(slope, core.sub(x, start)), begin)
    other = core.add(core.mul(slope, core.sub(x, stop)), end)  # infinite points, as NumPy does
    inside = core.where(core.isnan(inside), core.where(torch_call("logical_and", core.isnan(other), core.eq(begin, end)), begin, other), inside)
    inside = core.where(core.eq(x, start), begin, inside) if last else begin
    first_x, last_x, first, final = (torch_call("select", each, 0, i) for each, i in ((xp, 0), (xp, last), (fp, 0), (fp, last)))
    inside = core.where(core.ge(x, last_x), core.where(core.gt(x, last_x), final if right is None else right, final), inside)
    inside = core.where(core.lt(x, first_x), first if left is None else left, inside)
    return core.where(core.isnan(x), x, inside) if last else inside


@numpysymbol("numpy.meshgrid")
def meshgrid(*xi: Any):
    """The coordinates of a grid: each array along an axis of its own, repeated over the others."""
    xs, n = [flat(array(x)) for x in xi], len(xi)
    places = [1, 0, *range(2, n)] if n > 1 else [0]
    sizes = [0] * n
    for x, place in zip(xs, places, strict=True):
        sizes[place] = x.spec.numel
    return tuple(core.clone(prims.broadcast_in_dim(x, shape=tuple(sizes), dims=(place,))) for x, place in zip(xs, places, strict=True))
