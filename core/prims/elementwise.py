"""Elementwise operations on two or three operands of one shape and dtype.

No broadcasting, no promotion; a Python number of the dtype's kind may stand for a tensor filled with it.
"""

from __future__ import annotations

import math
from numbers import Number, Real
from typing import Any

from dovetail.dtypes import COMPLEX_OF, DType, bool_
from dovetail.errors import require, require_dtype
from dovetail.prims.creation import full, require_number, zeros_like
from dovetail.prims.elementary import log
from dovetail.prims.op import prim
from dovetail.prims.spec import TensorSpec, dense, is_tensor
from dovetail.prims.unary import (
    ANY,
    FLOAT,
    INEXACT,
    INTEGERS,
    NO_GRAD,
    NUMBERS,
    POINTWISE,
    REAL,
    ROUNDED,
    abs,
    conj,
    conjugated,
    convert_element_type,
    imag,
    real,
    require_kind,
    sign,
    trunc,
)

Operand = TensorSpec | bool | int | float | complex


def same(*operands: Operand, kinds: tuple[str, ...] = ANY, dtype: DType | None = None) -> TensorSpec:
    """Check that all tensor operands agree, and return the spec of the result, with eager's strides; `dtype` overrides theirs."""
    tensors = [x for x in operands if type(x) is TensorSpec]
    require(bool(tensors), "expected a tensor among {}", operands, error=TypeError)
    first = tensors[0]
    for x in tensors:
        if x is not first:
            require(x.agrees(first), "expected operands of equal shape, dtype and device, got {} and {}", first, x)
    if len(tensors) != len(operands):
        for x in operands:
            if type(x) is not TensorSpec:
                require_number(x, first.dtype)
    require_kind(first, kinds)
    return dense(*tensors, dtype=dtype, alike=len(tensors) == len(operands))


def compared(a: Operand, b: Operand, kinds: tuple[str, ...] = REAL) -> TensorSpec:
    """Return the boolean spec of a comparison."""
    return same(a, b, kinds=kinds, dtype=bool_)


@prim(tags=POINTWISE)
def add(a: Operand, b: Operand) -> TensorSpec:
    """a + b; of booleans, a or b."""
    return same(a, b)


@add.vjp
def add_vjp(g, out, a, b):
    return g, g


@prim(tags=POINTWISE)
def sub(a: Operand, b: Operand) -> TensorSpec:
    """a - b."""
    return same(a, b, kinds=NUMBERS)


@sub.vjp
def sub_vjp(g, out, a, b):
    return g, -g if is_tensor(b) else None


@prim(tags=POINTWISE)
def mul(a: Operand, b: Operand) -> TensorSpec:
    """a * b; of booleans, a and b."""
    return same(a, b)


@mul.vjp
def mul_vjp(g, out, a, b):
    return g * conjugated(b) if is_tensor(a) else None, g * conjugated(a) if is_tensor(b) else None


@prim(tags=POINTWISE)
def div(a: Operand, b: Operand) -> TensorSpec:
    """a / b of floating or complex operands."""
    return same(a, b, kinds=INEXACT)


@div.vjp
def div_vjp(g, out, a, b):
    return g / conjugated(b) if is_tensor(a) else None, -g * conjugated(out / b) if is_tensor(b) else None


@prim(tags=POINTWISE)
def floordiv(a: Operand, b: Operand) -> TensorSpec:
    """The largest integer not above a / b."""
    return same(a, b, kinds=ROUNDED)


@floordiv.vjp
def floordiv_vjp(g, out, a, b):
    return zeros_like(g), zeros_like(g)


@prim(tags=NO_GRAD)
def truncdiv(a: Operand, b: Operand) -> TensorSpec:
    """a / b of integers without its fraction, as C divides."""
    return same(a, b, kinds=("int",))


@prim(tags=POINTWISE)
def remainder(a: Operand, b: Operand) -> TensorSpec:
    """a - b * floordiv(a, b), which has the sign of b."""
    return same(a, b, kinds=ROUNDED)


@remainder.vjp
def remainder_vjp(g, out, a, b):
    return g, -g * floordiv(a, b) if is_tensor(b) else None


@prim(tags=POINTWISE)
def fmod(a: Operand, b: Operand) -> TensorSpec:
    """a - b * trunc(a / b), which has the sign of a."""
    return same(a, b, kinds=ROUNDED)


@fmod.vjp
def fmod_vjp(g, out, a, b):
    return g, -g * trunc(a / b) if is_tensor(b) else None


@prim(tags=POINTWISE)
def pow(a: Operand, b: Operand) -> TensorSpec:
    """a to the power of b; pow(x, 0) is 1."""
    out = same(a, b, kinds=NUMBERS)
    if out.dtype.kind == "int" and type(b) is int:
        require(b >= 0, "integers to negative integer powers are not allowed, got the exponent {}", b)
    if type(a) is not TensorSpec:
        return out.fresh()  # PyTorch's pow of a number is row-major
    return out if type(b) is TensorSpec else dense(a)  # it has a kernel of its own for an exponent that is a number


@pow.vjp
def pow_vjp(g, out, a, b):
    return _pow_base(g, a, b) if is_tensor(a) else None, _pow_exponent(g, out, a, b) if is_tensor(b) else None


def _pow_base(g: Any, a: Any, b: Any) -> Any:
    """g * b * a**(b - 1), and 0 where b is 0."""
    if isinstance(b, Number):
        return zeros_like(a) if b == 0 else g * conjugated((a if b == 2 else a ** (b - 1)) * b)
    b = as_tensor(b, a)
    return where(b == 0.0, 0.0, g * conjugated(a ** (b - 1.0) * b))


def _pow_exponent(g: Any, out: Any, a: Any, b: Any) -> Any:
    """g * out * log(a), or g * 0 where a is 0 and b is real and not negative: there out stays 0 or 1."""
    if isinstance(a, Real) and a > 0:
        return g * conjugated(out * math.log(a))
    a = as_tensor(a, b)
    is_constant = (a == 0.0) & ((imag(b) == 0.0) & (real(b) >= 0.0) if b.spec.dtype.kind == "complex" else b >= 0.0)
    return g * where(is_constant, 0.0, conjugated(out * log(a)))


def as_tensor(x: Any, like: Any) -> Any:
    """Return a traced tensor for an operand that may be a number."""
    return x if is_tensor(x) else full(shape=like.spec.shape, value=x, dtype=like.spec.dtype, device=like.spec.device)


@prim(tags=POINTWISE)
def atan2(a: Operand, b: Operand) -> TensorSpec:
    """The angle in [-pi, pi] of the point (b, a)."""
    return same(a, b, kinds=FLOAT)


@atan2.vjp
def atan2_vjp(g, out, a, b):
    squared_norm = as_tensor(a, g) * a + as_tensor(b, g) * b
    scale = where(squared_norm == 0.0, 0.0, 1.0 / squared_norm)  # at the origin, where no angle is defined, PyTorch's gradient is g * 0
    return g * b * scale, g * -as_tensor(a, g) * scale


@prim(tags=POINTWISE)
def maximum(a: Operand, b: Operand) -> TensorSpec:
    """The larger of a and b, NaN where either is."""
    return same(a, b, kinds=REAL)


@maximum.vjp
def maximum_vjp(g, out, a, b):
    shared = where(eq(a, b), g * 0.5, g)
    return where(lt(a, b), 0.0, shared), where(lt(b, a), 0.0, shared)


@prim(tags=POINTWISE)
def minimum(a: Operand, b: Operand) -> TensorSpec:
    """The smaller of a and b, NaN where either is."""
    return same(a, b, kinds=REAL)


@minimum.vjp
def minimum_vjp(g, out, a, b):
    shared = where(eq(a, b), g * 0.5, g)
    return where(gt(a, b), 0.0, shared), where(gt(b, a), 0.0, shared)


@prim(tags=POINTWISE)
def nextafter(a: Operand, b: Operand) -> TensorSpec:
    """The next representable number after a towards b."""
    return same(a, b, kinds=FLOAT)


@nextafter.vjp
def nextafter_vjp(g, out, a, b):
    return where(ne(a, b), g, 0.0) if is_tensor(a) else None, zeros_like(b) if is_tensor(b) else None


@prim(tags=POINTWISE)
def copysign(a: Operand, b: Operand) -> TensorSpec:
    """|a| with the sign of b."""
    return same(a, b, kinds=FLOAT)


@copysign.vjp
def copysign_vjp(g, out, a, b):
    ga = g * where(a == 0.0, 0.0, out / a) if is_tensor(a) else None
    return ga, zeros_like(b) if is_tensor(b) else None


@prim(tags=POINTWISE)
def zeta(a: Operand, b: Operand) -> TensorSpec:
    """The Hurwitz zeta function, the sum of 1 / (k + b)**a for k = 0, 1, ...  Differentiable in b."""
    return same(a, b, kinds=FLOAT)


@zeta.vjp
def zeta_vjp(g, out, a, b):
    return None, g * zeta(a + 1.0, b) * -a if is_tensor(b) else None


@prim(tags=NO_GRAD)
def bitwise_and(a: Operand, b: Operand) -> TensorSpec:
    """The bits set in a and b."""
    return same(a, b, kinds=INTEGERS)


@prim(tags=NO_GRAD)
def bitwise_or(a: Operand, b: Operand) -> TensorSpec:
    """The bits set in a or b."""
    return same(a, b, kinds=INTEGERS)


@prim(tags=NO_GRAD)
def bitwise_xor(a: Operand, b: Operand) -> TensorSpec:
    """The bits set in one of a and b."""
    return same(a, b, kinds=INTEGERS)


@prim(tags=NO_GRAD)
def bitwise_left_shift(a: Operand, b: Operand) -> TensorSpec:
    """a with its bits moved up by b places; 0 where b is negative or not below the number of bits."""
    return same(a, b, kinds=("int",))


@prim(tags=NO_GRAD)
def bitwise_right_shift(a: Operand, b: Operand) -> TensorSpec:
    """a with its bits moved down by b places, keeping its sign; the sign alone where b is negative or not below the number of bits."""
    return same(a, b, kinds=("int",))


@prim(tags=NO_GRAD)
def eq(a: Operand, b: Operand) -> TensorSpec:
    """Whether a equals b."""
    return compared(a, b, ANY)


@prim(tags=NO_GRAD)
def ne(a: Operand, b: Operand) -> TensorSpec:
    """Whether a differs from b."""
    return compared(a, b, ANY)


@prim(tags=NO_GRAD)
def lt(a: Operand, b: Operand) -> TensorSpec:
    """Whether a is less than b."""
    return compared(a, b)


@prim(tags=NO_GRAD)
def le(a: Operand, b: Operand) -> TensorSpec:
    """Whether a is at most b."""
    return compared(a, b)


@prim(tags=NO_GRAD)
def gt(a: Operand, b: Operand) -> TensorSpec:
    """Whether a is greater than b."""
    return compared(a, b)


@prim(tags=NO_GRAD)
def ge(a: Operand, b: Operand) -> TensorSpec:
    """Whether a is at least b."""
    return compared(a, b)


@prim(tags=POINTWISE)
def where(condition: TensorSpec, a: Operand, b: Operand) -> TensorSpec:
    """a where `condition`, a boolean tensor of their shape, holds, else b."""
    require(type(condition) is TensorSpec and condition.dtype is bool_, "expected a boolean condition, got {}", condition)
    out = same(a, b)
    fits = condition.shape == out.shape and condition.device is out.device
    require(fits, "expected a condition of shape {} on {}, got {}", out.shape, out.device, condition)
    return dense(condition, *(x for x in (a, b) if type(x) is TensorSpec), dtype=out.dtype)


@where.vjp
def where_vjp(g, out, condition, a, b):
    return None, where(condition, g, 0.0) if is_tensor(a) else None, where(condition, 0.0, g) if is_tensor(b) else None


@sign.vjp
def sign_vjp(g, out, x):
    if x.spec.dtype.kind != "complex":
        return (zeros_like(x),)
    # Only the component of g orthogonal to x changes x / |x|.  Where x is 0 the gradient is 0, whatever g is.
    size = abs(x)
    zero = size == 0.0
    size = size + convert_element_type(zero, dtype=size.spec.dtype)
    return (where(zero, 0.0, out * convert_element_type(imag(conj(out) * g) / size, dtype=x.spec.dtype) * 1j),)


@prim(tags=POINTWISE)
def complex(re: Operand, im: Operand) -> TensorSpec:
    """re + i * im, of float32 or float64 operands."""
    out = same(re, im, kinds=FLOAT)
    require_dtype(out.dtype.bytes >= 4, "expected float32 or float64 parts, got {}", out)
    return dense(*(x for x in (re, im) if type(x) is TensorSpec), dtype=COMPLEX_OF[out.dtype])


@complex.vjp
def complex_vjp(g, out, re, im):
    return real(g), imag(g)
