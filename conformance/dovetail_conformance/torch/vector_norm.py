"""Norms of vectors and matrices, and the distances measured with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
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
    INEXACT,
    INTS,
    OPINFOS,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)
from dovetail_conformance.torch.reduction import NOT_A_DIM

ORDERS = (2, 1, inf, -inf, 0, 3, 0.5, -1)


def double(dtype: DType) -> torch.dtype:
    return torch.complex128 if dtype.kind == "complex" else torch.float64


def vector_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the layouts with elements over all dimensions, the last or the first, each with another order; what is empty has the norm 0."""
    make = Maker(dtype, device)
    some = [x for x in make.layouts() if x.numel()]
    for i, (x, ord) in enumerate(zip(some, ORDERS, strict=False)):
        fixed = (x,) if ord == 0 else ()  # eager's result requires grad, and its gradient is None
        args, kwargs = (((x, ord), {}), ((x, ord, -1), {}), ((x,), {"ord": ord, "dim": 0, "keepdim": True}))[i % 3]
        yield SampleInput(args, kwargs, fixed)
    yield SampleInput((make(0),))
    yield SampleInput((make(2, 3, 4), 2, (0, -1)))
    yield SampleInput((make(2, 3, 4),), {"dim": (0, 1), "ord": 3, "keepdim": True})
    yield SampleInput((make(3, 4),), {"dtype": double(dtype)})


def matrix_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield matrices; norms by singular values are not for halves."""
    make = Maker(dtype, device)
    spectral = ("nuc", 2, -2) if dtype.bytes > 2 else ()
    for i, ord in enumerate(("fro", inf, -inf, 1, -1, *spectral)):
        yield SampleInput((make(3, 4), ord)) if i % 2 else SampleInput((make(4, 2, 3).transpose(0, 2), ord, (0, -1), True))
    yield SampleInput((make(2, 3, 6)[..., ::2],))
    yield SampleInput((make(3, 4),), {"ord": 1, "dim": (1, 0), "dtype": double(dtype)})
    yield SampleInput((make(2, 0, 3),), {"ord": "fro"})
    for i, ord in enumerate((inf, 1, -1, *spectral[:2])):
        yield SampleInput((make(2, 0, 3), ord, (-2, -1), bool(i % 2)))
    yield SampleInput((make(3, 0), 1))
    yield SampleInput((make(0, 0), inf, (0, 1), True))


def norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),))
    yield SampleInput((make(2, 3, 4).permute(2, 0, 1),))
    yield SampleInput((make(0),))
    yield SampleInput((make(5), 3))
    yield SampleInput((make(3, 4).t(), 1))
    yield SampleInput((make(3, 4), "fro"))
    yield SampleInput((make(2, 3, 4), inf, 1))
    yield SampleInput((make(2, 3, 4), 1, (0, 2), True))
    yield SampleInput((make(3, 4),), {"dim": 1, "keepdim": True, "dtype": double(dtype)})
    if dtype.bytes > 2:
        yield SampleInput((make(2, 3, 4), "nuc", (-2, -1)))
        yield SampleInput((make(3, 4),), {"ord": 2})


def pair_samples(dtype: DType, device: Device) -> Iterator[tuple]:
    """Yield two tensors each: alike, broadcast, transposed, with gaps, expanded, of one element, of none."""
    make = Maker(dtype, device)
    yield make(4), make(4)
    yield make(3, 4), make(4)
    yield make(3, 1), make(2, 1, 4)
    yield make(4, 3).t(), make(3, 8)[:, ::2]
    yield make(3, 1).expand(3, 4), make(3, 4)
    yield make(1), make(1)
    yield make(2, 0), make(2, 0)


def dist_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for pair, p in zip(pair_samples(dtype, device), (2, 1, inf, 4, 3, -inf, 2), strict=True):
        yield SampleInput((*pair, p))
    yield SampleInput((make(), make()))
    yield SampleInput((make(3, 4), make(3, 4).to(double(dtype))), {"p": 0.5})


def pairwise_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for i, pair in enumerate(pair_samples(dtype, device)):
        yield SampleInput(pair, {"keepdim": True} if i % 3 == 1 else {})
    x, y = Maker(dtype, device)(2, 4), Maker(dtype, device)(4)
    yield SampleInput((x, y, 1.0))
    yield SampleInput((x, y, 3, 0.1, True))
    yield SampleInput((x, y.to(torch.complex128 if dtype.kind == "complex" else torch.float32)), {"p": inf, "eps": 0.5})


def cosine_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for pair in pair_samples(dtype, device):
        yield SampleInput(pair, {"dim": -1})
    yield SampleInput((make(3, 4), make(3, 4)))
    yield SampleInput((make(2, 3, 4), make(3, 1)), {"dim": 0, "eps": 2.0})
    yield SampleInput((make(2, 3), make(2, 3, dtype=dtypes.float64), 1, 1e-3))


def vector_norm_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, 2, 2), {}, IndexError, "Dimension out of range")
    yield ErrorSample((x,), {"dim": "0"}, TypeError, NOT_A_DIM)
    yield ErrorSample((unwritten((2, 3), dtypes.int64),), {}, RuntimeError, "expected a floating point or complex dtype")
    yield ErrorSample((x,), {"dtype": torch.complex64}, RuntimeError, "dtype should be float")
    yield ErrorSample((unwritten((2, 0)), inf, 1), {}, RuntimeError, "because it is empty")


def matrix_norm_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((unwritten((3,)),), {}, RuntimeError, "must have at least 2 dimensions")
    yield ErrorSample((x, 3), {}, RuntimeError, "Order 3 not supported")
    yield ErrorSample((x, "fro", (0, 2)), {}, IndexError, "Dimension out of range")
    yield ErrorSample((x, "fro", (0, -2)), {}, RuntimeError, "dims must be different")
    yield ErrorSample((unwritten((2, 3), dtypes.int64),), {}, RuntimeError, "expected a floating point or complex dtype")
    yield ErrorSample((unwritten((2, 0)), -1), {}, IndexError, "is empty|to have non-zero size")
    yield ErrorSample((unwritten((2, 0)), -2), {}, IndexError, "to have non-zero size")


def norm_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), 2, (0, 1, 1)), {}, RuntimeError, "must be of length 1 or 2")
    yield ErrorSample((unwritten((2, 3, 4)), 2), {}, RuntimeError, "the input must be 1D or 2D")
    yield ErrorSample((unwritten((2, 3), dtypes.int64),), {}, RuntimeError, "expected a floating point or complex dtype")


def pair_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((2,))), {}, RuntimeError, "must match|cannot be broadcast|broadcast")
    yield ErrorSample((unwritten((2, 3)), 1.0), {}, TypeError, "must be")


def distance_errors(device: Device) -> Iterator[ErrorSample]:
    yield from pair_errors(device)
    yield ErrorSample((unwritten((2, 3)), unwritten((2, 3), dtypes.bool_)), {}, RuntimeError, "boolean is not supported")


def cosine_errors(device: Device) -> Iterator[ErrorSample]:
    yield from pair_errors(device)
    yield ErrorSample((unwritten((2, 3)), unwritten((2, 3)), 2), {}, IndexError, "Dimension out of range")
    yield ErrorSample((unwritten((2, 3), dtypes.int64),) * 2, {}, RuntimeError, "to be floating point")


def np_length(x: np.ndarray, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> np.ndarray:
    """(sum of |x|**ord)**(1 / ord), and its limits."""
    x = np.abs(x.astype({torch.float64: np.float64, torch.complex128: np.complex128}.get(dtype, x.dtype)))
    over = {"axis": dim if x.ndim else None, "keepdims": keepdim}
    with np.errstate(all="ignore"):
        if ord in (inf, -inf):
            return np.max(x, **over) if ord > 0 else np.min(x, **over)
        return np.sum(x != 0, **over).astype(x.dtype) if ord == 0 else np.sum(x**ord, **over) ** (1 / ord)


def np_matrix_norm(x: np.ndarray, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: Any = None) -> np.ndarray:
    if 0 in (x.shape[dim[0]], x.shape[dim[1]]):
        return np.sum(np.abs(x), axis=dim, keepdims=keepdim)
    return np.linalg.norm(x, ord, dim, keepdim)


def np_norm(x: np.ndarray, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> np.ndarray:
    return np.linalg.norm(x, ord, dim, keepdim)


def np_dist(x: np.ndarray, y: np.ndarray, p: float = 2) -> np.ndarray:
    return np_length(x - y, p)


def np_pairwise(x: np.ndarray, y: np.ndarray, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> np.ndarray:
    return np_length(x - y + eps, p, -1, keepdim)


def np_cosine(x: np.ndarray, y: np.ndarray, dim: int = 1, eps: float = 1e-8) -> np.ndarray:
    x, y = np.broadcast_arrays(x, y)
    units = [v / np.maximum(np.sqrt(np.sum(v * v, axis=dim, keepdims=True)), eps) for v in (x, y)]
    return np.sum(units[0] * units[1], axis=dim)


# name: (samples, error samples, reference, dtypes, extremes); the algorithm decides what NaN does to singular values
NORMS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...], tuple[str, ...]]] = {
    "torch.linalg.vector_norm": (vector_norm_samples, vector_norm_errors, np_length, INEXACT, EXTREMES),
    "torch.linalg.matrix_norm": (matrix_norm_samples, matrix_norm_errors, np_matrix_norm, INEXACT, ()),
    "torch.linalg.norm": (norm_samples, norm_errors, np_norm, INEXACT, ()),
    "torch.dist": (dist_samples, distance_errors, np_dist, INEXACT, EXTREMES),
    "torch.nn.functional.pairwise_distance": (pairwise_samples, distance_errors, np_pairwise, INTS + INEXACT, EXTREMES),
    "torch.nn.functional.cosine_similarity": (cosine_samples, cosine_errors, np_cosine, FLOATS, EXTREMES),
}

OPINFOS += [
    OpInfo(symbol_for(name), samples, errors, by_numpy(fn), accepted, True, extremes=extremes)
    for name, (samples, errors, fn, accepted, extremes) in NORMS.items()
]
