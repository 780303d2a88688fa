"""Scans, differences and sorting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np
import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    ANY,
    EXTREMES,
    FLOATS,
    INTS,
    OPINFOS,
    REAL,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)


def dim_samples(dtype: DType, device: Device, domain: tuple[float, float] = (-inf, inf)) -> Iterator[SampleInput]:
    """Yield the layouts by turns along their last dimension, by position, and along their first, by name."""
    make = Maker(dtype, device, domain)
    for i, x in enumerate(make.layouts()):
        yield SampleInput((x, -1)) if i % 2 else SampleInput((x,), {"dim": 0})
    yield SampleInput((make(2, 3, 2), 1))


def dtype_samples(domain: tuple[float, float], dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from dim_samples(dtype, device, domain)
    make = Maker(dtype, device, domain)
    yield SampleInput((make(3, 4), 1), {"dtype": torch.complex64 if dtype.kind == "complex" else torch.float64})


def dim_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), 2), {}, IndexError, "Dimension out of range")
    yield ErrorSample((unwritten((2, 3)), "0"), {}, TypeError, "must be")


def named_dim_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)),), {"dim": -3}, IndexError, "Dimension out of range")
    yield ErrorSample((unwritten((2, 3)),), {"dim": "0"}, TypeError, "must be|invalid combination of arguments")


def diff_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in make.layouts():
        if x.ndim:
            yield SampleInput((x,))
    x = make(4, 5)
    yield SampleInput((x, 2, 0))
    yield SampleInput((x,), {"n": 0})
    yield SampleInput((x.t(),), {"dim": 0, "prepend": make(2, 4), "append": make(1, 4)})
    yield SampleInput((x,), {"append": make(4, 2, dtype=dtypes.float32)})


def diff_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield from named_dim_errors(device)
    yield ErrorSample((unwritten(()),), {}, RuntimeError, "at least one-dimensional")
    yield ErrorSample((x, -1), {}, RuntimeError, "order must be non-negative")
    yield ErrorSample((x,), {"prepend": unwritten((3,))}, RuntimeError, "prepend or append to have 2 dimensions")


def sort_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield samples that are stable, or of values that are all different, so that the order is determined."""
    make = Maker(dtype, device)
    for i, x in enumerate(make.layouts()):
        yield SampleInput((x,), {"stable": True} if i % 2 else {"stable": True, "dim": 0, "descending": True})
    x = distinct(make, 2, 6).t()
    yield SampleInput((x,))
    yield SampleInput((x, 0, True))


def distinct(make: Maker, *shape: int) -> torch.Tensor:
    """Return values that are all different; of booleans, one dimension after the other."""
    if make.dtype.kind == "bool":
        return make(1).expand(shape)
    count = int(np.prod(shape))
    return make.distinct(count, count).to(make(1).dtype).reshape(shape)


def sort_errors(device: Device) -> Iterator[ErrorSample]:
    yield from named_dim_errors(device)
    yield ErrorSample((unwritten((3,), dtypes.complex64),), {}, RuntimeError, "does not support complex")


def msort_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device).layouts():
        yield SampleInput((x,))


def msort_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,), dtypes.complex64),), {}, RuntimeError, "does not support complex")


def topk_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    x = distinct(make, 3, 4)
    for k in (0, 1, 4):
        yield SampleInput((x, k))
    yield SampleInput((x.t(), 2), {"dim": 0, "largest": False})
    yield SampleInput((x, 3, 1, True, True))
    yield SampleInput((x, 1), {"dim": 0, "sorted": False})
    yield SampleInput((distinct(make, 2, 6)[:, ::2], 2))
    yield SampleInput((make(3, 1).expand(3, 4)[:, :1], 1, 0))
    yield SampleInput((make(1), 1))
    yield SampleInput((make(), 1))
    yield SampleInput((make(2, 0), 0))


def topk_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)), 4), {}, RuntimeError, "out of range")
    yield ErrorSample((unwritten((3,)), -1), {}, RuntimeError, "out of range")
    yield ErrorSample((unwritten((3,)), 1, 1), {}, IndexError, "Dimension out of range")
    yield ErrorSample((unwritten((3,)), 1.5), {}, TypeError, "must be int")
    yield ErrorSample((unwritten((3,), dtypes.bool_), 1), {}, RuntimeError, "expected integers or floating point numbers")


def sums(fn: Callable) -> Callable:
    """Adapt a NumPy scan to torch's arguments; integers and booleans are summed as int64."""

    def scan(x: Any, dim: int, dtype: Any = None) -> Any:
        wide = np.float64 if dtype is torch.float64 else np.complex64 if dtype is torch.complex64 else np.int64 if x.dtype.kind in "biu" else x.dtype
        return fn(x.astype(wide), axis=dim) if x.ndim else x.astype(wide)

    return by_numpy(scan)


def extreme_at(fn: Callable) -> Callable:
    """cummax or cummin: the extremes so far, and no opinion of where they stood."""

    def scan(x: Any, dim: int) -> Any:
        return (fn.accumulate(x, axis=dim) if x.ndim else x), None

    return by_numpy(scan)


def np_diff(x: np.ndarray, n: int = 1, dim: int = -1, **ends: np.ndarray) -> np.ndarray:
    return np.diff(x, n, axis=dim, **ends)


def np_argsort(x: np.ndarray, dim: int = -1, descending: bool = False, stable: bool | None = None) -> np.ndarray:
    """Sort; downwards is the order of the reversed elements, reversed."""
    if not x.ndim:
        return np.array(0)
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)


def np_sort(x: np.ndarray, dim: int = -1, descending: bool = False, stable: bool | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    index = np_argsort(x, dim, descending)
    values = np.take_along_axis(x, index, dim) if x.ndim else x
    return values, index


def np_topk(x: np.ndarray, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[np.ndarray, np.ndarray]:
    values, index = np_sort(x, dim, largest)
    return (np.take(values, range(k), dim), np.take(index, range(k), dim)) if x.ndim else (values, index)


# name: (samples, error samples, reference, dtypes, whether it has a gradient, extremes); products in place fit into a byte
SCANS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...], bool, tuple[str, ...]]] = {
    "torch.cumsum": (partial(dtype_samples, (-inf, inf)), dim_errors, sums(np.cumsum), ANY, True, EXTREMES),
    "torch.cumprod": (partial(dtype_samples, (-2, 2)), dim_errors, sums(np.cumprod), ANY, True, EXTREMES),
    "torch.cummax": (dim_samples, dim_errors, extreme_at(np.maximum), REAL, True, EXTREMES),
    "torch.cummin": (dim_samples, dim_errors, extreme_at(np.minimum), REAL, True, EXTREMES),
    "torch.diff": (diff_samples, diff_errors, by_numpy(np_diff), ANY, True, EXTREMES),
    "torch.sort": (sort_samples, sort_errors, by_numpy(np_sort), REAL, True, EXTREMES),
    "torch.argsort": (sort_samples, sort_errors, by_numpy(np_argsort), REAL, False, EXTREMES),
    "torch.msort": (msort_samples, msort_errors, by_numpy(lambda x: np.sort(x, axis=0) if x.ndim else x), REAL, True, EXTREMES),
    "torch.topk": (topk_samples, topk_errors, by_numpy(np_topk), INTS + FLOATS, True, ()),  # equal extremes have no order
}

OPINFOS += [
    OpInfo(symbol_for(name), samples, errors, reference, accepted, grad, extremes=extremes)
    for name, (samples, errors, reference, accepted, grad, extremes) in SCANS.items()
]
