"""Sums, products, extremes and counts over dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.special
import torch
from packaging.version import Version

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    ANY,
    EXTREMES,
    FLOATS,
    INEXACT,
    NUMBERS,
    OPINFOS,
    REAL,
    ROUNDED,
    Directive,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)

NOT_A_DIM = "must be|invalid combination of arguments"


def dims_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the layouts by turns over all dimensions, the last by position, and the first by name and kept; then several dimensions at once."""
    make = Maker(dtype, device)
    for i, x in enumerate(make.layouts()):
        yield (SampleInput((x,)), SampleInput((x, -1)), SampleInput((x,), {"dim": 0, "keepdim": True}))[i % 3]
    x = make(2, 3, 4)
    yield SampleInput((x, (0, 2)))
    yield SampleInput((x,), {"dim": (-1, 1), "keepdim": True})


def sum_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield from dims_samples(dtype, device)
    yield SampleInput((make(3, 4), ()), {"dtype": torch.complex128 if dtype.kind == "complex" else torch.float64})


def nan_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from sum_samples(dtype, device)
    if dtype.inexact:
        x = Maker(dtype, device)(3, 4)
        x[0, 1] = x[2, :2] = torch.nan
        yield SampleInput((x, 1))


def mean_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from sum_samples(dtype, device)
    if dtype.inexact:
        yield SampleInput((Maker(dtype, device)(3, 4, dtype=dtypes.int64), 0), {"dtype": torch.float32})


def dim_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield samples over all dimensions, or one."""
    for sample in dims_samples(dtype, device):
        if not isinstance([*sample.args[1:], *sample.kwargs.values(), None][0], tuple):
            yield sample


def prod_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield no more than twelve factors, since eager rounds halves after each."""
    make = Maker(dtype, device)
    for sample in dim_samples(dtype, device):
        yield sample if sample.args[0].numel() <= 12 or len(sample.args) > 1 or sample.kwargs else SampleInput((*sample.args, 1))
    yield SampleInput((make(3, 4),), {"dtype": torch.complex128 if dtype.kind == "complex" else torch.float64})


def something(samples: Callable, dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the samples that have something to choose from, and one with a result that has no elements."""
    for sample in samples(dtype, device):
        if sample.args[0].numel():
            yield sample
    yield SampleInput((Maker(dtype, device)(2, 0, 3),), {"dim": 0})


def no_dims_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield an empty tuple of dimensions, which any and all take at its word."""
    yield from dims_samples(dtype, device)
    yield SampleInput((Maker(dtype, device)(2, 3), ()))


def aminmax_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for sample in something(dim_samples, dtype, device):
        x, *dim = sample.args
        yield SampleInput((x,), {**sample.kwargs, **({"dim": dim[0]} if dim else {})})


def max_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """(x), (x, dim, keepdim) and (x, other)."""
    make = Maker(dtype, device)
    yield from something(dim_samples, dtype, device)
    yield SampleInput((make(3, 4), 1, True))
    yield SampleInput((make(3, 4).t(), make(4, 1)))
    yield SampleInput((make(2, 3),), {"other": make(3, dtype=dtypes.float32)})


def count_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for sample in dims_samples(dtype, device):
        if "keepdim" not in sample.kwargs:
            yield sample
    yield SampleInput((Maker(dtype, device)(3, 4),), {"dim": (0, 1)})


def logsumexp_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for sample in dims_samples(dtype, device):
        yield sample if len(sample.args) > 1 or sample.kwargs else SampleInput((*sample.args, 0))


def trace_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in (make(3, 3), make(2, 4), make(2, 4).t(), make(1, 1), make(0, 3), make(3, 1).expand(3, 4), make(3, 6)[:, ::2]):
        yield SampleInput((x,))


def dims_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, 2), {}, IndexError, "Dimension out of range")
    yield ErrorSample((x, (0, -2)), {}, RuntimeError, "expected distinct dimensions")
    yield ErrorSample((x, "0"), {}, TypeError, NOT_A_DIM)


def dim_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)),), {"dim": 2}, IndexError, "Dimension out of range")
    yield ErrorSample((unwritten((2, 3)),), {"dim": "0"}, TypeError, NOT_A_DIM)


def dtype_errors(errors: Callable, wrong: DType, message: str, error: type[Exception], device: Device) -> Iterator[ErrorSample]:
    """Yield `errors`, and that of a tensor of the dtype `wrong`."""
    yield from errors(device)
    yield ErrorSample((unwritten((2, 3), wrong),), {"dim": 0}, error, message)


def choice_errors(errors: Callable, wrong: DType, device: Device) -> Iterator[ErrorSample]:
    yield from dtype_errors(errors, wrong, "expected", RuntimeError, device)
    yield ErrorSample((unwritten((0, 3)),), {"dim": 0}, IndexError, "non-zero size|non-zero dim")


def trace_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)),), {}, RuntimeError, "expected a matrix")
    yield ErrorSample((unwritten((3, 3), dtypes.bool_),), {}, NotImplementedError, "not implemented for")


def over(fn: Callable, collected: bool = False) -> Callable:
    """Adapt a NumPy reduction to torch's arguments; with `collected` integers and booleans in int64, and `dtype` as requested."""

    def reduce(x: np.ndarray, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Any:
        axis = None if dim is None or dim == () or not x.ndim else dim
        if collected:
            x = x.astype({torch.float64: np.float64, torch.float32: np.float32, torch.complex128: np.complex128}.get(dtype, wide(x)))
        with np.errstate(all="ignore"):
            return fn(x, axis=axis, keepdims=keepdim)

    return by_numpy(reduce)


def wide(x: np.ndarray) -> Any:
    return np.int64 if x.dtype.kind in "biu" else x.dtype


def np_mean(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.sum(x, axis=axis, keepdims=keepdims) / (x.size if axis is None else np.prod([x.shape[d] for d in np.atleast_1d(axis)]))


def np_nanmean(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.nansum(x, axis=axis, keepdims=keepdims) / np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)


def truth(fn: Callable) -> Callable:
    def reduce(x: np.ndarray, dim: Any = None, keepdim: bool = False) -> Any:
        return fn(x, axis=dim if x.ndim else None, keepdims=keepdim)

    return by_numpy(reduce)


def position(fn: Callable) -> Callable:
    def reduce(x: np.ndarray, dim: int | None = None, keepdim: bool = False) -> Any:
        return fn(x, axis=dim if x.ndim else None, **({"keepdims": keepdim} if x.ndim else {}))

    return by_numpy(reduce)


def extreme(reduce: Callable, point: Callable, compare: Callable) -> Callable:
    """max or min: what NumPy calls three functions."""

    def pick(x: np.ndarray, dim: Any = None, keepdim: bool = False, other: np.ndarray | None = None) -> Any:
        other = dim if isinstance(dim, np.ndarray) else other
        if other is not None:
            return compare(x, other)
        if dim is None:
            return reduce(x)
        return (reduce(x, dim, keepdims=keepdim), point(x, dim, keepdims=keepdim)) if x.ndim else (x, np.array(0))

    return by_numpy(pick)


def np_logsumexp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    x = x if x.dtype.kind in "fc" else x.astype(np.float64)
    return scipy.special.logsumexp(x, axis=axis, keepdims=keepdims) if x.size else np.log(np.sum(x, axis=axis, keepdims=keepdims))


def refused_dtype(message: str, wrong: DType) -> Callable:
    return partial(dtype_errors, dims_errors, wrong, message, RuntimeError)


choose = partial(something, dims_samples), partial(choice_errors, dims_errors, dtypes.complex64)
point = partial(something, dim_samples), partial(choice_errors, dim_errors, dtypes.bool_)
largest, smallest = extreme(np.max, np.argmax, np.maximum), extreme(np.min, np.argmin, np.minimum)
both = over(lambda x, **over: (np.min(x, **over), np.max(x, **over)))

# name: (samples, error samples, reference, dtypes, whether it has a gradient)
REDUCTIONS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...], bool]] = {
    "torch.sum": (sum_samples, dims_errors, over(np.sum, True), ANY, True),
    "torch.nansum": (nan_samples, refused_dtype("does not support complex", dtypes.complex64), over(np.nansum, True), REAL, True),
    "torch.mean": (mean_samples, refused_dtype("could not infer output dtype", dtypes.int64), over(np_mean, True), INEXACT, True),
    "torch.nanmean": (nan_samples, refused_dtype("expected a floating point", dtypes.int64), over(np_nanmean, True), FLOATS, True),
    "torch.prod": (prod_samples, dim_errors, over(np.prod, True), ANY, True),
    "torch.amax": (*choose, over(np.max), REAL, True),
    "torch.amin": (*choose, over(np.min), REAL, True),
    "torch.aminmax": (aminmax_samples, partial(choice_errors, dim_errors, dtypes.complex64), both, REAL, True),
    "torch.max": (max_samples, partial(choice_errors, dim_errors, dtypes.complex64), largest, REAL, True),
    "torch.min": (max_samples, partial(choice_errors, dim_errors, dtypes.complex64), smallest, REAL, True),
    "torch.argmax": (*point, position(np.argmax), ROUNDED, False),
    "torch.argmin": (*point, position(np.argmin), ROUNDED, False),
    "torch.any": (no_dims_samples, dims_errors, truth(np.any), ANY, False),
    "torch.all": (no_dims_samples, dims_errors, truth(np.all), ANY, False),
    "torch.count_nonzero": (count_samples, dims_errors, by_numpy(lambda x, dim=None: np.count_nonzero(x, dim if x.ndim else None)), ANY, False),
    "torch.logsumexp": (logsumexp_samples, dims_errors, over(np_logsumexp), ANY, True),
    "torch.trace": (trace_samples, trace_errors, by_numpy(lambda x: np.trace(x, dtype=wide(x))), NUMBERS, True),
}

TALL = Directive("skip", "the gradient of trace in torch 2.10 is wrong for tall matrices", check="backward")
DIRECTIVES = {"torch.trace": (TALL,)} if Version(torch.__version__).release < (2, 11) else {}

# Whether a product of large values, of infinities and zeros, is NaN depends on how it is grouped.
OPINFOS += [
    OpInfo(
        symbol_for(name),
        samples,
        errors,
        reference,
        accepted,
        grad,
        extremes=EXTREMES if name != "torch.prod" else ("nan",),
        directives=DIRECTIVES.get(name, ()),
    )
    for name, (samples, errors, reference, accepted, grad) in REDUCTIONS.items()
]
