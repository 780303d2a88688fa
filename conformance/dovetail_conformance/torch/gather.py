"""Elements picked along a dimension by an index, and put, added or combined there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    ANY,
    EXTREMES,
    OPINFOS,
    ROUNDED,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    laid,
    unwritten,
)

LONG = (RuntimeError, "Expected (dtype int|a long)")
OUT_OF_RANGE = (IndexError, "Dimension out of range")
# shape, its layout, dimension, the index's shape: no larger than the tensor's apart from that dimension
PLACES: tuple[tuple[tuple[int, ...], str, int, tuple[int, ...]], ...] = (
    ((), "row-major", 0, ()),
    ((5,), "gapped", 0, (3,)),
    ((4, 3), "row-major", 1, (4, 2)),
    ((4, 3), "column-major", 0, (3, 3)),
    ((2, 3, 4), "column-major", -2, (1, 3, 4)),
    ((3, 4), "row-major", 0, (2, 0)),
    ((5, 4), "row-major", -1, (3, 2)),
    ((3, 5, 4), "gapped", 1, (2, 4, 3)),
)


def once(make: Maker, size: int, shape: tuple[int, ...], dim: int) -> Tensor:
    """Return positions below `size`, none of them twice along `dim`."""
    return (
        make(*[size if d == dim % len(shape) else n for d, n in enumerate(shape)], dtype=dtypes.float64).argsort(dim).narrow(dim, 0, shape[dim])
        if shape
        else make.index(1)
    )


def places(dtype: DType, device: Device) -> Iterator[tuple[Maker, Tensor, int, Tensor]]:
    """Yield tensors, dimensions and positions along them, each place at most once."""
    make = Maker(dtype, device)
    for shape, layout, dim, index in PLACES:
        yield make, laid(make, layout, *shape), dim, once(make, shape[dim] if shape else 1, index, dim)


def gather_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for _, x, dim, index in places(dtype, device):
        yield SampleInput((x, dim, index))
    make = Maker(dtype, device)
    yield SampleInput((make(3, 1).expand(3, 4), 0, make.index(3, 5, 2)))
    yield SampleInput((make(3, 4),), {"dim": 1, "index": make.index(4, 2, 6).to(torch.int32), "sparse_grad": False})


def take_along_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(4, 3), make.index(4, 2, 3), 0))
    yield SampleInput((make(4, 3).t(), make.index(4, 1, 2), 1))
    yield SampleInput((make(1, 3), make.index(3, 4, 2)), {"dim": -1})
    yield SampleInput((make(2, 3), make.index(6, 2, 2)))
    yield SampleInput((laid(make, "gapped", 2, 3), make.index(3, 2, 3), 1))
    yield SampleInput((make(3, 2), make.index(3, 0, 2), 0))


def np_take_along(x: np.ndarray, indices: np.ndarray, dim: int | None = None) -> np.ndarray:
    if dim is None:
        return x.reshape(-1)[indices.reshape(-1)]
    n = dim % x.ndim
    shape = [1 if d == n else max(a, b) for d, (a, b) in enumerate(zip(x.shape, indices.shape))]
    wide = [np.broadcast_to(a, [a.shape[d] if d == n else m for d, m in enumerate(shape)]) for a in (x, indices)]
    return np.take_along_axis(*wide, axis=dim)


def scatter_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for make, x, dim, index in places(dtype, device):
        yield SampleInput((x, dim, index, make(*index.shape) if index.numel() else 1))
    yield SampleInput((make(3, 4), 1, make.index(4, 3, 2), 1))
    yield SampleInput((make(3, 4),), {"dim": 0, "index": make.index(3, 2, 4).to(torch.int32), "value": True})
    if not dtype.inexact:  # eager has no gradient of what follows
        yield SampleInput((make(4, 3), 0, torch.tensor([[1, 0, 3]]), make(4, 2).t()))
    if dtype.kind == "int":
        yield SampleInput((make(4, 3), 0, make.index(4, 4, 3), make(5, 3)), {"reduce": "add"})
        yield SampleInput((make(4, 3), 0, once(make, 4, (2, 3), 0), 2), {"reduce": "multiply"})


def scatter_add_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for make, x, dim, index in places(dtype, device):
        if index.numel() or not dtype.inexact:
            yield SampleInput((x, dim, index, make(*index.shape)))
    yield SampleInput((make(4, 3), 0, make.index(4, 6, 3), make(6, 3)))
    yield SampleInput((make(4, 3).t(),), {"dim": 0, "index": make.index(3, 2, 4).to(torch.int32), "src": laid(make, "gapped", 2, 4)})
    if not dtype.inexact:  # eager has no gradient of a source that is larger than the index
        yield SampleInput((make(4, 3), 0, make.index(4, 6, 3), make(7, 4)))


REDUCTIONS: dict[str, Callable] = {"sum": np.add, "prod": np.multiply, "mean": np.add, "amax": np.maximum, "amin": np.minimum}


def scatter_reduce_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, domain=(0.5, 3.0))
    for i, reduce in enumerate(REDUCTIONS):
        x, index = laid(make, ("row-major", "column-major")[i % 2], 4, 3), make.index(4, 6, 3)
        yield SampleInput((x, 0, index, make(6, 3), reduce))
        yield SampleInput((x, 1, make.index(3, 4, 5)), {"src": make(5, 4).t(), "reduce": reduce, "include_self": False})
    yield SampleInput((make(), 0, torch.tensor(0), make(), "sum"))
    yield SampleInput((make(3), 0, make.index(3, 0), make(0), "prod"))


def np_scatter_reduce(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray, reduce: str, include_self: bool = True) -> np.ndarray:
    if not x.ndim:
        return REDUCTIONS[reduce](x, src)
    out, at = x.copy(), np_places(index, dim)
    if not include_self:
        out[at] = (
            {"sum": 0, "mean": 0, "prod": 1}.get(reduce, np.inf if reduce == "amin" else -np.inf)
            if x.dtype.kind in "fc"
            else first_of(out, at, src, reduce)
        )
    REDUCTIONS[reduce].at(out, at, src)
    if reduce == "mean":
        count = np.full(x.shape, int(include_self))
        np.add.at(count, at, 1)
        return out // np.maximum(count, 1) if x.dtype.kind in "iu" else out / np.maximum(count, 1)
    return out


def first_of(out: np.ndarray, at: tuple, src: np.ndarray, reduce: str) -> Any:
    """Return what a reduction of integers starts with."""
    return {"sum": 0, "mean": 0, "prod": 1, "amax": src.min(), "amin": src.max()}[reduce]


def np_places(index: np.ndarray, dim: int) -> tuple[np.ndarray, ...]:
    grid = list(np.indices(index.shape))
    grid[dim] = index
    return tuple(grid)


def np_gather(x: np.ndarray, dim: int, index: np.ndarray, sparse_grad: bool = False) -> np.ndarray:
    return x[np_places(index, dim)] if x.ndim else x


def np_scatter(x: np.ndarray, dim: int, index: np.ndarray, src: Any = None, *, value: Any = None, reduce: str | None = None) -> np.ndarray:
    src = value if src is None else src
    if not x.ndim:
        return np.asarray(src, x.dtype)
    out, at = x.copy(), np_places(index, dim)
    src = src[tuple(map(slice, index.shape))] if isinstance(src, np.ndarray) else src
    if reduce is None:
        out[at] = src
    else:
        {"add": np.add, "multiply": np.multiply}[reduce].at(out, at, np.asarray(src, x.dtype))
    return out


def np_scatter_add(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray) -> np.ndarray:
    if not x.ndim:
        return x + src
    out = x.copy()
    np.add.at(out, np_places(index, dim), src[tuple(map(slice, index.shape))])
    return out


def along_errors(more: tuple, device: Device) -> Iterator[ErrorSample]:
    """Yield mistakes with the dimension and the index, `more` being what follows them."""
    x = unwritten((2, 3))
    yield ErrorSample((x, 2, unwritten((2, 3), dtypes.int64), *more), {}, *OUT_OF_RANGE)
    yield ErrorSample((x, 0, unwritten((2,), dtypes.int64), *more), {}, RuntimeError, "same number of dimensions")
    yield ErrorSample((x, 0, unwritten((2, 4), dtypes.int64), *more), {}, RuntimeError, "to be no larger than self")
    yield ErrorSample((x, 0, unwritten((2, 3)), *more), {}, *LONG)


def put_along_errors(more: tuple, device: Device) -> Iterator[ErrorSample]:
    yield from along_errors((unwritten((2, 3)), *more), device)
    x, index = unwritten((2, 3)), unwritten((2, 3), dtypes.int64)
    yield ErrorSample((x, 0, index, unwritten((1, 3)), *more), {}, RuntimeError, "to be no larger")
    yield ErrorSample((x, 0, index, unwritten((2, 3), dtypes.float64), *more), {}, RuntimeError, "Expected self.dtype to be equal to src.dtype")


def scatter_errors(device: Device) -> Iterator[ErrorSample]:
    yield from put_along_errors((), device)
    x, index = unwritten((2, 3)), unwritten((2, 3), dtypes.int64)
    yield ErrorSample((x, 0, index, x), {"reduce": "max"}, RuntimeError, "reduce argument must be either add or multiply")


def scatter_reduce_errors(device: Device) -> Iterator[ErrorSample]:
    yield from put_along_errors(("sum",), device)
    x, index = unwritten((2, 3)), unwritten((2, 3), dtypes.int64)
    yield ErrorSample((x, 0, index, x, "add"), {}, RuntimeError, "reduce argument must be either sum, prod, mean, amax or amin")


def take_along_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, unwritten((2, 3), dtypes.int32), 0), {}, RuntimeError, "dtype of indices should be Long")
    yield ErrorSample((x, unwritten((2,), dtypes.int64), 0), {}, RuntimeError, "same number of dimensions")
    yield ErrorSample((x, unwritten((3, 2), dtypes.int64), 0), {}, RuntimeError, "must match the size|shapes that broadcast")
    yield ErrorSample((x, unwritten((2, 3), dtypes.int64), 2), {}, *OUT_OF_RANGE)


# Rows along a dimension, named by a vector.
ROWS: tuple[tuple[tuple[int, ...], str, int, int], ...] = (
    ((5,), "gapped", 0, 3),
    ((4, 3), "row-major", 1, 2),
    ((4, 3), "column-major", 0, 0),
    ((2, 3, 4), "column-major", -2, 3),
)  # shape, layout, dimension, how many


def row_samples(dtype: DType, device: Device, *, source: bool, twice: bool) -> Iterator[SampleInput]:
    """Yield rows named once or, where the order does not matter, `twice`; with a source of so many rows or without."""
    make = Maker(dtype, device)
    for shape, layout, dim, count in ROWS:
        n = shape[dim]
        rows = [count if d == dim % len(shape) else m for d, m in enumerate(shape)]
        index = make.index(n, count) if twice else make.distinct(n, count)
        yield SampleInput((laid(make, layout, *shape), dim, index, *((make(*rows),) if source else ())))
    yield SampleInput((make(), 0, torch.tensor(0), *((make(),) if source else ())))
    named = {"dim": 0, "index": torch.tensor([2]), **({"source": laid(make, "gapped", 1, 3)} if source else {})}
    yield SampleInput((make(4, 3),), named)


def index_select_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from row_samples(dtype, device, source=False, twice=True)
    make = Maker(dtype, device)
    yield SampleInput((make(3, 1).expand(3, 4), 1, make.index(4, 5).to(torch.int32)))


def index_add_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from row_samples(dtype, device, source=True, twice=True)
    make = Maker(dtype, device)
    yield SampleInput((make(4, 3), 0, torch.tensor([1, 1], dtype=torch.int32), make(3, 2).t()), {"alpha": True if dtype.kind == "bool" else 2})


def index_fill_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for sample, value in zip(row_samples(dtype, device, source=False, twice=True), (1, True, make(), 0, 1, 0)):
        x, *rest = sample.args
        yield SampleInput((x, *rest, value) if rest else (x,), sample.kwargs if rest else {**sample.kwargs, "value": value})
    if dtype.kind == "float":
        yield SampleInput((make(4, 3), 1, torch.tensor([-1]), 0.5))


def np_rows(x: np.ndarray, dim: int, index: np.ndarray) -> tuple:
    return (*(slice(None),) * (dim % x.ndim), index.reshape(-1))


def np_index_select(x: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    return x[np_rows(x, dim, index)] if x.ndim else x


def np_index_add(x: np.ndarray, dim: int, index: np.ndarray, source: np.ndarray, alpha: Any = 1) -> np.ndarray:
    out = x.reshape(-1).copy() if x.ndim == 0 else x.copy()
    np.add.at(out, np_rows(out, dim, index), source * np.asarray(alpha, x.dtype))
    return out.reshape(x.shape)


def np_index_copy(x: np.ndarray, dim: int, index: np.ndarray, source: Any) -> np.ndarray:
    out = x.reshape(-1).copy() if x.ndim == 0 else x.copy()
    out[np_rows(out, dim, index)] = source
    return out.reshape(x.shape)


def row_errors(device: Device, *more: Any) -> Iterator[ErrorSample]:
    """Yield mistakes with the dimension and the index, `more` being what follows them."""
    x = unwritten((2, 3))
    yield ErrorSample((x, 2, unwritten((2,), dtypes.int64), *more), {}, *OUT_OF_RANGE)
    yield ErrorSample((x, 0, unwritten((2, 2), dtypes.int64), *more), {}, IndexError, "supposed to be a vector|dimension 1 or 0")
    yield ErrorSample((x, 0, unwritten((2,)), *more), {}, *LONG)


def source_errors(wrong_count: type[Exception], device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield from row_errors(device, x)
    yield ErrorSample((x, 0, unwritten((1,), dtypes.int64), x), {}, wrong_count, "source")
    yield ErrorSample(
        (x, 0, unwritten((2,), dtypes.int64), unwritten((2, 3), dtypes.float64)), {}, RuntimeError, "(same|have the same) (dtype|scalar type)"
    )


def index_fill_errors(device: Device) -> Iterator[ErrorSample]:
    x, index = unwritten((2, 3)), unwritten((2,), dtypes.int64)
    yield ErrorSample((x, 2, index, 1), {}, *OUT_OF_RANGE)
    yield ErrorSample((x, 0, unwritten((2, 2), dtypes.int64), 1), {}, RuntimeError, "has to be a vector/scalar")
    yield ErrorSample((x, 0, unwritten((2,), dtypes.int32), 1), {}, IndexError, "Expected dtype int64 for index")
    yield ErrorSample((x, 0, index, unwritten((3,))), {}, RuntimeError, "only supports a 0-dimensional value tensor")
    yield ErrorSample((x, 0, index, 1j), {}, RuntimeError, "")


# Positions in the flattened tensor.


def take_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(), torch.tensor([0, -1])))
    yield SampleInput((make(4, 3).t(), make.index(12, 2, 3)))
    yield SampleInput((laid(make, "gapped", 2, 3), torch.tensor(-6)))
    yield SampleInput((make(3, 1).expand(3, 4),), {"index": make.index(12, 3, 2).t()})
    yield SampleInput((make(3), make.index(3, 0)))


def take_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((2,))), {}, *LONG)
    yield ErrorSample((unwritten((2, 3)), unwritten((2,), dtypes.int32)), {}, *LONG)
    yield ErrorSample((unwritten((2, 3)), 1), {}, TypeError, "must be Tensor")


def put_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(), torch.tensor(0), make()))
    yield SampleInput((make(4, 3).t(), make.distinct(12, 6).reshape(2, 3), make(2, 3)))
    yield SampleInput((laid(make, "gapped", 2, 3), make.distinct(6, 2) - 6, make(2, 1)))
    yield SampleInput((make(3), make.distinct(3, 0), make(0)))
    if dtype.kind != "bool":
        yield SampleInput((make(4, 3), torch.tensor([[1, 1], [-1, 5]]), make(2, 2).t(), True))
        yield SampleInput((make(3),), {"index": torch.tensor([2, 2]), "source": make(2), "accumulate": True})


def np_put(x: np.ndarray, index: np.ndarray, source: np.ndarray, accumulate: bool = False) -> np.ndarray:
    out = x.reshape(-1).copy()
    if accumulate:
        np.add.at(out, index.reshape(-1), source.reshape(-1))
    else:
        out[index.reshape(-1)] = source.reshape(-1)
    return out.reshape(x.shape)


def put_errors(device: Device) -> Iterator[ErrorSample]:
    x, index = unwritten((2, 3)), unwritten((2,), dtypes.int64)
    yield ErrorSample((x, unwritten((2,)), unwritten((2,))), {}, *LONG)
    yield ErrorSample((x, index, unwritten((3,))), {}, IndexError, "same number of elements")
    yield ErrorSample((x, index, unwritten((2,), dtypes.float64)), {}, RuntimeError, "same dtype")


def info(name: str, samples: Callable, errors: Callable, reference: Callable, accepted: tuple[DType, ...] = ANY, **more: Any) -> OpInfo:
    return OpInfo(symbol_for(f"torch.{name}"), samples, errors, by_numpy(reference), accepted, grad=True, extremes=EXTREMES, **more)


OPINFOS += [
    info("gather", gather_samples, partial(along_errors, ()), np_gather),
    info("take_along_dim", take_along_samples, take_along_errors, np_take_along),
    info("scatter", scatter_samples, scatter_errors, np_scatter),
    info("scatter_add", scatter_add_samples, partial(put_along_errors, ()), np_scatter_add),
    info("scatter_reduce", scatter_reduce_samples, scatter_reduce_errors, np_scatter_reduce, ROUNDED),
    info("index_select", index_select_samples, row_errors, np_index_select),
    info("index_add", index_add_samples, partial(source_errors, RuntimeError), np_index_add),
    info("index_copy", partial(row_samples, source=True, twice=False), partial(source_errors, IndexError), np_index_copy),
    info("index_fill", index_fill_samples, index_fill_errors, lambda x, dim, index, value: np_index_copy(x, dim, index, value)),
    info("take", take_samples, take_errors, lambda x, index: x.reshape(-1)[index]),
    info("put", put_samples, put_errors, np_put),
]
