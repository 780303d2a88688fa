"""Convolutions, and `unfold` and `fold` between images and columns of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail import dtypes, prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol, wrong_type
from dovetail.prims.shape import flat_reshape
from dovetail.prims.sizes import Size
from dovetail.prims.spec import prod

Ints = int | Sequence[int]


@torchsymbol("torch.nn.functional.conv1d")
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1):
    """Cross-correlation of signals [batch, channels, length] with weight [out, channels / groups, kernel], plus bias [out]."""
    return _convolved(1, input, weight, bias, stride, padding, dilation, groups)


@torchsymbol("torch.nn.functional.conv2d")
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1):
    """Cross-correlation of images [batch, channels, height, width] with weight [out, channels / groups, ...], plus bias [out]."""
    return _convolved(2, input, weight, bias, stride, padding, dilation, groups)


@torchsymbol("torch.nn.functional.conv3d")
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1):
    """Cross-correlation of volumes [batch, channels, depth, height, width] with weight [out, channels / groups, ...], plus bias [out]."""
    return _convolved(3, input, weight, bias, stride, padding, dilation, groups)


@torchsymbol("torch.nn.functional.conv_transpose1d")
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
):
    """The adjoint of `conv1d`: weight is [channels, out / groups, kernel]."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@torchsymbol("torch.nn.functional.conv_transpose2d")
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
):
    """The adjoint of `conv2d`: weight is [channels, out / groups, ...]."""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@torchsymbol("torch.nn.functional.conv_transpose3d")
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
):
    """The adjoint of `conv3d`: weight is [channels, out / groups, ...]."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@torchsymbol("torch.nn.functional.unfold")
def unfold(input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1):
    """The windows of images [batch, channels, height, width] as columns: [batch, channels * kernel elements, windows]."""
    kernel, dilation, padding, stride = _window(kernel_size, dilation, padding, stride)
    x, batched = _with_batch(input, 2)
    batch, channels, *sizes = x.spec.shape
    counts = [_count(*window) for window in zip(sizes, kernel, dilation, padding, stride, strict=True)]
    require(all([n > 0 for n in counts]), "the windows {} do not fit into {}: their counts would be {}", kernel, input.spec, tuple(counts))
    if any(padding):
        zero = core.fit(0, (), x.spec.dtype)
        x = prims.pad(x, value=zero, low=(0, 0, *padding), high=(0, 0, *padding), interior=(0, 0, 0, 0))
    for d in (2, 3):
        x = sliding(x, d, kernel[d - 2], stride[d - 2], dilation[d - 2])
    x = prims.clone(prims.transpose(x, order=(0, 1, 4, 5, 2, 3)))  # the columns are no view of the image, also where they could be
    columns = flat_reshape(x, (batch, channels * prod(kernel), prod(counts)))
    return columns if batched else prims.squeeze(columns, dims=(0,))


@torchsymbol("torch.nn.functional.fold")
def fold(input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1):
    """The adjoint of `unfold`: columns put back into images of `output_size` and added up where they overlap."""
    if input.spec.dtype is dtypes.bool_:
        counts = fold(core.convert(input, dtypes.int64), output_size, kernel_size, dilation, padding, stride)
        return core.convert(counts, dtypes.bool_)
    kernel, dilation, padding, stride = _window(kernel_size, dilation, padding, stride)
    sizes = ints(output_size, 2, "output_size")
    rank = len(input.spec.shape)
    require(rank in (2, 3), "Expected 2D or 3D (batch mode) tensor for input, got {}", input.spec)
    x = input if rank == 3 else prims.broadcast_in_dim(input, shape=(1, *input.spec.shape), dims=(1, 2))
    batch, rows, columns = x.spec.shape
    counts = [_count(*window) for window in zip(sizes, kernel, dilation, padding, stride, strict=True)]
    require(rows % prod(kernel) == 0, "expected a multiple of the kernel's {} elements before the last dimension, got {}", prod(kernel), input.spec)
    require(all([n > 0 for n in counts]) and columns == prod(counts), "expected {} windows in the last dimension, got {}", tuple(counts), input.spec)
    channels = rows // prod(kernel)
    x = prims.transpose(flat_reshape(x, (batch, channels, *kernel, *counts)), order=(0, 1, 4, 5, 2, 3))
    for d in (3, 2):
        x = _overlaid(x, d, kernel[d - 2], stride[d - 2], dilation[d - 2], sizes[d - 2] + 2 * padding[d - 2])
    if any(padding):
        stops = (batch, channels, *(n + p for n, p in zip(sizes, padding, strict=True)))
        x = prims.clone(prims.strided_slice(x, starts=(0, 0, *padding), stops=stops, steps=(1, 1, 1, 1)))
    return x if rank == 3 else prims.squeeze(x, dims=(0,))


def ints(values: Any, count: int, name: str) -> tuple[int, ...]:
    """Return `count` ints from an int or a sequence of 1 or `count` of them."""
    values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    if not all([isinstance(n, (int, Size)) and not isinstance(n, bool) for n in values]):
        wrong_type("the operation", name, f"an int or {count} of them", next(n for n in values if not isinstance(n, int) or isinstance(n, bool)))
    require(len(values) in (1, count), "expected one or {} values for {}, got {}", count, name, values)
    return values if len(values) == count else values * count


def sliding(x: Tensor, dim: int, size: int, step: int, dilation: int) -> Tensor:
    """Return windows of `size` elements, each `dilation` apart, one every `step`: counted at `dim`, in a new last dimension."""
    if dilation == 1:
        return prims.unfold(x, dim=dim, size=size, step=step)
    rank, length = len(x.spec.shape), x.spec.shape[dim] - dilation * (size - 1)
    starts = prims.unfold(x, dim=dim, size=length, step=dilation)  # for each element of a window, where those of all windows begin
    if step > 1:
        shape = starts.spec.shape
        starts = prims.strided_slice(starts, starts=(0,) * (rank + 1), stops=shape, steps=(*(1 for _ in shape[1:]), step))
    return prims.transpose(starts, order=_swapped(rank + 1, dim))


def _overlaid(x: Tensor, dim: int, size: int, step: int, dilation: int, length: int) -> Tensor:
    """Return the adjoint of `sliding`; `length` is the size of `dim` in the result."""
    rank = len(x.spec.shape)
    shape = (*x.spec.shape[:dim], length, *x.spec.shape[dim + 1 : rank - 1])
    if dilation == 1:
        return prims.fold_add(x, shape=shape, dim=dim, size=size, step=step)
    starts, length = prims.transpose(x, order=_swapped(rank, dim)), length - dilation * (size - 1)
    if step > 1:
        zeros = (0,) * rank
        high = length - step * (x.spec.shape[dim] - 1) - 1
        starts = prims.pad(starts, value=core.fit(0, (), x.spec.dtype), low=zeros, high=(*zeros[1:], high), interior=(*zeros[1:], step - 1))
    return prims.fold_add(starts, shape=shape, dim=dim, size=length, step=dilation)


def _swapped(rank: int, dim: int) -> tuple[int, ...]:
    """Return the order of dimensions in which `dim` and the last one change places."""
    order = list(range(rank))
    order[dim], order[-1] = order[-1], order[dim]
    return tuple(order)


def _count(n: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    """Return the number of windows."""
    return (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _window(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> tuple[tuple[int, ...], ...]:
    arguments = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    window = {name: ints(value, 2, name) for name, value in arguments.items()}
    for name, sizes in window.items():
        minimum = 0 if name == "padding" else 1
        require(min(sizes) >= minimum, "{} should be at least {}, got {}", name, minimum, sizes)
    return tuple(window.values())


def _with_batch(x: Tensor, spatial: int) -> tuple[Tensor, bool]:
    """Return (x with a batch dimension, whether it had one).

    The stride of that dimension is what unsqueeze makes it, with which one image on its own is not channels last.
    """
    shape = x.spec.shape
    fits = len(shape) in (spatial + 1, spatial + 2)
    require(fits, "Expected {}D (unbatched) or {}D (batched) input, got {}", spatial + 1, spatial + 2, x.spec)
    if len(shape) == spatial + 2:
        return x, True
    return prims.broadcast_in_dim(x, shape=(1, *shape), dims=tuple(range(1, spatial + 2))), False


def _convolved(spatial: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    _require_weight(spatial, input, weight, bias)
    x, batched = _with_batch(input, spatial)
    stride, dilation = ints(stride, spatial, "stride"), ints(dilation, spatial, "dilation")
    if isinstance(padding, str):
        x, padding = _resolve_padding(padding, x, weight, stride, dilation)
    window = {"stride": stride, "padding": ints(padding, spatial, "padding"), "dilation": dilation}
    out = prims.convolution(x, weight, **window, transposed=False, output_padding=(0,) * spatial, groups=groups)
    return _finished(out, bias, batched)


def _transposed(
    spatial: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any
) -> Tensor:
    _require_weight(spatial, input, weight, bias)
    x, batched = _with_batch(input, spatial)
    arguments = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    window = {name: ints(values, spatial, name) for name, values in arguments.items()}
    return _finished(prims.convolution(x, weight, **window, transposed=True, groups=groups), bias, batched)


def _require_weight(spatial: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    require(len(weight.spec.shape) == spatial + 2, "expected a weight of {} dimensions, got {}", spatial + 2, weight.spec)
    for other in (weight,) if bias is None else (weight, bias):
        alike = other.spec.dtype is x.spec.dtype and other.spec.device is x.spec.device
        require(alike, "expected input, weight and bias of one dtype and device, got {} and {}; convert one of them", x.spec, other.spec)


def _resolve_padding(padding: str, x: Tensor, weight: Tensor, stride: tuple, dilation: tuple) -> tuple[Tensor, tuple[int, ...]]:
    """Resolve "same" and "valid" to (x, padding); x is padded where "same" is not symmetric."""
    require(padding in ("same", "valid"), "Invalid padding string: expected 'same' or 'valid', got {!r}", padding)
    kernel = weight.spec.shape[2:]
    if padding == "valid":
        return x, (0,) * len(kernel)
    require(all([n == 1 for n in stride]), "padding='same' is not supported for strided convolutions, got stride {}", stride)
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    odd = (0, 0, *(n % 2 for n in total))
    if any(odd):
        zeros = (0,) * len(odd)
        x = prims.pad(x, value=core.fit(0, (), x.spec.dtype), low=zeros, high=odd, interior=zeros)
    return x, tuple([n // 2 for n in total])


def _finished(out: Tensor, bias: Tensor | None, batched: bool) -> Tensor:
    """Add the bias and drop the batch dimension where the input had none."""
    channels = out.spec.shape[1]
    if bias is not None and channels != 0:
        require(bias.spec.shape == (channels,), "expected bias to be 1-dimensional with {} elements, got {}", channels, bias.spec)
        out = prims.add(out, prims.broadcast_in_dim(bias, shape=out.spec.shape, dims=(1,)))
    return out if batched else prims.squeeze(out, dims=(0,))
