"""Cumulative results and sorting along one dimension."""

from __future__ import annotations

from typing import Any

from dovetail.dtypes import int64
from dovetail.errors import require
from dovetail.prims.creation import zeros_like
from dovetail.prims.elementwise import where
from dovetail.prims.indexing import scatter, scatter_add
from dovetail.prims.op import Tag, prim
from dovetail.prims.reduction import prod, spread
from dovetail.prims.shape import flip, replaced, require_dim
from dovetail.prims.spec import TensorSpec, dense
from dovetail.prims.unary import NUMBERS, REAL, ROUNDED, bitwise_not, conjugated, convert_element_type, require_kind


def scanned(x: TensorSpec, dim: int, kinds: tuple[str, ...]) -> TensorSpec:
    """Return the row-major spec of a scan of x along `dim`."""
    require_dim(x, dim)
    require_kind(x, kinds)
    return x.fresh()


def reversed_cumsum(x: Any, dim: int) -> Any:
    """Return the sum of each element and those after it."""
    return flip(cumsum(flip(x, dims=(dim,)), dim=dim), dims=(dim,))


@prim
def cumsum(x: TensorSpec, *, dim: int) -> TensorSpec:
    """The sum of each element and those before it along `dim`, of x's dtype."""
    return scanned(x, dim, NUMBERS)


@cumsum.vjp
def cumsum_vjp(g, out, x, *, dim):
    return (reversed_cumsum(g, dim),)


@prim
def cumprod(x: TensorSpec, *, dim: int) -> TensorSpec:
    """The product of each element and those before it along `dim`, of x's dtype."""
    return scanned(x, dim, NUMBERS)


@cumprod.vjp
def cumprod_vjp(g, out, x, *, dim):
    # Before the first zero: the sum of g * out from here to the zero, over x.  At it: the product before it, times the sum of g times the
    # products from there to the next zero, with that: it makes NaN of an infinity between, as in PyTorch.  After it: 0.  What lies behind is
    # left out of the sums, since it may not be finite.
    if x.spec.numel == 1 or x.spec.shape[dim] == 1:
        return (g,)
    zero = x == 0.0
    zeros = cumsum(convert_element_type(zero, dtype=int64), dim=dim)
    at_first = zero & (zeros == 1)
    counted = (zeros == 1) | (zero & (zeros == 2))
    between = where(counted & bitwise_not(at_first), x, 1.0)
    before = reversed_cumsum(where(zeros == 0, g * conjugated(out), 0.0), dim) / conjugated(where(zero, 1.0, x))
    first = spread(prod(where(zeros == 0, x, 1.0), dims=(dim,)), x, (dim,))
    at = reversed_cumsum(where(counted, g * conjugated(cumprod(between, dim=dim)), 0.0), dim) * conjugated(first)
    return (where(zeros == 0, before, where(at_first, at, 0.0)),)


@prim
def cummax(x: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    """The largest of each element and those before it along `dim`, NaN from the first NaN on, and its position: the last of several."""
    out = scanned(x, dim, REAL)
    return out, out.fresh(dtype=int64)


@cummax.vjp
def cummax_vjp(g, out, x, *, dim):
    return (scatter_add(zeros_like(x), out[1], g[0], dim=dim),)


@prim
def cummin(x: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    """The smallest of each element and those before it along `dim`, NaN from the first NaN on, and its position: the last of several."""
    out = scanned(x, dim, REAL)
    return out, out.fresh(dtype=int64)


@cummin.vjp
def cummin_vjp(g, out, x, *, dim):
    return (scatter_add(zeros_like(x), out[1], g[0], dim=dim),)


@prim
def sort(x: TensorSpec, *, dim: int, descending: bool, stable: bool) -> tuple[TensorSpec, TensorSpec]:
    """x in order along `dim`, NaN counting as largest, and the position each element had; `stable` keeps equal elements in order."""
    scanned(x, dim, REAL)
    return dense(x, alike=False), dense(x, dtype=int64, alike=False)


@sort.vjp
def sort_vjp(g, out, x, *, dim, descending, stable):
    return (scatter(zeros_like(x), out[1], g[0], dim=dim),)


@prim(tags={Tag.REDUCTION})
def topk(x: TensorSpec, *, k: int, dim: int, largest: bool, sorted: bool) -> tuple[TensorSpec, TensorSpec]:
    """The k largest elements (or smallest) along `dim`, in order where `sorted`, and their positions."""
    scanned(x, dim, ROUNDED)
    require(0 <= k <= x.shape[dim], "selected index k out of range: expected k of at most {}, got {}", x.shape[dim], k)
    shape = replaced(x.shape, dim, k)
    return x.fresh(shape), x.fresh(shape, int64)


@topk.vjp
def topk_vjp(g, out, x, *, k, dim, largest, sorted):
    return (scatter(zeros_like(x), out[1], g[0], dim=dim),)
