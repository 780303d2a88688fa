"""Normalisations: subtract a mean, divide by a deviation, scale and shift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from dovetail import dtypes, prims
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Number, Tensor, torchquery, torchsymbol
from dovetail.langs.torch.elementwise import row_major
from dovetail.prims.shape import flat_reshape
from dovetail.prims.sizes import Size
from dovetail.prims.spec import channels_last_order, fills_channels_last, is_channels_last, laid_out
from dovetail.prims.spec import prod as product
from dovetail.torch_internals import ATEN
from dovetail.trace import NumberProxy

EPSILON = {dtypes.float32: torch.finfo(torch.float32).eps, dtypes.float64: torch.finfo(torch.float64).eps}


def require_float(x: Tensor, function: str, kinds: tuple[str, ...] = ("float",)) -> None:
    """Raise unless x is of one of `kinds`: normalisations are not defined for integers."""
    dtype = x.spec.dtype
    require_dtype(dtype.kind in kinds, "{} is not implemented for {}; convert with .float() first", function, dtype.short)


def in_image_format(x: Tensor) -> Tensor:
    """Return x dense: row-major, or channels last where it is; torch's kernels preserve these two formats."""
    return _channels_last(x) if is_channels_last(x.spec) else row_major(x)


def in_batch_format(x: Tensor) -> Tensor:
    """Return x dense as batch norms lay it out, to which a dense x is channels last whatever its strides of sizes of 1."""
    return _channels_last(x) if is_channels_last(x.spec) or fills_channels_last(x.spec) else row_major(x)


def _channels_last(x: Tensor) -> Tensor:
    order = channels_last_order(len(x.spec.shape))
    return x if x.spec.strides == laid_out(x.spec, order).strides else prims.stride_order(x, order=order)


def along(x: Tensor, shape: tuple[int, ...], *dims: int) -> Tensor:
    """Broadcast x to `shape`, in which its dimensions are `dims`."""
    return prims.broadcast_in_dim(x, shape=shape, dims=dims)


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, *dims: int) -> Tensor:
    """x * weight + bias, both of them along `dims` of x and in its dtype."""
    for combine, parameter in ((core.mul, weight), (core.add, bias)):
        if parameter is not None:
            x = combine(x, along(core.convert(parameter, x.spec.dtype), x.spec.shape, *dims))
    return x


class Standardized(NamedTuple):
    """Values less their mean, over their deviation, and what they were computed with."""

    values: Tensor
    mean: Tensor
    variance: Tensor
    scale: Tensor  # 1 / deviation
    spread: Tensor  # scale, of the shape of the values


def standardized(x: Tensor, variance: Tensor, mean: Tensor, eps: Number, *dims: int) -> Standardized:
    """(x - mean) / sqrt(variance + eps), both statistics along `dims` of x."""
    centred = core.sub(x, along(mean, x.spec.shape, *dims))
    scale = core.rsqrt(core.add(variance, eps))
    spread = along(scale, x.spec.shape, *dims)
    return Standardized(core.mul(centred, spread), mean, variance, scale, spread)


def standardized_rows(input: Tensor, row_dims: Sequence[int], eps: Number) -> Standardized:
    """Standardize each row, which is over the last dimensions, in the wide dtype of the input."""
    x = core.convert(row_major(input), core.wide(input.spec.dtype))
    return standardized(x, *prims.var_mean(x, dims=tuple(row_dims), correction=0), eps, *range(row_dims[0]))


def standardized_channels(input: Tensor, eps: Number) -> Standardized:
    """Standardize each channel, dimension 1, over the whole batch, in the wide dtype of the input."""
    x = core.convert(in_batch_format(input), core.wide(input.spec.dtype))
    return standardized(x, *prims.var_mean(x, dims=all_but_channels(x), correction=0), eps, 1)


def standardized_groups(input: Tensor, num_groups: int, eps: Number) -> Standardized:
    """Standardize each item's groups of channels, in the wide dtype of the input; the statistics are those of each channel."""
    x = core.convert(in_image_format(input), core.wide(input.spec.dtype))
    batch, channels, *spatial = x.spec.shape
    groups = flat_reshape(x, (batch, num_groups, channels // num_groups, *spatial))
    statistics = prims.var_mean(groups, dims=tuple(range(2, len(spatial) + 3)), correction=0)
    return standardized(x, *[of_channels(part, channels) for part in statistics], eps, 0, 1)


def of_channels(of_groups: Tensor, channels: int) -> Tensor:
    """Repeat what each item has for each group, (batch, groups), for each channel: (batch, channels)."""
    batch, groups = of_groups.spec.shape
    return flat_reshape(along(of_groups, (batch, groups, channels // groups), 0, 1), (batch, channels))


def all_but_channels(x: Tensor) -> tuple[int, ...]:
    """Return the dimensions of x other than 1."""
    return tuple([d for d in range(len(x.spec.shape)) if d != 1])


def _last_dims(x: Tensor, shape: Sequence[int], function: str, **parameters: Tensor | None) -> tuple[int, ...]:
    """Return the dimensions of x that `shape` names, after the checks common to layer_norm and rms_norm."""
    if not isinstance(shape, (tuple, list)):
        require(False, "{}(): argument 'normalized_shape' must be tuple of ints, not {}", function, type(shape).__name__, error=TypeError)
    shape = tuple(shape)
    require(len(shape) > 0, "Expected normalized_shape to be at least 1-dimensional, but got normalized_shape = {}", shape)
    for name, parameter in parameters.items():
        fits = parameter is None or parameter.spec.shape == shape
        require(
            fits,
            "Expected {} to be of same shape as normalized_shape {}, but got {}",
            name,
            shape,
            parameter if parameter is None else parameter.spec,
        )
    rank = len(x.spec.shape)
    fits = x.spec.shape[max(rank - len(shape), 0) :] == shape
    require(fits, "Given normalized_shape={}, expected input with shape [*, {}], but got {}", shape, ", ".join(map(str, shape)), x.spec)
    return tuple(range(rank - len(shape), rank))


def require_parameters_like(x: Tensor, function: str, **parameters: Tensor | None) -> None:
    """Raise unless parameters have x's dtype, or all of them float32 beside a half x."""
    specs = [parameter.spec for parameter in parameters.values() if parameter is not None]
    require(len({spec.dtype for spec in specs}) <= 1, "{}: expected {} of one dtype, got {}", function, " and ".join(parameters), specs)
    for name, parameter in parameters.items():
        fits = parameter is None or parameter.spec.dtype in (x.spec.dtype, core.wide(x.spec.dtype))
        require(
            fits,
            "{}: expected {} of dtype {} like the input, got {}",
            function,
            name,
            x.spec.dtype.short,
            parameter if parameter is None else parameter.spec,
        )


@torchsymbol("torch.nn.functional.layer_norm")
def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which are `normalized_shape`."""
    return core.convert(_layer_norm(input, normalized_shape, weight, bias, eps)[0], input.spec.dtype)


def _layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: Number) -> tuple[Tensor, Tensor, Tensor]:
    """(out, mean, 1 / deviation), in the wide dtype of x."""
    dims = _last_dims(x, shape, "layer_norm", weight=weight, bias=bias)
    require_float(x, "layer_norm")
    require_parameters_like(x, "layer_norm", weight=weight, bias=bias)
    parts = standardized_rows(x, dims, eps)
    return affine(parts.values, weight, bias, *dims), parts.mean, parts.scale


@torchsymbol("torch.native_layer_norm")
def native_layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: Number):
    """(layer_norm, mean, 1 / deviation); the statistics keep the normalised dimensions as size 1, and no gradient flows through them."""
    out, mean, scale = _layer_norm(input, normalized_shape, weight, bias, eps)
    rank = len(input.spec.shape)
    dims = tuple(range(rank - len(normalized_shape), rank))
    half = weight is not None and weight.spec.dtype is not input.spec.dtype
    statistics = [core.keep_dims(x if half else core.convert(x, input.spec.dtype), input.spec.shape, dims) for x in (mean, scale)]
    return core.convert(out, input.spec.dtype), *map(prims.detach, statistics)


@torchquery("torch.layer_norm")
def _layer_norm_of_cudnn(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: Number = 1e-5,
    cudnn_enable: bool = True,
):
    """torch.layer_norm: layer_norm with an extra argument that does not affect the result."""
    return layer_norm(input, normalized_shape, weight, bias, eps)


@torchsymbol("torch.nn.functional.rms_norm", "torch.rms_norm")
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: Number | None = None):
    """x / sqrt(mean(x**2) + eps) * weight over the last dimensions; eps is by default the dtype's own."""
    dims = _last_dims(input, normalized_shape, "rms_norm", weight=weight)
    require_float(input, "rms_norm", ("float", "complex"))
    x = core.convert(in_image_format(input), core.wide(input.spec.dtype))
    if eps is None:
        eps = EPSILON[dtypes.real_of(x.spec.dtype)]
    size = product(x.spec.shape[d] for d in dims)
    square = core.div(prims.sum(core.mul(x, x), dims=dims), size)
    out = core.mul(x, along(core.rsqrt(core.add(square, eps)), x.spec.shape, *range(dims[0])))
    if weight is None:
        return core.convert(out, input.spec.dtype)
    dtype = core.promote(input, weight)
    wide = core.wide(dtype)
    return core.convert(core.mul(core.convert(out, wide), along(core.convert(weight, wide), x.spec.shape, *dims)), input.spec.dtype)


def _check_channels(x: Tensor, **parameters: Tensor | None) -> None:
    """Raise unless each parameter has one element for each channel, dimension 1 of x."""
    channels = x.spec.shape[1]
    for name, parameter in parameters.items():
        fits = parameter is None or parameter.spec.shape == (channels,)
        require(fits, "{} should contain {} elements, got {}", name, channels, parameter if parameter is None else parameter.spec)


def _vector(parameter: Tensor | None, channels: int) -> Tensor | None:
    """Return a parameter with one element for each channel, of which PyTorch counts the elements alone, as a vector."""
    if parameter is None or parameter.spec.shape == (channels,) or parameter.spec.numel != channels:
        return parameter
    return flat_reshape(parameter, (channels,))


def _update(running: Tensor | None, batch: Tensor, momentum: Number) -> None:
    """running = (1 - momentum) * running + momentum * batch, in place and without gradient."""
    if running is not None:
        prims.copy_(running, moved(running, batch, momentum))


def moved(running: Tensor, batch: Tensor, momentum: Number) -> Tensor:
    """(1 - momentum) * running + momentum * batch, without gradient."""
    wide = core.wide(running.spec.dtype)
    old, new = core.convert(running, wide), core.convert(prims.detach(batch), wide)
    if isinstance(momentum, NumberProxy):  # a number that the program computes, as 1 / count
        return core.convert(core.add(old, core.mul(core.sub(new, old), momentum)), running.spec.dtype)
    return core.convert(core.add(core.mul(old, 1 - momentum), core.mul(new, momentum)), running.spec.dtype)


@torchsymbol(f"{ATEN}._native_batch_norm_legit_functional", in_place=False)
def batch_norm_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: Number,
    eps: Number,
):
    """batch_norm in training: (out, mean, 1 / deviation, the running mean and the running variance afterwards).

    The pure part of batch_norm, so that it remains one operation after functionalization.  The statistics have the dtype of the running ones.
    """
    parts = standardized_channels(input, eps)
    out = core.convert(affine(parts.values, weight, bias, 1), input.spec.dtype)
    return out, *statistics_of_batch(parts, input, running_mean, running_var, momentum)


def statistics_of_batch(parts: Standardized, input: Tensor, running_mean: Tensor, running_var: Tensor, momentum: Number) -> list[Tensor]:
    """(mean, 1 / deviation, the running mean and the running variance afterwards), all without gradient and of the dtype of the running ones."""
    kept = [core.convert(prims.detach(part), running_mean.spec.dtype) for part in (parts.mean, parts.scale)]
    variance = unbiased(parts.variance, product(input.spec.shape[d] for d in all_but_channels(input)))
    return [*kept, moved(running_mean, parts.mean, momentum), moved(running_var, variance, momentum)]


def unbiased(variance: Tensor, count: int) -> Tensor:
    """Return a variance over `count` elements with Bessel's correction."""
    if type(count) is Size:
        return core.div(core.mul(variance, count), count - 1)
    return core.mul(variance, count / (count - 1) if count != 1 else math.inf)


@torchsymbol("torch.nn.functional.batch_norm")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: Number = 0.1,
    eps: Number = 1e-5,
):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel, dimension 1.

    In training the statistics are those of the batch, and the running ones are moved towards them, the variance unbiased.
    """
    shape = input.spec.shape
    if shape == (0,):
        return core.clone(input)
    require(len(shape) >= 2, "Dimension out of range: batch_norm expected channels at dimension 1, got {}", input.spec, error=IndexError)
    count = product(shape[d] for d in all_but_channels(input))
    require(not training or count != 1, "Expected more than 1 value per channel when training, got input size {}", shape, error=ValueError)
    for name, parameter in (("running_mean", running_mean), ("running_var", running_var)):
        require(training or parameter is not None, "{} must be defined in evaluation mode", name)
    weight, bias = [_vector(x, input.spec.shape[1]) for x in (weight, bias)]
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    require_float(input, "batch_norm")
    require_parameters_like(input, "batch_norm", weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    if training and input.spec.numel and _is_plain(input, running_mean, running_var, weight, bias):
        out, _, _, new_mean, new_var = batch_norm_functional(input, weight, bias, running_mean, running_var, True, momentum, eps)
        prims.copy_(running_mean, new_mean)
        prims.copy_(running_var, new_var)
        return out
    if training:
        parts = standardized_channels(input, eps)
        if count:
            _update(running_mean, parts.mean, momentum)
            _update(running_var, unbiased(parts.variance, count), momentum)
    else:
        x = core.convert(in_batch_format(input), core.wide(input.spec.dtype))
        parts = standardized(x, *[core.convert(part, x.spec.dtype) for part in (running_var, running_mean)], eps, 1)
    return core.convert(affine(parts.values, weight, bias, 1), input.spec.dtype)


def _is_plain(x: Tensor, running_mean: Tensor | None, *more: Tensor | None) -> bool:
    """Return whether there are running statistics, and everything is float32, or float64."""
    return (
        running_mean is not None
        and x.spec.dtype in EPSILON
        and all([parameter is None or parameter.spec.dtype is x.spec.dtype for parameter in (running_mean, *more)])
    )


@torchquery("torch.batch_norm")
def _batch_norm_of_cudnn(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: Number,
    eps: Number,
    cudnn_enabled: bool,
):
    """torch.batch_norm: the function with its arguments in another order."""
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@torchsymbol("torch.nn.functional.instance_norm")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: Number = 0.1,
    eps: Number = 1e-5,
):
    """batch_norm of each item alone; the running statistics move towards the mean of the items'."""
    if not use_input_stats:
        both = running_mean is not None and running_var is not None
        require(both, "Expected running_mean and running_var to be defined when use_input_stats is false")
        _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    shape = input.spec.shape
    count = product(shape[2:])
    require(count != 1, "Expected more than 1 spatial element when training, got input size {}", shape, error=ValueError)
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    require_float(input, "instance_norm")
    x = core.convert(row_major(input), core.wide(input.spec.dtype))
    parts = standardized(x, *prims.var_mean(x, dims=tuple(range(2, len(shape))), correction=0), eps, 0, 1)
    if count and shape[0]:
        _update(running_mean, core.div(prims.sum(parts.mean, dims=(0,)), shape[0]), momentum)
        _update(running_var, core.div(prims.sum(unbiased(parts.variance, count), dims=(0,)), shape[0]), momentum)
    return core.convert(affine(parts.values, weight, bias, 1), input.spec.dtype)


@torchquery("torch.instance_norm")
def _instance_norm_of_cudnn(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: Number,
    eps: Number,
    cudnn_enabled: bool,
):
    """torch.instance_norm: the function with its arguments in another order."""
    return instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@torchsymbol("torch.nn.functional.group_norm")
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5):
    """(x - mean) / sqrt(var + eps) * weight + bias, the statistics those of each item's groups of channels."""
    shape = input.spec.shape
    require(len(shape) >= 2, "Expected at least 2 dimensions for input tensor but received {}", len(shape))
    channels = shape[1]
    fits = num_groups > 0 and channels % num_groups == 0
    require(fits, "Expected number of channels in input to be divisible by num_groups, but got {} and num_groups={}", input.spec, num_groups)
    count = product(shape[2:]) * shape[0] * channels // num_groups
    require(count != 1, "Expected more than 1 value per channel when training, got input size {}", shape, error=ValueError)
    _check_channels(input, weight=weight, bias=bias)
    require_float(input, "group_norm")
    require_parameters_like(input, "group_norm", weight=weight, bias=bias)
    return core.convert(affine(standardized_groups(input, num_groups, eps).values, weight, bias, 1), input.spec.dtype)


@torchquery("torch.group_norm")
def _group_norm_of_cudnn(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5, cudnn_enabled: bool = True
):
    """torch.group_norm: group_norm with an extra argument that does not affect the result."""
    return group_norm(input, num_groups, weight, bias, eps)
