"""Sums of products."""

from __future__ import annotations

from typing import Any

from dovetail.errors import require
from dovetail.prims.elementwise import mul
from dovetail.prims.op import Tag, prim
from dovetail.prims.reduction import broadcast_in_dim
from dovetail.prims.shape import flat_reshape, transpose
from dovetail.prims.spec import TensorSpec, prod
from dovetail.prims.unary import NUMBERS, conjugated, require_kind

MATMUL = frozenset({Tag.MATMUL})


@prim(tags=MATMUL)
def matmul(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    """The matrix products of a [..., n, k] and b [..., k, m], with equal sizes before."""
    require_kind(a, NUMBERS)
    require(a.dtype is b.dtype, "expected a and b to have the same dtype, but got {} and {}", a, b)
    require(a.device is b.device, "expected a and b on the same device, but got {} and {}", a, b)
    fits = a.rank == b.rank >= 2 and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]
    require(fits, "a and b shapes cannot be multiplied: expected [..., n, k] and [..., k, m], got {} and {}", a, b)
    return a.fresh((*a.shape[:-1], b.shape[-1]))


@matmul.vjp
def matmul_vjp(g, out, a, b):
    return _product_like(a, g, conjugated(transposed(b))), _product_like(b, conjugated(transposed(a)), g)


def _product_like(x: Any, a: Any, b: Any) -> Any:
    """Return a @ b in the layout of x: the cotangent of a column-major matrix is column-major, so that its base gets a row-major one."""
    stored_by_columns = x.spec.rank == 2 and x.spec.steps[0] == 1 and x.spec.steps[1] > 1
    return transposed(matmul(transposed(b), transposed(a))) if stored_by_columns else matmul(a, b)


def transposed(x: Any) -> Any:
    """Exchange the last two dimensions."""
    rank = len(x.spec.shape)
    return transpose(x, order=(*range(rank - 2), rank - 1, rank - 2))


@prim(tags=MATMUL)
def linear(x: TensorSpec, weight: TensorSpec) -> TensorSpec:
    """x [..., k] times the transpose of weight [m, k]."""
    require_kind(x, NUMBERS)
    require(x.dtype is weight.dtype, "expected x and weight to have the same dtype, but got {} and {}", x, weight)
    require(x.device is weight.device, "expected x and weight on the same device, but got {} and {}", x, weight)
    fits = x.rank >= 1 and weight.rank == 2 and x.shape[-1] == weight.shape[1]
    require(fits, "x and weight shapes cannot be multiplied: expected [..., k] and [m, k], got {} and {}", x, weight)
    return x.fresh((*x.shape[:-1], weight.shape[0]))


@linear.vjp
def linear_vjp(g, out, x, weight):
    rows = prod(x.spec.shape[:-1])
    gx = matmul(g, conjugated(weight)) if x.spec.rank == 2 else linear(g, conjugated(transposed(weight)))  # a view costs as much as a small product
    if rows == 1:
        return gx, _outer(g, conjugated(x), weight.spec.shape)
    flat_g = flat_reshape(g, (rows, weight.spec.shape[0]))
    flat_x = flat_reshape(x, (rows, weight.spec.shape[1]))
    return gx, matmul(transposed(flat_g), conjugated(flat_x))


def _outer(a: Any, b: Any, shape: tuple) -> Any:
    """Return the outer product of two vectors, as products without a sum, which can be fused with what follows."""
    sides = (flat_reshape(x, (size,)) for x, size in zip((a, b), shape, strict=True))
    return mul(*[broadcast_in_dim(side, shape=shape, dims=(dim,)) for dim, side in enumerate(sides)])
