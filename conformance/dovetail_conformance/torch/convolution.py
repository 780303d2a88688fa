"""Convolutions, and the windows they slide over taken out as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    BOOLS,
    INEXACT,
    NUMBERS,
    OPINFOS,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    laid,
    unwritten,
)
from dovetail_conformance.prims.linalg import np_convolution

LAYOUTS = ("row-major", "channels-last", "gapped", "repeated")
SIZES = (3, 4, 5)  # of volumes; images and signals have the last of them

# batch (None for none), channels, channels out, kernel, options; a tuple is cut to the number of dimensions
# 7 channels out, beside a bias, are no other size of the call, so that the variants replace them alone
CONVOLUTIONS: tuple[tuple[int | None, int, int, int, dict[str, Any]], ...] = (
    (2, 3, 2, 2, {}),
    (2, 2, 4, 2, {"groups": 2}),
    (1, 2, 2, 2, {"stride": 2, "padding": 1}),
    (1, 2, 7, 2, {"stride": (1, 2, 1), "padding": (0, 1, 2), "dilation": (1, 2, 1)}),
    (None, 2, 3, 2, {}),
    (1, 1, 1, 1, {}),
    (0, 2, 3, 2, {}),
    (1, 2, 2, 3, {"padding": "same"}),
    (1, 2, 2, 2, {"padding": "same", "dilation": 1}),
    (1, 2, 2, 2, {"padding": "valid", "groups": 2}),
)
TRANSPOSED: tuple[tuple[int | None, int, int, int, dict[str, Any]], ...] = (
    (2, 2, 3, 2, {}),
    (2, 2, 4, 2, {"groups": 2}),
    (1, 2, 2, 2, {"stride": 2, "padding": 1, "output_padding": 1}),
    (1, 2, 7, 2, {"stride": (1, 2, 1), "padding": (0, 1, 1), "dilation": (1, 2, 2)}),
    (None, 2, 3, 2, {}),
    (1, 1, 1, 1, {}),
    (0, 2, 3, 2, {}),
)
ORDER = ("stride", "padding", "dilation", "groups")
TRANSPOSED_ORDER = ("stride", "padding", "output_padding", "groups", "dilation")


def convolution_samples(spatial: int, transposed: bool, dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the table, in layouts by turns and with a bias every second time; then everything by position."""
    make = Maker(dtype, device)
    for i, (batch, channels, out, kernel, options) in enumerate(TRANSPOSED if transposed else CONVOLUTIONS):
        groups = options.get("groups", 1)
        x = laid(make, LAYOUTS[i % 4], *(() if batch is None else (batch,)), channels, *SIZES[-spatial:])
        weight = make(*((channels, out // groups) if transposed else (out, channels // groups)), *(kernel,) * spatial)
        named = {key: value[:spatial] if isinstance(value, tuple) else value for key, value in options.items()}
        yield SampleInput((x, weight, make(out)), named) if i % 2 else SampleInput((x, weight), named)
    window = [{"output_padding": 0, "groups": 2}.get(name, 1) for name in (TRANSPOSED_ORDER if transposed else ORDER)]
    yield SampleInput((make(1, 2, *SIZES[-spatial:]), make(2, 1, *(2,) * spatial), None, *window))


def convolution_errors(spatial: int, transposed: bool, device: Device) -> Iterator[ErrorSample]:
    x, weight = unwritten((1, 2, *(4,) * spatial)), unwritten((2, 2, *(2,) * spatial))
    yield ErrorSample((x, unwritten((3, 3, *(2,) * spatial))), {}, RuntimeError, "channels")
    yield ErrorSample((x, weight), {"stride": 0}, RuntimeError, "non-positive stride is not supported")
    yield ErrorSample((x, unwritten((2, 2, *(2,) * spatial), dtypes.float64)), {}, RuntimeError, "of one dtype and device")
    yield ErrorSample((x, weight, unwritten((3,))), {}, RuntimeError, "expected bias to be 1-dimensional with 2 elements")
    if not transposed:
        yield ErrorSample((x, weight), {"padding": "some"}, RuntimeError, "Invalid padding string")


def np_convolved(
    x: np.ndarray, weight: np.ndarray, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, **more: Any
) -> np.ndarray:
    """Convolve by the matrix that takes a flat input to a flat output."""
    spatial = weight.ndim - 2
    batched = x if x.ndim == weight.ndim else x[None]
    stride, dilation = every(stride, spatial), every(dilation, spatial)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, weight.shape[2:], strict=True)]
        batched = np.pad(batched, ((0, 0), (0, 0), *((n // 2, n - n // 2) for n in total)))
        padding = 0
    extra = every(more.get("output_padding", 0), spatial)
    window = {"stride": stride, "padding": every(padding, spatial), "dilation": dilation, "output_padding": extra}
    some = batched if len(batched) else np.zeros((1, *batched.shape[1:]), x.dtype)
    out = np_convolution(some, weight, transposed=more.get("transposed", False), groups=groups, **window)[: len(batched)]
    out = out if bias is None else out + bias.reshape(-1, *(1,) * spatial)
    return out if x.ndim == weight.ndim else out[0]


def np_transposed(
    x: np.ndarray,
    weight: np.ndarray,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> np.ndarray:
    return np_convolved(x, weight, bias, stride, padding, dilation, groups, output_padding=output_padding, transposed=True)


def every(values: Any, count: int) -> tuple[int, ...]:
    return values if isinstance(values, tuple) else (values,) * count


# shape, kernel_size, and what else is given
WINDOWS: tuple[tuple[tuple[int, ...], Any, dict[str, Any]], ...] = (
    ((2, 2, 3, 4), 2, {}),
    ((2, 3, 4), (2, 1), {}),
    ((1, 2, 3, 4), (2, 3), {"padding": (1, 0), "stride": (1, 2)}),
    ((1, 1, 5, 4), 2, {"dilation": (2, 1), "stride": 2}),
    ((1, 1, 1, 1), 1, {}),
    ((2, 2, 4, 4), 2, {"stride": 2, "padding": 1, "dilation": 1}),
)


def unfold_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for i, (shape, kernel, options) in enumerate(WINDOWS):
        yield SampleInput((laid(make, LAYOUTS[i % 4], *shape), kernel), options)
    yield SampleInput((make(1, 2, 4, 4), 2, 1, 0, 2))


def fold_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield columns of the sizes that unfolding gives."""
    make = Maker(dtype, device)
    for i, (shape, kernel, options) in enumerate(WINDOWS):
        columns = np_unfold(np.zeros(shape), kernel, **options).shape
        yield SampleInput((laid(make, ("row-major", "column-major", "gapped", "repeated")[i % 4], *columns), shape[-2:], kernel), options)
    yield SampleInput((make(1, 8, 4), (4, 4), (2, 2), 1, 0, 2))


def unfold_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((1, 1, 2, 3, 3)), 2), {}, RuntimeError, "Expected 3D")
    yield ErrorSample((unwritten((1, 2, 3, 3)), 4), {}, RuntimeError, "do not fit")
    yield ErrorSample((unwritten((1, 2, 3, 3)), 2), {"stride": 0}, RuntimeError, "stride should be at least 1")
    yield ErrorSample((unwritten((1, 2, 3, 3)), (2, 2, 2)), {}, RuntimeError, "expected one or 2 values for kernel_size")


def fold_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((1, 7, 4)), 4, 2), {"stride": 2}, RuntimeError, "expected a multiple of the kernel's 4 elements")
    yield ErrorSample((unwritten((1, 8, 5)), 4, 2), {"stride": 2}, RuntimeError, "windows in the last dimension")
    yield ErrorSample((unwritten((8,)), 4, 2), {}, RuntimeError, "Expected 2D or 3D")


def taps(sizes: tuple[int, ...], kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(kernel element, window, place in the padded image) of each window, flat and in order."""
    kernel, dilation, padding, stride = (every(x, 2) for x in (kernel_size, dilation, padding, stride))
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(sizes, kernel, dilation, padding, stride, strict=True)]
    for tap in np.ndindex(*kernel):
        for at in np.ndindex(*counts):
            place = tuple(a * s + t * d for a, s, t, d in zip(at, stride, tap, dilation, strict=True))
            yield (np.ravel_multi_index(tap, kernel), np.ravel_multi_index(at, counts)), place


def np_unfold(x: np.ndarray, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> np.ndarray:
    positions = list(taps(x.shape[-2:], kernel_size, dilation, padding, stride))
    padded = np.pad(x, (*((0, 0),) * (x.ndim - 2), *((p, p) for p in every(padding, 2))))
    rows, columns = (max(position[i] for position, _ in positions) + 1 for i in (0, 1))
    out = np.zeros((*x.shape[:-2], rows, columns), x.dtype)
    for (row, column), (i, j) in positions:
        out[..., row, column] = padded[..., i, j]
    return out.reshape(*x.shape[:-3], -1, columns)


def np_fold(x: np.ndarray, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> np.ndarray:
    sizes, (p, q) = every(output_size, 2), every(padding, 2)
    kernel = np.prod(every(kernel_size, 2))
    parts = x.reshape(*x.shape[:-2], x.shape[-2] // kernel, kernel, x.shape[-1])
    padded = np.zeros((*parts.shape[:-2], sizes[0] + 2 * p, sizes[1] + 2 * q), x.dtype)
    for (row, column), (i, j) in taps(sizes, kernel_size, dilation, padding, stride):
        padded[..., i, j] += parts[..., row, column]
    return padded[..., p : p + sizes[0], q : q + sizes[1]]


OPINFOS += [
    OpInfo(
        symbol_for(f"torch.nn.functional.{'conv_transpose' if transposed else 'conv'}{spatial}d"),
        partial(convolution_samples, spatial, transposed),
        partial(convolution_errors, spatial, transposed),
        by_numpy(np_transposed if transposed else np_convolved),
        (NUMBERS if spatial == 1 and not transposed else (dtypes.int64, *INEXACT)),
        grad=True,
        tolerance=1e-4,
        tolerance_source="a few float32 roundings of each of up to 54 products, which are added up",
    )
    for transposed in (False, True)
    for spatial in (1, 2, 3)
]

# name: (samples, error samples, reference, dtypes)
COLUMNS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...]]] = {
    "torch.nn.functional.unfold": (unfold_samples, unfold_errors, np_unfold, BOOLS + INEXACT),
    "torch.nn.functional.fold": (fold_samples, fold_errors, np_fold, BOOLS + INEXACT),
}

OPINFOS += [
    OpInfo(symbol_for(name), samples, errors, by_numpy(fn), accepted, True, extremes=("large",))
    for name, (samples, errors, fn, accepted) in COLUMNS.items()
]
