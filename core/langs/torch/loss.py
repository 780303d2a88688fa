"""Losses: how far predictions are from targets, element by element, and reduced to their mean or sum."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Number, Tensor, torchsymbol
from dovetail.langs.torch.comparison import clamp_min
from dovetail.langs.torch.elementwise import sub
from dovetail.langs.torch.special import xlogy
from dovetail.langs.torch.vector_norm import vector_norm
from dovetail.prims.sizes import float_of


def reduction_of(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """Return "none", "mean" or "sum", from `reduction` or from the two deprecated flags where one of them is set."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction={reduction!r} instead.", stacklevel=2)
    require(reduction in ("none", "mean", "sum"), "expected reduction 'none', 'mean' or 'sum', got {!r}", reduction, error=ValueError)
    return reduction


def summed(x: Any, dims: tuple[int, ...]) -> Any:
    """Return the sum over `dims`, of integers in int64."""
    return prims.sum(x if x.spec.dtype.inexact else core.convert(x, dtypes.int64), dims=dims)


def total(x: Any) -> Any:
    """Return the sum of all elements."""
    return summed(x, tuple(range(x.spec.rank)))


def reduced(loss: Any, mode: str) -> Any:
    """Return `loss`, its mean or its sum."""
    if mode == "none":
        return loss
    if mode == "sum":
        return total(loss)
    require_dtype(loss.spec.dtype.inexact, "expected a floating loss to take the mean of, got {}; convert the input first", loss.spec)
    return core.div(total(loss), float_of(loss.spec.numel))


def once_rounded(compute: Callable[..., Any], *operands: Any) -> Any:
    """compute(*operands), of float16 and bfloat16 in float32 and rounded at the end; otherwise in the dtype of the result."""
    dtype = core.promote(*operands)
    wide = core.wide(dtype)
    out = compute(*[core.convert(x, wide) if x.spec.dtype.inexact else x for x in operands])
    return out if wide is dtype else core.convert(out, dtype)


def of_elements(compute: Callable[..., Any], mode: str, *operands: Any) -> Any:
    """compute(*operands) of floating operands, rounded once, reduced."""
    return once_rounded(lambda *wide: reduced(compute(*wide), mode), *operands)


def require_sizes_alike(input: Any, target: Any) -> None:
    """Warn where `input` and `target` are broadcast, as PyTorch does."""
    if input.spec.shape != target.spec.shape:
        sizes = f"({tuple(target.spec.shape)}) that is different to the input size ({tuple(input.spec.shape)})"
        warnings.warn(f"Using a target size {sizes}. This will likely lead to incorrect results due to broadcasting.", stacklevel=3)


def _weighted(compute: Callable[[Any, Any], Any], input: Any, target: Any, weight: Any, mode: str, *, by_weight: bool = True) -> Any:
    """compute(input, target) times `weight`; the mean divides by the sum of the weights, or with by_weight=False by the count."""
    require_sizes_alike(input, target)
    shape = core.broadcast_shapes(input.spec.shape, target.spec.shape)
    operands = core.expand(input, shape), core.expand(target, shape)
    if weight is None:
        return once_rounded(lambda x, t: reduced(compute(x, t), mode), *operands)
    same = weight.spec.shape == input.spec.shape
    require(same, "Weights and input must have the same size, got {} and {}", weight.spec, input.spec, error=ValueError)

    def scaled(x: Any, t: Any, w: Any) -> Any:
        loss = core.mul(compute(x, t), w)
        return core.div(total(loss), total(w)) if mode == "mean" and by_weight else reduced(loss, mode)

    return once_rounded(scaled, *operands, weight)


def _squared(x: Any, t: Any) -> Any:
    d = core.sub(x, t)
    return core.mul(d, d)


def _distance_of(x: Any, t: Any) -> Any:
    return core.abs(core.sub(x, t))


def require_float_loss(*operands: Any) -> None:
    """Raise unless `operands` promote to a floating dtype."""
    dtype = core.promote(*operands)
    require_dtype(dtype.kind == "float", "expected floating tensors, got {}; convert one of them", dtype.short)


def require_castable(out: Any, *operands: Any) -> None:
    """Raise unless what `out` and `operands` promote to can be written in the dtype of `out`, as PyTorch's kernel does."""
    source, target = core.promote(out, *operands), out.spec.dtype
    fits = dtypes.rank(source.kind) <= dtypes.rank(target.kind)
    require(fits, "result type {} can't be cast to the desired output type {}; convert one of them", source.short, target.short)


@torchsymbol("torch.nn.functional.mse_loss")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
):
    """(input - target)**2."""
    require_float_loss(input, target)
    return _weighted(_squared, input, target, weight, reduction_of(reduction, size_average, reduce))


@torchsymbol("torch.nn.functional.l1_loss")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
):
    """|input - target|."""
    return _weighted(lambda x, t: core.abs(sub.meta(x, t)), input, target, weight, reduction_of(reduction, size_average, reduce))


def _weight_too(bind: Callable[..., tuple[tuple, dict]]) -> Callable[..., tuple[tuple, dict]]:
    """Extend `bind` by the `weight` of torch.nn.functional.l1_loss, which it does not pass on and is read from its frame."""
    code = getattr(torch.nn.functional.l1_loss, "__code__", None)

    def bound(*args: Any, **kwargs: Any) -> tuple[tuple, dict]:
        args, kwargs = bind(*args, **kwargs)
        frame = sys._getframe(1)
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        weight = None if frame is None else frame.f_locals.get("weight")
        return args, kwargs if weight is None else kwargs | {"weight": weight}

    return bound


l1_loss._bind = _weight_too(l1_loss.bind)


@torchsymbol("torch.nn.functional.smooth_l1_loss")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
):
    """d = |input - target|: d**2 / (2 * beta) below beta, d - beta / 2 above."""
    require_float_loss(input, target)
    require(beta >= 0, "smooth_l1_loss does not support negative values for beta, got {}", beta)

    def compute(x: Any, t: Any) -> Any:
        d = _distance_of(x, t)
        if not beta:
            return d
        near = core.bitwise_not(core.ge(d, beta))  # NaN too
        small = core.where(near, d, 0.0)  # no square overflows, nor its gradient
        return core.where(near, core.mul(core.mul(small, small), 0.5 / beta), core.sub(d, 0.5 * beta))

    return _weighted(compute, input, target, None, reduction_of(reduction, size_average, reduce))


@torchsymbol("torch.nn.functional.huber_loss")
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None):
    """d = |input - target|: d**2 / 2 up to delta, delta * (d - delta / 2) above."""
    require_float_loss(input)
    require_castable(input, target)
    require(delta > 0, "huber_loss does not support non-positive values for delta, got {}", delta)

    def compute(x: Any, t: Any) -> Any:
        d = _distance_of(x, t)
        near = core.bitwise_not(core.gt(d, delta))  # NaN too
        small = core.where(near, d, 0.0)  # no square overflows, nor its gradient
        return core.where(near, core.mul(core.mul(small, small), 0.5), core.mul(core.sub(d, 0.5 * delta), delta))

    loss = _weighted(compute, input, target, weight, reduction_of(reduction), by_weight=False)
    return core.convert(loss, input.spec.dtype if weight is None else core.promote(input, weight))


@torchsymbol("torch.nn.functional.kl_div")
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
):
    """target * (log(target) - input), of a target that is its own logarithm with `log_target`; "batchmean" divides by the batch."""
    require_float_loss(input)
    require_float_loss(target)
    batch = reduction == "batchmean"
    mode = "sum" if batch and size_average is None and reduce is None else reduction_of(reduction, size_average, reduce)

    def compute(x: Any, t: Any) -> Any:
        if log_target:
            return core.mul(core.exp(t), core.sub(t, x))
        return core.sub(xlogy(t, t), core.mul(t, x))

    def averaged(x: Any, t: Any) -> Any:
        loss = reduced(compute(x, t), mode)
        return core.div(loss, input.spec.shape[0]) if batch and input.spec.rank else loss

    return once_rounded(averaged, input, target)


@torchsymbol("torch.nn.functional.soft_margin_loss")
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
    """log(1 + exp(-target * input)), infinite where the exp is."""
    inexact = core.promote(input, target).inexact
    require_dtype(inexact, "expected floating or complex tensors, got {} and {}; convert one of them", input.spec, target.spec)
    require_castable(input, target)
    mode = reduction_of(reduction, size_average, reduce)

    def compute(x: Any, t: Any) -> Any:
        return core.log1p(core.exp(core.neg(core.mul(t, x))))

    return core.convert(of_elements(compute, mode, input, target), input.spec.dtype)


def _above_zero(x: Any) -> Any:
    """Return x, and 0 where it is negative."""
    return clamp_min(x, 0)


@torchsymbol("torch.nn.functional.margin_ranking_loss")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
):
    """max(0, -target * (input1 - input2) + margin)."""
    mode = reduction_of(reduction, size_average, reduce)
    ranks = {x.spec.rank for x in (input1, input2, target)}
    require(
        len(ranks) == 1, "expected inputs and target with the same number of dimensions, got {}, {} and {}", input1.spec, input2.spec, target.spec
    )
    apart = core.as_float(margin)
    return of_elements(lambda a, b, t: _above_zero(core.add(core.mul(core.neg(t), core.sub(a, b)), apart)), mode, input1, input2, target)


@torchsymbol("torch.nn.functional.hinge_embedding_loss")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
):
    """input where target is 1, max(0, margin - input) where it is -1."""
    require_float_loss(input)
    mode = reduction_of(reduction, size_average, reduce)

    def compute(x: Any) -> Any:
        apart = core.where(core.eq(target, 1), 0.0, _above_zero(core.sub(core.as_float(margin), x)))
        return core.add(apart, core.where(core.eq(target, -1), 0.0, x))

    return of_elements(compute, mode, input)


@torchsymbol("torch.nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
):
    """1 - cos(input1, input2) where target is 1, max(0, cos(input1, input2) - margin) where it is -1."""
    mode = reduction_of(reduction, size_average, reduce)
    rank = target.spec.rank
    fits = rank <= 1 and input1.spec.rank == input2.spec.rank == rank + 1
    require(fits, "expected a 0D target with 1D inputs or a 1D target with 2D inputs, got {}, {} and {}", target.spec, input1.spec, input2.spec)

    def dot(a: Any, b: Any) -> Any:
        product = core.mul(a, b)
        return summed(product, (product.spec.rank - 1,))

    def compute(a: Any, b: Any) -> Any:
        sizes = core.mul(core.add(dot(a, a), 1e-12), core.add(dot(b, b), 1e-12))
        cosine = core.div(dot(a, b), core.sqrt(sizes))
        near = core.where(core.eq(target, 1), core.sub(1.0, cosine), 0.0)
        return core.add(near, core.where(core.eq(target, -1), _above_zero(core.sub(cosine, core.as_float(margin))), 0.0))

    return of_elements(compute, mode, input1, input2)  # products of integers wrap around in their dtype


@torchsymbol("torch.nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | Number, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
    """(log(var) + (input - target)**2 / var) / 2, var being no less than eps; `full` adds log(2 * pi) / 2.

    Whether `var` has negative entries depends on values, and is checked where torch itself runs the operation.
    """
    mode = reduction_of(reduction)
    if not isinstance(var, Tensor):
        require(var >= 0, "var has negative entry/entries, got {}", var, error=ValueError)
        var = prims.full(shape=input.spec.shape, value=float(var), dtype=input.spec.dtype, device=input.spec.device)
    require_dtype(var.spec.dtype.inexact, "expected a floating var, got {}; convert it first", var.spec)
    var_shape, input_shape = var.spec.shape, input.spec.shape
    if var_shape != input_shape and var_shape == input_shape[:-1]:
        var = prims.broadcast_in_dim(var, shape=(*var_shape, 1), dims=tuple(range(len(var_shape))))
    elif var_shape != input_shape:
        odd = [n for m, n in zip(input_shape, var_shape, strict=False) if m != n]
        require(
            len(var_shape) == len(input_shape) and odd == [1],
            "var is of incorrect size {}, expected that of input, {}",
            var_shape,
            input_shape,
            error=ValueError,
        )

    def compute(x: Any, t: Any, v: Any) -> Any:
        # The bound moves v and not its gradient, as PyTorch's in-place clamp without grad does.
        v = core.add(v, prims.detach(_above_zero(core.sub(eps, v))))
        loss = core.mul(core.add(core.log(v), core.div(_squared(x, t), v)), 0.5)
        return core.add(loss, 0.5 * math.log(2 * math.pi)) if full else loss

    return of_elements(compute, mode, input, target, var)


@torchsymbol("torch.nn.functional.poisson_nll_loss")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
):
    """exp(input) - target * input, of an input that is a logarithm; else input - target * log(input + eps).

    `full` adds Stirling's approximation of log(target!) where target lies above 1.
    """
    mode = reduction_of(reduction, size_average, reduce)

    def compute(x: Any, t: Any) -> Any:
        loss = core.sub(core.exp(x), core.mul(t, x)) if log_input else core.sub(x, core.mul(t, core.log(core.add(x, eps))))
        if not full:
            return loss
        stirling = core.add(core.sub(core.mul(t, core.log(t)), t), core.mul(core.log(core.mul(t, 2 * math.pi)), 0.5))
        return core.add(loss, core.where(core.gt(t, 1), stirling, 0.0))  # as in eager, no gradient is finite for a target up to 0

    return of_elements(compute, mode, input, target)


@torchsymbol("torch.nn.functional.triplet_margin_loss")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
):
    """max(0, margin + |anchor - positive| - |anchor - negative|), distances being p-norms over the last dimension.

    `swap` takes the distance from positive to negative where that is smaller.
    """
    mode = reduction_of(reduction, size_average, reduce)
    require(margin > 0, "margin must be greater than 0, got {}", margin, error=ValueError)
    ranks = {x.spec.rank for x in (anchor, positive, negative)}
    require(len(ranks) == 1, "expected tensors with the same number of dimensions, got {}, {} and {}", anchor.spec, positive.spec, negative.spec)

    def compute(a: Any, near: Any, far: Any) -> Any:
        away = _distance(a, far, p, eps)
        if swap:
            away = core.minimum(away, _distance(near, far, p, eps))
        return _above_zero(core.add(core.sub(_distance(a, near, p, eps), away), margin))

    return of_elements(compute, mode, anchor, positive, negative)


def _distance(a: Any, b: Any, p: float, eps: float) -> Any:
    """Return the p-norm of a - b + eps over the last dimension."""
    return vector_norm(core.add(core.sub(a, b), eps), p, -1)
