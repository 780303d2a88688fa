"""Gather and scatter.  Positions are int64 and count from 0; their bounds are checked at run time."""

from __future__ import annotations

from dovetail.dtypes import int64
from dovetail.errors import require
from dovetail.prims.creation import zeros_like
from dovetail.prims.op import prim
from dovetail.prims.shape import replaced, require_dim
from dovetail.prims.spec import TensorSpec, dense
from dovetail.prims.unary import require_kind


def require_index(x: TensorSpec, *index: TensorSpec) -> None:
    """Raise unless every index is int64 and on x's device."""
    require_kind(x)
    for i in index:
        require(i.dtype is int64, "expected dtype int64 for index, got {}", i)
        require(i.device is x.device, "expected an index on the same device as {}, got {}", x, i)


def require_like(x: TensorSpec, value: TensorSpec, shape: tuple[int, ...]) -> None:
    """Raise unless `value` has this shape and x's dtype and device."""
    fits = value.shape == shape and value.dtype is x.dtype and value.device is x.device
    require(fits, "expected a value of shape {}, and the dtype and device of {}, got {}", shape, x, value)


def require_along(x: TensorSpec, index: TensorSpec, dim: int) -> None:
    """Raise unless `index` has x's rank and is no larger than x except along `dim`."""
    require_index(x, index)
    require_dim(x, dim)
    require(index.rank == x.rank, "index tensor must have the same number of dimensions as input tensor, got {} and {}", index, x)
    fits = all(d == dim or n <= x.shape[d] for d, n in enumerate(index.shape))
    require(fits, "size does not match at some dimension other than {}: expected index {} to be no larger than {}", dim, index, x)


def require_rows(x: TensorSpec, index: TensorSpec, dim: int) -> tuple[int, ...]:
    """Return the shape of the rows along `dim` selected by a one-dimensional index."""
    require_index(x, index)
    require_dim(x, dim)
    require(index.rank == 1, "index is supposed to be a vector, got {}", index, error=IndexError)
    return replaced(x.shape, dim, index.shape[0])


def require_leading(x: TensorSpec, indices: list[TensorSpec]) -> tuple[int, ...]:
    """Return the shape that `indices` select from the first dimensions of x."""
    require(len(indices) > 0, "expected at least one index for {}", x)
    require(len(indices) <= x.rank, "too many indices for tensor of dimension {}, got {}", x.rank, len(indices), error=IndexError)
    require_index(x, *indices)
    first = indices[0]
    for i in indices:
        require(i.shape == first.shape, "expected indices of one shape, got {} and {}", first, i, error=IndexError)
    return (*first.shape, *x.shape[len(indices) :])


@prim
def take(x: TensorSpec, index: TensorSpec, *, dim: int) -> TensorSpec:
    """The rows x[..., index[i], ...] along `dim`; index has one dimension."""
    return x.fresh(require_rows(x, index, dim))


@take.vjp
def take_vjp(g, out, x, index, *, dim):
    return index_add(zeros_like(x), index, g, dim=dim), None


@prim
def index_add(x: TensorSpec, index: TensorSpec, value: TensorSpec, *, dim: int) -> TensorSpec:
    """x with row i of `value` added to row index[i] along `dim`; duplicate rows are added."""
    require_like(x, value, require_rows(x, index, dim))
    return x.fresh()


@index_add.vjp
def index_add_vjp(g, out, x, index, value, *, dim):
    return g, None, take(g, index, dim=dim)


@prim
def index_copy(x: TensorSpec, index: TensorSpec, value: TensorSpec, *, dim: int) -> TensorSpec:
    """x with row index[i] along `dim` replaced by row i of `value`; the result for duplicate rows is undefined."""
    require_like(x, value, require_rows(x, index, dim))
    return x.fresh()


@index_copy.vjp
def index_copy_vjp(g, out, x, index, value, *, dim):
    return index_copy(g, index, zeros_like(value), dim=dim), None, take(g, index, dim=dim)


@prim
def take_along_axis(x: TensorSpec, index: TensorSpec, *, dim: int) -> TensorSpec:
    """out[..., i, ...] = x[..., index[..., i, ...], ...] along `dim`."""
    require_along(x, index, dim)
    return x.fresh(index.shape)


@take_along_axis.vjp
def take_along_axis_vjp(g, out, x, index, *, dim):
    return scatter_add(zeros_like(x), index, g, dim=dim), None


@prim
def scatter(x: TensorSpec, index: TensorSpec, value: TensorSpec, *, dim: int) -> TensorSpec:
    """x with out[..., index[..., i, ...], ...] = value[..., i, ...] along `dim`; the result for duplicate positions is undefined."""
    require_along(x, index, dim)
    require_like(x, value, index.shape)
    return x.fresh()


@scatter.vjp
def scatter_vjp(g, out, x, index, value, *, dim):
    return scatter(g, index, zeros_like(value), dim=dim), None, take_along_axis(g, index, dim=dim)


@prim
def scatter_add(x: TensorSpec, index: TensorSpec, value: TensorSpec, *, dim: int) -> TensorSpec:
    """x with value[..., i, ...] added at [..., index[..., i, ...], ...] along `dim`; duplicate positions are added."""
    require_along(x, index, dim)
    require_like(x, value, index.shape)
    return x.fresh()


@scatter_add.vjp
def scatter_add_vjp(g, out, x, index, value, *, dim):
    return g, None, take_along_axis(g, index, dim=dim)


@prim
def index(x: TensorSpec, indices: list[TensorSpec]) -> TensorSpec:
    """x[indices[0], indices[1], ...]: the k indices, of one shape, name positions in the first k dimensions."""
    shape = require_leading(x, indices)
    if x.strides is None and all(i.strides is None for i in indices):
        return x.fresh(shape)
    # Laid out as an elementwise operation on x with stride 0 in the new dimensions, and on the indices with stride 0 in the others.
    index_rank, x_strides = indices[0].rank, x.steps[len(indices) :]
    index_zeros = (0,) * len(x_strides)
    return dense(
        x.like(shape=shape, strides=(0,) * index_rank + x_strides),
        *(i.like(shape=shape, strides=i.steps + index_zeros) for i in indices),
        dtype=x.dtype,
    )


@index.vjp
def index_vjp(g, out, x, indices):
    return index_put(zeros_like(x), indices, g, accumulate=True), [None] * len(indices)


@prim
def index_put(x: TensorSpec, indices: list[TensorSpec], value: TensorSpec, *, accumulate: bool) -> TensorSpec:
    """x with x[indices[0], ...] = value, or += value with `accumulate`; without it, the result for duplicate positions is undefined."""
    require_like(x, value, require_leading(x, indices))
    return dense(x, alike=False)


@index_put.vjp
def index_put_vjp(g, out, x, indices, value, *, accumulate):
    gx = g if accumulate else index_put(g, indices, zeros_like(value), accumulate=False)
    return gx, [None] * len(indices), index(g, indices)
