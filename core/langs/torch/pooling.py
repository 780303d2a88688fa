"""The largest element, or the mean, of windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.devices import cpu
from dovetail.dtypes import DType
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchquery, torchsymbol
from dovetail.langs.torch.convolution import Ints, ints, sliding
from dovetail.langs.torch.norm_gradients import CLOSED_FORMS
from dovetail.langs.torch.padding import positions
from dovetail.prims import TensorSpec
from dovetail.prims.shape import flat_reshape
from dovetail.prims.sizes import float_of
from dovetail.prims.spec import ceildiv, is_channels_last, prod
from dovetail.torch_internals import C_NN

FULL_ROW = 16  # elements of a row from which looking up shares takes less time than adding them in place: it fills vectors
MOST_PLACES = 512  # places in a dimension that programs write out
FEW = 9  # elements of a window that are compared one after the other, as many as 3 x 3

Sizes = int | Sequence[int | None]


@torchsymbol("torch.nn.functional.max_pool1d", "torch.max_pool1d")
def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
):
    """The largest element of each window over the last dimension; with `return_indices` also where it is."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@torchsymbol("torch.nn.functional.max_pool2d", "torch.max_pool2d")
def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
):
    """The largest element of each window over the last two dimensions; with `return_indices` also where it is, counted row-major."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@torchsymbol("torch.nn.functional.max_pool3d", "torch.max_pool3d")
def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
):
    """The largest element of each window over the last three dimensions; with `return_indices` also where it is, counted row-major."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@torchsymbol("torch.nn.functional.avg_pool1d")
def avg_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False, count_include_pad: bool = True
):
    """The mean of each window over the last dimension."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@torchsymbol("torch.nn.functional.avg_pool2d")
def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
):
    """The mean of each window over the last two dimensions, or its sum over `divisor_override`."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@torchsymbol("torch.nn.functional.avg_pool3d")
def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
):
    """The mean of each window over the last three dimensions, or its sum over `divisor_override`."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@torchsymbol("torch.nn.functional.adaptive_avg_pool1d")
def adaptive_avg_pool1d(input: Tensor, output_size: Sizes):
    """The means of `output_size` windows that cover the last dimension."""
    return _adaptive_avg_pool(1, input, output_size)


@torchsymbol("torch.nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Tensor, output_size: Sizes):
    """The means of `output_size` windows that cover the last two dimensions; None keeps a size."""
    return _adaptive_avg_pool(2, input, output_size)


@torchsymbol("torch.nn.functional.adaptive_avg_pool3d")
def adaptive_avg_pool3d(input: Tensor, output_size: Sizes):
    """The means of `output_size` windows that cover the last three dimensions; None keeps a size."""
    return _adaptive_avg_pool(3, input, output_size)


@torchsymbol("torch.nn.functional.adaptive_max_pool1d")
def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False):
    """The largest elements of `output_size` windows that cover the last dimension; with `return_indices` also where they are."""
    return _adaptive_max_pool(1, input, output_size, return_indices)


@torchsymbol("torch.nn.functional.adaptive_max_pool2d")
def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False):
    """The largest elements of `output_size` windows that cover the last two dimensions; with `return_indices` also where they are."""
    return _adaptive_max_pool(2, input, output_size, return_indices)


@torchsymbol("torch.nn.functional.adaptive_max_pool3d")
def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False):
    """The largest elements of `output_size` windows that cover the last three dimensions; with `return_indices` also where they are."""
    return _adaptive_max_pool(3, input, output_size, return_indices)


def _with_indices(symbol: Any, *names: str) -> None:
    """Register the torch functions `names` as `symbol` with return_indices=True."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return symbol(*args, **kwargs | {"return_indices": True})

    torchquery(*names)(call)


_with_indices(max_pool1d, "torch.nn.functional.max_pool1d_with_indices", "torch.max_pool1d_with_indices")
_with_indices(max_pool2d, "torch.nn.functional.max_pool2d_with_indices", f"{C_NN}.max_pool2d_with_indices")
_with_indices(max_pool3d, "torch.nn.functional.max_pool3d_with_indices", f"{C_NN}.max_pool3d_with_indices")
_with_indices(adaptive_max_pool1d, "torch.nn.functional.adaptive_max_pool1d_with_indices", "torch.adaptive_max_pool1d")
_with_indices(adaptive_max_pool2d, "torch.nn.functional.adaptive_max_pool2d_with_indices", f"{C_NN}.adaptive_max_pool2d")
_with_indices(adaptive_max_pool3d, "torch.nn.functional.adaptive_max_pool3d_with_indices", f"{C_NN}.adaptive_max_pool3d")


@torchquery("torch.nn.functional.fractional_max_pool2d")
def fractional_max_pool2d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None
) -> Any:
    """Call torch's Python code for the variant with indices directly: its dispatch on `return_indices` would recurse."""
    both = torch.nn.functional.fractional_max_pool2d_with_indices(input, kernel_size, output_size, output_ratio, _random_samples=_random_samples)
    return both if return_indices else both[0]


@torchquery("torch.nn.functional.fractional_max_pool3d")
def fractional_max_pool3d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None
) -> Any:
    """Call torch's Python code for the variant with indices directly: its dispatch on `return_indices` would recurse."""
    both = torch.nn.functional.fractional_max_pool3d_with_indices(input, kernel_size, output_size, output_ratio, _random_samples=_random_samples)
    return both if return_indices else both[0]


def _require_poolable(x: TensorSpec, spatial: int, filled: int) -> None:
    """Raise unless x is a signal, image or volume, or a batch of them, and not empty from dimension `filled` on."""
    fits = x.rank in (spatial + 1, spatial + 2)
    require(fits, "expected {}D (unbatched) or {}D (batched) input, got {}", spatial + 1, spatial + 2, x)
    require(prod(x.shape[filled:]) != 0, "expected sizes other than 0 from dimension {} on, got {}", filled, x)


class _Windows:
    """Windows over the last dimensions of x: kernel, stride, padding, dilation and count for each.

    `image` is x, or x with its channels last where they are innermost in memory: windows are read, and gradients written, in that order.
    Its spatial dimensions begin at `first`.
    """

    def __init__(self, x: Tensor, spatial: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool):
        _require_poolable(x.spec, spatial, x.spec.rank - spatial - 1)
        self.x, self.spatial = x, spatial
        self.channels_last = spatial == 2 and x.spec.rank == 4 and is_channels_last(x.spec)
        self.image = prims.transpose(x, order=(0, 2, 3, 1)) if self.channels_last else x
        self.first = 1 if self.channels_last else x.spec.rank - spatial
        self.kernel, self.padding = ints(kernel_size, spatial, "kernel_size"), ints(padding, spatial, "padding")
        self.stride = self.kernel if stride is None or stride in ((), []) else ints(stride, spatial, "stride")
        self.dilation = ints(dilation, spatial, "dilation")
        self.sizes = x.spec.shape[len(x.spec.shape) - spatial :]
        require(min(self.kernel) > 0, "kernel size should be greater than zero, got {}", self.kernel)
        require(min(self.stride) > 0, "stride should not be zero, got {}", self.stride)
        require(min(self.dilation) > 0, "dilation should be greater than zero, got {}", self.dilation)
        self.reach = tuple([d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)])
        half = all([0 <= p <= reach // 2 for p, reach in zip(self.padding, self.reach, strict=True)])
        require(half, "pad should be at least zero and at most half of the kernel size, got {} and {}", self.padding, self.kernel)
        self.counts = tuple([self._count(i, ceil_mode) for i in range(spatial)])
        require(min(self.counts) > 0, "the windows {} do not fit into {}: Output size is too small", self.kernel, x.spec)

    def _count(self, i: int, ceil_mode: bool) -> int:
        """Return the number of windows in dimension i; with `ceil_mode` the last may extend beyond the end, but not start there."""
        n, stride, padding = self.sizes[i], self.stride[i], self.padding[i]
        room = n + 2 * padding - self.reach[i]
        if not ceil_mode:
            return room // stride + 1
        count = ceildiv(room, stride) + 1
        return count - 1 if (count - 1) * stride >= n + padding else count

    def extract(self, filler: Any, dtype: DType) -> Tensor:
        """Return the windows of `image`, with their elements in new last dimensions, of `dtype`, padded with `filler`."""
        x = self._padded(core.convert(self.image, dtype), filler)
        for i in range(self.spatial):
            x = sliding(x, self.first + i, self.kernel[i], self.stride[i], self.dilation[i])
        return x

    def sums(self, dtype: DType) -> Tensor:
        """Return the sum of each window of x, computed in `dtype`.

        The windows of one dimension are added up after those of another: a sum serves all windows that have these elements, and so does
        a sum of gradients in the backward.
        """
        x = self._padded(core.convert(self.image, dtype), core.fit(0, (), dtype))
        for i in range(self.spatial):
            x = prims.sum(sliding(x, self.first + i, self.kernel[i], self.stride[i], self.dilation[i]), dims=(len(x.spec.shape),))
        return self.restored(x)

    def restored(self, out: Tensor) -> Tensor:
        """Return what was computed for each window of `image` in the order of dimensions of x."""
        return prims.transpose(out, order=(0, 3, 1, 2)) if self.channels_last else out

    def _padded(self, x: Tensor, filler: Any) -> Tensor:
        """Return `x`, laid out as `image`, with what windows read beyond its ends."""
        high = self._beyond()
        if not any(self.padding) and not any(high):
            return x
        before, after = (0,) * self.first, (0,) * (len(x.spec.shape) - self.first - self.spatial)
        low, high = (*before, *self.padding, *after), (*before, *high, *after)
        return prims.pad(x, value=filler, low=low, high=high, interior=(0,) * len(x.spec.shape))

    def _beyond(self) -> tuple[int, ...]:
        """Return the padding that the last window of each dimension needs after the end."""
        per_dim = zip(self.counts, self.stride, self.reach, self.sizes, self.padding, strict=True)
        ends = [(count - 1) * stride + reach - n - padding for count, stride, reach, n, padding in per_dim]
        return tuple([max(n, 0) for n in ends])

    @property
    def is_small(self) -> bool:
        """Return whether windows have few elements, in an image of a known size that 32 bits can count."""
        return prod(self.kernel) <= FEW and all([type(n) is int for n in self.x.spec.shape]) and prod(self.sizes) < 1 << 31

    def of_largest(self, extracted: Tensor) -> Tensor:
        """Return where in `image` the largest element of each window lies, counted row-major: one comparison for each element.

        It begins with the first element inside of the image, and takes each that is larger, or NaN.
        """
        rank, dtype = len(extracted.spec.shape) - self.spatial, extracted.spec.dtype
        shape = extracted.spec.shape[:rank]
        start, inside = None, None  # the place of the first element, which may lie in the padding, and of the first one in the image
        for i, n in enumerate(self.sizes):
            firsts = positions(self.x, self.counts[i], start=-self.padding[i], step=self.stride[i])
            at = prims.where(prims.lt(firsts, 0), prims.remainder(firsts, self.dilation[i]), firsts) if self.padding[i] else firsts
            firsts, at = (_along(core.convert(x, dtypes.int32), shape, rank - self.first - i) for x in (firsts, at))
            start = firsts if start is None else core.add(core.mul(start, n), firsts)
            inside = at if inside is None else core.add(core.mul(inside, n), at)
        largest, index = None, inside
        for within in itertools.product(*[range(k) for k in self.kernel]):
            dims = (0,) * rank
            ends = (*shape, *[k + 1 for k in within])
            element = prims.strided_slice(extracted, starts=(*dims, *within), stops=ends, steps=(1,) * len(ends))
            element = prims.squeeze(element, dims=_last(self.spatial, len(ends)))
            if largest is None:
                largest = element
                continue
            place = 0
            for i, n in enumerate(self.sizes):
                place = place * n + within[i] * self.dilation[i]
            larger = prims.gt(element, largest)
            if dtype.kind == "float":
                larger = prims.bitwise_or(larger, prims.isnan(element))
            largest, index = prims.where(larger, element, largest), prims.where(larger, core.add(start, place), index)
        return core.convert(index, dtypes.int64)

    def coordinate(self, i: int, within: Tensor) -> Tensor:
        """Return the coordinate in spatial dimension i of `image` of element `within` of each window."""
        starts = positions(self.x, self.counts[i], start=-self.padding[i], step=self.stride[i])
        at = core.add(core.mul(within, self.dilation[i]), _along(starts, within.spec.shape, len(within.spec.shape) - self.first - i))
        # Where all elements of a window equal the minimum, the first may lie in the padding: use the first one inside.
        return prims.where(prims.lt(at, 0), prims.remainder(at, self.dilation[i]), at) if self.padding[i] else at


def _along(values: Tensor, shape: tuple[int, ...], from_end: int) -> Tensor:
    """Return one-dimensional `values` along dimension -from_end of `shape`."""
    return prims.broadcast_in_dim(values, shape=shape, dims=(len(shape) - from_end,))


def _last(count: int, rank: int) -> tuple[int, ...]:
    return tuple(range(rank - count, rank))


def _min_value(x: TensorSpec) -> float:
    if x.dtype.kind == "float":
        return -math.inf
    require_dtype(x.dtype.kind == "int", "max pooling is not implemented for {}; convert it", x)
    return -(2 ** (8 * x.dtype.bytes - 1)) if x.dtype.signed else 0


def _max_pool(spatial: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, return_indices: bool) -> Any:
    windows = _Windows(x, spatial, kernel_size, stride, padding, dilation, ceil_mode)
    floating = spatial > 1 or return_indices or x.spec.dtype.kind == "float"
    require_dtype(floating, "max_pool1d is not implemented for {} without return_indices; convert it", x.spec)
    extracted = windows.extract(_min_value(x.spec), x.spec.dtype)
    # In one dimension PyTorch has a kernel of its own, on the CPU and without indices or gradients, without memory formats.
    formatted = spatial if spatial > 1 or return_indices or x.spec.requires_grad or x.spec.device is not cpu else 0
    index = windows.of_largest if windows.is_small else None
    results = _largest(windows.image, windows.first, extracted, windows.kernel, windows.coordinate, return_indices, index)
    results = [_formatted(windows.restored(result), x, formatted) for result in results]
    return tuple(results) if return_indices else results[0]


def _formatted(out: Tensor, x: Tensor, spatial: int) -> Tensor:
    """Return `out`, channels last where x is after PyTorch has viewed it as a batch of images or volumes.

    Signals get a height of 1, a single volume a batch of 1.
    """
    shape, steps = x.spec.shape, x.spec.steps
    if spatial == 1 and len(shape) == 3:
        lifted = x.spec.view((*shape[:2], 1, shape[2]), (*steps[:2], steps[2] * shape[2], steps[2]))
    elif spatial == 3 and len(shape) == 4:
        lifted = x.spec.view((1, *shape), (steps[0] * shape[0], *steps))
    else:
        lifted = x.spec if spatial and len(shape) == spatial + 2 else x.spec.fresh()
    if not is_channels_last(lifted):
        return out
    channel = len(shape) - spatial - 1
    return prims.stride_order(out, order=(*(d for d in range(len(shape)) if d != channel), channel))


def _largest(
    x: Tensor, start: int, windows: Tensor, kernel: tuple[int, ...], coordinate: Any, return_indices: bool, of_largest: Any = None
) -> list[Tensor]:
    """Return the largest element of each window, and with `return_indices` where it is, counted row-major.

    Spatial dimensions of x begin at `start`; windows have their elements in the last dimensions, of the sizes `kernel`.  `of_largest(windows)`
    returns the places; else `coordinate(i, k)` is the coordinate in x of element k of dimension i.  Where a gradient may flow, elements are
    gathered by position, so that it goes to the first of equal elements, or to the last NaN, as in PyTorch.
    """
    spatial, rank = len(kernel), len(windows.spec.shape)
    if not return_indices and not x.spec.requires_grad:
        return [prims.amax(windows, dims=_last(spatial, rank))]
    before, sizes, after = x.spec.shape[:start], x.spec.shape[start : start + spatial], x.spec.shape[start + spatial :]
    if of_largest is not None:
        index = of_largest(windows)
    else:
        first, index = _of_the_largest(flat_reshape(windows, (*windows.spec.shape[: rank - spatial], prod(kernel)))), None
        for i, n in enumerate(sizes):
            within = core.remainder(core.floordiv(first, prod(kernel[i + 1 :])), kernel[i])
            at = coordinate(i, within)
            index = at if index is None else core.add(core.mul(index, n), at)
    counts = index.spec.shape[start : start + spatial]
    places = flat_reshape(index, (*before, prod(counts), *after))
    values = prims.take_along_axis(flat_reshape(x, (*before, prod(sizes), *after)), places, dim=start)
    out = flat_reshape(values, index.spec.shape)
    return [out, index] if return_indices else [out]


def _of_the_largest(flat: Tensor) -> Tensor:
    """Return the position along the last dimension of the last NaN; without NaN, of the first of the largest elements."""
    dim = len(flat.spec.shape) - 1
    first = prims.argmax(flat, dim=dim)
    if flat.spec.dtype.kind != "float":
        return first
    within = _along(positions(flat, flat.spec.shape[dim]), flat.spec.shape, 1)
    last = prims.amax(core.where(core.isnan(flat), within, -1), dims=(dim,))
    return prims.where(prims.lt(last, 0), first, last)


def _avg_pool(
    spatial: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> Tensor:
    dtype = x.spec.dtype
    is_supported = dtype.kind == "float" or dtype is dtypes.int64
    require_dtype(is_supported, "average pooling is not implemented for {}; convert it to a floating dtype", x.spec)
    require(divisor != 0, "divisor must be not zero")
    windows = _Windows(x, spatial, kernel_size, stride, padding, 1, ceil_mode)
    wide = core.wide(dtype)
    total = windows.sums(wide)
    counts = _counts(windows, count_include_pad, ceil_mode, total) if divisor is None else divisor
    if dtype.kind == "int":
        out = prims.truncdiv(total, counts)
    else:
        out = core.div(total, counts)
    out = core.convert(out, dtype)
    return _formatted(out, x, spatial if spatial < 3 else 0)


def _counts(windows: _Windows, count_include_pad: bool, ceil_mode: bool, out: Tensor) -> Any:
    """Return the number of elements that each window averages; elements beyond the padding never count."""
    if (count_include_pad and not ceil_mode) or (not any(windows.padding) and not ceil_mode):
        return core.fit(prod(windows.kernel), (), out.spec.dtype)
    counts = None
    for i, n in enumerate(windows.sizes):
        padding = windows.padding[i] if count_include_pad else 0
        starts = positions(windows.x, windows.counts[i], start=-windows.padding[i], step=windows.stride[i])
        size = core.sub(core.minimum(core.add(starts, windows.kernel[i]), n + padding), core.maximum(starts, -padding))
        size = _along(size, out.spec.shape, windows.spatial - i)
        counts = size if counts is None else core.mul(counts, size)
    return core.convert(counts, out.spec.dtype)


def _output_sizes(x: TensorSpec, spatial: int, output_size: Any) -> tuple[int, ...]:
    """Return the output sizes of adaptive pooling; None keeps the input's size."""
    require_dtype(x.dtype.kind == "float", "adaptive pooling is not implemented for {}; convert it to a floating dtype", x)
    sizes = x.shape[x.rank - spatial :]
    if isinstance(output_size, (tuple, list)):
        require(len(output_size) == spatial, "expected {} output sizes, got {}", spatial, output_size)
        require(spatial == 1 or x.rank > spatial, "Input dimension should be at least {}, got {}", spatial + 1, x, error=ValueError)
        output_size = tuple([n if requested is None else requested for requested, n in zip(output_size, sizes, strict=True)])
    counts = ints(output_size, spatial, "output_size")
    require(min(counts) >= 0, "output sizes must not be negative, got {}", counts)
    return counts


class _Cover:
    """`count` windows that cover dimension `dim` of x: window i is floor(i n / count) to ceil((i + 1) n / count).

    They are as long as the longest; a shorter one repeats its last element.  Overlapping windows differ in length only when count does
    not divide n; `even` windows are a view.
    """

    def __init__(self, x: Tensor, dim: int, count: int):
        self.n, self.count = x.spec.shape[dim], count
        self.even = count > 0 and self.n % count == 0
        self.length = self.n // count if self.even else ceildiv(self.n, max(count, 1)) + 1
        is_small = type(self.n) is int and type(count) is int and (self.n + 1) * (count + 1) < 1 << 31
        self.dtype = dtypes.int32 if is_small else dtypes.int64  # vectors divide the former
        i = positions(x, count, dtype=self.dtype)
        self.start = prims.floordiv(prims.mul(i, self.n), max(count, 1))
        self.end = core.floordiv(core.add(core.mul(core.add(i, 1), self.n), count - 1), max(count, 1))

    def extract(self, x: Tensor, dim: int) -> Tensor:
        """Return the windows of x, counted at `dim`, in a new last dimension."""
        if self.even:
            return prims.unfold(x, dim=dim, size=self.length, step=self.length)
        shape = (self.count, self.length)
        within = _along(positions(x, self.length, dtype=self.dtype), shape, 1)
        places = core.minimum(core.add(_along(self.start, shape, 2), within), _along(core.sub(self.end, 1), shape, 2))
        rows = prims.take(x, core.convert(flat_reshape(places, (prod(shape),)), dtypes.int64), dim=dim)
        rows = prims.reshape(rows, shape=(*x.spec.shape[:dim], *shape, *x.spec.shape[dim + 1 :]))
        rank = len(rows.spec.shape)
        return prims.transpose(rows, order=(*range(dim + 1), *range(dim + 2, rank), dim + 1))

    def mean(self, x: Tensor, dim: int) -> Tensor:
        """Return the means of the windows."""
        total = self.sum(x, dim)
        return core.div(total, self._sizes(total, dim))

    def sum(self, x: Tensor, dim: int) -> Tensor:
        """Return the sums of the windows."""
        windows = self.extract(x, dim)
        last = len(windows.spec.shape) - 1
        if self.even:
            return prims.sum(windows, dims=(last,))
        shape = (self.count, self.length)
        inside = prims.lt(_along(positions(x, self.length, dtype=self.dtype), shape, 1), _along(prims.sub(self.end, self.start), shape, 2))
        inside = prims.broadcast_in_dim(inside, shape=windows.spec.shape, dims=(dim, last))
        return prims.sum(prims.where(inside, windows, 0.0), dims=(last,))

    def spread_mean(self, g: Tensor, dim: int) -> Tensor:
        """Return the gradient of what the means are of: for each element the shares of the windows that it lies in.

        These are neighbours, and cover the windows as windows cover elements: from floor(j count / n) to ceil((j + 1) count / n).  Of few
        elements, places and sizes are written out, since they would be computed by divisions for each element of each row.
        """
        n, count, device = self.n, self.count, g.spec.device
        if self.even or count > n or n > MOST_PLACES:
            return _Cover(g, dim, n).sum(core.div(g, self._sizes(g, dim)), dim)
        sizes = tuple([float(ceildiv((i + 1) * n, count) - i * n // count) for i in range(count)])
        first, last = tuple([j * count // n for j in range(n)]), tuple([ceildiv((j + 1) * count, n) - 1 for j in range(n)])
        sizes = prims.tensor_from_sequence(values=sizes, dtype=g.spec.dtype, device=device)
        first, last = (prims.tensor_from_sequence(values=places, dtype=dtypes.int64, device=device) for places in (first, last))
        from_end = len(g.spec.shape) - dim
        shares = core.div(g, _along(sizes, g.spec.shape, from_end))
        one, other = (prims.take(shares, places, dim=dim) for places in (first, last))
        return core.add(one, prims.where(_along(prims.ne(first, last), one.spec.shape, from_end), other, 0.0))

    def _sizes(self, total: Tensor, dim: int) -> Any:
        """Return how many elements each window has, along `dim` of `total`."""
        if self.even:
            return self.length
        return _along(core.convert(prims.sub(self.end, self.start), total.spec.dtype), total.spec.shape, len(total.spec.shape) - dim)

    def coordinate(self, within: Tensor, from_end: int) -> Tensor:
        """Return the coordinate of element `within` of each window."""
        shape = within.spec.shape
        start, end = (core.convert(_along(x, shape, from_end), within.spec.dtype) for x in (self.start, core.sub(self.end, 1)))
        return core.minimum(core.add(start, within), end)


def _adaptive_avg_pool(spatial: int, x: Tensor, output_size: Any) -> Tensor:
    counts = _output_sizes(x.spec, spatial, output_size)
    rank = x.spec.rank
    first = rank - spatial
    out = core.convert(x, core.wide(x.spec.dtype))
    if counts == (1,) * spatial:  # PyTorch's mean, which is also defined for other ranks and of nothing
        ranks = (2, 3) if spatial == 1 else range(spatial, rank + 1)
        require(rank in ranks, "expected at least {} dimensions, got {}", max(spatial, 2), x.spec, error=RuntimeError if spatial == 1 else IndexError)
        dims = _last(spatial, rank)
        total = core.keep_dims(prims.sum(out, dims=dims), x.spec.shape, dims)
        out = core.div(total, float_of(prod(x.spec.shape[first:])))
    else:
        _require_poolable(x.spec, spatial, first if spatial < 3 else 1)
        for i, count in enumerate(counts):
            out = _Cover(x, first + i, count).mean(out, first + i)
    out = core.convert(out, x.spec.dtype)
    return _formatted(out, x, spatial if spatial < 3 else 0)


def _of_adaptive_avg_pool(spatial: int, input: Tensor, output_size: Any) -> Any:
    """Differentiate the means of windows that differ in length; line by line, the gradient of each would be added in place."""
    counts, shape = _output_sizes(input.spec, spatial, output_size), input.spec.shape
    if not all([type(n) is int for n in (*counts, *shape)]) or not prod(counts) or shape[-1] < FULL_ROW:
        return NotImplemented
    first = len(shape) - spatial
    covers = [_Cover(input, first + i, count) for i, count in enumerate(counts)]
    if all([cover.even for cover in covers]):
        return NotImplemented
    out = _adaptive_avg_pool(spatial, input, output_size)
    g = core.convert(prims.get_grad(out), core.wide(input.spec.dtype))
    for i, cover in reversed(tuple(enumerate(covers))):
        g = cover.spread_mean(g, first + i)
    prims.put_grad(input, _formatted(core.convert(g, input.spec.dtype), input, spatial if spatial < 3 else 0))
    return out


_MEANS = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
CLOSED_FORMS.update({pool: partial(_of_adaptive_avg_pool, spatial) for spatial, pool in enumerate(_MEANS, start=1)})


def _adaptive_max_pool(spatial: int, x: Tensor, output_size: Any, return_indices: bool) -> Any:
    counts = _output_sizes(x.spec, spatial, output_size)
    _require_poolable(x.spec, spatial, 1)
    first = len(x.spec.shape) - spatial
    covers = [_Cover(x, first + i, count) for i, count in enumerate(counts)]
    windows = x
    for i, cover in enumerate(covers):
        windows = cover.extract(windows, first + i)
    kernel = tuple([cover.length for cover in covers])

    def coordinate(i: int, within: Tensor) -> Tensor:
        return covers[i].coordinate(within, spatial - i)

    results = _largest(x, first, windows, kernel, coordinate, return_indices)
    results = [_formatted(result, x, spatial if spatial < 3 else 0) for result in results]
    return tuple(results) if return_indices else results[0]
