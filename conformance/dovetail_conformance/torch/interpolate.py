"""Signals, images and volumes at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.extend.advanced import torch_internals
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import EXTREMES, FLOATS, OPINFOS, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, laid, unwritten

LAYOUTS = ("row-major", "channels-last", "gapped", "repeated")
SIZES = (2, 3, 5)  # of volumes; images and signals have the last of them

# batch, new sizes or None, factors or None; both are cut to the last of them
RESIZED: tuple[tuple[int, tuple[int, ...] | None, tuple[float, ...] | None], ...] = (
    (2, (3, 6, 10), None),
    (1, (1, 2, 3), None),
    (1, (1, 1, 1), None),
    (1, (2, 3, 5), None),
    (2, None, (2.0, 2.0, 2.0)),
    (1, None, (1.5, 0.7, 0.6)),
    (0, (3, 4, 6), None),
)


def cut(values: tuple | None, spatial: int) -> list | None:
    return None if values is None else list(values[-spatial:])


def calls(spatial: int, dtype: DType, device: Device) -> Iterator[tuple]:
    """(x, sizes, factors), x in layouts by turns."""
    make = Maker(dtype, device)
    for i, (batch, sizes, factors) in enumerate(RESIZED):
        yield laid(make, LAYOUTS[i % 4], batch, 2, *SIZES[-spatial:]), cut(sizes, spatial), cut(factors, spatial)


def nearest_samples(spatial: int, dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x, sizes, factors in calls(spatial, dtype, device):
        yield SampleInput((x, sizes, factors))


def blend_samples(spatial: int, dtype: DType, device: Device) -> Iterator[SampleInput]:
    for i, (x, sizes, factors) in enumerate(calls(spatial, dtype, device)):
        yield SampleInput((x, sizes, i % 2 == 1, factors))
        if i in (0, 5):
            yield SampleInput((x, sizes, i % 2 == 0, factors))


def resize_errors(spatial: int, corners: tuple, device: Device) -> Iterator[ErrorSample]:
    x, sizes = unwritten((1, 2, *SIZES[-spatial:])), [2] * spatial
    yield ErrorSample((x, None, *corners, None), {}, RuntimeError, "Must specify exactly one of output_size and scale_factors")
    yield ErrorSample((x, [2] * (spatial + 1), *corners, None), {}, RuntimeError, f"expected that there are {spatial} output sizes")
    yield ErrorSample((x, [0] * spatial, *corners, None), {}, RuntimeError, "should be greater than 0")
    yield ErrorSample((unwritten((1, 2, *SIZES[-spatial:]), dtypes.int64), sizes, *corners, None), {}, NotImplementedError, "not implemented")
    yield ErrorSample((unwritten((1, 2)), sizes, *corners, None), {}, RuntimeError, f"and {spatial} dimensions after them")


def along_each(x: np.ndarray, sizes: list | None, factors: list | None, line: Callable[[int, int, float], np.ndarray]) -> np.ndarray:
    """x times a matrix along each of its last dimensions; `line` makes one from the old size, the new one, and the step between new elements."""
    targets = factors if sizes is None else sizes
    out = x.astype(np.float64)
    for d, one in enumerate(targets, 2):
        size = int(x.shape[d] * one) if sizes is None else one
        matrix = line(x.shape[d], size, 1 / one if sizes is None else x.shape[d] / size)
        out = np.moveaxis(np.moveaxis(out, d, -1) @ matrix.T, -1, d)
    return out


def np_nearest(offset: float, x: np.ndarray, sizes: list | None, factors: list | None) -> np.ndarray:
    def line(n: int, size: int, step: float) -> np.ndarray:
        at = np.minimum(np.floor((np.arange(size) + offset) * step).astype(int), n - 1)
        return np.eye(n)[at]

    return along_each(x, sizes, factors, line)


def source(n: int, size: int, step: float, corners: bool) -> np.ndarray:
    """Return where each new element lies between the old ones."""
    return np.arange(size) * ((n - 1) / (size - 1) if size > 1 else 0) if corners else (np.arange(size) + 0.5) * step - 0.5


def blend(
    weight: Callable[[np.ndarray], np.ndarray], reach: int, least: float, x: np.ndarray, sizes: Any, corners: bool, factors: Any
) -> np.ndarray | None:
    """Blend neighbours up to `reach` away, those beyond the border being its own, by `weight` of their distance."""

    if x.dtype == np.uint8:
        return None  # its weights have a few bits, which the kernel chooses

    def line(n: int, size: int, step: float) -> np.ndarray:
        at = np.maximum(source(n, size, step, corners), least)
        matrix = np.zeros((size, n))
        for tap in range(1 - reach, reach + 1):
            place = np.floor(at).astype(int) + tap
            matrix[np.arange(size), np.clip(place, 0, n - 1)] += weight(np.abs(at - place))
        return matrix

    return along_each(x, sizes, factors, line)


def linear(t: np.ndarray) -> np.ndarray:
    return np.maximum(1 - t, 0)


def cubic(t: np.ndarray, a: float = -0.75) -> np.ndarray:
    """Return the kernel of R. Keys, "Cubic convolution interpolation for digital image processing", 1981."""
    return np.where(t <= 1, (a + 2) * t**3 - (a + 3) * t**2 + 1, np.where(t < 2, a * (t**3 - 5 * t**2 + 8 * t - 4), 0))


WITH_BYTES = (dtypes.uint8, *FLOATS)
# name: (number of dimensions, samples, error samples, reference, dtypes)
RESIZERS: dict[str, tuple[int, Callable, tuple, Callable, tuple[DType, ...]]] = {
    "upsample_nearest1d": (1, nearest_samples, (), partial(np_nearest, 0.0), WITH_BYTES),
    "upsample_nearest2d": (2, nearest_samples, (), partial(np_nearest, 0.0), WITH_BYTES),
    "upsample_nearest3d": (3, nearest_samples, (), partial(np_nearest, 0.0), WITH_BYTES),
    "_upsample_nearest_exact1d": (1, nearest_samples, (), partial(np_nearest, 0.5), WITH_BYTES),
    "_upsample_nearest_exact2d": (2, nearest_samples, (), partial(np_nearest, 0.5), WITH_BYTES),
    "_upsample_nearest_exact3d": (3, nearest_samples, (), partial(np_nearest, 0.5), WITH_BYTES),
    "upsample_linear1d": (1, blend_samples, (False,), partial(blend, linear, 1, 0.0), FLOATS),
    "upsample_bilinear2d": (2, blend_samples, (False,), partial(blend, linear, 1, 0.0), WITH_BYTES),
    "upsample_trilinear3d": (3, blend_samples, (False,), partial(blend, linear, 1, 0.0), FLOATS),
    "upsample_bicubic2d": (2, blend_samples, (True,), partial(blend, cubic, 2, -inf), WITH_BYTES),
}

OPINFOS += [
    OpInfo(
        symbol_for(f"{torch_internals.C_NN}.{name}"),
        partial(samples, spatial),
        partial(resize_errors, spatial, corners),
        by_numpy(fn),
        accepted,
        grad=True,
        extremes=EXTREMES if samples is nearest_samples else (),
    )
    for name, (spatial, samples, corners, fn, accepted) in RESIZERS.items()
]
