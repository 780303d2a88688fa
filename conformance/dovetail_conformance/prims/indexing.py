"""Elements picked by position, and put there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail_conformance.opinfo import ANY, NUMBERS, OPINFOS, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, unwritten

POSITIONS = unwritten((2,), dtypes.int64)


def bases(make: Maker) -> Iterator[Tensor]:
    """Yield tensors to index, in several layouts."""
    yield make(5)
    yield make(4, 3)
    yield make(3, 4).t()
    yield make(2, 3, 4).permute(1, 2, 0)
    yield make(2, 3, 4).permute(0, 2, 1)
    yield make(3, 8)[:, ::2]
    yield make(3, 1).expand(3, 4)


def with_rows(dtype: DType, device: Device, *, put: bool, twice: bool) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in bases(make):
        for dim in range(x.ndim):
            n = x.shape[dim]
            for index in (make.index(n, 2) if twice else make.distinct(n, 2), make.distinct(n, 0), make.distinct(n, n)):
                value = make(*x.shape[:dim], index.numel(), *x.shape[dim + 1 :])
                yield SampleInput((x, index, value) if put else (x, index), {"dim": dim})


def take_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    return with_rows(dtype, device, put=False, twice=True)


def index_add_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    return with_rows(dtype, device, put=True, twice=True)


def index_copy_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    return with_rows(dtype, device, put=True, twice=False)


def rows(x: np.ndarray, index: np.ndarray, dim: int) -> tuple:
    return (*(slice(None),) * dim, index)


def np_index_add(x: np.ndarray, index: np.ndarray, value: np.ndarray, dim: int) -> np.ndarray:
    out = x.copy()
    np.add.at(out, rows(out, index, dim), value)
    return out


def np_index_copy(x: np.ndarray, index: np.ndarray, value: np.ndarray, dim: int) -> np.ndarray:
    out = x.copy()
    out[rows(out, index, dim)] = value
    return out


def take_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((4, 3))
    yield ErrorSample((x, POSITIONS), {"dim": 2}, IndexError, "expected a dim")
    yield ErrorSample((x, unwritten((2, 1), dtypes.int64)), {"dim": 0}, IndexError, "index is supposed to be a vector")
    yield ErrorSample((x, unwritten((2,), dtypes.int32)), {"dim": 0}, RuntimeError, "expected dtype int64 for index")
    yield ErrorSample((unwritten((2,), dtypes.float8_e5m2), POSITIONS), {"dim": 0}, NotImplementedError, "expected a tensor of kind")


def row_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((4, 3))
    yield ErrorSample((x, POSITIONS, unwritten((3, 3))), {"dim": 0}, RuntimeError, r"expected a value of shape \(2, 3\)")
    yield ErrorSample((x, POSITIONS, unwritten((2, 3), dtypes.int64)), {"dim": 0}, RuntimeError, "expected a value of shape")
    yield ErrorSample((x, unwritten((), dtypes.int64), unwritten((2, 3))), {"dim": 0}, IndexError, "index is supposed to be a vector")


def with_places(dtype: DType, device: Device, *, put: bool, twice: bool) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in bases(make):
        for dim in range(x.ndim):
            n = x.shape[dim]
            whole = make.index(n, *x.shape)
            for index in (whole if twice else whole.argsort(dim), whole.argsort(dim).narrow(dim, 0, 2), whole.argsort(dim).narrow(0, 0, 1)):
                yield SampleInput((x, index, make(*index.shape)) if put else (x, index), {"dim": dim})


def take_along_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    return with_places(dtype, device, put=False, twice=True)


def scatter_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    return with_places(dtype, device, put=True, twice=False)


def scatter_add_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    return with_places(dtype, device, put=True, twice=True)


def places(index: np.ndarray, dim: int) -> tuple[np.ndarray, ...]:
    grid = list(np.indices(index.shape))
    grid[dim] = index
    return tuple(grid)


def np_take_along(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    return x[places(index, dim)]


def np_scatter(x: np.ndarray, index: np.ndarray, value: np.ndarray, dim: int) -> np.ndarray:
    out = x.copy()
    out[places(index, dim)] = value
    return out


def np_scatter_add(x: np.ndarray, index: np.ndarray, value: np.ndarray, dim: int) -> np.ndarray:
    out = x.copy()
    np.add.at(out, places(index, dim), value)
    return out


def along_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((4, 3))
    yield ErrorSample((x, unwritten((2, 3), dtypes.int64)), {"dim": 2}, IndexError, "expected a dim")
    yield ErrorSample((x, POSITIONS), {"dim": 0}, RuntimeError, "same number of dimensions as input")
    yield ErrorSample((x, unwritten((2, 4), dtypes.int64)), {"dim": 0}, RuntimeError, "size does not match at some dimension other than 0")
    yield ErrorSample((x, unwritten((2, 3), dtypes.int32)), {"dim": 0}, RuntimeError, "expected dtype int64 for index")


def scatter_errors(device: Device) -> Iterator[ErrorSample]:
    x, index = unwritten((4, 3)), unwritten((2, 3), dtypes.int64)
    yield ErrorSample((x, index, unwritten((2, 2))), {"dim": 0}, RuntimeError, r"expected a value of shape \(2, 3\)")
    yield ErrorSample((x, index, unwritten((2, 3), dtypes.float64)), {"dim": 0}, RuntimeError, "expected a value of shape")
    yield ErrorSample((x, unwritten((5, 4), dtypes.int64), unwritten((5, 4))), {"dim": 0}, RuntimeError, "size does not match")


def index_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in bases(make):
        for count in range(1, x.ndim + 1):
            for shape in ((), (3,), (2, 2), (0,)):
                yield SampleInput((x, [make.index(x.shape[d], *shape) for d in range(count)]))


def index_put_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for sample in index_samples(dtype, device):
        x, indices = sample.args
        shape = (*indices[0].shape, *x.shape[len(indices) :])
        if dtype.kind != "bool":
            yield SampleInput((x, indices, make(*shape)), {"accumulate": True})
        if indices[0].ndim == 1:
            once = [make.distinct(x.shape[0], 2), *(i[:2] for i in indices[1:])] if indices[0].numel() else indices
            yield SampleInput((x, once, make(*once[0].shape, *x.shape[len(indices) :])), {"accumulate": False})


def np_index_put(x: np.ndarray, indices: list, value: np.ndarray, accumulate: bool) -> np.ndarray:
    out = x.copy()
    if accumulate:
        np.add.at(out, tuple(indices), value)
    else:
        out[tuple(indices)] = value
    return out


def index_errors(device: Device, *, more: tuple = (), **kwargs: Any) -> Iterator[ErrorSample]:
    x = unwritten((4, 3))
    yield ErrorSample((x, [], *more), kwargs, RuntimeError, "expected at least one index")
    yield ErrorSample((x, [POSITIONS] * 3, *more), kwargs, IndexError, "too many indices for tensor of dimension 2")
    yield ErrorSample((x, [POSITIONS, unwritten((3,), dtypes.int64)], *more), kwargs, IndexError, "expected indices of one shape")
    yield ErrorSample((x, [unwritten((2,))], *more), kwargs, RuntimeError, "expected dtype int64 for index")


def index_put_errors(device: Device) -> Iterator[ErrorSample]:
    yield from index_errors(device, more=(unwritten((2, 3)),), accumulate=False)
    wrong = (unwritten((4, 3)), [POSITIONS], unwritten((2, 2)))
    yield ErrorSample(wrong, {"accumulate": True}, RuntimeError, r"expected a value of shape \(2, 3\)")


OPINFOS += [
    OpInfo(prims.take, take_samples, take_errors, by_numpy(lambda x, index, dim: np.take(x, index, axis=dim)), ANY, grad=True),
    OpInfo(prims.index_add, index_add_samples, row_errors, by_numpy(np_index_add), NUMBERS, grad=True),
    OpInfo(prims.index_copy, index_copy_samples, row_errors, by_numpy(np_index_copy), ANY, grad=True),
    OpInfo(prims.take_along_axis, take_along_samples, along_errors, by_numpy(np_take_along), ANY, grad=True),
    OpInfo(prims.scatter, scatter_samples, scatter_errors, by_numpy(np_scatter), ANY, grad=True),
    OpInfo(prims.scatter_add, scatter_add_samples, scatter_errors, by_numpy(np_scatter_add), NUMBERS, grad=True),
    OpInfo(prims.index, index_samples, index_errors, by_numpy(lambda x, indices: x[tuple(indices)]), ANY, grad=True),
    OpInfo(prims.index_put, index_put_samples, index_put_errors, by_numpy(np_index_put), ANY, grad=True),
]
