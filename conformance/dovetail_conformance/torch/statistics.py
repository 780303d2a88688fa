"""Variances, deviations, covariances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    EXTREMES,
    INEXACT,
    NUMBERS,
    OPINFOS,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)
from dovetail_conformance.torch.reduction import dims_errors, dims_samples


def var_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from dims_samples(dtype, device)
    x = Maker(dtype, device)(3, 4)
    yield SampleInput((x, False))
    yield SampleInput((x, 1, False, True))
    yield SampleInput((x, (0, 1)), {"correction": 2, "keepdim": True})


def var_errors(device: Device) -> Iterator[ErrorSample]:
    yield from dims_errors(device)
    yield ErrorSample((unwritten((2, 3), dtypes.int64),), {}, RuntimeError, "expected a floating point or complex dtype")


def cov_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    x = make(3, 5)
    for data in (x, make(4, 3).t(), make(6), make(1, 4), make(2, 8)[:, ::2]):
        yield SampleInput((data,))
    yield SampleInput((x,), {"correction": 0})
    times, weights = (
        make(5, dtype=dtypes.int64, low=1, high=3),
        make(5, dtype=dtypes.real_of(dtype) if dtype.inexact else dtypes.float32, low=0.5, high=2),
    )
    yield SampleInput((x,), {"fweights": times})
    yield SampleInput((x,), {"aweights": weights})
    yield SampleInput((x,), {"correction": 2, "fweights": times, "aweights": weights})


def corrcoef_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for data in (make(3, 5), make(4, 3).t(), make(6), make(1, 4), make(2, 8)[:, ::2]):
        yield SampleInput((data,))


def matrix_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3, 4)),), {}, RuntimeError, "expected input to have two or fewer dimensions")


def cov_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield from matrix_errors(device)
    yield ErrorSample((unwritten((2, 3), dtypes.bool_),), {}, RuntimeError, "bool dtype is not supported")
    yield ErrorSample((x,), {"fweights": unwritten((2,), dtypes.int64)}, RuntimeError, "fweights to have one element for each of 3 observations")
    yield ErrorSample((x,), {"fweights": unwritten((3,))}, RuntimeError, "fweights of kind int")
    yield ErrorSample((x,), {"aweights": unwritten((3,), dtypes.int64)}, RuntimeError, "aweights of kind float")


def moments(x: np.ndarray, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """(variance, mean); `var(x, False)` means unbiased=False."""
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    correction = int(unbiased) if correction is None else correction
    axis = tuple(range(x.ndim)) if dim is None else tuple(np.atleast_1d(dim))
    count = np.prod([x.shape[d] for d in axis])
    with np.errstate(all="ignore"):
        mean = np.sum(x, axis=axis, keepdims=True) / count
        variance = np.sum(np.abs(x - mean) ** 2, axis=axis, keepdims=keepdim) / max(count - correction, 0)
    return variance, mean if keepdim else np.squeeze(mean, axis)


def np_var(*args: Any, **kwargs: Any) -> np.ndarray:
    return moments(*args, **kwargs)[0]


def np_std(*args: Any, **kwargs: Any) -> np.ndarray:
    return np.sqrt(np_var(*args, **kwargs))


def np_std_mean(*args: Any, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
    return np_std(*args, **kwargs), moments(*args, **kwargs)[1]


def np_cov(x: np.ndarray, correction: int = 1, **weights: np.ndarray) -> np.ndarray:
    return np.cov(x, ddof=correction, **weights)


MEANS = ("large", "nan")  # the mean of an infinity is one or NaN, as it is summed up
# name: (samples, error samples, reference, dtypes, extremes); whether a covariance of large halves overflows depends on the order of its steps
STATISTICS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...], tuple[str, ...]]] = {
    "torch.var": (var_samples, var_errors, np_var, INEXACT, EXTREMES),
    "torch.std": (var_samples, var_errors, np_std, INEXACT, EXTREMES),
    "torch.var_mean": (var_samples, var_errors, moments, INEXACT, MEANS),
    "torch.std_mean": (var_samples, var_errors, np_std_mean, INEXACT, MEANS),
    "torch.cov": (cov_samples, cov_errors, np_cov, NUMBERS, ("inf", "nan")),
    "torch.corrcoef": (corrcoef_samples, matrix_errors, np.corrcoef, NUMBERS, ("inf", "nan")),
}

OPINFOS += [
    OpInfo(symbol_for(name), samples, errors, by_numpy(fn), accepted, True, extremes=extremes)
    for name, (samples, errors, fn, accepted, extremes) in STATISTICS.items()
]
