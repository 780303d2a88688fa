"""The same elements in another shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    ANY,
    COMPLEX,
    EXTREMES,
    FULL_FLOATS,
    OPINFOS,
    TO_TORCH,
    Directive,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    from_rows,
    laid,
    no_errors,
    refused_rows,
    unwritten,
)

OUT_OF_RANGE = (IndexError, "Dimension out of range")
INVALID = (RuntimeError, "is invalid for input of size")


def np_flatten(x: np.ndarray, start_dim: int = 0, end_dim: int = -1) -> np.ndarray:
    first, last = start_dim % max(x.ndim, 1), end_dim % max(x.ndim, 1)
    return x.reshape(*x.shape[:first], int(np.prod(x.shape[first : last + 1])), *x.shape[last + 1 :])


def np_unflatten(x: np.ndarray, dim: int, sizes: tuple[int, ...]) -> np.ndarray:
    return x.reshape(*x.shape[: dim % x.ndim], *sizes, *x.shape[dim % x.ndim + 1 :])


def np_squeeze(x: np.ndarray, dim: Any = None) -> np.ndarray:
    dims = range(x.ndim) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    return x.reshape([n for d, n in enumerate(x.shape) if n != 1 or d not in [k % x.ndim for k in dims]])


def np_expand(x: np.ndarray, *sizes: Any, size: Any = None) -> np.ndarray:
    sizes = sizes or (size,)
    size = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    lead = len(size) - x.ndim
    return np.broadcast_to(x, [x.shape[d - lead] if n == -1 else n for d, n in enumerate(size)])


def np_pixel_shuffle(x: np.ndarray, r: int) -> np.ndarray:
    *batch, channels, height, width = x.shape
    parts = x.reshape(-1, channels // r**2, r, r, height, width).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(*batch, channels // r**2, height * r, width * r)


def np_pixel_unshuffle(x: np.ndarray, r: int) -> np.ndarray:
    *batch, channels, height, width = x.shape
    parts = x.reshape(-1, channels, height // r, r, width // r, r).transpose(0, 1, 3, 5, 2, 4)
    return parts.reshape(*batch, channels * r**2, height // r, width // r)


def np_channel_shuffle(x: np.ndarray, groups: int) -> np.ndarray:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)


# operation: (reference, rows of samples, rows of errors)
ROWS: dict[str, tuple[Callable, tuple[tuple, ...], tuple[tuple, ...]]] = {
    "torch.reshape": (
        lambda x, shape: x.reshape(shape),
        (((), (1, 1)), ((1, 1), ()), ((4, 6), (2, -1, 3)), ((0, 3), (3, 0, 2)), ((2, 3, 4), {"shape": (4, 6)}), ((3, 2, 2), (-1,))),
        (
            ((2, 3), (5,), *INVALID),
            ((2, 3), (-1, -1), RuntimeError, "only one dimension can be inferred"),
            ((0,), (-1, 0), RuntimeError, "ambiguous"),
        ),
    ),
    "torch.flatten": (
        np_flatten,
        (((),), ((4, 3),), ((2, 3, 4), 1), ((2, 3, 4), {"start_dim": 0, "end_dim": -2}), ((2, 0, 3), 1, 2), ((2, 1, 3), -1)),
        (((2, 3), 1, 0, RuntimeError, "start_dim cannot come after end_dim"), ((2, 3), 3, *OUT_OF_RANGE), ((2,), "0", TypeError, "must be int")),
    ),
    "torch.unflatten": (
        np_unflatten,
        (((6,), 0, (2, 3)), ((2, 6), -1, (3, -1)), ((2, 0, 3), 1, (0, 2)), ((4, 1), {"dim": 1, "sizes": (1, 1)}), ((4, 3), 0, [2, 2])),
        (((2, 3), 0, (3,), RuntimeError, ""), ((2, 3), 2, (3,), *OUT_OF_RANGE), ((2, 3), 0, (), RuntimeError, "sizes must be non-empty")),
    ),
    "torch.ravel": (np.ravel, (((),), ((0,),), ((1,),), ((4, 3),), ((2, 3, 2),), ((3, 1),)), ()),
    "torch.permute": (
        lambda x, dims: x.transpose(dims),
        (((), ()), ((3,), (0,)), ((4, 3), (1, 0)), ((2, 3, 4), (2, 0, -2)), ((2, 0, 3), {"dims": (1, 2, 0)}), ((1, 2, 3), [0, 1, 2])),
        (((2, 3), (0,), RuntimeError, "number of dimensions"), ((2, 3), (0, 0), RuntimeError, "duplicate dims"), ((2, 3), (0, 2), *OUT_OF_RANGE)),
    ),
    "torch.transpose": (
        lambda x, dim0, dim1: x.swapaxes(dim0, dim1) if x.ndim else x,
        (((), 0, -1), ((3,), 0, 0), ((4, 3), 0, 1), ((2, 3, 4), -1, 1), ((2, 0, 3), {"dim0": 0, "dim1": 2})),
        (((2, 3), 0, 2, *OUT_OF_RANGE), ((2, 3), 0, "1", TypeError, "must be int|invalid combination of arguments")),
    ),
    "torch.swapaxes": (
        lambda x, axis0, axis1: x.swapaxes(axis0, axis1) if x.ndim else x,
        (((), 0, -1), ((4, 3), 0, 1), ((2, 3, 4), -1, 1), ((2, 0, 3), {"axis0": 0, "axis1": 2})),
        (((2, 3), -3, 0, *OUT_OF_RANGE),),
    ),
    "torch.t": (np.transpose, (((),), ((3,),), ((4, 3),), ((0, 2),), ((1, 5),)), (((1, 2, 3), RuntimeError, "<= 2 dimensions"),)),
    "torch.squeeze": (
        np_squeeze,
        (((),), ((1,),), ((2, 1, 3),), ((1, 2, 1), 0), ((2, 1, 3), {"dim": -1}), ((1, 2, 1), (0, -1)), ((1, 0, 1), (1, 2))),
        (((2, 1), 2, *OUT_OF_RANGE), ((2, 1), (1, 1), RuntimeError, "multiple times|twice")),
    ),
    "torch.unsqueeze": (
        lambda x, dim: np.expand_dims(x, dim),
        (((), 0), ((3,), -1), ((4, 3), 1), ((2, 0, 3), {"dim": 3}), ((1,), -2)),
        (((2, 3), 3, *OUT_OF_RANGE), ((2, 3), "0", TypeError, "must be int")),
    ),
    "torch.Tensor.expand": (
        np_expand,
        (((), 2, 3), ((), ()), ((3,), (2, -1)), ((1, 3), 4, 3), ((2, 1, 3), [2, 4, -1]), ((0, 1), 0, 3), ((1,), 0)),
        (
            ((2, 3), 3, RuntimeError, "number of sizes provided"),
            ((2, 3), 3, 3, RuntimeError, r"expanded size of the tensor \(3\) must match"),
            ((2, 3), -1, 2, 3, RuntimeError, "expanded size -1 isn't allowed|expanded size of the tensor"),
        ),
    ),
    "torch.broadcast_to": (
        np_expand,
        (((), (2, 3)), ((3,), (2, -1)), ((1, 3), (4, 3)), ((2, 1, 3), {"size": (2, 4, 3)}), ((0, 1), (0, 3))),
        (((2, 3), (3,), RuntimeError, "number of sizes provided"), ((2, 3), (2, 2), RuntimeError, "must match the existing size")),
    ),
    "torch.Tensor.repeat": (
        lambda x, *repeats: np.tile(x, repeats[0] if isinstance(repeats[0], tuple) else repeats),
        (((), 2), ((3,), 2), ((2, 3), (2, 2)), ((2, 3), 2, 1, 2), ((2, 1), 0, 3), ((0, 2), 3, 2)),
        (((2, 3), 2, RuntimeError, "Number of dimensions of repeat dims"), ((2, 3), -1, 2, RuntimeError, "negative")),
    ),
    "torch.tile": (
        lambda x, dims: np.tile(x, dims),
        (((), (2,)), ((3,), (2,)), ((2, 3), (2,)), ((2, 3), (2, 1, 2)), ((2, 1), {"dims": (0, 3)}), ((2, 3), ())),
        (((2, 3), (-1, 2), RuntimeError, "negative"),),
    ),
    "torch.repeat_interleave": (
        lambda x, repeats, dim=None, output_size=None: np.repeat(x, repeats, dim),
        (
            *(((), 3), ((4,), 2), ((2, 3), 2, 0), ((2, 3), 2, {"dim": -1}), ((2, 0), 2, 1), ((3, 1), 0, 0), ((2, 3), 2, {"output_size": 12})),
            ((3, 2), torch.tensor([2, 0, 1]), 0, {"output_size": 3}),
        ),
        (((2, 3), -1, RuntimeError, "non-negative"), ((2, 3), 2, 2, *OUT_OF_RANGE), ((2, 3), "2", TypeError, "invalid combination")),
    ),
    "torch.movedim": (
        np.moveaxis,
        (((3,), 0, -1), ((4, 3), 0, 1), ((2, 3, 4), (0, 1), (2, 0)), ((2, 0, 3), {"source": 2, "destination": 0}), ((2, 3, 1), [2], [-2])),
        (
            ((2, 3), 0, 2, *OUT_OF_RANGE),
            ((2, 3), (0, 1), (0,), RuntimeError, "same number of dims"),
            ((2, 3), (0, 0), (0, 1), RuntimeError, "repeated dim"),
        ),
    ),
}

SHUFFLES: dict[str, tuple[Callable, tuple[tuple, ...], tuple[tuple, ...]]] = {
    "torch.nn.functional.pixel_shuffle": (
        np_pixel_shuffle,
        (((4, 2, 3), 2), ((2, 8, 1, 2), 2), ((3, 2, 2), 1), ((1, 9, 2, 1), 3), ((1, 2, 4, 1, 2), 2)),
        (
            ((2, 3), 2, RuntimeError, "at least 3 dimensions"),
            ((1, 2, 3), 2, RuntimeError, "divisible by the square of upscale_factor"),
            ((1, 2, 3), 0, RuntimeError, "positive upscale_factor"),
        ),
    ),
    "torch.nn.functional.pixel_unshuffle": (
        np_pixel_unshuffle,
        (((1, 4, 6), 2), ((2, 2, 2, 4), 2), ((3, 2, 2), 1), ((1, 2, 3, 6), 3), ((1, 2, 1, 2, 4), 2)),
        (
            ((2, 3), 2, RuntimeError, "at least 3 dimensions"),
            ((1, 2, 3), 2, RuntimeError, "divisible by downscale_factor"),
            ((1, 2, 3), -1, RuntimeError, "positive downscale_factor"),
        ),
    ),
    "torch.nn.functional.channel_shuffle": (
        np_channel_shuffle,
        (((1, 4, 2), 2), ((2, 6, 2, 2), 3), ((2, 3, 2), 1), ((2, 4, 1, 2), 4)),
        (
            ((2, 3), 2, RuntimeError, "> 2 dims"),
            ((1, 2, 3), 3, RuntimeError, "must be divisible by groups"),
            ((1, 2, 3), 0, RuntimeError, "must be positive"),
        ),
    ),
}


VIEWS = (((), (1, 1)), ((1, 1), ()), ((4, 6), (2, 2, 3, 2)), ((4, 6), (-1,)), ((0, 3), (3, 0, 2)))  # shape, new shape
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def view_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, new in VIEWS:
        yield SampleInput((make(*shape), new))
    yield SampleInput((make(2, 6), 3, 4))
    yield SampleInput((make(4, 12)[:, ::2], (2, 2, 3, 2)))
    yield SampleInput((make(3, 4).t(), (4, 3, 1)))
    yield SampleInput((make(3, 1).expand(3, 4), [3, 2, 2]))
    other = TO_TORCH[dtypes.real_of(dtype)] if dtype.kind == "complex" else INTEGERS[dtype.bytes]
    yield SampleInput((make(2, 3), other))
    yield SampleInput((make(3, 4)[::2],), {"dtype": other})
    yield SampleInput((make(2, 6)[:, :4], torch.uint8))
    yield SampleInput((make(3, 2, 16)[::2, :, :16], torch.complex128))


def view_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), 5), {}, *INVALID)
    yield ErrorSample((unwritten((2, 3)), -1, -1), {}, RuntimeError, "only one dimension can be inferred")
    yield ErrorSample((unwritten((2, 3)).t(), 6), {}, RuntimeError, "not compatible")
    yield ErrorSample((unwritten(()), torch.int64), {}, RuntimeError, r"self.dim\(\) cannot be 0 to view")
    yield ErrorSample((unwritten((4, 3)), torch.int64), {}, RuntimeError, r"self.size\(-1\) must be divisible by 2 to view")
    yield ErrorSample((unwritten((4, 3)).t(), torch.uint8), {}, RuntimeError, r"self.stride\(-1\) must be 1 to view")
    yield ErrorSample((unwritten((4, 3))[:, :2], torch.int64), {}, RuntimeError, r"self.stride\(0\) must be divisible by 2 to view")


def view_reference(x: torch.Tensor, *shape: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    dtype = shape[0] if isinstance(shape[0] if shape else None, torch.dtype) else dtype
    if dtype is None:
        return by_numpy(np.reshape)(x, shape[0] if len(shape) == 1 else shape)
    storage = bytearray(x.contiguous().untyped_storage().tolist())
    return torch.frombuffer(storage, dtype=dtype, count=x.numel() * x.itemsize // dtype.itemsize).reshape(*x.shape[:-1], -1)


def view_as_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, new in VIEWS:
        other = make(*shape).reshape(new)
        yield SampleInput((make(*shape), other))
    yield SampleInput((make(3, 4).t(),), {"other": make(4, 3, 1, dtype=dtypes.float32)})


def reshape_as_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from view_as_samples(dtype, device)
    make = Maker(dtype, device)
    yield SampleInput((make(3, 4).t(), make(2, 6)))


def as_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((5,))), {}, *INVALID)
    yield ErrorSample((unwritten((2, 3)), 5), {}, TypeError, "argument 'other'.* must be Tensor")


def expand_as_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, new in (((), (2, 3)), ((), ()), ((3,), (2, 3)), ((2, 1, 3), (2, 4, 3)), ((0, 1), (0, 3))):
        yield SampleInput((make(*shape), make(*new)))
    yield SampleInput((make(1, 3).t(),), {"other": make(4, 3, dtype=dtypes.float32).t()})


def expand_as_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((3,))), {}, RuntimeError, "number of sizes provided")
    yield ErrorSample((unwritten((2, 3)), unwritten((3, 3))), {}, RuntimeError, "must match the existing size")


def broadcast_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),))
    yield SampleInput((make(2, 3), make(3)))
    yield SampleInput((make(2, 1), make(1, 3).t().t(), make()))
    yield SampleInput((make(0, 1), make(3)))
    yield SampleInput((make(3, 4).t(), make(1, dtype=dtypes.float32)))


def broadcast_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((2,))), {}, RuntimeError, "")
    yield ErrorSample((unwritten((2, 3)), 3), {}, TypeError, "")


def real_parts_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device).layouts():
        yield SampleInput((x,))


def complex_parts_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape in ((2,), (3, 2), (0, 2), (2, 3, 2)):
        yield SampleInput((make(*shape),))
    yield SampleInput((make(3, 4, 2).transpose(0, 1),))
    yield SampleInput((make(3, 8)[:, 2:4],))


def complex_parts_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)),), {}, RuntimeError, "last dimension of size 2")
    yield ErrorSample((unwritten((2, 2)).t(),), {}, RuntimeError, "stride")
    yield ErrorSample((unwritten((2,), dtypes.int64),), {}, RuntimeError, "only supported for")


def atleast_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape in ((), (0,), (3,), (2, 3), (2, 1, 3), (1, 2, 1, 2)):
        yield SampleInput((laid(make, "column-major", *shape),))
    yield SampleInput((make(), make(3), make(2, 3).t()))
    yield SampleInput(([make(), make(2, 4)[:, ::2]],))


def atleast_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((3,), {}, TypeError, "")
    yield ErrorSample(([unwritten((2,)), 3],), {}, TypeError, "")


def atleast(fn: Callable) -> Callable:
    """NumPy's function of that name, of the tensors or of the one list of them."""

    def reference(*arrays: Any) -> Any:
        operands = arrays[0] if isinstance(arrays[0], list) else arrays
        many = len(operands) > 1 or operands is not arrays
        return tuple(map(fn, operands)) if many else fn(operands[0])

    return by_numpy(reference)


def as_strided_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield views that hold the tensor's own elements; others look at memory that Dovetail does not follow."""
    make = Maker(dtype, device)
    yield SampleInput((make(), (), ()))
    yield SampleInput((make(3), (3,), (1,)))
    yield SampleInput((make(3, 4), (4, 3), (1, 4)))
    yield SampleInput((make(3, 4).t(), (3, 4), (4, 1)))
    yield SampleInput((make(2, 3, 4),), {"size": (4, 2, 3), "stride": (1, 12, 4)})
    yield SampleInput((make(2, 0), (2, 0), (1, 1)))


def as_strided_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), (2, 3), (3,)), {}, RuntimeError, "mismatch in length of strides and shape")


def as_strided_reference(x: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    return by_numpy(lambda flat: np.lib.stride_tricks.as_strided(flat, size, [n * flat.itemsize for n in stride]))(x.permute(order_of(x)))


def order_of(x: torch.Tensor) -> list[int]:
    """Return the dimensions as they lie in memory, slowest first."""
    return sorted(range(x.ndim), key=lambda d: -x.stride(d))


def info(name: str, samples: Callable, errors: Callable, reference: Callable, accepted: tuple[DType, ...] = ANY, **more: Any) -> OpInfo:
    return OpInfo(symbol_for(name), samples, errors, reference, accepted, grad=True, extremes=EXTREMES, **more)


LAZY = Directive(
    "skip", "eager's is a view that is conjugated when read; Dovetail refuses the programs that could tell", check="meta", dtypes=COMPLEX
)


OPINFOS += [
    info(name, partial(from_rows, rows), partial(refused_rows, errors), by_numpy(reference)) for name, (reference, rows, errors) in ROWS.items()
]
OPINFOS += [
    info(name, partial(from_rows, rows, layouts=("gapped", "channels-last")), partial(refused_rows, errors), by_numpy(reference))
    for name, (reference, rows, errors) in SHUFFLES.items()
]
OPINFOS += [
    info(
        "torch.conj",
        partial(from_rows, (((4, 3),), ((),), ((0, 2),)), layouts=("column-major", "gapped")),
        no_errors,
        by_numpy(lambda x: np.conj(x) if x.dtype.kind == "c" else x),
        directives=(LAZY,),
    ),
    info(
        "torch.adjoint",
        partial(from_rows, (((4, 3),), ((2, 3, 4),), ((0, 2),), ((1, 1),)), layouts=("column-major",)),
        partial(refused_rows, (((3,), RuntimeError, "only supported on matrices"),)),
        by_numpy(lambda x: np.conj(x.swapaxes(-1, -2)) if x.dtype.kind == "c" else x.swapaxes(-1, -2)),
        directives=(LAZY,),
    ),
    info("torch.Tensor.view", view_samples, view_errors, view_reference),
    info("torch.Tensor.view_as", view_as_samples, as_errors, by_numpy(lambda x, other: x.reshape(other.shape))),
    info("torch.Tensor.reshape_as", reshape_as_samples, as_errors, by_numpy(lambda x, other: x.reshape(other.shape))),
    info("torch.Tensor.expand_as", expand_as_samples, expand_as_errors, by_numpy(lambda x, other: np.broadcast_to(x, other.shape))),
    info("torch.broadcast_tensors", broadcast_samples, broadcast_errors, by_numpy(lambda *arrays: tuple(np.broadcast_arrays(*arrays)))),
    info(
        "torch.view_as_real",
        real_parts_samples,
        partial(refused_rows, (((3,), RuntimeError, "only supported for complex"),)),
        by_numpy(lambda x: np.stack([x.real, x.imag], -1)),
        COMPLEX,
    ),
    info(
        "torch.view_as_complex",
        complex_parts_samples,
        complex_parts_errors,
        by_numpy(lambda x: x[..., 0] + 1j * x[..., 1]),
        FULL_FLOATS,
    ),
    info("torch.atleast_1d", atleast_samples, atleast_errors, atleast(np.atleast_1d)),
    info("torch.atleast_2d", atleast_samples, atleast_errors, atleast(np.atleast_2d)),
    info("torch.atleast_3d", atleast_samples, atleast_errors, atleast(np.atleast_3d)),
    info("torch.as_strided", as_strided_samples, as_strided_errors, as_strided_reference),
]
