"""Fewer elements out than in, and the prim that undoes it.  `dims` are non-negative, sorted and distinct; the result drops them."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from dovetail.dtypes import DType, bool_, float32, float64, int64, real_of, wider
from dovetail.errors import require
from dovetail.prims import spec
from dovetail.prims.elementwise import where
from dovetail.prims.op import Tag, prim
from dovetail.prims.shape import flat_reshape, require_dims
from dovetail.prims.sizes import Size
from dovetail.prims.spec import TensorSpec
from dovetail.prims.unary import (
    INEXACT,
    NUMBERS,
    REAL,
    ROUNDED,
    conjugated,
    convert_element_type,
    converted,
    isinf,
    isnan,
    require_kind,
    sign,
)

REDUCTION = frozenset({Tag.REDUCTION})
NO_GRAD = REDUCTION | {Tag.NO_GRAD}


def reduced(x: TensorSpec, dims: tuple[int, ...], kinds: tuple[str, ...], dtype: DType | None = None) -> TensorSpec:
    """Return the spec of x without `dims`, row-major."""
    require_dims(x, dims)
    require_kind(x, kinds)
    return x.fresh(tuple(n for d, n in enumerate(x.shape) if d not in dims), dtype)


def require_elements(x: TensorSpec, dims: tuple[int, ...]) -> None:
    """Raise where a reduced dimension is empty: there is no largest or smallest element."""
    require_dims(x, dims)
    for d in dims:
        require(x.shape[d] != 0, "expected reduction dim {} of {} to have non-zero size", d, x, error=IndexError)


def spread(g: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Repeat `g` along the `dims` of `x` that a reduction dropped."""
    shape = x.spec.shape
    return broadcast_in_dim(g, shape=shape, dims=tuple(d for d in range(len(shape)) if d not in dims)) if dims else g


def count(x: Any, dims: tuple[int, ...]) -> int:
    """Return the number of elements of `x` reduced into one."""
    return spec.prod(x.spec.shape[d] for d in dims)


@prim(tags={Tag.VIEW, Tag.CHEAP})
def broadcast_in_dim(x: TensorSpec, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> TensorSpec:
    """Dimension i of x becomes dimension dims[i] of the result, in order; sizes of 1 and the other dimensions repeat."""
    require(len(dims) == x.rank, "expected one dim of {} for each of {}, got {}", shape, x, dims)
    strides, last = [0] * len(shape), -1
    for d, n, step in zip(dims, x.shape, x.steps, strict=True):
        require(last < d < len(shape), "expected increasing dims of shape {}, got {}", shape, dims)
        last = d
        require(n == shape[d] or n == 1, "expected {} at dims {} to fill shape {}", x, dims, shape)
        strides[d] = step if n == shape[d] else 0
    for d in reversed(range(len(shape))):
        if shape[d] == 1 and d not in dims:
            strides[d] = shape[d + 1] * strides[d + 1] if d + 1 < len(shape) else 1
    return x.view(shape, tuple(strides))


@broadcast_in_dim.vjp
def broadcast_in_dim_vjp(g, out, x, *, shape, dims):
    sizes = dict(zip(dims, x.spec.shape, strict=True))
    repeated = tuple(d for d, n in enumerate(shape) if sizes.get(d) != n)
    return (flat_reshape(sum(g, dims=repeated) if repeated else g, x.spec.shape),)


@broadcast_in_dim.put
def broadcast_in_dim_put(base, value, *, shape, dims):
    if value.spec.numel == 0:
        return base
    require(
        value.spec.numel == base.spec.numel,
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location; clone it before writing",
    )
    return flat_reshape(value, base.spec.shape)


@prim(tags=REDUCTION)
def sum(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """The sum over `dims`, of x's dtype."""
    return reduced(x, dims, NUMBERS)


@sum.vjp
def sum_vjp(g, out, x, *, dims):
    return (spread(g, x, dims),)


@prim(tags=REDUCTION)
def prod(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """The product over `dims`, of x's dtype."""
    return reduced(x, dims, NUMBERS)


@prod.vjp
def prod_vjp(g, out, x, *, dims):
    # The derivative is the product of the others: out / x, and at a zero the product of the rest.
    if not dims:
        return (g,)
    zero = x == 0.0
    zeros = spread(sum(convert_element_type(zero, dtype=int64), dims=dims), x, dims)
    if x.spec.dtype.kind == "float":
        return (spread(g, x, dims) * _product_of_others(x, dims, zero, zeros),)
    filled = where(zero, 1.0, x)
    rest = spread(prod(filled, dims=dims), x, dims)
    others = where(zero, where(zeros == 1, rest, 0.0), where(zeros == 0, rest / filled, 0.0))
    return (spread(g, x, dims) * conjugated(others),)


def _product_of_others(x: Any, dims: tuple[int, ...], zero: Any, zeros: Any) -> Any:
    """Return for each element the product of the others: that of all by the element, in float64, where few overflow for one factor more.

    An infinity counts as its sign there, zeros and NaN as 1.  As in PyTorch, an element that is not finite has NaN unless a zero is in the
    tensor, and in a product of everything with several zeros all have 0.
    """
    infinite, undefined = isinf(x), isnan(x)
    other_infinities, other_undefined = (_others(each, x, dims) for each in (infinite, undefined))
    other_zeros = zeros - convert_element_type(zero, dtype=int64)
    wide = convert_element_type(x, dtype=float64)
    factors = where(infinite, sign(wide), where(zero | undefined, 1.0, wide))
    quotient = spread(prod(factors, dims=dims), x, dims) / factors
    value = convert_element_type(quotient, dtype=x.spec.dtype)
    unbounded = other_infinities > 0
    value = where(unbounded & (quotient < 0.0), -inf, where(unbounded, inf, value))
    value = where(other_zeros > 0, 0.0, value)
    everywhere = tuple(range(x.spec.rank))
    in_tensor = zeros if dims == everywhere else spread(sum(convert_element_type(zero, dtype=int64), dims=everywhere), x, everywhere)
    undetermined = (unbounded & (other_zeros > 0)) | (other_undefined > 0) | ((infinite | undefined) & (in_tensor == 0))
    value = where(undetermined, nan, value)
    return where(zeros > 1, 0.0, value) if dims == everywhere else value


def _others(mask: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Count for each element of `x` the others along `dims` where `mask` holds."""
    marks = convert_element_type(mask, dtype=int64)
    return spread(sum(marks, dims=dims), x, dims) - marks


def evenly(g: Any, out: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Split `g` equally among the elements of x that equal the result; a NaN result equals every NaN.

    They are counted in float32 at least: float16 has no number above 65,504.
    """
    hits = x == spread(out, x, dims)
    if x.spec.dtype.kind == "float":
        hits = hits | isnan(x)  # where an element is NaN, so is the result
    counting = wider(g.spec.dtype, float32)
    hits = convert_element_type(hits, dtype=counting)
    share = convert_element_type(g, dtype=counting) / sum(hits, dims=dims)
    return convert_element_type(hits * spread(share, x, dims), dtype=g.spec.dtype)


@prim(tags=REDUCTION)
def amax(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """The largest element over `dims`, NaN where there is one."""
    require_elements(x, dims)
    return reduced(x, dims, REAL)


@amax.vjp
def amax_vjp(g, out, x, *, dims):
    return (evenly(g, out, x, dims),)


@prim(tags=REDUCTION)
def amin(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """The smallest element over `dims`, NaN where there is one."""
    require_elements(x, dims)
    return reduced(x, dims, REAL)


@amin.vjp
def amin_vjp(g, out, x, *, dims):
    return (evenly(g, out, x, dims),)


@prim(tags=NO_GRAD)
def any(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Whether some element over `dims` of a boolean tensor is true."""
    return reduced(x, dims, ("bool",), bool_)


@prim(tags=NO_GRAD)
def all(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """Whether every element over `dims` of a boolean tensor is true."""
    return reduced(x, dims, ("bool",), bool_)


@prim(tags=NO_GRAD)
def argmax(x: TensorSpec, *, dim: int | None) -> TensorSpec:
    """The position along `dim` of the largest element, the first of several; with None, its position in row-major order."""
    return _position(x, dim)


@prim(tags=NO_GRAD)
def argmin(x: TensorSpec, *, dim: int | None) -> TensorSpec:
    """The position along `dim` of the smallest element, the first of several; with None, its position in row-major order."""
    return _position(x, dim)


def _position(x: TensorSpec, dim: int | None) -> TensorSpec:
    if dim is None:
        require(x.numel != 0, "expected at least one element, got {}", x, error=IndexError)
        return reduced(x, tuple(range(x.rank)), ROUNDED, int64)
    require_elements(x, (dim,))
    return reduced(x, (dim,), ROUNDED, int64)


@prim(tags=REDUCTION)
def var(x: TensorSpec, *, dims: tuple[int, ...], correction: float) -> TensorSpec:
    """The mean of |x - mean|**2 over `dims`, dividing by count - correction or else by 0; real where x is complex.

    A correction of infinity divides by 0, and the gradient of each element is infinite then, or NaN for one that is the mean.
    """
    return reduced(x, dims, INEXACT, real_of(x.dtype))


@var.vjp
def var_vjp(g, out, x, *, dims, correction):
    mean = sum(x, dims=dims) / (count(x, dims) or nan)
    return (_var_grad(g, mean, x, dims, correction),)


@prim(tags=REDUCTION)
def var_mean(x: TensorSpec, *, dims: tuple[int, ...], correction: float) -> tuple[TensorSpec, TensorSpec]:
    """`var`, and the mean over `dims`."""
    return reduced(x, dims, INEXACT, real_of(x.dtype)), reduced(x, dims, INEXACT)


@var_mean.vjp
def var_mean_vjp(g, out, x, *, dims, correction):
    parts = []
    if g[0] is not None:
        parts.append(_var_grad(g[0], out[1], x, dims, correction))
    if g[1] is not None:
        parts.append(spread(g[1] / (count(x, dims) or nan), x, dims))
    return (parts[0] + parts[1] if len(parts) == 2 else parts[0],)


def _var_grad(g: Any, mean: Any, x: Any, dims: tuple[int, ...], correction: float) -> Any:
    """g * 2 * (x - mean) / (count - correction); no freedom left makes it infinite times zero, as in PyTorch."""
    if correction == inf:
        return converted(where(x == spread(mean, x, dims), nan, spread(g, x, dims) * inf), x)
    freedom = count(x, dims) - correction
    if not dims and type(freedom) is not Size and freedom <= 0:
        return converted(g * nan, x)  # of a number alone, where PyTorch's gradient is NaN and real
    if type(freedom) is Size:
        scaled = g * 2.0 / freedom
    else:
        scaled = g * (2.0 / freedom if freedom != 0 else inf)
    return (x - spread(mean, x, dims)) * spread(converted(scaled, x), x, dims)
