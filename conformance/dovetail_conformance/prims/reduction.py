"""Reductions, scans and order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.prims import Symbol
from dovetail_conformance.opinfo import (
    BOOLS,
    EXTREMES,
    FLOATS,
    INEXACT,
    NUMBERS,
    OPINFOS,
    REAL,
    ROUNDED,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)


def shaped(make: Maker, *, empty: bool = True) -> Iterator[Any]:
    """Yield tensors with something to reduce, in several layouts."""
    yield make(5)
    yield make(4, 3)
    yield make(2, 3, 4)
    yield make(2, 3, 4).permute(2, 0, 1)
    yield make(2, 3, 8)[:, :, ::2]
    yield make(3, 1).expand(3, 4)
    if empty:
        yield make(0, 3)


def dims_of(rank: int) -> Iterator[tuple[int, ...]]:
    yield ()
    yield tuple(range(rank))
    if rank > 1:
        yield (0,)
        yield (rank - 1,)
    if rank > 2:
        yield (0, rank - 1)
        yield (1,)


def reduction_samples(empty: bool, dtype: DType, device: Device, **more: Any) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),), {"dims": (), **more})
    for x in shaped(make, empty=empty):
        for dims in dims_of(x.ndim):
            yield SampleInput((x,), {"dims": dims, **more})


def reduction_errors(accepted: tuple[DType, ...], device: Device, **more: Any) -> Iterator[ErrorSample]:
    x = unwritten((2, 3), accepted[0])
    yield ErrorSample((x,), {"dims": (2,), **more}, IndexError, "expected a dim of .* from 0 to 1, got 2")
    yield ErrorSample((x,), {"dims": (-1,), **more}, IndexError, "expected a dim of .* from 0 to 1, got -1")
    yield ErrorSample((x,), {"dims": (1, 0), **more}, RuntimeError, "expected sorted, distinct dims")
    yield ErrorSample((unwritten((2,), dtypes.float8_e5m2),), {"dims": (0,), **more}, NotImplementedError, "expected a tensor of kind")


def extremum_errors(device: Device) -> Iterator[ErrorSample]:
    yield from reduction_errors(REAL, device)
    yield ErrorSample((unwritten((0, 3)),), {"dims": (0,)}, IndexError, "expected reduction dim 0 of .* to have non-zero size")
    yield ErrorSample((unwritten((3,), dtypes.complex64),), {"dims": (0,)}, NotImplementedError, "expected a tensor of kind")


def var_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from reduction_samples(True, dtype, device, correction=1)
    yield from reduction_samples(False, dtype, device, correction=0)


def with_dims(fn: Callable, **more: Any) -> Callable:
    return by_numpy(lambda x, dims, **keywords: fn(x, axis=dims, **more, **keywords))


def sum_reference(fn: Callable) -> Callable:
    return by_numpy(lambda x, dims: fn(x, axis=dims, dtype=x.dtype))


def np_var(x: np.ndarray, dims: tuple[int, ...], correction: int) -> np.ndarray:
    count = np.prod([x.shape[d] for d in dims])
    with np.errstate(all="ignore"):
        spread = np.abs(x - np_mean(x, dims, keepdims=True)) ** 2
        return spread.sum(axis=dims) / np.maximum(count - correction, 0)


def np_mean(x: np.ndarray, dims: tuple[int, ...], keepdims: bool = False) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.sum(axis=dims, keepdims=keepdims) / np.prod([x.shape[d] for d in dims])


def np_var_mean(x: np.ndarray, dims: tuple[int, ...], correction: int) -> tuple[np.ndarray, np.ndarray]:
    return np_var(x, dims, correction), np_mean(x, dims)


ANY_ORDER = ("inf", "nan")  # a product of large values may overflow, and become NaN or 0 with a zero, as its factors are ordered

# symbol: (reference, dtypes, whether it has a gradient, whether an empty dimension can be reduced, extremes)
REDUCTIONS: dict[Symbol, tuple[Callable, tuple[DType, ...], bool, bool, tuple[str, ...]]] = {
    prims.sum: (sum_reference(np.sum), NUMBERS, True, True, EXTREMES),
    prims.prod: (sum_reference(np.prod), NUMBERS, True, True, ANY_ORDER),
    prims.amax: (with_dims(np.max), REAL, True, False, EXTREMES),
    prims.amin: (with_dims(np.min), REAL, True, False, EXTREMES),
    prims.any: (with_dims(np.any), BOOLS, False, True, ()),
    prims.all: (with_dims(np.all), BOOLS, False, True, ()),
}


def position_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),), {"dim": None})
    for x in shaped(make, empty=False):
        for dim in (None, *range(x.ndim)):
            yield SampleInput((x,), {"dim": dim})


def position_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((0,)),), {"dim": None}, IndexError, "expected at least one element")
    yield ErrorSample((unwritten((0, 2)),), {"dim": 0}, IndexError, "to have non-zero size")
    yield ErrorSample((unwritten((2,)),), {"dim": 1}, IndexError, "expected a dim")
    yield ErrorSample((unwritten((2,), dtypes.bool_),), {"dim": 0}, NotImplementedError, "expected a tensor of kind")


def broadcast_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),), {"shape": (), "dims": ()})
    yield SampleInput((make(),), {"shape": (2, 3), "dims": ()})
    yield SampleInput((make(3),), {"shape": (2, 3), "dims": (1,)})
    yield SampleInput((make(2),), {"shape": (2, 3), "dims": (0,)})
    yield SampleInput((make(4, 2).t(),), {"shape": (2, 1, 4), "dims": (0, 2)})
    yield SampleInput((make(1, 3),), {"shape": (2, 5, 3), "dims": (1, 2)})
    yield SampleInput((make(3, 1),), {"shape": (3, 0), "dims": (0, 1)})
    yield SampleInput((make(1),), {"shape": (1, 1), "dims": (1,)})


def broadcast_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x,), {"shape": (2, 4), "dims": (0, 1)}, RuntimeError, "to fill shape")
    yield ErrorSample((x,), {"shape": (2, 3), "dims": (0,)}, RuntimeError, "expected one dim")
    yield ErrorSample((x,), {"shape": (3, 2), "dims": (1, 0)}, RuntimeError, "expected increasing dims")
    yield ErrorSample((x,), {"shape": (2, 3), "dims": (0, 2)}, RuntimeError, "expected increasing dims")


def np_broadcast(x: np.ndarray, shape: tuple[int, ...], dims: tuple[int, ...]) -> np.ndarray:
    sizes = [1] * len(shape)
    for d, n in zip(dims, x.shape, strict=True):
        sizes[d] = n
    return np.broadcast_to(x.reshape(sizes), shape)


def scan_samples(dtype: DType, device: Device, **more: Any) -> Iterator[SampleInput]:
    for x in shaped(Maker(dtype, device)):
        for dim in range(x.ndim):
            yield SampleInput((x,), {"dim": dim, **more})


def scan_errors(device: Device, **more: Any) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)),), {"dim": 2, **more}, IndexError, "expected a dim of")
    yield ErrorSample((unwritten(()),), {"dim": 0, **more}, IndexError, "expected a dim of")
    yield ErrorSample((unwritten((2,), dtypes.float8_e5m2),), {"dim": 0, **more}, NotImplementedError, "expected a tensor of kind")


def scanned(fn: Callable) -> Callable:
    return by_numpy(lambda x, dim: fn(x, axis=dim, dtype=x.dtype))


def running(pick: Callable, beats: Callable) -> Callable:
    """cummax and cummin: the running extremum, and the last position that holds it."""

    def reference(x: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
        values = pick.accumulate(x, axis=dim)
        places = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
        return values, np.maximum.accumulate(np.where(beats(x, values), places, 0), axis=dim)

    return by_numpy(reference)


def sort_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for descending in (False, True):
        yield from scan_samples(dtype, device, descending=descending, stable=True)


def np_sort(x: np.ndarray, dim: int, descending: bool, stable: bool) -> tuple[np.ndarray, np.ndarray]:
    turned = np.flip(x, axis=dim) if descending else x
    order = np.argsort(turned, axis=dim, kind="stable")
    values = np.take_along_axis(turned, order, axis=dim)
    if not descending:
        return values, order
    return np.flip(values, axis=dim), x.shape[dim] - 1 - np.flip(order, axis=dim)


def topk_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for largest in (True, False):
        for sample in scan_samples(dtype, device, largest=largest, sorted=True):
            (x,), dim = sample.args, sample.kwargs["dim"]
            yield SampleInput((x,), {**sample.kwargs, "k": min(2, x.shape[dim])})


def topk_errors(device: Device) -> Iterator[ErrorSample]:
    yield from scan_errors(device, k=1, largest=True, sorted=True)
    yield ErrorSample((unwritten((2,)),), {"k": 3, "dim": 0, "largest": True, "sorted": True}, RuntimeError, "selected index k out of range")


def np_topk(x: np.ndarray, k: int, dim: int, largest: bool, sorted: bool) -> tuple[np.ndarray, None]:
    values, _ = np_sort(x, dim, largest, True)
    return np.take(values, np.arange(k), axis=dim), None  # which of two equal elements is taken is open


def row(symbol: Symbol, *rest: Any, **more: Any) -> OpInfo:
    return OpInfo(symbol, *rest, **{"extremes": EXTREMES, **more})


OPINFOS += [
    row(
        symbol,
        partial(reduction_samples, empty),
        partial(reduction_errors, accepted) if empty else extremum_errors,
        fn,
        accepted,
        grad,
        extremes=extremes,
    )
    for symbol, (fn, accepted, grad, empty, extremes) in REDUCTIONS.items()
]
OPINFOS += [
    row(prims.var, var_samples, partial(reduction_errors, FLOATS, correction=1), by_numpy(np_var), INEXACT, True),
    row(
        prims.var_mean,
        var_samples,
        partial(reduction_errors, FLOATS, correction=1),
        by_numpy(np_var_mean),
        INEXACT,
        True,
        extremes=("large", "nan"),  # the mean of an infinity is one or NaN, as it is summed up
    ),
    row(prims.argmax, position_samples, position_errors, by_numpy(lambda x, dim: np.argmax(x, axis=dim)), ROUNDED),
    row(prims.argmin, position_samples, position_errors, by_numpy(lambda x, dim: np.argmin(x, axis=dim)), ROUNDED),
    row(prims.broadcast_in_dim, broadcast_samples, broadcast_errors, by_numpy(np_broadcast), BOOLS + NUMBERS, True),
    row(prims.cumsum, scan_samples, scan_errors, scanned(np.cumsum), NUMBERS, True),
    row(prims.cumprod, scan_samples, scan_errors, scanned(np.cumprod), NUMBERS, True, extremes=ANY_ORDER),
    row(prims.cummax, scan_samples, scan_errors, running(np.maximum, np.greater_equal), REAL, True),
    row(prims.cummin, scan_samples, scan_errors, running(np.minimum, np.less_equal), REAL, True),
    row(prims.sort, sort_samples, partial(scan_errors, descending=False, stable=True), by_numpy(np_sort), REAL, True),
    row(prims.topk, topk_samples, topk_errors, by_numpy(np_topk), FLOATS, True),
]
