"""Elementwise operations on one tensor: signs, rounding, predicates, conversion, the parts of complex numbers."""

from __future__ import annotations

from typing import Any

from dovetail.dtypes import DType, bool_, int32, real_of
from dovetail.errors import require, require_dtype
from dovetail.prims.creation import zeros_like
from dovetail.prims.memory import clone
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import TensorSpec, dense

POINTWISE = frozenset({Tag.ELEMENTWISE, Tag.CHEAP})
NO_GRAD = POINTWISE | {Tag.NO_GRAD}
ANY = ("bool", "int", "float", "complex")
NUMBERS = ("int", "float", "complex")
REAL = ("bool", "int", "float")
ROUNDED = ("int", "float")
INTEGERS = ("bool", "int")
INEXACT = ("float", "complex")
FLOAT = ("float",)


def require_kind(x: TensorSpec, kinds: tuple[str, ...] = ANY) -> None:
    """Raise unless x's dtype is of one of `kinds` and supports arithmetic."""
    require_dtype(x.dtype.kind in kinds and not x.dtype.storage_only, "expected a tensor of kind {}, got {}; convert it first", " or ".join(kinds), x)


def of_kind(x: TensorSpec, kinds: tuple[str, ...], dtype: DType | None = None) -> TensorSpec:
    """Return the result of an elementwise operation on `x` that is defined for these kinds of dtype."""
    require_kind(x, kinds)
    return dense(x, dtype=dtype)


def inexact(x: TensorSpec) -> TensorSpec:
    """Return the spec of an elementwise operation on floating or complex tensors."""
    return of_kind(x, INEXACT)


def conjugated(x: Any) -> Any:
    """Return the conjugate of a traced tensor or a number, itself where it is real; cotangents are multiplied by it."""
    spec = getattr(x, "spec", None)
    if spec is None:
        return x.conjugate()
    return conj(x) if type(spec) is TensorSpec and spec.dtype.kind == "complex" else x


def converted(g: Any, x: Any) -> Any:
    """Return a cotangent in the dtype of `x`: its real part where `x` is real and `g` is not."""
    source_dtype, target_dtype = g.spec.dtype, x.spec.dtype
    if source_dtype.kind == "complex" and target_dtype.kind != "complex":
        g = real(g)
    return g if g.spec.dtype is target_dtype else convert_element_type(g, dtype=target_dtype)


@prim(tags=POINTWISE)
def neg(x: TensorSpec) -> TensorSpec:
    """-x."""
    return of_kind(x, NUMBERS)


@neg.vjp
def neg_vjp(g, out, x):
    return (-g,)


@prim(tags=POINTWISE)
def abs(x: TensorSpec) -> TensorSpec:
    """|x|; real where x is complex."""
    return of_kind(x, NUMBERS, real_of(x.dtype))


@abs.vjp
def abs_vjp(g, out, x):
    return (converted(g, x) * sign(x),)


@prim(tags=POINTWISE)
def sign(x: TensorSpec) -> TensorSpec:
    """x / |x|, and 0 where x is 0."""  # its grad rule needs `where`, and stands beneath that
    return of_kind(x, ANY)


@prim(tags=NO_GRAD)
def signbit(x: TensorSpec) -> TensorSpec:
    """Whether the sign bit is set: x < 0 or x is -0.0."""
    return of_kind(x, REAL, bool_)


@prim(tags=POINTWISE)
def ceil(x: TensorSpec) -> TensorSpec:
    """The smallest integer not below x."""
    return of_kind(x, ROUNDED)


@ceil.vjp
def ceil_vjp(g, out, x):
    return (zeros_like(x),)


@prim(tags=POINTWISE)
def floor(x: TensorSpec) -> TensorSpec:
    """The largest integer not above x."""
    return of_kind(x, ROUNDED)


@floor.vjp
def floor_vjp(g, out, x):
    return (zeros_like(x),)


@prim(tags=POINTWISE)
def round(x: TensorSpec) -> TensorSpec:
    """The nearest integer, the even one of two."""
    return of_kind(x, ROUNDED)


@round.vjp
def round_vjp(g, out, x):
    return (zeros_like(x),)


@prim(tags=POINTWISE)
def trunc(x: TensorSpec) -> TensorSpec:
    """x without its fraction."""
    return of_kind(x, ROUNDED)


@trunc.vjp
def trunc_vjp(g, out, x):
    return (zeros_like(x),)


@prim(tags=POINTWISE)
def reciprocal(x: TensorSpec) -> TensorSpec:
    """1 / x."""
    return inexact(x)


@reciprocal.vjp
def reciprocal_vjp(g, out, x):
    return (-g * conjugated(out * out),)


@prim(tags=NO_GRAD)
def isnan(x: TensorSpec) -> TensorSpec:
    """Whether x, or a part of it, is not a number."""
    return of_kind(x, ANY, bool_)


@prim(tags=NO_GRAD)
def isinf(x: TensorSpec) -> TensorSpec:
    """Whether x, or a part of it, is infinite."""
    return of_kind(x, ANY, bool_)


@prim(tags=NO_GRAD)
def isfinite(x: TensorSpec) -> TensorSpec:
    """Whether x, in all its parts, is neither infinite nor NaN."""
    return of_kind(x, ANY, bool_)


@prim(tags=NO_GRAD)
def bitwise_not(x: TensorSpec) -> TensorSpec:
    """Each bit of an integer inverted; not x of a boolean."""
    return of_kind(x, INTEGERS)


@prim(tags=POINTWISE)
def conj(x: TensorSpec) -> TensorSpec:
    """The complex conjugate of a complex tensor."""
    return of_kind(x, ("complex",))


@conj.vjp
def conj_vjp(g, out, x):
    return (conjugated(g),)


@prim(tags=POINTWISE)
def real(x: TensorSpec) -> TensorSpec:
    """The real part of a complex tensor."""
    return of_kind(x, ("complex",), real_of(x.dtype))


@real.vjp
def real_vjp(g, out, x):
    return (convert_element_type(g, dtype=x.spec.dtype),)


@prim(tags=POINTWISE)
def imag(x: TensorSpec) -> TensorSpec:
    """The imaginary part of a complex tensor, as a real one."""
    return of_kind(x, ("complex",), real_of(x.dtype))


@imag.vjp
def imag_vjp(g, out, x):
    return (convert_element_type(g, dtype=x.spec.dtype) * 1j,)


@prim(tags=POINTWISE)
def frexp(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """(m, e) with x = m * 2**e and 0.5 <= |m| < 1, or m = x and e = 0 where x is 0.  e is int32."""
    out = of_kind(x, FLOAT)
    return out, dense(x, dtype=int32)


@frexp.vjp
def frexp_vjp(g, out, x):
    # 2**-e is a subnormal or an infinity for the largest and smallest x, so the scale is applied in two halves.
    exponent = convert_element_type(out[1], dtype=x.spec.dtype)
    half = floor(exponent * 0.5)
    return (g[0] / 2.0**half / 2.0 ** (exponent - half),)


@prim(tags=POINTWISE)
def convert_element_type(x: TensorSpec, *, dtype: DType) -> TensorSpec:
    """Each element as `dtype`: floats to integers towards zero, complex to real without the imaginary part, to bool as x != 0."""
    return dense(x, dtype=dtype, alike=False)


@convert_element_type.vjp
def convert_element_type_vjp(g, out, x, *, dtype):
    return (converted(g, x) if x.spec.dtype.inexact else None,)


@prim(tags={Tag.VIEW, Tag.CHEAP, Tag.NO_GRAD})
def bitcast(x: TensorSpec, *, dtype: DType) -> TensorSpec:
    """The same bytes read as another dtype: in the last dimension more elements where they are smaller, fewer where they are larger."""
    before, after = x.dtype.bytes, dtype.bytes
    if before == after:
        return x.like(dtype=dtype, requires_grad=False)
    how = f"to view {x.dtype.short} as {dtype.short} (different element sizes)"
    require(x.rank > 0, "self.dim() cannot be 0 {}", how)
    *steps, last = x.steps
    require(last == 1, "self.stride(-1) must be 1 {}, but got {}", how, last)
    if before > after:
        sizes, steps = x.shape[-1] * (before // after), [step * (before // after) for step in steps]
    else:
        ratio = after // before
        require(x.shape[-1] % ratio == 0, "self.size(-1) must be divisible by {} {}, but got {}", ratio, how, x.shape[-1])
        for d, step in enumerate(steps if x.numel else ()):  # an empty tensor's are not always those of torch
            require(step % ratio == 0, "self.stride({}) must be divisible by {} {}, but got {}", d, ratio, how, step)
        sizes, steps = x.shape[-1] // ratio, [step // ratio for step in steps]
    return TensorSpec(x.shape, dtype, x.device).view((*x.shape[:-1], sizes), (*steps, 1))


@bitcast.put
def bitcast_put(base, value, *, dtype):
    value = value if dtype.bytes == base.spec.dtype.bytes else clone(value)  # of any layout before
    return bitcast(value, dtype=base.spec.dtype)
