"""PyTorch's fused backwards, and the forwards that keep what they need, as prims: FUSED maps each to the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.extend import BoundSymbol, Tag, TensorSpec, make_prim
from dovetail.extend.advanced import Symbol, torch_internals
from dovetail.prims.spec import channels_last_order, dense, is_channels_last, laid_out, prod
from dovetail_torch_exec.convolution import sequence, volume
from dovetail_torch_exec.costs import Kind
from dovetail_torch_exec.halves import IN_FLOAT32, MULTIPLICATIONS, widely, widened

aten = torch_internals.aten
FUSED: dict[Symbol, Callable[..., Any]] = {}
DEVICES: dict[Symbol, tuple[str, ...]] = {}  # the kinds of device that those run on that do not run on all


def fused(name: str, fn: Callable[..., Any], meta: Callable[..., Any], tags: tuple[Tag, ...] = (), devices: tuple[str, ...] = ()) -> Symbol:
    """Return a prim `aten.<name>` that `fn` runs, on `devices` or on any."""
    symbol = make_prim(f"aten.{name}", name, meta=meta, tags=tags)
    FUSED[symbol] = fn
    if devices:
        DEVICES[symbol] = devices
    return symbol


def pointwise(g: TensorSpec, x: TensorSpec, **_: Any) -> TensorSpec:
    """Return the cotangent of x, laid out as an elementwise operation on both would lay it out."""
    return dense(g, x)


def row_major(g: TensorSpec, x: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    return x.fresh()


def image(g: TensorSpec, x: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    """Describe an image like x: channels innermost where they are in x, else row-major."""
    return laid_out(x, channels_last_order(x.rank)) if is_channels_last(x) else x.fresh()


tanh_backward = fused("tanh_backward", aten("tanh_backward.default"), pointwise)
sigmoid_backward = fused("sigmoid_backward", aten("sigmoid_backward.default"), pointwise)
silu_backward = fused("silu_backward", aten("silu_backward.default"), pointwise)
mish_backward = fused("mish_backward", aten("mish_backward.default"), pointwise)
hardswish_backward = fused("hardswish_backward", aten("hardswish_backward.default"), pointwise)
hardsigmoid_backward = fused("hardsigmoid_backward", aten("hardsigmoid_backward.default"), pointwise)
gelu_backward = fused("gelu_backward", aten("gelu_backward.default"), pointwise)
softplus_backward = fused("softplus_backward", lambda g, x, *, beta, threshold: aten("softplus_backward.default")(g, x, beta, threshold), pointwise)
threshold_backward = fused("threshold_backward", lambda g, x, *, threshold: aten("threshold_backward.default")(g, x, threshold), pointwise)
hardtanh_backward = fused("hardtanh_backward", lambda g, x, *, low, high: aten("hardtanh_backward.default")(g, x, low, high), pointwise)
leaky_relu_backward = fused("leaky_relu_backward", lambda g, x, *, slope: aten("leaky_relu_backward.default")(g, x, slope, False), pointwise)
elu_backward = fused(
    "elu_backward", lambda g, x, *, alpha, scale, input_scale: aten("elu_backward.default")(g, alpha, scale, input_scale, False, x), pointwise
)
glu_backward = fused("glu_backward", lambda g, x, *, dim: aten("glu_backward.default")(g, x, dim), row_major)

cumprod_backward = fused("cumprod_backward", lambda g, x, out, *, dim: aten("cumprod_backward.default")(g, x, dim, out), row_major)


def _softmax_backward(g: Tensor, out: Tensor, *, dim: int) -> Tensor:
    return aten("_softmax_backward_data.default")(g, out, dim, out.dtype)


def _log_softmax_backward(g: Tensor, out: Tensor, *, dim: int) -> Tensor:
    return aten("_log_softmax_backward_data.default")(g, out, dim, out.dtype)


softmax_backward = fused("softmax_backward", _softmax_backward, row_major)
log_softmax_backward = fused("log_softmax_backward", _log_softmax_backward, row_major)


def _dropout_noise(x: Tensor, *, p: float) -> Tensor:
    return torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)


dropout_noise = fused("dropout_noise", _dropout_noise, lambda x, *, p: dense(x), (Tag.RANDOM, Tag.NO_GRAD))


def _masked(results: tuple[Any, ...], mask: tuple[bool, ...]) -> tuple[Any, ...]:
    """Return the results selected by `mask`."""
    return tuple([x for x, selected in zip(results, mask, strict=True) if selected])


def _layer_norm_backward(
    g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, *, shape: tuple[int, ...], mask: tuple[bool, ...]
) -> tuple[Tensor, ...]:
    return _masked(aten("native_layer_norm_backward.default")(g, x, shape, mean, rstd, weight, bias, mask), mask)


def _layer_norm_backward_meta(
    g: TensorSpec, x: TensorSpec, mean: TensorSpec, rstd: TensorSpec, weight: Any, bias: Any, *, shape: tuple[int, ...], mask: tuple[bool, ...]
) -> tuple[TensorSpec, ...]:
    of = x if weight is None else weight
    return _masked((x.fresh(), of.fresh(shape), of.fresh(shape)), mask)


layer_norm_backward = fused("layer_norm_backward", _layer_norm_backward, _layer_norm_backward_meta)


_CONVOLUTION_GRADIENTS = aten("convolution_backward.default")


def _convolution_backward(
    g: Tensor, x: Tensor, weight: Tensor, *, mask: tuple[bool, bool, bool], gradients: Callable[..., Any] = _CONVOLUTION_GRADIENTS, **window: Any
) -> tuple[Tensor, ...]:
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    grads = gradients(g, x, weight, [g.shape[1]], *[window[n] for n in names], mask)
    return tuple([volume(sequence(out), x, weight) for out in _masked(grads, mask)])


def _convolution_backward_meta(
    g: TensorSpec, x: TensorSpec, weight: TensorSpec, *, mask: tuple[bool, bool, bool], **window: Any
) -> tuple[TensorSpec, ...]:
    last = any(map(is_channels_last, (x, weight)))  # the layout of g does not count: it is brought into theirs
    images = [laid_out(one, channels_last_order(one.rank)) if last else one.fresh() for one in (x, weight)]
    return _masked((*images, g.fresh((g.shape[1],))), mask)


convolution_backward = fused("convolution_backward", _convolution_backward, _convolution_backward_meta, (Tag.MATMUL,))
IN_FLOAT32[convolution_backward] = partial(_convolution_backward, gradients=widely(_CONVOLUTION_GRADIENTS))


def _of_convolution(line: BoundSymbol) -> tuple[Kind, Any]:
    g, x, weight = line.args
    pixels = (x if line.kwargs["transposed"] else g).spec.numel
    return Kind.CONVOLUTION_BACKWARD, pixels * prod(weight.spec.shape[1:]) * sum(line.kwargs["mask"][:2])


MULTIPLICATIONS[convolution_backward] = _of_convolution
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _nll_loss(x: Tensor, target: Tensor, weight: Any, *, reduction: str, ignore_index: int) -> tuple[Tensor, Tensor]:
    op = aten("nll_loss_forward.default") if target.ndim < 2 else aten("nll_loss2d_forward.default")
    return op(x, target, weight, _REDUCTIONS[reduction], ignore_index)


def _nll_loss_meta(x: TensorSpec, target: TensorSpec, weight: Any, *, reduction: str, ignore_index: int) -> tuple[TensorSpec, TensorSpec]:
    return x.fresh(target.shape if reduction == "none" else ()), x.fresh(())


def _nll_loss_backward(g: Tensor, x: Tensor, target: Tensor, weight: Any, total: Tensor, *, reduction: str, ignore_index: int) -> Tensor:
    op = aten("nll_loss_backward.default") if target.ndim < 2 else aten("nll_loss2d_backward.default")
    return op(g, x, target, weight, _REDUCTIONS[reduction], ignore_index, total)


def _nll_loss_backward_meta(g: TensorSpec, x: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    return x.fresh()


nll_loss_forward = fused("nll_loss_forward", _nll_loss, _nll_loss_meta)
nll_loss_backward = fused("nll_loss_backward", _nll_loss_backward, _nll_loss_backward_meta)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Any, *, is_causal: bool, scale: float | None) -> tuple[Tensor, Tensor]:
    op = aten("_scaled_dot_product_flash_attention_for_cpu.default")
    return op(q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale)


def _attention_in_float32(q: Tensor, k: Tensor, v: Tensor, mask: Any, **how: Any) -> tuple[Tensor, Tensor]:
    out, sums = _attention(*widened([q, k, v, mask], q.dtype), **how)
    return out.to(q.dtype), sums


def _attention_meta(q: TensorSpec, k: TensorSpec, v: TensorSpec, mask: Any, *, is_causal: bool, scale: float | None) -> tuple[TensorSpec, TensorSpec]:
    order = q.order
    sums = q.fresh(q.shape[:3], _accumulated(q.dtype))
    return laid_out(q.fresh(), order), laid_out(sums, (0, 2, 1))


def _accumulated(dtype: DType) -> DType:
    return dtypes.float32 if dtype in (dtypes.bfloat16, dtypes.float16) else dtype


def _attention_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, mask: Any, *, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    op = aten("_scaled_dot_product_flash_attention_for_cpu_backward.default")
    return op(g, q, k, v, out, sums, 0.0, is_causal, attn_mask=mask, scale=scale)


def _attention_backward_meta(g: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, **__: Any) -> tuple[TensorSpec, ...]:
    return tuple(laid_out(x.fresh(), (0, 2, 1, 3)) for x in (q, k, v))


attention_forward = fused("attention_forward", _attention, _attention_meta, (Tag.MATMUL,), ("cpu",))
attention_backward = fused("attention_backward", _attention_backward, _attention_backward_meta, (Tag.MATMUL,), ("cpu",))
IN_FLOAT32[attention_forward] = _attention_in_float32
IN_FLOAT32[attention_backward] = widely(_attention_backward)
MULTIPLICATIONS[attention_forward] = lambda line: (Kind.ATTENTION, 2 * _scores(*line.args[:2]))
MULTIPLICATIONS[attention_backward] = lambda line: (Kind.ATTENTION_BACKWARD, 5 * _scores(*line.args[1:3]))


def _scores(q: Any, k: Any) -> Any:
    """Return how many multiplications the scores take."""
    return q.spec.numel * k.spec.shape[-2]


def _batch_norm_backward(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, *, eps: float, mask: tuple[bool, ...]) -> tuple[Tensor, ...]:
    return _masked(aten("native_batch_norm_backward.default")(g, x, weight, None, None, mean, rstd, True, eps, mask), mask)


def _batch_norm_backward_meta(
    g: TensorSpec, x: TensorSpec, mean: TensorSpec, rstd: TensorSpec, weight: Any, *, eps: float, mask: tuple[bool, ...]
) -> tuple[TensorSpec, ...]:
    return _masked((image(g, x), mean.fresh(), mean.fresh()), mask)


batch_norm_backward = fused("batch_norm_backward", _batch_norm_backward, _batch_norm_backward_meta)
Ints = tuple[int, ...]


def _max_pool2d_backward(g: Tensor, x: Tensor, indices: Tensor, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Tensor:
    return aten("max_pool2d_with_indices_backward.default")(g, x, kernel, stride, padding, dilation, ceil, indices)


def _avg_pool2d_backward(g: Tensor, x: Tensor, *, kernel: Ints, stride: Ints, padding: Ints, ceil: bool, count_pad: bool, divisor: Any) -> Tensor:
    return aten("avg_pool2d_backward.default")(g, x, kernel, stride, padding, ceil, count_pad, divisor)


max_pool2d_backward = fused("max_pool2d_backward", _max_pool2d_backward, image)
avg_pool2d_backward = fused("avg_pool2d_backward", _avg_pool2d_backward, image)
adaptive_avg_pool2d_backward = fused("adaptive_avg_pool2d_backward", aten("_adaptive_avg_pool2d_backward.default"), image)


def _resize_backward(name: str) -> Symbol:
    """Return the backward of a function that resizes images; channels are `last` in its result, or it is row-major."""

    def run(g: Tensor, *, shape: Ints, corners: tuple[bool, ...], factors: tuple[float | None, ...], last: bool) -> Tensor:
        out = aten(f"{name}_backward.default")(g, g.shape[2:], shape, *corners, *factors)
        return out.contiguous(memory_format=_memory_format(len(shape), last=last))

    return fused(f"{name}_backward", run, lambda g, *, shape, last, **_: _image(g, shape, last=last))


def _memory_format(rank: int, *, last: bool) -> torch.memory_format:
    return {4: torch.channels_last, 5: torch.channels_last_3d}[rank] if last else torch.contiguous_format


def _image(g: TensorSpec, shape: Ints, *, last: bool) -> TensorSpec:
    """Describe an image of g's dtype, channels innermost or row-major."""
    x = g.fresh(shape)
    return laid_out(x, channels_last_order(x.rank)) if last else x


RESIZED = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d")
EXACTLY = ("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
RESIZE_BACKWARD = {name: _resize_backward(name) for name in (*(f"upsample_{each}" for each in RESIZED), *EXACTLY)}


def _border_backward(name: str) -> Symbol:
    """Return the backward of a padding that repeats what is there; `pad` are its widths, `shape` that of the padded tensor, channels `last`."""

    def run(g: Tensor, *, shape: Ints, pad: Ints, last: bool) -> Tensor:
        layout = _memory_format(len(shape), last=last)
        padded = torch.empty(shape, dtype=g.dtype, device=g.device, memory_format=layout)  # of which nothing but this is read
        return aten(f"{name}_pad{len(pad) // 2}d_backward.default")(g, padded, pad).contiguous(memory_format=layout)

    return fused(f"{name}_pad_backward", run, lambda g, *, shape, last, **_: _image(g, shape, last=last))


BORDER_BACKWARD = {"reflect": _border_backward("reflection"), "replicate": _border_backward("replication")}


def is_cpu(device: Device) -> bool:
    return device.type == "cpu"
