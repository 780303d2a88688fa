"""Classification losses: the negative log probability of the target class."""

from __future__ import annotations

from typing import Any

from dovetail import dtypes, prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.creation import ratio
from dovetail.langs.torch.elementwise import require_float, row_major
from dovetail.langs.torch.loss import reduced, reduction_of, total
from dovetail.langs.torch.softmax import log_softmax_along
from dovetail.prims.shape import flat_reshape


@torchsymbol("torch.nn.functional.nll_loss")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
):
    """-weight[target] * input[target], input holding logarithms of probabilities by class: [C], [N, C] or [N, C, ...].

    Targets equal to `ignore_index` do not contribute; others outside [0, C) raise at run time.
    """
    mode = reduction_of(reduction, size_average, reduce)
    require_float(input)
    wide = core.wide(input.spec.dtype)
    weight = _class_weight(input, weight, wide, of_indices=True)
    return core.convert(_nll(core.convert(input, wide), target, weight, ignore_index, mode), input.spec.dtype)


def class_dim(x: Any) -> int:
    """Return the dimension of the classes: the first of one dimension, else the second."""
    return 0 if x.spec.rank == 1 else 1


def _class_weight(input: Any, weight: Any, wide: dtypes.DType, *, of_indices: bool) -> Any:
    """Check the class weights and convert them to `wide`; for indices of pixels PyTorch counts their elements alone."""
    require(input.spec.rank > 0, "Expected 1 or more dimensions (got {})", input.spec.rank, error=ValueError)
    if weight is None:
        return None
    classes = input.spec.shape[class_dim(input)]
    counted = of_indices and input.spec.rank > 2
    fits = weight.spec.numel == classes if counted else weight.spec.shape == (classes,)
    require(fits, "weight tensor should be defined either for all {} classes or no classes, got {}", classes, weight.spec)
    same = weight.spec.dtype is input.spec.dtype
    require(same, "expected a weight of dtype {}, got {}; convert it first", input.spec.dtype.short, weight.spec)
    return core.convert(weight if weight.spec.rank == 1 else flat_reshape(weight, (classes,)), wide)


def _require_targets(x: Any, target: Any) -> None:
    """Raise unless `target` holds one class for each position of x."""
    shape, at = x.spec.shape, class_dim(x)
    target_spec = target.spec
    require(
        target_spec.dtype in (dtypes.int64, dtypes.uint8), "expected a target of class indices, int64 or uint8, got {}; convert it first", target_spec
    )
    expected_shape = shape[:at] + shape[at + 1 :]
    if expected_shape and target_spec.shape and expected_shape[0] != target_spec.shape[0]:
        require(False, "Expected input batch_size ({}) to match target batch_size ({}).", expected_shape[0], target_spec.shape[0], error=ValueError)
    require(target_spec.shape == expected_shape, "expected a target of shape {} for input {}, got {}", expected_shape, x.spec, target_spec)


def _nll(x: Any, target: Any, weight: Any, ignore_index: int, mode: str) -> Any:
    """Return the loss; ignored targets read class 0 and are masked, so that no shape depends on values."""
    _require_targets(x, target)
    at = class_dim(x)
    target = row_major(target)
    ignored = core.eq(target, ignore_index)
    safe = core.convert(core.where(ignored, core.fit(0, (), target.spec.dtype), target), dtypes.int64)
    index = core.keep_dims(safe, x.spec.shape, (at,))
    picked = prims.squeeze(prims.take_along_axis(x, index, dim=at), dims=(at,))
    counts = None if weight is None else _counts(weight, ignored, safe)
    cost = core.neg(picked if counts is None else core.mul(picked, counts))
    cost = core.where(ignored, 0.0, cost)
    if mode != "mean":
        return reduced(cost, mode)
    return core.div(total(cost), _weight_of(ignored, counts, x.spec.dtype))


def _counts(weight: Any, ignored: Any, safe: Any) -> Any:
    """Return the weight of each target, 0 for ignored ones: the gradient multiplies by it, and 0 times an infinite weight is NaN."""
    return core.where(ignored, 0.0, prims.index(weight, [safe]))


def _weight_of(ignored: Any, counts: Any, dtype: dtypes.DType) -> Any:
    """Return the total weight of the targets that are not ignored."""
    return total(core.convert(core.bitwise_not(ignored), dtype) if counts is None else counts)


@torchsymbol("torch.nn.functional.cross_entropy")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
):
    """-log(softmax(input))[target], input being [C], [N, C] or [N, C, ...]; `target` holds classes, or probabilities in input's shape.

    Classes equal to `ignore_index` do not contribute; others outside [0, C) raise at run time.
    `label_smoothing` moves that much of each target's probability evenly to all classes.
    """
    mode = reduction_of(reduction, size_average, reduce)
    require_float(input)
    require(label_smoothing <= 1, "label_smoothing must be between 0.0 and 1.0. Got: {}", label_smoothing)
    label_smoothing = max(label_smoothing, 0.0)  # PyTorch smooths nothing below
    soft = target.spec.shape == input.spec.shape
    dtype = core.promote(input, target) if soft else input.spec.dtype
    wide = core.wide(dtype)
    weight = _class_weight(input, weight, wide, of_indices=not soft and not label_smoothing)
    wide_input = core.convert(input, wide)
    logp = log_softmax_along(wide_input, class_dim(input)) if input.spec.numel else wide_input
    if soft:
        loss = _soft_cross_entropy(logp, target, weight, ignore_index, mode, label_smoothing)
    else:
        loss = _smoothed_nll(logp, target, weight, ignore_index, mode, label_smoothing)
    return core.convert(loss, dtype)


def _by_class(weight: Any, x: Any) -> Any:
    """Broadcast the class weights to the shape of x."""
    return prims.broadcast_in_dim(weight, shape=x.spec.shape, dims=(class_dim(x),))


def _soft_cross_entropy(logp: Any, target: Any, weight: Any, ignore_index: int, mode: str, smoothing: float) -> Any:
    """Return the loss for targets that are probabilities."""
    target_spec = target.spec
    require(target_spec.dtype.kind == "float", "Expected floating point type for target with class probabilities, got {}", target_spec)
    require(ignore_index < 0, "ignore_index is not supported for floating point target, got {}", ignore_index)
    at = class_dim(logp)
    classes = logp.spec.shape[at]
    target = core.convert(target, logp.spec.dtype)
    if smoothing:
        target = core.add(core.mul(target, 1 - smoothing), ratio(smoothing, classes, target.spec.dtype, target.spec.device))
    cost = core.mul(logp, target)
    if weight is not None:
        cost = core.mul(cost, _by_class(weight, logp))
    cost = core.neg(prims.sum(cost, dims=(at,)))
    return reduced(cost, mode)


def _smoothed_nll(logp: Any, target: Any, weight: Any, ignore_index: int, mode: str, smoothing: float) -> Any:
    """Return the loss for class targets, each mixed with `smoothing` times the mean over all classes."""
    loss = _nll(logp, target, weight, ignore_index, mode)
    if not smoothing:
        return loss
    at = class_dim(logp)
    target = row_major(target)
    ignored = core.eq(target, ignore_index)
    every = logp if weight is None else core.mul(logp, _by_class(weight, logp))
    spread = core.where(ignored, 0.0, core.neg(prims.sum(every, dims=(at,))))
    if mode == "mean":
        safe = core.convert(core.where(ignored, core.fit(0, (), target.spec.dtype), target), dtypes.int64)
        counts = None if weight is None else _counts(weight, ignored, safe)
        spread = core.div(total(spread), _weight_of(ignored, counts, logp.spec.dtype))
    else:
        spread = reduced(spread, mode)
    return core.add(core.mul(loss, 1 - smoothing), core.mul(spread, ratio(smoothing, logp.spec.shape[at], spread.spec.dtype, spread.spec.device)))
