"""Binary cross entropy: of probabilities, and of logits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.activation import log_sigmoid
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.elementwise import cotangent, in_wide
from dovetail.langs.torch.loss import of_elements, reduction_of, require_castable, require_float_loss

LEAST = 9.999999960041972e-13  # of a divisor: 1e-12 in float32, which PyTorch's kernels have for every dtype
LOGITS_OPTIONS = ("weight", "size_average", "reduce", "reduction", "pos_weight")  # what may follow input and target by position


@torchsymbol("torch.nn.functional.binary_cross_entropy")
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
):
    """-(target * log(input) + (1 - target) * log(1 - input)), the logarithms no less than -100.

    Whether input lies in [0, 1] depends on values, and is checked where torch itself runs the operation.
    """
    mode = reduction_of(reduction, size_average, reduce)
    _require_same_size(input, target)
    for x in (target, *([weight] if weight is not None else [])):
        require(x.spec.dtype is input.spec.dtype, "expected the dtype of input, {}, got {}; convert it first", input.spec.dtype.short, x.spec)

    def compute(x: Any, t: Any, *weight: Any) -> Any:
        rest = core.mul(core.sub(t, 1.0), _bounded_log(core.log1p, core.neg(x), -1.0))
        return _times_all(core.sub(rest, core.mul(t, _bounded_log(core.log, x, 0.0))), weight)

    return of_elements(compute, mode, input, target, *([] if weight is None else [weight]))


@binary_cross_entropy.vjp
def binary_cross_entropy_vjp(g: Any, out: Any, input: Any, target: Any, *rest: Any, **options: Any) -> tuple:
    """g * (input - target) / (input * (1 - input)), the divisor no less than 1e-12; for the target g * log((1 - input) / input)."""
    options |= dict(zip(("weight", "size_average", "reduce", "reduction"), rest))
    weight, share = options.get("weight"), _share(g, input, options)

    def slope(g: Any, x: Any, t: Any, *weight: Any) -> Any:
        divisor = core.mul(x, core.sub(1.0, x))
        divisor = core.where(core.lt(divisor, LEAST), LEAST, divisor)
        return _times_all(core.mul(g, core.div(core.sub(x, t), divisor)), weight)

    def odds(g: Any, x: Any, *weight: Any) -> Any:
        return _times_all(core.mul(g, core.sub(core.log1p(core.neg(x)), core.log(x))), weight)

    weights = [] if weight is None else [weight]
    gx = cotangent(in_wide(slope, share, input, target, *weights), input)
    return gx, cotangent(in_wide(odds, share, input, *weights), target), *(None for _ in rest)


def _require_same_size(input: Any, target: Any) -> None:
    same = input.spec.shape == target.spec.shape
    require(same, "expected a target of the size of input, got {} and {}", target.spec, input.spec, error=ValueError)


def _share(g: Any, input: Any, options: dict[str, Any]) -> Any:
    """Return the cotangent of each element's loss, from that of the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the operation has warned already
        mode = reduction_of(options.get("reduction", "mean"), options.get("size_average"), options.get("reduce"))
    return core.div(g, max(input.spec.numel, 1)) if mode == "mean" else g


def _bounded_log(log: Callable, x: Any, pole: float) -> Any:
    """log(x), no less than -100; at the pole a number, so that no gradient is infinite there."""
    at = core.eq(x, pole)
    value = log(core.where(at, 0.5, x))
    return core.where(core.bitwise_or(at, core.lt(value, -100.0)), -100.0, value)


def _times_all(x: Any, factors: Any) -> Any:
    for factor in factors:
        x = core.mul(x, factor)
    return x


@torchsymbol("torch.nn.functional.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
):
    """The binary cross entropy of sigmoid(input), without overflow; `pos_weight` multiplies what positive targets cost."""
    mode = reduction_of(reduction, size_average, reduce)
    _require_same_size(input, target)
    require_float_loss(input)
    require_castable(target, input)

    def compute(x: Any, t: Any, *weights: Any) -> Any:
        p, factors = (weights[-1], weights[:-1]) if pos_weight is not None else (None, weights)
        return _times_all(_cost_of_logits(x, t, p), factors)

    loss = of_elements(compute, mode, input, target, *[w for w in (weight, pos_weight) if w is not None])
    return core.convert(loss, target.spec.dtype)


def _positive_share(t: Any, p: Any) -> Any:
    """1 + (p - 1) * t: how much the logarithm of the sigmoid counts where positive targets count p."""
    return core.add(core.mul(core.sub(p, 1.0), t), 1.0)


def _cost_of_logits(x: Any, t: Any, p: Any) -> Any:
    """(1 - t) * x - v * log(sigmoid(x)) with v = 1 + (p - 1) * t."""
    cost = core.neg(log_sigmoid(x))
    return core.add(core.mul(core.sub(1.0, t), x), cost if p is None else core.mul(cost, _positive_share(t, p)))


@binary_cross_entropy_with_logits.vjp
def binary_cross_entropy_with_logits_vjp(g: Any, out: Any, input: Any, target: Any, *rest: Any, **options: Any) -> tuple:
    """g * (v * sigmoid(input) - p * target) with p = pos_weight and v = 1 + (p - 1) * target.

    The difference keeps its digits where input is far below 0; that of 1 - target and sigmoid(-input) has none left.
    """
    options |= dict(zip(LOGITS_OPTIONS, rest))
    weight, pos_weight = options.get("weight"), options.get("pos_weight")
    share = _share(g, input, options)
    weights = [] if weight is None else [weight]
    positives = [] if pos_weight is None else [pos_weight]

    def slope(g: Any, x: Any, t: Any, *factors: Any) -> Any:
        s, (p, factors) = core.sigmoid(x), _last(factors, positives)
        value = core.sub(s, t) if p is None else core.sub(core.mul(_positive_share(t, p), s), core.mul(p, t))
        return core.mul(g, _times_all(value, factors))

    def of_target(g: Any, x: Any, *factors: Any) -> Any:
        p, factors = _last(factors, positives)
        value = x if p is None else core.add(core.mul(core.sub(p, 1.0), log_sigmoid(x)), x)
        return core.mul(g, _times_all(core.neg(value), factors))

    def of_pos_weight(g: Any, x: Any, t: Any, *factors: Any) -> Any:
        return core.mul(g, _times_all(core.neg(core.mul(t, log_sigmoid(x))), factors))

    def of_weight(g: Any, x: Any, t: Any, *factors: Any) -> Any:
        return core.mul(g, _cost_of_logits(x, t, _last(factors, positives)[0]))

    gx = cotangent(in_wide(slope, share, input, target, *weights, *positives), input)
    gt = cotangent(in_wide(of_target, share, input, *weights, *positives), target)
    grads = {}
    if weight is not None:
        grads["weight"] = cotangent(in_wide(of_weight, share, input, target, *positives), weight)
    if pos_weight is not None:
        grads["pos_weight"] = cotangent(in_wide(of_pos_weight, share, input, target, *weights), pos_weight)
    return gx, gt, *[grads.get(name) for name in LOGITS_OPTIONS[: len(rest)]]


def _last(factors: tuple, positives: list) -> tuple[Any, tuple]:
    """Return (pos_weight, the other factors), whose last it is where there is one."""
    return (factors[-1], factors[:-1]) if positives else (None, factors)
