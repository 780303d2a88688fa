"""Elementary functions of one tensor: powers, logarithms, circles and hyperbolas.  Complex ones are differentiated as f'(x) conjugated."""

from __future__ import annotations

from dovetail.prims.op import prim
from dovetail.prims.spec import TensorSpec
from dovetail.prims.unary import POINTWISE, conjugated, inexact

LN_2 = 0.6931471805599453
LN_10 = 2.302585092994046


@prim(tags=POINTWISE)
def sqrt(x: TensorSpec) -> TensorSpec:
    """The square root."""
    return inexact(x)


@sqrt.vjp
def sqrt_vjp(g, out, x):
    return (g / (conjugated(out) * 2.0),)


@prim(tags=POINTWISE)
def rsqrt(x: TensorSpec) -> TensorSpec:
    """1 / sqrt(x)."""
    return inexact(x)


@rsqrt.vjp
def rsqrt_vjp(g, out, x):
    return (g * conjugated(out * out * out) * -0.5,)


@prim(tags=POINTWISE)
def exp(x: TensorSpec) -> TensorSpec:
    """e to the power of x."""
    return inexact(x)


@exp.vjp
def exp_vjp(g, out, x):
    return (g * conjugated(out),)


@prim(tags=POINTWISE)
def exp2(x: TensorSpec) -> TensorSpec:
    """2 to the power of x."""
    return inexact(x)


@exp2.vjp
def exp2_vjp(g, out, x):
    return (g * conjugated(out) * LN_2,)


@prim(tags=POINTWISE)
def expm1(x: TensorSpec) -> TensorSpec:
    """exp(x) - 1, exact to rounding near 0."""
    return inexact(x)


@expm1.vjp
def expm1_vjp(g, out, x):
    return (g * conjugated(out + 1.0),)


@prim(tags=POINTWISE)
def log(x: TensorSpec) -> TensorSpec:
    """The natural logarithm."""
    return inexact(x)


@log.vjp
def log_vjp(g, out, x):
    return (g / conjugated(x),)


@prim(tags=POINTWISE)
def log2(x: TensorSpec) -> TensorSpec:
    """The logarithm to base 2."""
    return inexact(x)


@log2.vjp
def log2_vjp(g, out, x):
    return (g / (conjugated(x) * LN_2),)


@prim(tags=POINTWISE)
def log10(x: TensorSpec) -> TensorSpec:
    """The logarithm to base 10."""
    return inexact(x)


@log10.vjp
def log10_vjp(g, out, x):
    return (g / (conjugated(x) * LN_10),)


@prim(tags=POINTWISE)
def log1p(x: TensorSpec) -> TensorSpec:
    """log(1 + x), exact to rounding near 0."""
    return inexact(x)


@log1p.vjp
def log1p_vjp(g, out, x):
    return (g / conjugated(x + 1.0),)


@prim(tags=POINTWISE)
def sin(x: TensorSpec) -> TensorSpec:
    """Sine of each element, in radians."""
    return inexact(x)


@sin.vjp
def sin_vjp(g, out, x):
    return (g * conjugated(cos(x)),)


@prim(tags=POINTWISE)
def cos(x: TensorSpec) -> TensorSpec:
    """Cosine of each element, in radians."""
    return inexact(x)


@cos.vjp
def cos_vjp(g, out, x):
    return (-g * conjugated(sin(x)),)


@prim(tags=POINTWISE)
def tan(x: TensorSpec) -> TensorSpec:
    """Tangent of each element, in radians."""
    return inexact(x)


@tan.vjp
def tan_vjp(g, out, x):
    return (g * conjugated(out * out + 1.0),)


@prim(tags=POINTWISE)
def asin(x: TensorSpec) -> TensorSpec:
    """The angle in [-pi/2, pi/2] whose sine is x."""
    return inexact(x)


@asin.vjp
def asin_vjp(g, out, x):
    return (g * conjugated(rsqrt(1.0 - x * x)),)


@prim(tags=POINTWISE)
def acos(x: TensorSpec) -> TensorSpec:
    """The angle in [0, pi] whose cosine is x."""
    return inexact(x)


@acos.vjp
def acos_vjp(g, out, x):
    return (-g * conjugated(rsqrt(1.0 - x * x)),)


@prim(tags=POINTWISE)
def atan(x: TensorSpec) -> TensorSpec:
    """The angle in (-pi/2, pi/2) whose tangent is x."""
    return inexact(x)


@atan.vjp
def atan_vjp(g, out, x):
    return (g / conjugated(x * x + 1.0),)


@prim(tags=POINTWISE)
def sinh(x: TensorSpec) -> TensorSpec:
    """Hyperbolic sine."""
    return inexact(x)


@sinh.vjp
def sinh_vjp(g, out, x):
    return (g * conjugated(cosh(x)),)


@prim(tags=POINTWISE)
def cosh(x: TensorSpec) -> TensorSpec:
    """Hyperbolic cosine."""
    return inexact(x)


@cosh.vjp
def cosh_vjp(g, out, x):
    return (g * conjugated(sinh(x)),)


@prim(tags=POINTWISE)
def tanh(x: TensorSpec) -> TensorSpec:
    """Hyperbolic tangent."""
    return inexact(x)


@tanh.vjp
def tanh_vjp(g, out, x):
    if x.spec.dtype.kind == "complex":
        return (g * conjugated(1.0 - out * out),)
    return (g * ((1.0 - out) * (1.0 + out)),)  # 1 - out * out, as exact near 1 and -1 as eager's, which rounds that once


@prim(tags=POINTWISE)
def asinh(x: TensorSpec) -> TensorSpec:
    """The number whose hyperbolic sine is x."""
    return inexact(x)


@asinh.vjp
def asinh_vjp(g, out, x):
    return (g * conjugated(rsqrt(x * x + 1.0)),)


@prim(tags=POINTWISE)
def acosh(x: TensorSpec) -> TensorSpec:
    """The number, not negative, whose hyperbolic cosine is x."""
    return inexact(x)


@acosh.vjp
def acosh_vjp(g, out, x):
    if x.spec.dtype.kind == "complex":
        return (g * conjugated(rsqrt(x - 1.0) * rsqrt(x + 1.0)),)
    return (g * rsqrt((x - 1.0) * (x + 1.0) + 0.0),)  # one root, of 0.0 and not -0.0: PyTorch's gradient is a number below -1 too


@prim(tags=POINTWISE)
def atanh(x: TensorSpec) -> TensorSpec:
    """The number whose hyperbolic tangent is x."""
    return inexact(x)


@atanh.vjp
def atanh_vjp(g, out, x):
    return (g / conjugated(1.0 - x * x),)


@prim(tags=POINTWISE)
def sigmoid(x: TensorSpec) -> TensorSpec:
    """1 / (1 + exp(-x))."""
    return inexact(x)


@sigmoid.vjp
def sigmoid_vjp(g, out, x):
    return (g * conjugated((1.0 - out) * out),)
