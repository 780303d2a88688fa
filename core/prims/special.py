"""Special functions of one real tensor."""

from __future__ import annotations

from dovetail.errors import require
from dovetail.prims.elementary import exp
from dovetail.prims.op import prim
from dovetail.prims.spec import TensorSpec
from dovetail.prims.unary import FLOAT, POINTWISE, of_kind

TWO_OVER_SQRT_PI = 1.1283791670955126
SQRT_2_PI = 2.5066282746310002


@prim(tags=POINTWISE)
def erf(x: TensorSpec) -> TensorSpec:
    """The Gauss error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    return of_kind(x, FLOAT)


@erf.vjp
def erf_vjp(g, out, x):
    return (g * exp(-(x * x)) * TWO_OVER_SQRT_PI,)


@prim(tags=POINTWISE)
def erfc(x: TensorSpec) -> TensorSpec:
    """1 - erf(x), exact to rounding for large x."""
    return of_kind(x, FLOAT)


@erfc.vjp
def erfc_vjp(g, out, x):
    return (g * exp(-(x * x)) * -TWO_OVER_SQRT_PI,)


@prim(tags=POINTWISE)
def erfinv(x: TensorSpec) -> TensorSpec:
    """The number whose erf is x; infinite at -1 and 1, NaN outside."""
    return of_kind(x, FLOAT)


@erfinv.vjp
def erfinv_vjp(g, out, x):
    return (g * exp(out * out) * (1.0 / TWO_OVER_SQRT_PI),)


@prim(tags=POINTWISE)
def ndtri(x: TensorSpec) -> TensorSpec:
    """The quantile of the standard normal distribution at probability x."""
    return of_kind(x, FLOAT)


@ndtri.vjp
def ndtri_vjp(g, out, x):
    return (g * exp(out * out * 0.5) * SQRT_2_PI,)


@prim(tags=POINTWISE)
def lgamma(x: TensorSpec) -> TensorSpec:
    """log |gamma(x)|."""
    return of_kind(x, FLOAT)


@lgamma.vjp
def lgamma_vjp(g, out, x):
    return (g * digamma(x),)


@prim(tags=POINTWISE)
def digamma(x: TensorSpec) -> TensorSpec:
    """The derivative of lgamma."""
    return of_kind(x, FLOAT)


@digamma.vjp
def digamma_vjp(g, out, x):
    return (g * polygamma(x, n=1),)


@prim(tags=POINTWISE)
def polygamma(x: TensorSpec, *, n: int) -> TensorSpec:
    """The derivative of order n of digamma."""
    require(n >= 0, "polygamma: expected an order that is not negative, got {}", n)
    return of_kind(x, FLOAT)


@polygamma.vjp
def polygamma_vjp(g, out, x, *, n):
    return (g * polygamma(x, n=n + 1),)
