"""Reductions: sums, products, extremes, counts."""

from __future__ import annotations

import math
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import dtype_of
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol, wrong_type
from dovetail.prims import Symbol
from dovetail.prims.shape import flat_reshape
from dovetail.prims.spec import prod as product
from dovetail.trace import leaves

Dims = int | tuple[int, ...] | None


def reduced(prim: Symbol, x: Tensor, dim: Dims, keepdim: bool, **options: Any) -> Tensor:
    """`prim` over `dim` of x: one dimension, several, or all of them for None and ()."""
    dims = core.canonical_dims(dim, len(x.spec.shape))
    return restore_dims(prim(x, dims=dims, **options), x, dims, keepdim)


def restore_dims(out: Tensor, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Restore the reduced `dims` of x as size 1 where `keepdim`."""
    return core.keep_dims(out, x.spec.shape, dims) if keepdim and dims else out


def count(x: Tensor, dim: Dims) -> int:
    """Return the number of elements of x reduced into one."""
    return product(x.spec.shape[d] for d in core.canonical_dims(dim, len(x.spec.shape)))


def total_dtype(x: Tensor, dtype: torch.dtype | None) -> DType:
    """Return the dtype of a sum or a product: `dtype`, or by default int64 for integers and booleans."""
    return dtype_of(dtype, x.spec.dtype if x.spec.dtype.inexact else dtypes.int64)


def total(prim: Symbol, x: Tensor, dim: Dims, keepdim: bool, dtype: DType) -> Tensor:
    """Return a sum or product in `dtype`, accumulated in its wide form; for a boolean `dtype`, any or all."""
    if dtype is dtypes.bool_:
        prim = prims.any if prim is prims.sum else prims.all
    return core.convert(reduced(prim, core.convert(x, core.wide(dtype)), dim, keepdim), dtype)


def require_inexact(x: Tensor, function: str) -> None:
    """Raise unless x is floating or complex."""
    require_dtype(
        x.spec.dtype.inexact, "{}: expected a floating point or complex dtype, got {}; convert with .float() first", function, x.spec.dtype.short
    )


def safe_sqrt(x: Tensor) -> Tensor:
    """sqrt(x), whose gradient at 0 is 0, as in torch for standard deviations and norms, instead of infinite."""
    zero = core.eq(x, 0)
    return core.where(zero, 0.0, core.sqrt(core.where(zero, 1.0, x)))


@torchsymbol("torch.sum", methods=("sum",))
def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """The sum over `dim`; of integers in int64."""
    return total(prims.sum, input, dim, keepdim, total_dtype(input, dtype))


@torchsymbol("torch.nansum", methods=("nansum",))
def nansum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """The sum over `dim` of what is not NaN."""
    require_dtype(input.spec.dtype.kind != "complex", "nansum does not support complex inputs; sum the real and imaginary parts")
    target = total_dtype(input, dtype)
    return total(prims.sum, without_nan(input), dim, keepdim, target)


def without_nan(x: Tensor) -> Tensor:
    """Replace NaN by 0."""
    return core.where(core.isnan(x), 0.0, x) if x.spec.dtype.inexact else x


@torchsymbol("torch.mean", methods=("mean",))
def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """The sum over `dim` by the number of its elements."""
    target = dtype_of(dtype, input.spec.dtype)
    require_dtype(
        target.inexact, "could not infer output dtype: expected a floating point or complex dtype, got {}; pass dtype=torch.float32", target.short
    )
    x = core.convert(input, core.wide(target))
    return core.convert(core.div(reduced(prims.sum, x, dim, keepdim), count(x, dim)), target)


@torchsymbol("torch.nanmean", methods=("nanmean",))
def nanmean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """The mean over `dim` of what is not NaN."""
    require_inexact(input, "nanmean")
    target = dtype_of(dtype, input.spec.dtype)
    wide = core.wide(target)
    missing = core.isnan(input)
    numbers = reduced(prims.sum, core.convert(core.bitwise_not(missing), dtypes.int64), dim, True)
    blank = core.eq(numbers, 0)  # only NaN: its gradient is NaN too
    zeroed = core.where(core.bitwise_and(missing, core.bitwise_not(blank)), 0.0, core.convert(input, wide))
    counts = core.where(blank, math.nan, core.convert(numbers, dtypes.real_of(wide)))
    summed = reduced(prims.sum, zeroed, dim, keepdim)
    return core.convert(core.div(summed, flat_reshape(counts, summed.spec.shape)), target)


@torchsymbol("torch.prod", methods=("prod",))
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None):
    """The product over one dimension or all; of integers in int64."""
    require(not isinstance(dim, (tuple, list)), "expected one int for dim, got {!r}; reduce the dimensions one after the other", dim, error=TypeError)
    return total(prims.prod, input, dim, keepdim, total_dtype(input, dtype))


def require_nonempty(x: Tensor, dim: Any, function: str, error: type[Exception] = RuntimeError) -> None:
    """Raise where a reduction over all dimensions has no elements."""
    is_nonempty = x.spec.numel != 0 or not (dim is None or dim == ())
    require(is_nonempty, "{}: expected at least one element, got {}; name a dim that is not empty", function, x.spec, error=error)


@torchsymbol("torch.amax", methods=("amax",))
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False):
    """The largest element over `dim`; its gradient is shared by equal ones."""
    require_nonempty(input, dim, "amax")
    return reduced(prims.amax, input, dim, keepdim)


@torchsymbol("torch.amin", methods=("amin",))
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False):
    """The smallest element over `dim`; its gradient is shared by equal ones."""
    require_nonempty(input, dim, "amin")
    return reduced(prims.amin, input, dim, keepdim)


@amax.vjp
@amin.vjp
def amax_vjp(g: Any, out: Any, input: Any, *rest: Any, **options: Any) -> tuple:
    """g shared in equal parts among the elements that equal the result: among none where it is NaN, which makes all of them NaN.

    They are counted in float32 at least: float16 has no number above 65,504.
    """
    dim, keepdim = (*rest, *((), False)[len(rest) :])[:2]
    dims, keepdim = core.canonical_dims(options.get("dim", dim), input.spec.rank), options.get("keepdim", keepdim)
    g, out = (x if keepdim else core.keep_dims(x, input.spec.shape, dims) for x in (g, out))
    wide = core.wide(g.spec.dtype)
    hits = core.convert(core.eq(input, out), wide)
    shared = core.div(core.convert(g, wide), core.keep_dims(prims.sum(hits, dims=dims), input.spec.shape, dims))
    return (core.convert(core.mul(hits, shared), g.spec.dtype), *(None for _ in leaves(rest)))


@torchsymbol("torch.aminmax", methods=("aminmax",))
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False):
    """The smallest and the largest element over one dimension or all."""
    require(not isinstance(dim, (tuple, list)), "expected one int for dim, got {!r}; call amin and amax", dim, error=TypeError)
    require_nonempty(input, dim, "aminmax")
    dims = () if dim is None else dim
    return torch.return_types.aminmax((amin(input, dims, keepdim), amax(input, dims, keepdim)))


def picked(prim: Symbol, x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """(values, indices) of the elements that `prim` points at along `dim`: the gradient goes to these alone."""
    d = core.canonical_dim(dim, len(x.spec.shape))
    if not x.spec.shape:
        return prims.clone(x), prims.full(shape=(), value=0, dtype=dtypes.int64, device=x.spec.device)
    ordered = core.convert(x, dtypes.uint8) if x.spec.dtype is dtypes.bool_ else x
    indices = prim(ordered, dim=d)
    at = core.keep_dims(indices, x.spec.shape, (d,))
    values = prims.take_along_axis(x, at, dim=d)
    return (values, at) if keepdim else (prims.squeeze(values, dims=(d,)), indices)


@torchsymbol("torch.max", methods=("max",))
def max(input: Tensor, dim: int | None = None, keepdim: bool = False, *, other: Tensor | None = None):
    """The largest element; with `dim` (values, indices) along it; with another tensor the larger of each two."""
    return _extreme(torch.return_types.max, (prims.amax, prims.argmax, core.maximum), input, dim, keepdim, other)


@torchsymbol("torch.min", methods=("min",))
def min(input: Tensor, dim: int | None = None, keepdim: bool = False, *, other: Tensor | None = None):
    """The smallest element; with `dim` (values, indices) along it; with another tensor the smaller of each two."""
    return _extreme(torch.return_types.min, (prims.amin, prims.argmin, core.minimum), input, dim, keepdim, other)


def _extreme(result: Any, rules: tuple, input: Tensor, dim: Any, keepdim: bool, other: Tensor | None) -> Any:
    """Return max or min: a reduction, an indexed reduction, or an elementwise comparison; `rules` are the three operations."""
    reduce, point, compare = rules
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return compare(input, other)
    if dim is None:
        require(not keepdim, "expected a dim when keepdim is given; call amax or amin to keep all dimensions", error=TypeError)
        require_nonempty(input, None, reduce.name[1:])
        return reduced(reduce, input, None, False)
    return result(picked(point, input, dim, keepdim))


@torchsymbol("torch.argmax", methods=("argmax",))
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False):
    """The position of the largest element along `dim`, or in row-major order; the first of several."""
    return _position(prims.argmax, input, dim, keepdim)


@torchsymbol("torch.argmin", methods=("argmin",))
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False):
    """The position of the smallest element along `dim`, or in row-major order; the first of several."""
    return _position(prims.argmin, input, dim, keepdim)


def _position(prim: Symbol, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    comparable = x.spec.dtype.kind in ("int", "float")
    require_dtype(comparable, "expected integers or floating point numbers, got {}; convert first", x.spec)
    require_nonempty(x, dim, prim.name, IndexError)
    d = None if dim is None or not x.spec.shape else core.canonical_dim(dim, len(x.spec.shape))
    if dim is not None:
        core.canonical_dim(dim, len(x.spec.shape))
    return restore_dims(prim(x, dim=d), x, core.canonical_dims(dim, len(x.spec.shape)), keepdim)


def _truth(prim: Symbol, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Return any or all; an empty tuple of dims reduces nothing, and uint8 results in uint8."""
    truth = core.convert(x, dtypes.bool_)
    out = reduced(prim, truth, dim, keepdim) if dim != () else prim(truth, dims=())
    return core.convert(out, dtypes.uint8) if x.spec.dtype is dtypes.uint8 else out


@torchsymbol("torch.any", methods=("any",))
def any(input: Tensor, dim: Dims = None, keepdim: bool = False):
    """Whether some element over `dim` is not 0."""
    return _truth(prims.any, input, dim, keepdim)


@torchsymbol("torch.all", methods=("all",))
def all(input: Tensor, dim: Dims = None, keepdim: bool = False):
    """Whether no element over `dim` is 0."""
    return _truth(prims.all, input, dim, keepdim)


@torchsymbol("torch.count_nonzero", methods=("count_nonzero",), variadic="dim")
def count_nonzero(input: Tensor, dim: Dims = None):
    """How many elements over `dim` are not 0."""
    return reduced(prims.sum, core.convert(core.convert(input, dtypes.bool_), dtypes.int64), dim, False)


@torchsymbol("torch.logsumexp", "torch.special.logsumexp", methods=("logsumexp",))
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False):
    """log(sum(exp(x))) over `dim`, shifted by the maximum."""
    if dim is None:
        wrong_type("logsumexp", "dim", "int or tuple of ints", dim)
    target = core.inexact_of(input.spec.dtype)
    return core.convert(_logsumexp(core.convert(input, core.wide(target)), dim, keepdim), target)


def _logsumexp(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """log(sum(exp(x))) in x's dtype."""
    dims = core.canonical_dims(dim, len(x.spec.shape))
    if x.spec.numel == 0:
        return core.log(reduced(prims.sum, core.exp(x), dim, keepdim))
    top = prims.detach(prims.amax(prims.real(x) if x.spec.dtype.kind == "complex" else x, dims=dims))
    top = core.convert(core.where(core.isfinite(top), top, 0.0), x.spec.dtype)
    summed = prims.sum(core.exp(core.sub(x, core.keep_dims(top, x.spec.shape, dims))), dims=dims)
    return restore_dims(core.add(core.log(summed), top), x, dims, keepdim)


@logsumexp.vjp
def logsumexp_vjp(g: Any, out: Any, input: Any, *rest: Any, dim: Dims = None, keepdim: bool = False) -> tuple:
    """g * exp(x - out), as PyTorch has it: elements so large that the logarithm of their number is rounded away have g each.

    A result of 16 bits is too coarse for that, and is computed anew.
    """
    dim, keepdim = (*rest, *(dim, keepdim)[len(rest) :])
    dims, wide = core.canonical_dims(dim, input.spec.rank), core.wide(out.spec.dtype)
    x, g = core.convert(input, wide), core.convert(g, wide)
    out = out if out.spec.dtype is wide else _logsumexp(x, dim, keepdim)
    g, out = (part if keepdim else core.keep_dims(part, x.spec.shape, dims) for part in (g, out))
    slope = core.exp(core.sub(x, out))
    slope = core.mul(g, prims.conj(slope) if wide.kind == "complex" else slope)
    return (core.convert(slope, input.spec.dtype), *(None for _ in leaves(rest)))


@torchsymbol("torch.trace", methods=("trace",))
def trace(input: Tensor):
    """The sum of the diagonal of a matrix."""
    require(len(input.spec.shape) == 2, "expected a matrix, but got tensor with dim {}", len(input.spec.shape))
    require_dtype(input.spec.dtype is not dtypes.bool_, "trace is not implemented for bool; convert first")
    return total(prims.sum, prims.diagonal(input, offset=0, dim1=0, dim2=1), None, False, total_dtype(input, None))
