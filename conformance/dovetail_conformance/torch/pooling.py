"""The largest element, or the mean, of windows: one, two and three dimensions of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    EXTREMES,
    FLOATS,
    FULL_FLOATS,
    INTS,
    OPINFOS,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    laid,
    unwritten,
)

LAYOUTS = ("row-major", "channels-last", "gapped", "column-major")
SIZES = (3, 4, 5)  # of volumes; images and signals have the last of them

# batch (None for none), options; a tuple is cut to the number of dimensions
MAXIMA: tuple[tuple[int | None, dict[str, Any]], ...] = (
    (2, {"kernel_size": 2}),
    (2, {"kernel_size": (2, 3, 2), "stride": 1}),
    (1, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (2, {"kernel_size": 2, "dilation": 2, "stride": (1, 2, 1)}),
    (None, {"kernel_size": 2, "ceil_mode": True}),
    (1, {"kernel_size": 2, "return_indices": True}),
    (1, {"kernel_size": 3, "padding": 1, "stride": 2, "ceil_mode": True, "return_indices": True}),
    (1, {"kernel_size": 1}),
    (0, {"kernel_size": 2}),
)
MEANS: tuple[tuple[int | None, dict[str, Any]], ...] = (
    (2, {"kernel_size": 2}),
    (2, {"kernel_size": (2, 3, 2), "stride": 1}),
    (1, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (2, {"kernel_size": 2, "stride": (1, 2, 1), "padding": 1, "count_include_pad": False}),
    (None, {"kernel_size": 2, "ceil_mode": True}),
    (1, {"kernel_size": 3, "padding": 1, "stride": 2, "ceil_mode": True, "count_include_pad": False}),
    (1, {"kernel_size": 1}),
    (0, {"kernel_size": 2}),
)
DIVIDED = ((1, {"kernel_size": 2, "divisor_override": 3}), (1, {"kernel_size": 2, "padding": 1, "ceil_mode": True, "divisor_override": 2}))
ADAPTED: tuple[tuple[int | None, Any], ...] = ((2, 2), (1, 1), (None, 3), (2, 7), (1, (2, 3, 4)), (1, (None, 2, None)), (0, 2))


def images(make: Maker, spatial: int, batch: int | None, layout: str) -> torch.Tensor:
    """Return values that are all different, so that one of a window is the largest."""
    x = laid(make, layout, *(() if batch is None else (batch,)), 2, *SIZES[-spatial:])
    values = make.distinct(x.numel(), x.numel()).reshape(x.shape)
    return x.copy_(values - (x.numel() // 2 if make.dtype.signed else 0))


def cut(value: Any, spatial: int) -> Any:
    return value[:spatial] if isinstance(value, tuple) else value


def pool_samples(spatial: int, rows: tuple[tuple[int | None, dict[str, Any]], ...], dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the table, in layouts by turns; then by position."""
    make = Maker(dtype, device)
    for i, (batch, options) in enumerate(rows):
        yield SampleInput((images(make, spatial, batch, LAYOUTS[i % 4]),), {key: cut(value, spatial) for key, value in options.items()})
    yield SampleInput((images(make, spatial, 1, "row-major"), 3, 2, 1))


def max_samples(spatial: int, dtype: DType, device: Device) -> Iterator[SampleInput]:
    return pool_samples(spatial, MAXIMA, dtype, device)


def mean_samples(spatial: int, dtype: DType, device: Device) -> Iterator[SampleInput]:
    """`divisor_override` is not for signals."""
    return pool_samples(spatial, MEANS + (DIVIDED if spatial > 1 else ()), dtype, device)


def adaptive_samples(spatial: int, dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for i, (batch, size) in enumerate(ADAPTED):
        x = images(make, spatial, batch, LAYOUTS[i % 4])
        size = cut(size, spatial) if spatial > 1 else 4 if isinstance(size, tuple) else size  # one size is no tuple with None
        yield SampleInput((x, size)) if i % 2 else SampleInput((x,), {"output_size": size})


def adaptive_max_samples(spatial: int, dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from adaptive_samples(spatial, dtype, device)
    for size in (2, 3):
        yield SampleInput((images(Maker(dtype, device), spatial, 2, "row-major"), size), {"return_indices": True})


def window_errors(spatial: int, device: Device) -> Iterator[ErrorSample]:
    x = unwritten((1, 2, *(3,) * spatial))
    yield ErrorSample((unwritten((1, 1, 1, *(3,) * spatial)), 2), {}, RuntimeError, "expected .* input")
    yield ErrorSample((x, 4), {}, RuntimeError, "Output size is too small")
    yield ErrorSample((x, 2), {"padding": 2}, RuntimeError, "at most half of the kernel size")
    yield ErrorSample((x, 0), {}, RuntimeError, "kernel size should be greater than zero")


def max_errors(spatial: int, device: Device) -> Iterator[ErrorSample]:
    yield from window_errors(spatial, device)
    yield ErrorSample((unwritten((1, 2, *(3,) * spatial)), 2), {"dilation": 0}, RuntimeError, "dilation should be greater than zero")


def mean_errors(spatial: int, device: Device) -> Iterator[ErrorSample]:
    yield from window_errors(spatial, device)
    if spatial > 1:
        yield ErrorSample((unwritten((1, 2, *(3,) * spatial)), 2), {"divisor_override": 0}, RuntimeError, "divisor must be not zero")


def adaptive_errors(spatial: int, device: Device) -> Iterator[ErrorSample]:
    x = unwritten((1, 2, *(3,) * spatial))
    yield ErrorSample((unwritten((1, 1, 1, *(3,) * spatial)), 2), {}, RuntimeError, "expected .* input")
    yield ErrorSample((x, -1), {}, RuntimeError, "output sizes must not be negative")
    yield ErrorSample((unwritten((1, 2, *(3,) * spatial), dtypes.int64), 2), {}, NotImplementedError, "not implemented")


def every(values: Any, count: int) -> tuple:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,) * count


def spans(
    sizes: tuple[int, ...], kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> list[list[tuple[int, range]]]:
    """Return, for each dimension, the windows: where each starts, which may lie in the padding, and its places."""
    count = len(sizes)
    dimensions = []
    for n, k, s, p, d in zip(sizes, *(every(x, count) for x in (kernel_size, stride or kernel_size, padding, dilation)), strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        windows = (-(-room // s) if ceil_mode else room // s) + 1
        starts = [i * s - p for i in range(windows) if not (ceil_mode and i * s >= n + p)]
        dimensions.append([(at, range(at, at + d * (k - 1) + 1, d)) for at in starts])
    return dimensions


def pooled(x: np.ndarray, windows: list[list[tuple[int, range]]], one: Callable) -> np.ndarray:
    """`one` of each window: of its elements in a last dimension, their places in the image, and the window's dimensions."""
    before, sizes = x.shape[: x.ndim - len(windows)], x.shape[x.ndim - len(windows) :]
    flat = np.arange(int(np.prod(sizes))).reshape(sizes)
    results = []
    for window in product(*windows):
        places = np.ix_(*([i for i in span if 0 <= i < n] for (_, span), n in zip(window, sizes, strict=True)))
        results.append(one(x[(..., *places)].reshape(*before, flat[places].size), flat[places].ravel(), window))
    return np.stack(results, -1).reshape(*before, *map(len, windows))


def largest(x: np.ndarray, windows: list, return_indices: bool) -> Any:
    values = pooled(x, windows, lambda elements, places, _: elements.max(-1))
    return (values, pooled(x, windows, lambda elements, places, _: places[elements.argmax(-1)])) if return_indices else values


def np_max_pool(spatial: int, x: np.ndarray, *args: Any, return_indices: bool = False, **kwargs: Any) -> Any:
    return largest(x, spans(x.shape[-spatial:], *args, **kwargs), return_indices)


def np_avg_pool(
    spatial: int,
    x: np.ndarray,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> np.ndarray:
    sizes = x.shape[-spatial:]

    def mean(elements: np.ndarray, places: np.ndarray, window: tuple[tuple[int, range], ...]) -> np.ndarray:
        count = places.size
        if count_include_pad:  # what lies in the padding counts, what lies beyond it does not
            count = prod(min(span.stop, n + p) - at for (at, span), n, p in zip(window, sizes, every(padding, spatial), strict=True))
        total, divisor = elements.sum(-1, dtype=elements.dtype), divisor_override or count
        return np.trunc(total / divisor).astype(x.dtype) if x.dtype.kind == "i" else total / divisor

    return pooled(x, spans(sizes, kernel_size, stride, padding, 1, ceil_mode), mean)


def covering(sizes: tuple[int, ...], output_size: Any) -> list[list[tuple[int, range]]]:
    """Return windows from floor(i n / count) to ceil((i + 1) n / count)."""
    counts = [n if count is None else count for count, n in zip(every(output_size, len(sizes)), sizes, strict=True)]
    return [[(i * n // count, range(i * n // count, -(-(i + 1) * n // count))) for i in range(count)] for n, count in zip(sizes, counts, strict=True)]


def np_adaptive_max(spatial: int, x: np.ndarray, output_size: Any, return_indices: bool = False) -> Any:
    return largest(x, covering(x.shape[-spatial:], output_size), return_indices)


def np_adaptive_avg(spatial: int, x: np.ndarray, output_size: Any) -> np.ndarray:
    return pooled(x, covering(x.shape[-spatial:], output_size), lambda elements, places, _: elements.mean(-1))


# name: (samples, error samples, reference, dtypes), each of a number of dimensions
POOLS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...]]] = {
    "max_pool": (max_samples, max_errors, np_max_pool, INTS + FLOATS),
    "avg_pool": (mean_samples, mean_errors, np_avg_pool, (dtypes.int64, *FLOATS)),
    "adaptive_max_pool": (adaptive_max_samples, adaptive_errors, np_adaptive_max, FLOATS),
    "adaptive_avg_pool": (adaptive_samples, adaptive_errors, np_adaptive_avg, FLOATS),
}
FEWER = {"max_pool1d": FLOATS, "avg_pool3d": (dtypes.int64, *FULL_FLOATS)}  # where PyTorch's kernels take fewer dtypes

OPINFOS += [
    OpInfo(
        symbol_for(f"torch.nn.functional.{name}{spatial}d"),
        partial(samples, spatial),
        partial(errors, spatial),
        by_numpy(partial(fn, spatial)),
        FEWER.get(f"{name}{spatial}d", accepted),
        grad=True,
        extremes=EXTREMES,
    )
    for name, (samples, errors, fn, accepted) in POOLS.items()
    for spatial in (1, 2, 3)
]
