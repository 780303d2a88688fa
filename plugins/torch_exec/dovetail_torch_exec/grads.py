"""Grad rules for operations that PyTorch runs whole, so that a differentiated program keeps its fused kernels.

A rule stands where the torch executor claims the operation; it has the operation's own signature and computes the forward with whatever the
fused backward wants kept.  It returns NotImplemented for calls that PyTorch has no fused backward for; those are differentiated by their
decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dovetail import dtypes, prims
from dovetail.extend import get_grad, put_grad
from dovetail.extend.advanced import requires_grad, symbol_for, torch_internals
from dovetail.langs.torch import dtype_of
from dovetail.prims.sizes import Size, hint_of
from dovetail.prims.spec import is_channels_last, prod
from dovetail_torch_exec import fused
from dovetail_torch_exec.attention import rule as on_cuda

SCANNED = 4096  # elements from which scans take longer than calls


def _op(name: str) -> Any:
    return symbol_for(f"torch.nn.functional.{name}") or symbol_for(f"torch.{name}")


def tanh(x: Any) -> Any:
    if x.spec.dtype.kind != "float":
        return NotImplemented
    out = prims.tanh(x)
    put_grad(x, fused.tanh_backward(get_grad(out), out))
    return out


def sigmoid(x: Any) -> Any:
    if x.spec.dtype.kind != "float":
        return NotImplemented
    out = prims.sigmoid(x)
    put_grad(x, fused.sigmoid_backward(get_grad(out), out))
    return out


def cumprod(x: Any, *, dim: int) -> Any:
    """Look for zeros first, as PyTorch does: without one the gradient is one scan.  The decomposition has four, in kernels that cost less to call."""
    if not x.spec.dtype.inexact or not fused.is_cpu(x.spec.device) or hint_of(x.spec.numel) < SCANNED:
        return NotImplemented
    out = prims.cumprod(x, dim=dim)
    put_grad(x, fused.cumprod_backward(get_grad(out), x, out, dim=dim))
    return out


def of_input(name: str, backward: Callable[..., Any], keywords: Callable[..., dict[str, Any]] = lambda: {}) -> Callable[..., Any]:
    """Return the rule of an activation whose backward reads its input; `keywords(*args)` are the backward's other arguments."""

    def rule(input: Any, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if input.spec.dtype.kind != "float":
            return NotImplemented
        out = _op(name)(input, *args, **kwargs)
        put_grad(input, backward(get_grad(out), input, **keywords(*args, **kwargs)))
        return out

    return rule


def relu(input: Any, inplace: bool = False) -> Any:
    return _relu(_op("relu"), input)


def relu_method(input: Any) -> Any:
    return _relu(symbol_for("torch.relu"), input)


def _relu(forward: Any, input: Any) -> Any:
    if input.spec.dtype.kind != "float":
        return NotImplemented
    out = forward(input)
    put_grad(input, fused.threshold_backward(get_grad(out), out, threshold=0))
    return out


def glu(input: Any, dim: int = -1) -> Any:
    out = _op("glu")(input, dim)
    put_grad(input, fused.glu_backward(get_grad(out), input, dim=dim))
    return out


def _softmax(name: str, backward: Callable[..., Any], input: Any, dim: int | None, dtype: Any) -> Any:
    if dim is None or not input.spec.shape:
        return NotImplemented
    x = input
    if dtype is not None and dtype_of(dtype) is not input.spec.dtype:
        x = prims.convert_element_type(input, dtype=dtype_of(dtype))
    if x.spec.dtype.kind != "float" or not input.spec.dtype.inexact:
        return NotImplemented
    out = symbol_for(f"torch.{name}")(x, dim)
    gx = backward(get_grad(out), out, dim=dim)
    put_grad(input, gx if x is input else prims.convert_element_type(gx, dtype=input.spec.dtype))
    return out


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return _softmax("softmax", fused.softmax_backward, input, dim, dtype)


def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return _softmax("log_softmax", fused.log_softmax_backward, input, dim, dtype)


def softmax_method(input: Any, dim: int, dtype: Any = None) -> Any:
    return _softmax("softmax", fused.softmax_backward, input, dim, dtype)


def log_softmax_method(input: Any, dim: int, dtype: Any = None) -> Any:
    return _softmax("log_softmax", fused.log_softmax_backward, input, dim, dtype)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    shape, of = tuple(normalized_shape), [input, weight, bias]
    if not input.spec.numel or len({x.spec.dtype for x in of if x is not None}) > 1:
        return NotImplemented
    out, mean, scale = symbol_for("torch.native_layer_norm")(input, shape, weight, bias, eps)
    mask = tuple(map(requires_grad, of))
    grads = fused.layer_norm_backward(get_grad(out), input, mean, scale, weight, bias, shape=shape, mask=mask)
    _put(of, mask, grads)
    return out


def _put(tensors: list[Any], mask: tuple[bool, ...], grads: tuple[Any, ...]) -> None:
    for x, gx in zip([x for x, wanted in zip(tensors, mask, strict=True) if wanted], grads, strict=True):
        put_grad(x, gx)


def convolution(x: Any, weight: Any, **window: Any) -> Any:
    if x.spec.dtype.kind != "float" or not x.spec.numel:
        return NotImplemented
    out = prims.convolution(x, weight, **window)
    mask = (requires_grad(x), requires_grad(weight), False)
    _put([x, weight, None], mask, fused.convolution_backward(get_grad(out), x, weight, mask=mask, **window))
    return out


def convolution_of(name: str, spatial: int) -> Callable[..., Any]:
    """Return the rule of conv1d, conv2d or conv3d, bias and all; padding by name is left to the decomposition."""

    def rule(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
        whole = input.spec.dtype.kind == "float" and input.spec.numel and len(input.spec.shape) == spatial + 2
        if not whole or isinstance(padding, str) or bias is None:
            return NotImplemented
        out = _op(name)(input, weight, bias, stride, padding, dilation, groups)
        window = {"stride": _sizes(stride, spatial), "padding": _sizes(padding, spatial), "dilation": _sizes(dilation, spatial)}
        window |= {"transposed": False, "output_padding": (0,) * spatial, "groups": groups}
        of = [input, weight, bias]
        mask = tuple(map(requires_grad, of))
        _put(of, mask, fused.convolution_backward(get_grad(out), input, weight, mask=mask, **window))
        return out

    return rule


def batch_norm(input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float) -> Any:
    forward = symbol_for(f"{torch_internals.ATEN}._native_batch_norm_legit_functional")
    out, mean, scale, *running = forward(input, weight, bias, running_mean, running_var, training, momentum, eps)
    of = [input, weight, bias]
    mask = tuple(map(requires_grad, of))
    _put(of, mask, fused.batch_norm_backward(get_grad(out), input, mean, scale, weight, eps=eps, mask=mask))
    return (out, mean, scale, *running)


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if input.spec.dtype is not dtypes.int64 or sparse or scale_grad_by_freq:
        return NotImplemented
    out = _op("embedding")(input, weight, padding_idx)
    rows = weight.spec.shape[0]
    skipped = -1 if padding_idx is None else padding_idx % rows
    put_grad(weight, prims.embedding_backward(get_grad(out), input, num_weights=rows, padding_idx=skipped))
    return out


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or p in (0, 1) or input.spec.dtype.kind != "float" or not input.spec.numel:
        return NotImplemented
    noise = fused.dropout_noise(input, p=p)
    out = prims.mul(input, noise)
    put_grad(input, prims.mul(get_grad(out), noise))
    return out


def plain_dropout(input: Any, p: float, train: bool) -> Any:
    return dropout(input, p, train)


def _countable(input: Any, target: Any, size_average: Any, reduce: Any) -> bool:
    """Return whether the loss is one that torch's kernels compute: class indices, no legacy argument."""
    ranks = (len(input.spec.shape), len(target.spec.shape))
    legacy = size_average is not None or reduce is not None
    return not legacy and input.spec.dtype.kind == "float" and target.spec.dtype is dtypes.int64 and ranks in ((1, 0), (2, 1), (4, 3))


def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    if not _countable(input, target, size_average, reduce) or requires_grad(weight):
        return NotImplemented
    how = {"reduction": reduction, "ignore_index": ignore_index}
    out, total = fused.nll_loss_forward(input, target, weight, **how)
    put_grad(input, fused.nll_loss_backward(get_grad(out), input, target, weight, total, **how))
    return out


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if not _countable(input, target, size_average, reduce) or requires_grad(weight) or label_smoothing or not input.spec.numel:
        return NotImplemented
    how, dim = {"reduction": reduction, "ignore_index": ignore_index}, 0 if len(input.spec.shape) == 1 else 1
    logs = symbol_for("torch.log_softmax")(input, dim)
    out, total = fused.nll_loss_forward(logs, target, weight, **how)
    glogs = fused.nll_loss_backward(get_grad(out), logs, target, weight, total, **how)
    put_grad(input, fused.log_softmax_backward(glogs, logs, dim=dim))
    return out


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    q, k, v = query.spec, key.spec, value.spec
    if not fused.is_cpu(q.device) and not dropout_p and not enable_gqa and attn_mask is None:
        return on_cuda(query, key, value, is_causal, scale)
    if not fused.is_cpu(q.device) or dropout_p or enable_gqa or not (q.rank == k.rank == v.rank == 4) or requires_grad(attn_mask):
        return NotImplemented
    alike = q.shape[:2] == k.shape[:2] == v.shape[:2] and q.shape[-1] == v.shape[-1] and q.numel and k.numel
    if not alike or not (q.steps[-1] == k.steps[-1] == v.steps[-1] == 1) or (attn_mask is not None and len(attn_mask.spec.shape) not in (2, 4)):
        return NotImplemented
    how, mask = {"is_causal": is_causal, "scale": scale}, _additive(attn_mask, q.dtype)
    out, sums = fused.attention_forward(query, key, value, mask, **how)
    grads = fused.attention_backward(get_grad(out), query, key, value, out, sums, mask, **how)
    _put([query, key, value], (True, True, True), grads)
    return out


def _additive(mask: Any, dtype: dtypes.DType) -> Any:
    """Return a boolean mask as what is added to the scores."""
    if mask is None or mask.spec.dtype is not dtypes.bool_:
        return mask
    none = prims.full(shape=mask.spec.shape, value=-math.inf, dtype=dtype, device=mask.spec.device)
    return prims.where(mask, 0.0, none)


def _sizes(value: Any, count: int) -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return sizes * count if len(sizes) == 1 else sizes


def _pair(value: Any) -> tuple[int, ...]:
    return _sizes(value, 2)


def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    if input.spec.dtype.kind != "float" or not input.spec.numel:
        return NotImplemented
    out, places = _op("max_pool2d")(input, kernel_size, stride, padding, dilation, ceil_mode, True)
    kernel = _pair(kernel_size)
    window = {
        "kernel": kernel,
        "stride": _pair(stride) if stride else kernel,
        "padding": _pair(padding),
        "dilation": _pair(dilation),
        "ceil": ceil_mode,
    }
    put_grad(input, fused.max_pool2d_backward(get_grad(out), input, places, **window))
    return (out, places) if return_indices else out


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    if input.spec.dtype.kind != "float" or not input.spec.numel:
        return NotImplemented
    out = _op("avg_pool2d")(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    kernel = _pair(kernel_size)
    window = {"kernel": kernel, "stride": _pair(stride) if stride else kernel, "padding": _pair(padding), "ceil": ceil_mode}
    put_grad(input, fused.avg_pool2d_backward(get_grad(out), input, **window, count_pad=count_include_pad, divisor=divisor_override))
    return out


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    if input.spec.dtype.kind != "float" or not input.spec.numel:
        return NotImplemented
    out = _op("adaptive_avg_pool2d")(input, output_size)
    if out.spec.shape[-2:] == (1, 1):  # a mean, which needs nothing kept
        shape, rank = input.spec.shape, len(input.spec.shape)
        area = prod(shape[-2:])
        share = prims.div(get_grad(out), area) if type(area) is Size else prims.mul(get_grad(out), 1.0 / area)
        put_grad(input, prims.broadcast_in_dim(share, shape=shape, dims=tuple(range(rank))))
        return out
    put_grad(input, fused.adaptive_avg_pool2d_backward(get_grad(out), input))
    return out


def resize(name: str) -> Callable[..., Any]:
    """Return the rule of a function that resizes the last dimensions: `corners` is align_corners, which those that pick the nearest lack."""
    path = f"{torch_internals.C_NN}.{name}"

    def rule(input: Any, output_size: Any, *rest: Any) -> Any:
        if input.spec.dtype.kind != "float" or not input.spec.numel:
            return NotImplemented
        *corners, factors = rest
        out = symbol_for(path)(input, output_size, *rest)
        spec = input.spec
        how = {"shape": spec.shape, "corners": tuple(corners), "factors": tuple(factors or (None,) * (spec.rank - 2))}
        last = is_channels_last(spec) and name not in ("upsample_bicubic2d", "upsample_nearest3d", "_upsample_nearest_exact3d")
        put_grad(input, fused.RESIZE_BACKWARD[name](get_grad(out), **how, last=last))
        return out

    return rule


def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Differentiate a padding with what is there; its parts stand for one with a constant, and for one that crops."""
    backward, count = fused.BORDER_BACKWARD.get(mode), len(pad) // 2
    whole = backward is not None and input.spec.dtype.kind == "float" and input.spec.numel and input.spec.rank == count + 2
    if not whole or any([type(n) is not int or n < 0 for n in pad]):
        return NotImplemented
    out = _op("pad")(input, pad, mode, value)
    put_grad(input, backward(get_grad(out), shape=input.spec.shape, pad=tuple(pad), last=is_channels_last(input.spec)))
    return out


def _elu(alpha: float = 1.0) -> dict[str, Any]:
    return {"alpha": alpha, "scale": 1.0, "input_scale": 1.0}


RULES: dict[Any, Callable[..., Any]] = {
    prims.tanh: tanh,
    prims.sigmoid: sigmoid,
    prims.cumprod: cumprod,
    prims.convolution: convolution,
    f"{torch_internals.ATEN}._native_batch_norm_legit_functional": batch_norm,
    "torch.relu": relu_method,
    "torch.softmax": softmax_method,
    "torch.log_softmax": log_softmax_method,
    "torch.dropout": plain_dropout,
    "torch.nn.functional.relu": relu,
    "torch.nn.functional.silu": of_input("silu", fused.silu_backward),
    "torch.nn.functional.mish": of_input("mish", fused.mish_backward),
    "torch.nn.functional.hardswish": of_input("hardswish", fused.hardswish_backward),
    "torch.nn.functional.hardsigmoid": of_input("hardsigmoid", fused.hardsigmoid_backward),
    "torch.nn.functional.gelu": of_input("gelu", fused.gelu_backward, lambda *, approximate="none": {"approximate": approximate}),
    "torch.nn.functional.softplus": of_input(
        "softplus", fused.softplus_backward, lambda beta=1, threshold=20: {"beta": beta, "threshold": threshold}
    ),
    "torch.nn.functional.elu": of_input("elu", fused.elu_backward, _elu),
    "torch.nn.functional.leaky_relu": of_input("leaky_relu", fused.leaky_relu_backward, lambda negative_slope=0.01: {"slope": negative_slope}),
    "torch.nn.functional.hardtanh": of_input(
        "hardtanh", fused.hardtanh_backward, lambda min_val=-1.0, max_val=1.0: {"low": min_val, "high": max_val}
    ),
    "torch.nn.functional.relu6": of_input("relu6", fused.hardtanh_backward, lambda: {"low": 0, "high": 6}),
    **{f"torch.nn.functional.conv{n}d": convolution_of(f"conv{n}d", n) for n in (1, 2, 3)},
    "torch.nn.functional.glu": glu,
    "torch.nn.functional.softmax": softmax,
    "torch.nn.functional.log_softmax": log_softmax,
    "torch.nn.functional.layer_norm": layer_norm,
    "torch.nn.functional.embedding": embedding,
    "torch.nn.functional.dropout": dropout,
    "torch.nn.functional.nll_loss": nll_loss,
    "torch.nn.functional.cross_entropy": cross_entropy,
    "torch.nn.functional.scaled_dot_product_attention": attention,
    "torch.nn.functional.max_pool2d": max_pool2d,
    "torch.nn.functional.avg_pool2d": avg_pool2d,
    "torch.nn.functional.adaptive_avg_pool2d": adaptive_avg_pool2d,
    "torch.nn.functional.pad": pad,
    **{f"{torch_internals.C_NN}.{name}": resize(name) for name in fused.RESIZE_BACKWARD},
}
