"""Activations: functions of each element that networks put between layers.

Branches are selected with `where`, and each branch gets safe arguments where the other one is selected: the gradient of an unselected
branch must be 0, not 0 times infinity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from dovetail import prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import TABLE, Number, Tensor, resolve, torchsymbol, write
from dovetail.langs.torch.comparison import above, stored_bounds
from dovetail.langs.torch.elementwise import in_wide, is_one, require_float, row_major
from dovetail.prims.unary import conjugated
from dovetail.torch_internals import ATEN, C_NN, clamp_saturates

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def _placed(x: Any, value: Any, inplace: bool) -> Any:
    """Return `value`, or x with `value` written into it."""
    if not inplace:
        return value
    write(x, value)
    return x


def floating(compute: Callable[..., Any], x: Any, *more: Any) -> Any:
    """compute(x, *more), of floating tensors alone, in float32 where they are narrower."""
    require_float(x)
    return in_wide(compute, x, *more)


def _relu(x: Any) -> Any:
    require_float(x, "int")
    zero = core.fit(0, (), x.spec.dtype)
    return core.where(core.lt(x, zero), zero, x)  # keeps -0.0 and NaN


def _masked(g: Any, x: Any, rest: tuple, keep: Any) -> tuple:
    """Return the cotangents of x and of the arguments after it: g where `keep`, else 0."""
    return (core.where(keep, g, 0.0), *(None for _ in rest))


def _strictly_within(x: Any, low: float, high: float) -> Any:
    return core.bitwise_and(core.gt(x, low), core.lt(x, high))


@torchsymbol("torch.relu", methods=("relu",))
def relu(input: Tensor):
    """The larger of input and 0; its gradient at 0 is 0."""
    return _relu(input)


@torchsymbol("torch.nn.functional.relu", in_place=False)
def relu_function(input: Tensor, inplace: bool = False):
    """The larger of input and 0; its gradient at 0 is 0."""
    return _placed(input, relu_function(input) if inplace else _relu(input), inplace)


@relu.vjp
@relu_function.vjp
def relu_vjp(g: Any, out: Any, input: Any, *rest: Any, **_: Any) -> tuple:
    """g where the result is positive or NaN."""
    return (core.where(core.le(out, 0.0), 0.0, g), *(None for _ in rest))


def _hardtanh(x: Any, low: Any, high: Any) -> Any:
    require_float(x, "int")
    dtype = x.spec.dtype
    bounded = low >= 0 or dtype.signed or clamp_saturates()
    require(bounded, "cannot bound an unsigned type below by {}, got {}; convert it first", low, x.spec)
    low, high = stored_bounds(low, high, dtype)
    return core.where(core.lt(x, low), low, core.where(core.gt(x, high), high, x))


@torchsymbol("torch.nn.functional.hardtanh")
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
    """input bounded to [min_val, max_val]; its gradient at the bounds is 0."""
    require(min_val <= max_val, "expected min_val no greater than max_val, got {} and {}", min_val, max_val, error=ValueError)
    return _placed(input, hardtanh(input, min_val, max_val) if inplace else _hardtanh(input, min_val, max_val), inplace)


@torchsymbol("torch.nn.functional.relu6")
def relu6(input: Tensor, inplace: bool = False):
    """input bounded to [0, 6]; its gradient at the bounds is 0."""
    return _placed(input, relu6(input) if inplace else _hardtanh(input, 0, 6), inplace)


@hardtanh.vjp
def hardtanh_vjp(g: Any, out: Any, input: Any, *rest: Any, min_val: float = -1.0, max_val: float = 1.0, **_: Any) -> tuple:
    """g strictly between the bounds."""
    low, high = (*rest, *(min_val, max_val)[len(rest) :])[:2]
    return _masked(g, input, rest, _strictly_within(input, low, high))


@relu6.vjp
def relu6_vjp(g: Any, out: Any, input: Any, *rest: Any, **_: Any) -> tuple:
    """g strictly between 0 and 6."""
    return _masked(g, input, rest, _strictly_within(input, 0.0, 6.0))


@torchsymbol("torch.nn.functional.threshold")
def threshold_function(input: Tensor, threshold: Number, value: Number, inplace: bool = False):
    """input where it lies above the threshold, else `value`."""
    return _placed(input, above(input, threshold, value), inplace)


def _elu(x: Any, alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """scale * x where x is positive, else scale * alpha * (exp(x * input_scale) - 1)."""

    def compute(x: Any) -> Any:
        positive = core.gt(x, 0.0)
        low = core.mul(core.expm1(_times(core.where(positive, 0.0, x), input_scale)), alpha * scale)
        return core.where(positive, _times(x, scale), low)

    return floating(compute, x)


def _times(x: Any, factor: float) -> Any:
    return x if is_one(factor) else core.mul(x, factor)


def _elu_slope(g: Any, x: Any, rest: tuple, alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> tuple:
    """g times the slope of `_elu`, whose exponential is computed anew: that of expm1 has no digits left where x is far below 0."""

    def compute(g: Any, x: Any) -> Any:
        positive = core.gt(x, 0.0)
        low = core.mul(core.exp(_times(core.where(positive, 0.0, x), input_scale)), alpha * scale * input_scale)
        return core.mul(g, core.where(positive, scale, low))

    return (in_wide(compute, g, x), *(None for _ in rest))


@torchsymbol("torch.nn.functional.elu")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False):
    """input where it is positive, else alpha * (exp(input) - 1)."""
    return _placed(input, elu(input, alpha) if inplace else _elu(input, alpha), inplace)


@elu.vjp
def elu_vjp(g: Any, out: Any, input: Any, *rest: Any, alpha: float = 1.0, **_: Any) -> tuple:
    """g where input is positive, else g * alpha * exp(input)."""
    return _elu_slope(g, input, rest, rest[0] if rest else alpha)


@torchsymbol("torch.nn.functional.selu", "torch.selu")
def selu(input: Tensor, inplace: bool = False):
    """1.0507 * (input where it is positive, else 1.6733 * (exp(input) - 1))."""
    return _placed(input, selu(input) if inplace else _elu(input, SELU_ALPHA, SELU_SCALE), inplace)


@selu.vjp
def selu_vjp(g: Any, out: Any, input: Any, *rest: Any, **_: Any) -> tuple:
    """g * 1.0507 * (1 where input is positive, else 1.6733 * exp(input))."""
    return _elu_slope(g, input, rest, SELU_ALPHA, SELU_SCALE)


@torchsymbol("torch.nn.functional.celu", "torch.celu")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False):
    """input where it is positive, else alpha * (exp(input / alpha) - 1)."""
    require(alpha != 0, "celu: expected an alpha that is not 0", error=RuntimeError)
    return _placed(input, celu(input, alpha) if inplace else _elu(input, alpha, 1.0, 1.0 / alpha), inplace)


@celu.vjp
def celu_vjp(g: Any, out: Any, input: Any, *rest: Any, alpha: float = 1.0, **_: Any) -> tuple:
    """g where input is positive, else g * exp(input / alpha)."""
    alpha = rest[0] if rest else alpha
    return _elu_slope(g, input, rest, alpha, 1.0, 1.0 / alpha)


@torchsymbol("torch.nn.functional.leaky_relu")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False):
    """input where it is positive, else negative_slope * input."""
    if inplace:
        return _placed(input, leaky_relu(input, negative_slope), True)
    return floating(lambda x: core.where(core.gt(x, 0.0), x, core.mul(x, negative_slope)), input)


@torchsymbol("torch.nn.functional.rrelu", "torch.rrelu")
def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False):
    """input where it is positive, else a slope times input: drawn from [lower, upper] in training, else the middle."""
    require(lower <= upper, "expected lower no greater than upper, got {} and {}", lower, upper)
    require_float(input)

    x = row_major(input)
    if not training:
        middle = (lower + upper) / 2
        return _placed(input, in_wide(lambda x: core.where(core.gt(x, 0.0), x, core.mul(x, middle)), x), inplace)

    def drawn(x: Tensor) -> Tensor:
        slopes = _slopes(x, float(lower), float(upper))
        return core.where(core.le(x, 0.0), core.mul(x, slopes), x)  # NaN has the gradient of what is positive

    return _placed(input, in_wide(drawn, x), inplace)


def _slopes(x: Tensor, lower: float, upper: float) -> Tensor:
    """Draw the slopes of rrelu: PyTorch draws for the elements that are not positive alone, one by one."""
    spec, draw = x.spec, resolve(f"{ATEN}.rrelu_with_noise_functional")
    if draw is None:
        return prims.uniform(shape=spec.shape, low=lower, high=upper, dtype=spec.dtype, device=spec.device)
    blank = prims.full(shape=spec.shape, value=0.0, dtype=spec.dtype, device=spec.device)
    return opaque(draw, (prims.detach(x), blank, lower, upper, True), {})[1]


@torchsymbol("torch.nn.functional.gelu")
def gelu(input: Tensor, *, approximate: str = "none"):
    """input * P(a standard normal variable is below input); `approximate` "tanh" computes that with tanh."""
    require(approximate in ("none", "tanh"), "approximate argument must be either none or tanh, got {!r}", approximate)

    def exact(x: Any) -> Any:
        return core.mul(core.mul(x, 0.5), core.add(core.erf(core.mul(x, math.sqrt(0.5))), 1.0))

    def by_tanh(x: Any) -> Any:
        cube = core.mul(core.mul(x, x), x)
        inner = core.mul(core.add(x, core.mul(cube, 0.044715)), math.sqrt(2 / math.pi))
        return core.mul(core.mul(x, 0.5), core.add(core.tanh(inner), 1.0))

    return floating(exact if approximate == "none" else by_tanh, input)


@torchsymbol("torch.nn.functional.silu")
def silu(input: Tensor, inplace: bool = False):
    """input / (1 + exp(-input)), of complex numbers input * sigmoid(input)."""
    require_float(input, "complex")

    def compute(x: Any) -> Any:  # a sigmoid of -88 is a denormal number, which slows processors down; this quotient is none
        return core.mul(x, core.sigmoid(x)) if x.spec.dtype.kind == "complex" else core.div(x, core.add(core.exp(core.neg(x)), 1.0))

    return _placed(input, silu(input) if inplace else in_wide(compute, input), inplace)


@silu.vjp
def silu_vjp(g: Any, out: Any, input: Any, *rest: Any, **_: Any) -> tuple:
    """g * s * (1 + input * (1 - s)) with s = sigmoid(input): no product of g and input, which may overflow where s is 0 or 1."""

    def compute(g: Any, x: Any) -> Any:
        s = core.sigmoid(x)
        slope = core.mul(s, core.add(core.mul(x, core.sub(1.0, s)), 1.0))
        return core.mul(g, conjugated(slope))

    return (in_wide(compute, g, input), *(None for _ in rest))


@torchsymbol("torch.nn.functional.mish")
def mish(input: Tensor, inplace: bool = False):
    """input * tanh(softplus(input))."""
    return _placed(input, mish(input) if inplace else floating(lambda x: core.mul(x, core.tanh(log1p_exp(x))), input), inplace)


@mish.vjp
def mish_vjp(g: Any, out: Any, input: Any, *rest: Any, **_: Any) -> tuple:
    """g * (t + input * sigmoid(input) * (1 - t**2)) with t = tanh(softplus(input))."""

    def compute(g: Any, x: Any) -> Any:
        t = core.tanh(log1p_exp(x))
        slope = core.add(t, core.mul(core.mul(x, core.sigmoid(x)), core.sub(1.0, core.mul(t, t))))
        return core.mul(g, slope)

    return (in_wide(compute, g, input), *(None for _ in rest))


def log1p_exp(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return core.add(core.maximum(x, 0.0), core.log1p(core.exp(core.neg(core.abs(x)))))


@torchsymbol("torch.nn.functional.softplus")
def softplus(input: Tensor, beta: Number = 1, threshold: Number = 20):
    """log(1 + exp(beta * input)) / beta, and input itself where beta * input lies above the threshold."""

    def compute(x: Any) -> Any:
        scaled = _times(x, beta)
        soft = log1p_exp(scaled)
        return core.where(core.gt(scaled, threshold), x, soft if beta == 1 else core.div(soft, beta))

    return floating(compute, input)


@softplus.vjp
def softplus_vjp(g: Any, out: Any, input: Any, *rest: Any, beta: Number = 1, threshold: Number = 20) -> tuple:
    """g * sigmoid(beta * input), and g where beta * input lies above the threshold."""
    beta, threshold = (*rest, *(beta, threshold)[len(rest) :])

    def compute(g: Any, x: Any) -> Any:
        scaled = _times(x, beta)
        return core.where(core.gt(scaled, threshold), g, core.mul(g, core.sigmoid(scaled)))

    return (in_wide(compute, g, input), *(None for _ in rest))


@torchsymbol("torch.nn.functional.logsigmoid")
def logsigmoid(input: Tensor):
    """log(1 / (1 + exp(-input)))."""
    return floating(log_sigmoid, row_major(input))


@logsigmoid.vjp
def logsigmoid_vjp(g: Any, out: Any, input: Any) -> tuple:
    """g * sigmoid(-input)."""
    return (in_wide(lambda g, x: core.mul(g, core.sigmoid(core.neg(x))), g, input),)


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), without overflow."""
    return core.sub(core.minimum(x, 0.0), core.log1p(core.exp(core.neg(core.abs(x)))))


@torchsymbol("torch.nn.functional.hardsigmoid")
def hardsigmoid(input: Tensor, inplace: bool = False):
    """(input + 3) / 6, bounded to [0, 1]."""

    def compute(x: Any) -> Any:
        line = core.div(core.add(x, 3.0), 6.0)
        return core.where(core.le(x, -3.0), 0.0, core.where(core.ge(x, 3.0), 1.0, line))

    return _placed(input, hardsigmoid(input) if inplace else floating(compute, input), inplace)


@hardsigmoid.vjp
def hardsigmoid_vjp(g: Any, out: Any, input: Any, *rest: Any, **_: Any) -> tuple:
    """g / 6 strictly between -3 and 3."""
    return _masked(core.div(g, 6.0), input, rest, _strictly_within(input, -3.0, 3.0))


@torchsymbol("torch.nn.functional.hardswish")
def hardswish(input: Tensor, inplace: bool = False):
    """input * (input + 3) / 6 between -3 and 3, 0 below and input above."""

    def compute(x: Any) -> Any:
        curve = core.div(core.mul(x, core.add(x, 3.0)), 6.0)
        return core.where(core.le(x, -3.0), core.mul(x, 0.0), core.where(core.ge(x, 3.0), x, curve))

    return _placed(input, hardswish(input) if inplace else floating(compute, input), inplace)


@hardswish.vjp
def hardswish_vjp(g: Any, out: Any, input: Any, *rest: Any, **_: Any) -> tuple:
    """g * (input / 3 + 1 / 2) between -3 and 3, 0 below and g above."""

    def compute(g: Any, x: Any) -> Any:
        slope = core.mul(g, core.add(core.div(x, 3.0), 0.5))
        return core.where(core.le(x, -3.0), 0.0, core.where(core.ge(x, 3.0), g, slope))

    return (in_wide(compute, g, input), *(None for _ in rest))


@torchsymbol("torch.nn.functional.hardshrink", "torch.hardshrink", methods=("hardshrink",))
def hardshrink(input: Tensor, lambd: Number = 0.5):
    """input, and 0 where it lies in [-lambd, lambd]."""
    require_float(input)
    inside = core.bitwise_and(core.ge(input, -lambd), core.le(input, lambd))
    return core.where(inside, 0.0, input)


@torchsymbol("torch.nn.functional.softshrink")
def softshrink(input: Tensor, lambd: Number = 0.5):
    """input moved towards 0 by lambd, and 0 where it lies in [-lambd, lambd]."""
    require(lambd >= 0, "lambda must be greater or equal to 0, but found to be {}", lambd)

    def compute(x: Any) -> Any:
        low = core.where(core.lt(x, -lambd), core.add(x, lambd), core.mul(x, 0.0))
        return core.where(core.gt(x, lambd), core.sub(x, lambd), low)

    return floating(compute, input)


@hardshrink.vjp
@softshrink.vjp
def shrink_vjp(g: Any, out: Any, input: Any, *rest: Any, lambd: Number = 0.5) -> tuple:
    """g outside [-lambd, lambd]."""
    bound = rest[0] if rest else lambd
    return _masked(g, input, rest, core.bitwise_or(core.lt(input, -bound), core.gt(input, bound)))


@torchsymbol("torch.nn.functional.prelu", "torch.prelu", methods=("prelu",))
def prelu(input: Tensor, weight: Tensor):
    """input where it is positive, else weight * input, with one weight or one for each channel (dimension 1)."""
    x, w = input.spec, weight.spec
    require(x.dtype is w.dtype, "expected a weight of dtype {}, got {}; convert one of them", x.dtype.short, w)
    require(w.rank <= 1, "expected a weight with at most one dimension, got {}", w)
    if w.numel != 1:
        require(x.rank > 0, "expected dimensions in input where weight is {}, got {}; pass a single weight", w, x)
        channels = x.shape[1] if x.rank > 1 else 1
        require(w.numel == channels, "expected one weight for each of {} channels of {}, got {}", channels, x, w)
    if w.rank and x.rank != 1:
        weight = prims.broadcast_in_dim(weight, shape=(1, w.numel, *[1] * (x.rank - 2)), dims=(1,)) if x.rank else prims.squeeze(weight, dims=(0,))
    return floating(lambda x, w: core.mul(x, core.where(core.gt(x, 0.0), 1.0, w)), input, weight)  # no gradient flows to an unused weight


@torchsymbol("torch.nn.functional.glu")
def glu(input: Tensor, dim: int = -1):
    """a * sigmoid(b), a and b being the halves of input along `dim`."""
    spec = input.spec
    require(spec.rank > 0, "glu does not support 0-dimensional tensors; pass one with an even dimension")
    dim = core.canonical_dim(dim, spec.rank)
    size = spec.shape[dim]
    require(size % 2 == 0, "Halving dimension must be even, but dimension {} is size {}", dim, size)
    return floating(_gated, core.sliced(input, dim, 0, size // 2), core.sliced(input, dim, size // 2, size))


def _gated(a: Any, b: Any) -> Any:
    return core.mul(a, core.sigmoid(b))


@glu.vjp
def glu_vjp(g: Any, out: Any, input: Any, *rest: Any, dim: int = -1) -> tuple:
    """(g * s, g * (s * (1 - s) * a)) for the halves (a, b), with s = sigmoid(b)."""
    dim = core.canonical_dim(rest[0] if rest else dim, input.spec.rank)
    size = input.spec.shape[dim]

    def second(g: Any, a: Any, b: Any) -> Any:
        s = core.sigmoid(b)
        return core.mul(g, core.mul(core.mul(s, core.sub(1.0, s)), a))

    a, b = core.sliced(input, dim, 0, size // 2), core.sliced(input, dim, size // 2, size)
    return (prims.cat([in_wide(_gated, g, b), in_wide(second, g, a, b)], dim=dim), *(None for _ in rest))


def _in_place_functions() -> None:
    """Register the in-place functions: torch.nn.functional.elu_(x) is elu(x, inplace=True)."""
    of = (relu6, hardtanh, elu, selu, celu, leaky_relu, rrelu, silu, mish, hardsigmoid, hardswish)
    for name, symbol in (("threshold", threshold_function), *((symbol.name, symbol) for symbol in of)):
        for space in ("torch", "torch.nn.functional", C_NN):
            if (fn := resolve(f"{space}.{name}_")) is not None:
                TABLE[fn] = functools.partial(symbol, inplace=True)


_in_place_functions()
