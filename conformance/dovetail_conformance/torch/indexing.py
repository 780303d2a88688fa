"""x[key], x[key] = value, and index_put."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import ANY, EXTREMES, OPINFOS, Directive, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, laid, unwritten

ALL = slice(None)
VIEWS: tuple[tuple[tuple[int, ...], str, Any], ...] = (
    ((), "row-major", ()),
    ((), "row-major", (None, ..., None)),
    ((5,), "gapped", -2),
    ((5,), "row-major", slice(1, None, 2)),
    ((4, 3), "column-major", (slice(-3, 9), 1)),
    ((4, 3), "repeated", (..., slice(2), None)),
    ((2, 3, 4), "gapped", (1, ..., slice(0, 0))),
    ((0, 3), "row-major", (ALL, -1)),
)  # shape, layout, a key that takes a view


def picking(make: Maker) -> Iterator[tuple[Tensor, Any]]:
    """Yield tensors and keys that pick places by their numbers, each place once."""
    yield make(5), make.distinct(5, 3)
    yield make(4, 3).t(), make.distinct(3, 2)
    yield make(4, 3), (ALL, [0, -1])
    yield laid(make, "gapped", 4, 3), (make.distinct(4, 3), make.index(3, 3))
    yield make(2, 3, 4), (make.distinct(2, 2), ALL, make.index(4, 2))
    yield make(2, 3, 4).permute(2, 0, 1), (1, ..., make.distinct(3, 3).reshape(3, 1))
    yield make(2, 3, 4), (slice(1, None), make.distinct(3, 2) - 3, None)
    yield make(3, 2), make.distinct(3, 0)


def getitem_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, layout, key in VIEWS:
        yield SampleInput((laid(make, layout, *shape), key))
    for x, key in picking(make):
        yield SampleInput((x, key))
    yield SampleInput((make(3, 1).expand(3, 4), torch.tensor([2, 0, 2])))


def key_errors(make: Callable[..., tuple], device: Device) -> Iterator[ErrorSample]:
    """Yield keys that a matrix of 2 by 3 does not take; `make` gives the arguments for one."""
    yield ErrorSample(make(3), {}, IndexError, "index 3 is out of bounds for dimension 0 with size 2")
    yield ErrorSample(make((0, 0, 0)), {}, IndexError, "too many indices for tensor of dimension 2")
    yield ErrorSample(make(1.0), {}, IndexError, "only integers, slices")
    yield ErrorSample(make(slice(None, None, -1)), {}, ValueError, "step must be greater than zero")
    yield ErrorSample(make(torch.tensor([0.5])), {}, IndexError, "tensors used as indices must be")


def getitem_errors(device: Device) -> Iterator[ErrorSample]:
    yield from key_errors(lambda key: (unwritten((2, 3)), key), device)
    yield ErrorSample((unwritten(()), 0), {}, IndexError, "invalid index of a 0-dim tensor")
    yield ErrorSample((unwritten((2, 3)), (torch.tensor([0, 1]), torch.tensor([0, 1, 2]))), {}, IndexError, "could not be broadcast together")


def at_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield keys with tensors without dimensions, which count as ints."""
    make = Maker(dtype, device)
    yield SampleInput((make(5), torch.tensor(3)))
    yield SampleInput((make(4, 3).t(), torch.tensor(-1)))
    yield SampleInput((make(4, 3), (slice(1, None), torch.tensor(0))))
    yield SampleInput((make(2, 3, 4), (torch.tensor(1), ..., torch.tensor(2, dtype=torch.int32))))
    yield SampleInput((laid(make, "gapped", 2, 3), (None, torch.tensor(0), [1, 0])))


def at_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), (torch.tensor(0),) * 3), {}, IndexError, "too many indices for tensor of dimension 2")
    yield ErrorSample((unwritten(()), torch.tensor(0)), {}, IndexError, "invalid index of a 0-dim tensor")


def setitem_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, layout, key in VIEWS:
        if layout != "repeated":
            x = laid(make, layout, *shape)
            yield SampleInput((x, key, make(*x[key].shape)))
    for x, key in picking(make):
        yield SampleInput((x, key, make(*x[key].shape)))
    yield SampleInput((make(2, 3), 1, 1))
    yield SampleInput((make(2, 3), (ALL, 0), make(dtype=dtypes.int32)))
    yield SampleInput((make(2, 3), torch.tensor([1, 0]), make(1, 3)))
    yield SampleInput((make(2, 3).t(), make(3, 2, dtype=dtypes.bool_), True))
    yield SampleInput((make(2, 3), make(2, dtype=dtypes.bool_), make()))


def setitem_errors(device: Device) -> Iterator[ErrorSample]:
    yield from key_errors(lambda key: (unwritten((2, 3)), key, 1.0), device)
    yield ErrorSample((unwritten((2, 3)), 0, unwritten((2,))), {}, RuntimeError, "")
    yield ErrorSample((unwritten((2, 3)), 0, "1"), {}, TypeError, "can't assign a str")
    yield ErrorSample(
        (unwritten((2, 3)), torch.tensor([0]), unwritten((1, 3), dtypes.int64)), {}, RuntimeError, "source and destination dtypes match"
    )


def index_put_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(5), (make.distinct(5, 3),), make(3)))
    yield SampleInput((make(4, 3).t(), [make.distinct(3, 2)], make(2, 4)))
    yield SampleInput((make(4, 3), (make.distinct(4, 2), make.index(3, 2, 1)), laid(make, "column-major", 2, 2)))
    yield SampleInput((laid(make, "gapped", 4, 3), (make.distinct(4, 3), make.index(3, 3)), make()))
    yield SampleInput((make(2, 3, 4), [make.distinct(2, 2), make.index(3, 2)], make(4)))
    yield SampleInput((make(4, 3), (make(4, 3, dtype=dtypes.bool_),), make(1)))
    yield SampleInput((make(3, 2), (make.distinct(3, 0),), make(0, 2)))
    yield SampleInput((make(4, 3),), {"indices": (make.distinct(4, 2),), "values": make(3)})
    if dtype.kind != "bool":
        yield SampleInput((make(4, 3), (torch.tensor([1, 3, 1]),), make(3, 3), True))
        yield SampleInput((make(5), (torch.tensor([2, -3]),), make()), {"accumulate": True})


def index_put_errors(device: Device) -> Iterator[ErrorSample]:
    x, first = unwritten((2, 3)), (torch.tensor([0]),)
    yield ErrorSample((x, (torch.tensor([0.5]),), unwritten((1, 3))), {}, IndexError, "tensors used as indices must be")
    yield ErrorSample((x, first, unwritten((2, 3))), {}, RuntimeError, "cannot be broadcast to indexing result")
    yield ErrorSample((x, first, unwritten((1, 3), dtypes.int64)), {}, RuntimeError, "source and destination dtypes match")
    yield ErrorSample((x, first * 3, unwritten((1,))), {}, IndexError, "too many indices")
    yield ErrorSample((x, first, 1.0), {}, TypeError, "'values'.* must be Tensor")


def np_place(x: np.ndarray, key: Any) -> tuple[np.ndarray, tuple | None]:
    """Return the view that a torch key takes, and what it picks from that; NumPy would count an int beside arrays as one of them."""
    items = [
        np.asarray(item) if isinstance(item, (Tensor, list)) else item for item in (key if isinstance(key, (tuple, list)) and key != [] else (key,))
    ]
    arrays = [isinstance(item, np.ndarray) for item in items]
    view = x[tuple(ALL if array else item for item, array in zip(items, arrays))]
    rest = tuple(item if array or item is ... else ALL for item, array in zip(items, arrays) if array or not isinstance(item, int))
    return view, rest if any(arrays) else None


def np_getitem(x: np.ndarray, key: Any) -> np.ndarray:
    view, rest = np_place(x, key)
    return view if rest is None else view[rest]


def np_index_put(x: np.ndarray, indices: Any, values: np.ndarray, accumulate: bool = False) -> np.ndarray:
    out, key = x.copy(), tuple(ALL if i is None else np.asarray(i) for i in indices)
    if accumulate:
        np.add.at(out, key, values)
    else:
        out[key] = values
    return out


A_COPY = Directive("skip", "eager's x[i] is a view, where the meta promises a copy; Dovetail refuses the programs that could tell", check="meta")

OPINFOS += [
    OpInfo(symbol_for("operator.getitem"), getitem_samples, getitem_errors, by_numpy(np_getitem), ANY, grad=True, extremes=EXTREMES),
    OpInfo(symbol_for("operator.getitem.at"), at_samples, at_errors, by_numpy(np_getitem), ANY, grad=True, extremes=EXTREMES, directives=(A_COPY,)),
    OpInfo(symbol_for("operator.setitem"), setitem_samples, setitem_errors, None, ANY, extremes=EXTREMES),
    OpInfo(symbol_for("torch.index_put"), index_put_samples, index_put_errors, by_numpy(np_index_put), ANY, grad=True, extremes=EXTREMES),
    OpInfo(symbol_for("torch.index_put_"), index_put_samples, index_put_errors, by_numpy(np_index_put), ANY, extremes=EXTREMES),
]
