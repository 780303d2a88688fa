"""Norms of vectors and matrices, and distances."""

from __future__ import annotations

import math
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import dtype_of
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import Number, Tensor, torchsymbol
from dovetail.langs.torch.elementwise import nan_detached, sub
from dovetail.langs.torch.reduction import Dims, count, reduced, require_inexact, safe_sqrt
from dovetail.prims import Symbol
from dovetail.prims.reduction import evenly
from dovetail.prims.shape import flat_reshape
from dovetail.trace import tree_map

_BY_SINGULAR_VALUES = ("nuc", 2, -2)


@torchsymbol("torch.linalg.vector_norm")
def vector_norm(input: Tensor, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """(sum of |x|**ord)**(1 / ord) over `dim`; inf and -inf are the largest and smallest |x|, 0 counts what is not 0."""
    require_inexact(input, "linalg.vector_norm")
    target = dtype_of(dtype, input.spec.dtype)
    alike = target.kind == input.spec.dtype.kind
    require(alike, "linalg.vector_norm: dtype should be {0} for {0} inputs, but got {1}", input.spec.dtype.kind, target.short)
    x = core.convert(input, core.wide(target))
    extreme = ord in (math.inf, -math.inf)
    if ord != 0 and count(x, dim) == 1:
        ord = math.inf  # the norm of one element is its absolute value, and its square may overflow
    size = core.abs(x) if x.spec.dtype.kind == "complex" or ord not in (2, 0) else x
    length = _length(size, ord, dim, keepdim)
    return core.convert(nan_detached(length) if extreme else length, dtypes.real_of(target))


@vector_norm.vjp
def vector_norm_vjp(g: Any, out: Any, input: Any, *rest: Any, ord: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> tuple:
    """g * sign(x) * (|x| / norm)**(ord - 1), and 0 where the norm is 0; of the largest elements g's share; None of a count."""
    ord, dim, keepdim = (*rest, *(ord, dim, keepdim)[len(rest) :])
    if ord == 0:
        return (None, *tree_map(lambda _: None, rest))
    x = core.convert(input, core.wide(dtype_of(dtype, input.spec.dtype)))
    dims, real = core.canonical_dims(dim, len(x.spec.shape)), dtypes.real_of(x.spec.dtype)
    g, length = core.convert(g, real), core.convert(out, real)
    if ord in (math.inf, -math.inf):
        kept = tuple([n for d, n in enumerate(x.spec.shape) if d not in dims])
        share = core.where(core.isnan(length), 0.0, g)
        slope = core.mul(evenly(flat_reshape(share, kept), flat_reshape(length, kept), core.abs(x), dims), core.sign(x))
    else:
        g, length = [part if keepdim else core.keep_dims(part, x.spec.shape, dims) for part in (g, length)]
        slope = core.mul(g, core.sign(x)) if ord == 1 else _norm_slope(g, length, x, ord, out.spec.dtype)
    return (core.convert(slope, input.spec.dtype), *tree_map(lambda _: None, rest))


def _norm_slope(g: Any, length: Any, x: Any, ord: float, dtype: DType) -> Any:
    """Return the gradient of the other norms of `dtype`, factor by factor as PyTorch has it: what is not finite is so in the same places."""
    flat = core.eq(length, 0)
    if ord == 2:
        return core.mul(core.where(flat, 0.0, core.div(x, length)), g)
    if ord < 1:
        power = core.where(core.eq(x, 0), 0.0, core.mul(core.sign(x), core.pow(core.abs(x), ord - 1.0)))
        return core.mul(power, core.mul(g, core.pow(length, 1.0 - ord)))
    power = core.mul(core.sign(x), core.pow(core.abs(x), ord - 1.0)) if ord < 2 else core.mul(x, core.pow(core.abs(x), ord - 2.0))
    scale = core.where(flat, 0.0, core.div(g, core.pow(length, ord - 1.0)))
    if dtype is not dtypes.real_of(x.spec.dtype):  # a norm that overflows in 16 bits is lost, and so are the gradients of what overflows with it
        power = core.where(core.eq(scale, 0), core.convert(core.convert(power, dtype), x.spec.dtype), power)
    return core.mul(power, scale)


def _length(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    """Return the norm of x, which is |x| for the orders that need it."""
    if ord in (math.inf, -math.inf) or ord < 0:
        for d in core.canonical_dims(dim, len(x.spec.shape)):
            require(x.spec.shape[d] != 0, "linalg.vector_norm cannot compute the {} norm on the dimension {} because it is empty", ord, d)
    if ord in (math.inf, -math.inf):
        return reduced(prims.amax if ord > 0 else prims.amin, x, dim, keepdim)
    if ord == 0:
        return reduced(prims.sum, core.where(core.ne(x, 0), 1.0, core.floor(x)), dim, keepdim)  # floor: a gradient of zeros, as eager's
    if ord == 1:
        return reduced(prims.sum, x, dim, keepdim)
    if ord == 2:
        return safe_sqrt(reduced(prims.sum, core.mul(x, x), dim, keepdim))
    return _root(reduced(prims.sum, _power(x, ord), dim, keepdim), ord)


def _power(x: Tensor, ord: float) -> Tensor:
    """x**ord; below 1 with gradient 0 at 0, where it would be infinite."""
    if ord >= 1:
        return core.pow(x, float(ord))
    zero = core.eq(x, 0)
    return core.where(zero, 0.0 if ord > 0 else math.inf, core.pow(core.where(zero, 1.0, x), float(ord)))


def _root(x: Tensor, ord: float) -> Tensor:
    """x**(1 / ord), with gradient 0 at 0."""
    if ord < 0:
        return core.pow(x, 1.0 / ord)
    zero = core.eq(x, 0)
    return core.where(zero, 0.0, core.pow(core.where(zero, 1.0, x), 1.0 / ord))


@torchsymbol("torch.linalg.matrix_norm")
def matrix_norm(input: Tensor, ord: Number | str = "fro", dim: Dims = (-2, -1), keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """The norm of matrices in two dimensions: "fro", "nuc", inf and -inf by rows, 1 and -1 by columns, 2 and -2 by singular values."""
    require_inexact(input, "linalg.matrix_norm")
    rank = len(input.spec.shape)
    require(rank >= 2, "linalg.matrix_norm: the input tensor must have at least 2 dimensions, got {}", input.spec)
    require(isinstance(dim, (tuple, list)) and len(dim) == 2, "linalg.matrix_norm: dim must be a 2-tuple, got {}", dim)
    rows, columns = [core.canonical_dim(d, rank) for d in dim]
    require(rows != columns, "linalg.matrix_norm: dims must be different, got {}", dim)
    if ord == "fro":
        return vector_norm(input, 2, (rows, columns), keepdim, dtype=dtype)
    is_supported = ord in (*_BY_SINGULAR_VALUES, 1, -1, math.inf, -math.inf)
    require(is_supported, "linalg.matrix_norm: Order {} not supported; use 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2", ord)
    if ord in _BY_SINGULAR_VALUES:
        return _spectral(input, ord, (rows, columns), keepdim, dtype)
    summed, compared = (rows, columns) if abs(ord) == 1 else (columns, rows)
    is_empty = input.spec.shape[compared] == 0
    require(ord > 0 or not is_empty, "linalg.matrix_norm cannot compute the {} norm of {}, which is empty", ord, input.spec, error=IndexError)
    target = dtype_of(dtype, input.spec.dtype)
    sums = reduced(prims.sum, core.abs(core.convert(input, core.wide(target))), summed, True)
    extreme: Symbol = prims.sum if is_empty else prims.amax if ord > 0 else prims.amin  # the largest of none is 0
    out = extreme(sums, dims=tuple(sorted((summed, compared))))
    out = core.keep_dims(out, input.spec.shape, tuple(sorted((rows, columns)))) if keepdim else out
    return core.convert(out, dtypes.real_of(target))


def _spectral(input: Tensor, ord: Any, dims: tuple[int, int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """Return norms by singular values: their sum, largest or smallest."""
    rank = len(input.spec.shape)
    moved = prims.transpose(input, order=(*[d for d in range(rank) if d not in dims], *dims))
    values = opaque(torch.linalg.svdvals, (core.convert(moved, dtype_of(dtype, input.spec.dtype)),), {})
    summed = ord == "nuc" or (ord > 0 and values.spec.shape[-1] == 0)  # the largest of none is 0
    out = reduced(prims.sum if summed else prims.amax if ord > 0 else prims.amin, values, -1, False)
    return core.keep_dims(out, input.spec.shape, tuple(sorted(dims))) if keepdim else out


@torchsymbol("torch.linalg.norm")
def norm(input: Tensor, ord: Number | str | None = None, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """input norm of matrices where `dim` names two dimensions, or where `ord` is given for a matrix, else of vectors."""
    rank, ndim = len(input.spec.shape), None if dim is None else len(dim) if isinstance(dim, (tuple, list)) else 1
    if ndim is not None:
        require(ndim in (1, 2) or ord is None, "linalg.norm: If dim is specified, it must be of length 1 or 2, got {}", dim)
    elif ord is not None:
        require(rank in (1, 2), "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D, got {}", input.spec)
    of_matrix = ord is not None and (ndim == 2 or (ndim is None and rank == 2))
    if of_matrix:
        return matrix_norm(input, ord, tuple(dim) if ndim == 2 else (-2, -1), keepdim, dtype=dtype)
    require(not isinstance(ord, str), "linalg.norm: Order {} needs a matrix; give two dims", ord)
    return vector_norm(input, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@torchsymbol("torch.dist", methods=("dist",))
def dist(input: Tensor, other: Tensor, p: Number = 2):
    """The p-norm of input - other, over all dimensions."""
    return vector_norm(sub.meta(input, other), p)


@torchsymbol("torch.nn.functional.pairwise_distance", "torch.pairwise_distance")
def pairwise_distance(x1: Tensor, x2: Tensor, p: Number = 2.0, eps: Number = 1e-6, keepdim: bool = False):
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return vector_norm(core.add(sub.meta(x1, x2), eps), p, -1, keepdim)


@torchsymbol("torch.nn.functional.cosine_similarity", "torch.cosine_similarity")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: Number = 1e-8):
    """The cosine of the angle between x1 and x2 along `dim`; each length counts as at least `eps`."""
    dtype = core.promote(x1, x2)
    require_dtype(
        dtype.kind == "float", "expected common dtype to be floating point, yet common dtype is {}; convert with .float() first", dtype.short
    )
    shape = core.broadcast_shapes(x1.spec.shape, x2.spec.shape)
    d = core.canonical_dim(dim, len(shape))
    a, b = [core.fit(x, shape, core.wide(dtype)) for x in (x1, x2)]
    units = [core.div(x, _at_least(vector_norm(x, 2, d, True), float(eps))) for x in (a, b)]
    return core.convert(reduced(prims.sum, core.mul(*units), d, False), dtype)


def _at_least(x: Tensor, least: float) -> Tensor:
    """x, and `least` where it is smaller; the gradient is x's in both cases, since PyTorch bounds lengths in place and without grad."""
    return core.add(x, prims.detach(core.where(core.lt(x, least), core.sub(least, x), 0.0)))
