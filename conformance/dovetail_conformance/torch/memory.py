"""Copies, conversions of dtype and device, and writes into a tensor."""

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
from dovetail.prims import SYMBOLS
from dovetail_conformance.opinfo import (
    ANY,
    EXTREMES,
    OPINFOS,
    TO_TORCH,
    Directive,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    laid,
    refused_rows,
    unwritten,
)

FORMATS = (((2, 3), {"memory_format": torch.channels_last}, RuntimeError, "required rank 4 tensor"),)
LAST = {"memory_format": torch.channels_last}
ROW_MAJOR = {"memory_format": torch.contiguous_format}


def layouts(make: Maker) -> Iterator[Tensor]:
    """Yield some of the Maker's layouts: no dimensions, no elements, columns, gaps, repeats."""
    yield make()
    yield make(2, 0, 3)
    yield make(4, 3)
    yield make(2, 3, 4).permute(2, 0, 1)
    yield laid(make, "gapped", 2, 3)
    yield make(3, 1).expand(3, 4)


def plain_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in layouts(Maker(dtype, device)):
        yield SampleInput((x,))


def formatted_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield each layout as it is, and images in another memory format."""
    yield from plain_samples(dtype, device)
    make = Maker(dtype, device)
    yield SampleInput((make(3, 4).t(),), ROW_MAJOR)
    yield SampleInput((make(1, 2, 3, 2),), LAST)
    yield SampleInput((laid(make, "channels-last", 1, 2, 3, 2),), LAST)
    yield SampleInput((make(1, 2, 1, 2, 2),), {"memory_format": torch.channels_last_3d})


# Conversions.


def same_values(x: np.ndarray, *_: Any, **named: Any) -> np.ndarray:
    return x


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Round to the 8 bits of bfloat16, halves to even."""
    bits = np.real(x).astype(np.float32, casting="unsafe").view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def cast(kind: Any) -> Callable:
    """NumPy's conversion; of a complex number only the real part is kept."""

    def converted(x: np.ndarray, *_: Any, **named: Any) -> np.ndarray:
        return np.asarray(np.real(x) if x.dtype.kind == "c" and np.dtype(kind).kind not in "cb" else x).astype(kind)

    return converted


CONVERSIONS: dict[str, Callable] = {
    **{"float": cast(np.float32), "double": cast(np.float64), "half": cast(np.float16), "bfloat16": lambda x, **named: bfloat16(x)},
    **{"long": cast(np.int64), "int": cast(np.int32), "short": cast(np.int16), "char": cast(np.int8), "byte": cast(np.uint8), "bool": cast(np.bool_)},
    **{"cfloat": cast(np.complex64), "cdouble": cast(np.complex128), "cpu": same_values},
}


def conversion_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield numbers that every dtype holds: conversions of others depend on the machine."""
    make = Maker(dtype, device, (0.0, 9.0))
    for x in layouts(make):
        yield SampleInput((x,))
    yield SampleInput((make(1, 2, 3, 2),), LAST)
    yield SampleInput((make(3, 4).t(),), ROW_MAJOR)


def to_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make, place = Maker(dtype, device, (0.0, 9.0)), torch.device(str(device))
    own, other = TO_TORCH[dtype], torch.complex64 if dtype.kind == "complex" else torch.int32
    yield SampleInput((make(2, 3), own))
    yield SampleInput((make(3, 4).t(), other))
    yield SampleInput((laid(make, "gapped", 2, 3), torch.complex128, False, True))
    yield SampleInput((make(), place))
    yield SampleInput((make(2, 3), str(device), torch.complex64, True))
    yield SampleInput((make(2, 0, 3), make(1, dtype=dtypes.complex128)))
    yield SampleInput((make(3, 1).expand(3, 4),), {"dtype": own, "copy": True})
    yield SampleInput((make(1, 2, 3, 2),), {"device": place, "dtype": other, "non_blocking": False, **LAST})
    yield SampleInput((make(2, 3).t(), own), ROW_MAJOR)
    yield SampleInput((make(2),))


def to_errors(device: Device) -> Iterator[ErrorSample]:
    x, mixed = unwritten((2, 3)), (TypeError, "invalid combination of arguments")
    yield ErrorSample((x, "foo"), {}, RuntimeError, "device type at start of device string: foo|foo")
    yield ErrorSample((x, torch.float32, torch.float64), {}, *mixed)
    yield ErrorSample((x, torch.float32), {"dtype": torch.float64}, *mixed)
    yield ErrorSample((x,), {"foo": 1}, *mixed)
    yield ErrorSample((x, torch.float32), LAST, RuntimeError, "required rank 4 tensor")


def to_reference(x: Tensor, *positional: Any, **named: Any) -> Tensor:
    kinds = (t.dtype if isinstance(t, Tensor) else t for t in (*positional, *named.values()) if isinstance(t, (Tensor, torch.dtype)))
    return as_dtype(x, next(kinds, x.dtype))


def as_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in another dtype by NumPy's conversion."""
    if dtype is torch.bfloat16:
        return by_numpy(bfloat16)(x)
    return by_numpy(cast(str(dtype).removeprefix("torch.").removesuffix("_")))(x)


def type_as_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.0, 9.0))
    for x in layouts(make):
        yield SampleInput((x, make(1, dtype=dtypes.complex128)))
    yield SampleInput((make(2, 3).t(),), {"other": make(3, 2)})
    yield SampleInput((make(2, 3), unwritten((), dtypes.complex64 if dtype.kind == "complex" else dtypes.int32)))


LEGACY = {"torch.FloatTensor": torch.float32, "torch.DoubleTensor": torch.float64, "torch.LongTensor": torch.int64, "torch.BoolTensor": torch.bool}


def type_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """dtypes, and the types of old that stood for them."""
    make = Maker(dtype, device, (0.0, 9.0))
    for x, name in zip(layouts(make), LEGACY):
        yield SampleInput((x, name))
    yield SampleInput((make(2, 3), torch.complex128))
    yield SampleInput((laid(make, "gapped", 2, 3), torch.FloatTensor))
    yield SampleInput((make(2, 3).t(),), {"dtype": TO_TORCH[dtype], "non_blocking": True})


def type_reference(x: Tensor, dtype: Any, non_blocking: bool = False) -> Tensor:
    return as_dtype(x, torch.float32 if dtype is torch.FloatTensor else LEGACY.get(dtype, dtype))


def cuda_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in layouts(Maker(dtype, device)):
        yield SampleInput((x,))
    yield SampleInput((Maker(dtype, device)(2, 3).t(), 0), {"non_blocking": True})
    yield SampleInput((Maker(dtype, device)(1, 2, 3, 2), "cuda"), LAST)


def item_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),))
    yield SampleInput((make(1),))
    yield SampleInput((make(1, 1, 1).expand(1, 1, 1),))
    yield SampleInput((make(4)[2],))


# Writes.


def copy_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.0, 9.0))
    yield SampleInput((make(), make()))
    yield SampleInput((make(2, 0), make(1)))
    yield SampleInput((make(4, 3), make(3, 4).t()))
    yield SampleInput((laid(make, "gapped", 2, 3), make(3)))
    yield SampleInput((make(3, 2).t(), make(2, 1).expand(2, 3)))
    yield SampleInput((make(2, 3), make(1, 3, dtype=dtypes.int16), True))
    yield SampleInput((make(2, 3), 1))
    if dtype.kind != "complex":
        yield SampleInput((make(2, 3),), {"other": make(2, 3, dtype=dtypes.float64)})


def copy_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, unwritten((2,))), {}, RuntimeError, "must match the size|cannot be broadcast")
    yield ErrorSample((x, unwritten((1, 2, 3))), {}, RuntimeError, "doesn't match the broadcast shape")
    yield ErrorSample((x, "1"), {}, TypeError, "must be Tensor")
    yield ErrorSample((unwritten((3,)).expand(2, 3), x), {}, RuntimeError, "refers to a single memory location|share memory")


def np_copy(x: np.ndarray, other: Any, non_blocking: bool = False) -> np.ndarray:
    return np.broadcast_to(other, x.shape).astype(x.dtype)


def fill_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x, value in zip(layouts(make), (1, True, 0, make(), 1, 0)):
        if x.stride()[-1:] != (0,):
            yield SampleInput((x, value))
    yield SampleInput((make(2, 3),), {"value": make(dtype=dtypes.int16)})
    if dtype.inexact:
        yield SampleInput((make(2, 3).t(), -0.5))
        yield SampleInput((make(2, 3), float("inf")))
    if dtype.kind == "complex":
        yield SampleInput((make(2, 3), 1 - 2j))


def np_fill(x: np.ndarray, value: Any) -> np.ndarray:
    return np.full(x.shape, value, x.dtype)


def diagonal_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape in ((3, 3), (2, 5), (7, 3), (1, 1), (0, 0), (2, 2, 2)):
        yield SampleInput((make(*shape), 1))
    yield SampleInput((make(3, 5).t(), 0))
    yield SampleInput((make(11, 3), 1), {"wrap": True})
    yield SampleInput((make(3, 3), make()), {"wrap": False})


def np_diagonal(x: np.ndarray, value: Any, wrap: bool = False) -> np.ndarray:
    result = x.copy()
    if x.size:
        np.fill_diagonal(result, np.asarray(value, x.dtype), wrap)
    return result


DIAGONAL_ERRORS = (
    ((3,), 1, RuntimeError, "dimensions must larger than 1"),
    ((2, 2, 3), 1, RuntimeError, "must be of equal length"),
)
FILL_ERRORS = (
    ((2, 3), unwritten((2,)), RuntimeError, "only supports 0-dimension value tensor"),
    ((2, 3), "1", TypeError, ""),
    ((2, 3), 1j, RuntimeError, "cannot be converted to type"),
)


def zero_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in layouts(Maker(dtype, device)):
        if x.stride()[-1:] != (0,):
            yield SampleInput((x,))


def info(name: str, samples: Callable, errors: Callable, reference: Callable | None, **more: Any) -> OpInfo:
    return OpInfo(SYMBOLS[f"torch.{name}"], samples, errors, reference, ANY, **{"grad": True, "extremes": EXTREMES, **more})


NO_TENSOR = partial(refused_rows, (((2, 3), 3, TypeError, "'other'.* must be Tensor"),))
NOT_ONE = partial(refused_rows, (((2, 3), RuntimeError, "a Tensor with 6 elements"), ((0,), RuntimeError, "a Tensor with 0 elements")))
BAD_TYPES = partial(refused_rows, (((2, 3), "torch.FooTensor", ValueError, "invalid type"), ((2, 3), 3, TypeError, "")))
HAND = Directive("skip", "it moves tensors to a CUDA device", devices=("cpu",))
KEPT = (((2, 3), {"memory_format": torch.channels_last}, RuntimeError, "required rank 4 tensor"), ((2, 3), 3, TypeError, "positional argument"))

OPINFOS += [
    info("clone", formatted_samples, partial(refused_rows, FORMATS), by_numpy(same_values)),
    info("Tensor.contiguous", formatted_samples, partial(refused_rows, FORMATS), by_numpy(same_values)),
    info("detach", plain_samples, partial(refused_rows, ()), by_numpy(same_values)),
    info("Tensor.to", to_samples, to_errors, to_reference),
    info("Tensor.type_as", type_as_samples, NO_TENSOR, lambda x, other: as_dtype(x, other.dtype)),
    info("Tensor.type", type_samples, BAD_TYPES, type_reference),
    *(info(f"Tensor.{name}", conversion_samples, partial(refused_rows, KEPT), by_numpy(fn), extremes=()) for name, fn in CONVERSIONS.items()),
    info("Tensor.cuda", cuda_samples, partial(refused_rows, (((2, 3), "cpu", RuntimeError, "must be cuda device"),)), None, directives=(HAND,)),
    info("Tensor.item", item_samples, NOT_ONE, by_numpy(lambda x: x.reshape(-1)[0]), grad=False),
    info("Tensor.copy_", copy_samples, copy_errors, by_numpy(np_copy), grad=False),
    info("fill", fill_samples, partial(refused_rows, FILL_ERRORS), by_numpy(np_fill), grad=False),
    info("Tensor.fill_diagonal_", diagonal_samples, partial(refused_rows, DIAGONAL_ERRORS), by_numpy(np_diagonal), grad=False),
    info("fill_", fill_samples, partial(refused_rows, FILL_ERRORS), by_numpy(np_fill), grad=False),
    info("zero_", zero_samples, partial(refused_rows, (((2, 3), 1, TypeError, "positional argument"),)), by_numpy(np.zeros_like), grad=False),
]
