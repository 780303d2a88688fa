"""Special functions of each element: error and gamma functions, entropy, stable sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import TO_TORCH
from dovetail.langs.torch.binding.opaque import differentiate_by_autograd
from dovetail.langs.torch.binding.symbol import Number, Tensor, torchsymbol
from dovetail.langs.torch.elementwise import cotangent, in_joint_layout, in_wide, is_bool, require_float, row_major, symbols
from dovetail.prims.unary import conjugated
from dovetail.torch_internals import no_torch_function

SQRT_HALF = math.sqrt(0.5)

symbols(("sigmoid expit", "erf", "erfc", "erfinv", "ndtri", "lgamma gammaln", "digamma psi"))


@torchsymbol("torch.polygamma", "torch.special.polygamma", in_place=False)
def polygamma(n: int, input: Tensor):
    """The derivative of order n of digamma."""
    return _polygamma(n, input)


@torchsymbol(methods=("polygamma",))
def polygamma_method(self: Tensor, n: int):
    """The derivative of order n of digamma."""
    return _polygamma(n, self)


def _polygamma(n: int, x: Any) -> Any:
    require(n >= 0, "polygamma: expected an order that is not negative, got {}", n)
    return prims.polygamma(core.convert(x, core.inexact_of(x.spec.dtype)), n=n) if n else core.digamma(x)


@torchsymbol("torch.mvlgamma", "torch.special.multigammaln", methods=("mvlgamma",))
def mvlgamma(input: Tensor, p: int):
    """The logarithm of the gamma function of dimension p: the sum of lgamma(input - j / 2) for j < p, and p * (p - 1) / 4 * log(pi)."""
    require(p >= 1, "p has to be greater than or equal to 1, got {}", p)

    require_dtype(not is_bool(input), "the input tensor may not be a boolean tensor, got {}; convert it first", input.spec)

    def compute(x: Any) -> Any:
        total = core.lgamma(core.add(x, 0.0))  # 0.0 for -0.0, whose digamma has the other sign
        for j in range(1, p):
            total = core.add(total, core.lgamma(core.sub(x, j / 2)))
        return core.add(total, p * (p - 1) / 4 * math.log(math.pi))

    return in_wide(compute, row_major(input))


@torchsymbol("torch.special.zeta")
def zeta(input: Tensor | Number, other: Tensor | Number):
    """The Hurwitz zeta function: the sum of 1 / (k + other)**input for k = 0, 1, ..."""
    return core.zeta(input, other)


differentiate_by_autograd(zeta)  # which has a derivative for `other` alone


@torchsymbol("torch.special.ndtr")
def ndtr(input: Tensor):
    """The probability that a standard normal variable is at most input."""
    return in_wide(lambda x: core.mul(core.erfc(core.mul(x, -SQRT_HALF)), 0.5), input)


@torchsymbol("torch.special.entr")
def entr(input: Tensor):
    """-input * log(input), 0 at 0 and minus infinity below."""

    def compute(x: Any) -> Any:
        inside = core.gt(x, 0.0)
        value = core.neg(core.mul(x, core.log(core.where(inside, x, 1.0))))
        outside = core.where(core.isnan(x), x, core.where(core.eq(x, 0.0), 0.0, -math.inf))
        return core.where(inside, value, outside)

    return in_wide(compute, input)


@entr.vjp
def entr_vjp(g: Any, out: Any, input: Any) -> tuple:
    """g * (-log(input) - 1): infinite at 0, NaN below."""
    return (in_wide(lambda g, x: core.mul(g, core.sub(core.neg(core.log(x)), 1.0)), g, input),)


@torchsymbol("torch.xlogy", "torch.special.xlogy", methods=("xlogy",))
def xlogy(input: Tensor | Number, other: Tensor | Number):
    """input * log(other), 0 where input is 0 and other is not NaN."""
    _require_real(input, other)
    value = in_wide(lambda x, y: _zero_first(x, y, core.log(y)), input, tensor_of(other, input))
    return in_joint_layout(value, input, other)


@xlogy.vjp
def xlogy_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g * log(other), 0 where g is 0, or input is 0 and other is not positive; g * input / other."""
    return _log_product_vjp(g, input, other, core.log, 0.0)


@torchsymbol("torch.special.xlog1py")
def xlog1py(input: Tensor | Number, other: Tensor | Number):
    """input * log1p(other), 0 where input is 0 and other is not NaN."""
    _require_real(input, other)
    value = in_wide(lambda x, y: _zero_first(x, y, core.log1p(y)), input, tensor_of(other, input))
    return in_joint_layout(value, input, other)


@xlog1py.vjp
def xlog1py_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g * log1p(other), 0 where g is 0, or input is 0 and other is -1 at most; g * input / (other + 1)."""
    return _log_product_vjp(g, input, other, core.log1p, -1.0)


def _require_real(input: Tensor | Number, other: Tensor | Number) -> None:
    real = core.promote(input, other).kind != "complex"
    require_dtype(real, "expected real arguments, got {} and {}; convert them to a real dtype", input, other)


def _zero_first(x: Any, y: Any, log: Any) -> Any:
    """x * log, and 0 where x is 0 whatever the logarithm is; NaN where y is NaN."""
    product = core.mul(x, log)
    if isinstance(x, Tensor):
        return core.where(core.bitwise_and(core.eq(x, 0.0), core.eq(y, y)), 0.0, product)
    return product if x != 0 else core.where(core.isnan(y), y, 0.0)


def _log_product_vjp(g: Any, input: Any, other: Any, log: Any, pole: float) -> tuple:
    """Return the cotangents of input * log(other), where log(`pole`) is infinite."""

    def of_input(g: Any, x: Any, y: Any) -> Any:
        settled = core.bitwise_and(core.eq(x, 0.0), core.le(y, pole))
        return core.where(settled, 0.0, _zero_first(g, y, log(y)))

    def of_other(g: Any, x: Any, y: Any) -> Any:
        return core.div(core.mul(g, x), core.sub(y, pole) if pole else y)

    other_tensor = tensor_of(other, input)
    first = cotangent(in_wide(of_input, g, input, other_tensor), input) if isinstance(input, Tensor) else None
    return first, cotangent(in_wide(of_other, g, input, other_tensor), other) if isinstance(other, Tensor) else None


def tensor_of(x: Any, like: Any) -> Any:
    """Return x, or a 0-d tensor for a number, on the device of the tensor `like`."""
    if isinstance(x, Tensor):
        return x
    dtype = core.inexact_of(core.promote(like, x))
    return prims.full(shape=(), value=core.fit(x, (), dtype), dtype=dtype, device=like.spec.device)


@torchsymbol("torch.logit", "torch.special.logit", methods=("logit",))
def logit(input: Tensor, eps: float | None = None):
    """log(input / (1 - input)), of input bounded to [eps, 1 - eps] where eps is given."""
    require_float(input, "int", "bool")
    low, high = _bounds(input, eps)

    def compute(x: Any) -> Any:
        if eps is not None:
            x = core.where(core.lt(x, low), low, core.where(core.gt(x, high), high, x))
        return core.log(core.div(x, core.sub(1.0, x)))

    return in_wide(compute, input)


def _bounds(input: Tensor, eps: float | None) -> tuple[float, float]:
    """Return eps and 1 - eps, rounded to the dtype of the input as eager mode does: 1 - 0.001 is 1 in bfloat16."""
    if not isinstance(eps, float):
        return (0.0, 1.0) if eps is None else (eps, 1 - eps)
    with no_torch_function():
        low = torch.tensor(eps, dtype=TO_TORCH[core.inexact_of(input.spec.dtype)], device="cpu")
        return low.item(), (1 - low).item()


@logit.vjp
def logit_vjp(g: Any, out: Any, input: Any, eps: float | None = None) -> tuple:
    """g / (input * (1 - input)): NaN outside [0, 1], and 0 where `eps` bounds input."""
    low, high = _bounds(input, eps)

    def compute(g: Any, x: Any) -> Any:
        beyond = math.nan if eps is None else 0.0
        inside = core.bitwise_and(core.ge(x, low), core.le(x, high))
        return core.where(inside, core.div(g, core.mul(x, core.sub(1.0, x))), beyond)

    return (in_wide(compute, g, input), None)[: 1 if eps is None else 2]


SINC_SLOPE = tuple((-1) ** n * 2 * n / math.factorial(2 * n + 1) for n in range(1, 8))  # of t**(2 * n - 1): the derivative of sin(t) / t


@torchsymbol("torch.sinc", "torch.special.sinc", methods=("sinc",))
def sinc(input: Tensor):
    """sin(pi * input) / (pi * input), and 1 at 0."""

    def compute(x: Any) -> Any:
        zero = core.eq(x, 0.0)
        turns = core.mul(core.where(zero, 1.0, x), math.pi)
        return core.where(zero, 1.0, core.div(core.sin(turns), turns))

    return in_wide(compute, input)


@sinc.vjp
def sinc_vjp(g: Any, out: Any, input: Any) -> tuple:
    """g * (cos(t) * t - sin(t)) / (t * input) with t = pi * input, 0 where the divisor is; in float32, small t by the series."""

    def compute(g: Any, x: Any) -> Any:
        turns = core.mul(x, math.pi)
        square = core.mul(turns, x)
        flat = core.eq(square, 0.0)
        slope = core.div(core.sub(core.mul(core.cos(turns), turns), core.sin(turns)), core.where(flat, 1.0, square))
        if x.spec.dtype.kind == "complex":
            slope = core.conj(slope)
        elif x.spec.dtype is dtypes.float32:
            slope = core.where(core.lt(core.abs(turns), 0.5), core.mul(_series(turns, SINC_SLOPE), math.pi), slope)
        return core.where(flat, 0.0, core.mul(g, slope))

    return (in_wide(compute, g, input),)


def _series(x: Any, coefficients: Sequence[float]) -> Any:
    """c[0] * x + c[1] * x**3 + c[2] * x**5 + ..."""
    square, total = core.mul(x, x), coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = core.add(core.mul(square, total), coefficient)
    return core.mul(x, total)


@torchsymbol("torch.logaddexp", methods=("logaddexp",))
def logaddexp(input: Tensor, other: Tensor):
    """log(exp(input) + exp(other)), without overflow."""
    require_dtype(core.promote(input, other).inexact, "expected floating tensors, got {} and {}; convert one", input.spec, other.spec)
    return in_wide(_logaddexp_complex if core.promote(input, other).kind == "complex" else _logaddexp, input, other)


@logaddexp.vjp
def logaddexp_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g / (1 + exp(other - input)), and the other way round."""
    return _shares(core.exp, g, input, other)


def _shares(power: Any, g: Any, a: Any, b: Any) -> tuple:
    """Split g by the shares of two powers in their sum."""

    def share(g: Any, x: Any, y: Any) -> Any:
        return core.div(g, conjugated(core.add(power(core.sub(y, x)), 1.0)))

    return cotangent(in_wide(share, g, a, b), a), cotangent(in_wide(share, g, b, a), b)


def _logaddexp(a: Any, b: Any, power: Any = core.exp, unit: float = 1.0) -> Any:
    """Return the logarithm of power(a) + power(b) to the base of `power`; `unit` is one over the natural logarithm of the base."""
    large = core.maximum(a, b)
    settled = core.bitwise_and(core.isinf(a), core.eq(a, b))
    apart = core.where(settled, 0.0, core.sub(core.minimum(a, b), large))
    rest = core.log1p(power(apart))
    return core.where(settled, a, core.add(large, rest if unit == 1.0 else core.mul(rest, unit)))


def _logaddexp_complex(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)) of complex numbers, computed from the one with the larger real part."""
    real = prims.real(a), prims.real(b)
    first = core.ge(*real)
    settled = core.bitwise_and(core.isinf(real[0]), core.eq(*real))
    large, small = core.where(first, a, b), core.where(first, b, a)
    apart = core.where(settled, 0.0, core.sub(small, large))
    return core.where(settled, a, core.add(large, core.log(core.add(core.exp(apart), 1.0))))


@torchsymbol("torch.logaddexp2", methods=("logaddexp2",))
def logaddexp2(input: Tensor, other: Tensor):
    """log2(2**input + 2**other), without overflow."""
    kind = core.promote(input, other).kind
    require_dtype(kind == "float", "expected floating tensors, got {} and {}; convert one", input.spec, other.spec)
    return in_wide(lambda a, b: _logaddexp(a, b, core.exp2, 1 / math.log(2)), input, other)


@logaddexp2.vjp
def logaddexp2_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g / (1 + 2**(other - input)), and the other way round."""
    return _shares(core.exp2, g, input, other)
