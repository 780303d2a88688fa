"""Convolutions, embeddings and their gradients."""

from __future__ import annotations

from typing import Any

from dovetail.devices import cpu
from dovetail.dtypes import bfloat16, complex64, float16, float32, int64
from dovetail.errors import require
from dovetail.prims.elementwise import where
from dovetail.prims.op import Tag, prim
from dovetail.prims.reduction import broadcast_in_dim
from dovetail.prims.spec import TensorSpec, channels_last_order, is_channels_last, laid_out
from dovetail.prims.unary import INEXACT, NUMBERS, conjugated, require_kind

MATMUL = frozenset({Tag.MATMUL})
NARROW = (float16, bfloat16, float32, complex64)  # PyTorch's kernels for these dtypes support channels-last volumes


def require_convolvable(x: TensorSpec, weight: TensorSpec, *, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int) -> None:
    require_kind(x, NUMBERS)
    require(x.dtype is weight.dtype and x.device is weight.device, "expected x and weight of one dtype and device, got {} and {}", x, weight)
    require(x.rank == weight.rank >= 3, "expected x [batch, channels, ...] and weight of the same rank, at least 3, got {} and {}", x, weight)
    spatial = x.rank - 2
    complete = all(len(values) == spatial for values in (stride, padding, dilation, output_padding))
    require(complete, "expected stride, padding, dilation and output_padding of {} values each", spatial)
    require(groups > 0, "non-positive groups is not supported, got {}", groups)
    require(all(n > 0 for n in stride), "non-positive stride is not supported, got {}", stride)
    require(all(n > 0 for n in dilation), "dilation should be greater than zero, got {}", dilation)
    require(all(n >= 0 for n in padding), "negative padding is not supported, got {}", padding)
    require(weight.shape[0] % groups == 0, "expected weight {} to be divisible by groups {} at dimension 0", weight, groups)


def convolved(x: TensorSpec, weight: TensorSpec, *, transposed: bool, groups: int, **window: Any) -> tuple[int, ...]:
    """Return the output shape of a convolution of x with weight.  Raises as eager does where they do not fit."""
    require_convolvable(x, weight, groups=groups, **window)
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    require(x.shape[1] == channels, "given groups={}, weight {}, expected input to have {} channels, but got {}", groups, weight, channels, x)
    sizes = []
    per_dim = zip(x.shape[2:], weight.shape[2:], window["stride"], window["padding"], window["dilation"], window["output_padding"], strict=True)
    for n, kernel, stride, padding, dilation, extra in per_dim:
        reach = dilation * (kernel - 1) + 1
        if transposed:
            require(extra < stride or extra < dilation, "output padding must be smaller than either stride or dilation, got {}", window)
            sizes.append((n - 1) * stride - 2 * padding + reach + extra)
        else:
            room = n + 2 * padding - reach
            require(room >= 0, "kernel size can't be greater than actual input size: {} needs {} more of {}", weight, -room, x)
            sizes.append(room // stride + 1)
    require(all(n >= 0 for n in sizes), "given input {} and weight {}, the output size {} is too small", x, weight, tuple(sizes))
    if channels == 0:
        return (x.shape[0], 0, *sizes)  # as eager has it: of no channels, no channels
    return (x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *sizes)


def in_format(shape: tuple[int, ...], *inputs: TensorSpec) -> TensorSpec:
    """Return a new spec, channels last where an input is, as in PyTorch; volumes of dtypes other than NARROW are row-major."""
    out = inputs[0].fresh(shape)
    if out.rank == 5 and out.device is cpu and out.dtype not in NARROW:
        return out
    return laid_out(out, channels_last_order(out.rank)) if any(is_channels_last(x) for x in inputs) else out


def _sequence_in_format(shape: tuple[int, ...], weight: TensorSpec) -> TensorSpec:
    """Return a new spec of sequences, channels last where the weight is: PyTorch makes the input row-major and runs both as images of one row."""
    out, (_, channels, kernel), (first, step, last) = weight.fresh(shape), weight.shape, weight.steps
    is_last = weight.strides is not None and channels != 1 and step != 0 and last >= step * channels and first >= last * kernel
    return laid_out(out, channels_last_order(3)) if is_last else out


@prim(tags=MATMUL)
def convolution(
    x: TensorSpec,
    weight: TensorSpec,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
) -> TensorSpec:
    """Cross-correlation of x [batch, channels, ...] with weight [out, channels / groups, ...], or, transposed, with [channels, out / groups, ...]."""
    window = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    shape = convolved(x, weight, transposed=transposed, groups=groups, **window)
    return in_format(shape, x, weight) if x.rank != 3 else _sequence_in_format(shape, weight)


@convolution.vjp
def convolution_vjp(g, out, x, weight, **window):
    gx = convolution_input_grad(g, conjugated(weight), input_shape=x.spec.shape, **window)
    return gx, convolution_weight_grad(g, conjugated(x), weight_shape=weight.spec.shape, **window)


@prim(tags=MATMUL)
def convolution_input_grad(
    g: TensorSpec,
    weight: TensorSpec,
    *,
    input_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
) -> TensorSpec:
    """The cotangent of the input of `convolution` from `g`, that of its result; linear in g and in weight, conjugating neither."""
    window = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    shape = convolved(g.fresh(input_shape), weight, transposed=transposed, groups=groups, **window)
    require(g.shape == shape, "expected a cotangent of shape {}, got {}", shape, g)
    return in_format(input_shape, g, weight)


@convolution_input_grad.vjp
def convolution_input_grad_vjp(g, out, g_out, weight, *, input_shape, **window):
    return convolution(g, conjugated(weight), **window), convolution_weight_grad(conjugated(g_out), g, weight_shape=weight.spec.shape, **window)


@prim(tags=MATMUL)
def convolution_weight_grad(
    g: TensorSpec,
    x: TensorSpec,
    *,
    weight_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
) -> TensorSpec:
    """The cotangent of the weight of `convolution` from `g`, that of its result; linear in g and in x, conjugating neither."""
    window = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    shape = convolved(x, x.fresh(weight_shape), transposed=transposed, groups=groups, **window)
    require(g.shape == shape, "expected a cotangent of shape {}, got {}", shape, g)
    require(g.dtype is x.dtype and g.device is x.device, "expected g and x of one dtype and device, got {} and {}", g, x)
    return in_format(weight_shape, g, x)


@convolution_weight_grad.vjp
def convolution_weight_grad_vjp(g, out, g_out, x, *, weight_shape, **window):
    return convolution(conjugated(x), g, **window), convolution_input_grad(conjugated(g_out), g, input_shape=x.spec.shape, **window)


@prim
def embedding(weight: TensorSpec, index: TensorSpec) -> TensorSpec:
    """The rows weight[index]: weight is [rows, width], index int64 of any shape."""
    require_kind(weight)
    require(weight.rank == 2, "'weight' must be 2-D, got {}", weight)
    require_positions(weight, index)
    return weight.fresh((*index.shape, weight.shape[1]))


def require_positions(x: TensorSpec, index: TensorSpec) -> None:
    """Raise unless `index` is int64 and on x's device."""
    require(index.dtype is int64 and index.device is x.device, "expected an int64 index on the device of {}, got {}", x, index)


@embedding.vjp
def embedding_vjp(g, out, weight, index):
    return embedding_backward(g, index, num_weights=weight.spec.shape[0], padding_idx=-1), None


@prim
def embedding_backward(g: TensorSpec, index: TensorSpec, *, num_weights: int, padding_idx: int) -> TensorSpec:
    """Zeros of [num_weights, width] with each row of g [..., width] added at its index, except those at `padding_idx`; -1 excludes none."""
    require_kind(g, INEXACT)
    require_positions(g, index)
    require(g.rank == index.rank + 1 and g.shape[:-1] == index.shape, "expected one row for each index, got {} and {}", g, index)
    return g.fresh((num_weights, g.shape[-1]))


@embedding_backward.vjp
def embedding_backward_vjp(g, out, g_rows, index, *, num_weights, padding_idx):
    rows = embedding(g, index)
    if padding_idx >= 0:
        is_padding = broadcast_in_dim(index == padding_idx, shape=rows.spec.shape, dims=tuple(range(len(index.spec.shape))))
        rows = where(is_padding, 0.0, rows)
    return rows, None
