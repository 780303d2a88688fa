"""Convolution and its gradients on real tensors, complex ones by their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dovetail.langs.torch import spec_of
from dovetail.prims import spec

USUAL = (torch.float32, torch.float64, torch.bfloat16)  # whose convolutions PyTorch lays out like their operands on CPUs, too

VOLUMES = (torch.float32, torch.bfloat16, torch.float16)  # whose volumes have their channels innermost where those of an operand are


Convolve = Callable[..., Tensor]
Gradients = Callable[..., tuple[Tensor | None, ...]]
_GRADIENTS: Gradients = torch.ops.aten.convolution_backward


def convolution(x: Tensor, weight: Tensor, *, convolve: Convolve = torch.convolution, **window: Any) -> Tensor:
    return _by_parts(convolution, x, weight, window) if x.is_complex() else _convolution(convolve, x, weight, **window)


def _convolution(
    convolve: Convolve,
    x: Tensor,
    weight: Tensor,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    transposed: bool,
    output_padding: tuple,
    groups: int,
) -> Tensor:
    out = convolve(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    if out.ndim == 3:
        return out.mT.contiguous().mT if _is_channels_last(weight) else out.contiguous()
    if out.device.type != "cpu" or (out.ndim == 4 and out.dtype in USUAL):
        return out
    last = (out.ndim == 4 or out.dtype in VOLUMES) and (is_channels_last(x) or is_channels_last(weight))
    return in_format(out, x, weight) if last else out.contiguous()


def sequence(out: Tensor) -> Tensor:
    """Lay out a gradient of a one-dimensional convolution row by row, as the meta promises."""
    return out.contiguous() if out.ndim == 3 else out


def volume(out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Lay out a gradient of a convolution of volumes like its operands, as the meta promises; PyTorch decides by sizes and threads on CPUs."""
    if out.ndim != 5 or out.device.type != "cpu":
        return out
    return in_format(out, x, weight) if is_channels_last(x) or is_channels_last(weight) else out.contiguous()


def _is_channels_last(weight: Tensor) -> bool:
    """Return whether a weight of sequences has its channels innermost, as the meta decides."""
    (_, channels, kernel), (first, step, last) = weight.shape, weight.stride()
    return not weight.is_contiguous() and channels != 1 and step != 0 and last >= step * channels and first >= last * kernel


def _by_parts(fn: Callable, a: Tensor, b: Tensor, keywords: dict) -> Tensor:
    """Return a bilinear `fn` of complex tensors, from its values on their real and imaginary parts."""
    (ar, ai), (br, bi) = ((x.real.clone(), x.imag.clone()) for x in (a, b))
    return torch.complex(fn(ar, br, **keywords) - fn(ai, bi, **keywords), fn(ar, bi, **keywords) + fn(ai, br, **keywords))


def convolution_input_grad(g: Tensor, weight: Tensor, *, gradients: Gradients = _GRADIENTS, **keywords: Any) -> Tensor:
    return _by_parts(convolution_input_grad, g, weight, keywords) if g.is_complex() else _input_grad(gradients, g, weight, **keywords)


def _input_grad(gradients: Gradients, g: Tensor, weight: Tensor, *, input_shape: tuple, **window: Any) -> Tensor:
    return _convolution_backward(gradients, g, _blank(input_shape, g), weight, (True, False, False), **window)[0]


def convolution_weight_grad(g: Tensor, x: Tensor, *, gradients: Gradients = _GRADIENTS, **keywords: Any) -> Tensor:
    return _by_parts(convolution_weight_grad, g, x, keywords) if g.is_complex() else _weight_grad(gradients, g, x, **keywords)


def _weight_grad(gradients: Gradients, g: Tensor, x: Tensor, *, weight_shape: tuple, **window: Any) -> Tensor:
    return _convolution_backward(gradients, g, x, _blank(weight_shape, g), (False, True, False), **window)[1]


def _convolution_backward(
    gradients: Gradients,
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    mask: tuple,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    transposed: bool,
    output_padding: tuple,
    groups: int,
) -> tuple:
    grads = gradients(g, x, weight, None, stride, padding, dilation, transposed, output_padding, groups, mask)
    return tuple([out if out is None else sequence(out) for out in grads])


def _blank(shape: tuple, like: Tensor) -> Tensor:
    """Return a tensor whose layout, not its numbers, tells torch which layout to use."""
    return in_format(torch.empty(shape, dtype=like.dtype, device=like.device), like)


def in_format(out: Tensor, *inputs: Tensor) -> Tensor:
    """Make `out` channels last where an input is."""
    for x in inputs:
        if is_channels_last(x):
            return out.to(memory_format=torch.channels_last if out.ndim == 4 else torch.channels_last_3d)
    return out


def is_channels_last(x: Tensor) -> bool:
    """Return whether a batch has its channels innermost, as the meta decides."""
    return x.ndim in (4, 5) and not x.is_contiguous() and spec.is_channels_last(spec_of(x))
