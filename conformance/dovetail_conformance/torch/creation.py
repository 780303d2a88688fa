"""Tensors made of numbers, of nothing, or in the likeness of another.  A sample's dtype is requested by name."""

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
from dovetail_conformance.drawn import Drawn
from dovetail_conformance.opinfo import (
    ANY,
    FLOATS,
    INTS,
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

WIDEST = {dtypes.int64: 1 << 40, dtypes.int32: 1 << 30, dtypes.float64: 1 << 40}  # a number whose neighbours no float32 has
NEGATIVE = (RuntimeError, "negative")
NO_MEMORY_FORMAT = ((2, 3), {"memory_format": torch.channels_last}, RuntimeError, "required rank 4 tensor")
NO_NUMBER = (TypeError, "'fill_value'.* must be (Number|a number)")
NO_COMPLEX = (RuntimeError, "value cannot be converted to type")
UNSET = tuple(
    Directive("skip", "the values are what the memory held", check=check)
    for check in ("forward", "determinism", "repeat", "calls", "shapes", "threads")
)


def errors(*rows: tuple) -> Callable[[Device], Iterator[ErrorSample]]:
    """Make error samples of rows: the arguments, perhaps with a dict of keyword arguments, then the type and the text of the error."""

    def samples(device: Device) -> Iterator[ErrorSample]:
        for *args, error, match in rows:
            named = args.pop() if args and isinstance(args[-1], dict) else {}
            yield ErrorSample(tuple(args), named, error, match)

    return samples


def sample(dtype: DType, *args: Any, **named: Any) -> SampleInput:
    """Make a sample that asks for `dtype`."""
    return SampleInput(args, {**named, "dtype": TO_TORCH[dtype]})


# Full of one number.


def size_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield sizes one by one, in a tuple, in a list and by name, and every other argument."""
    yield sample(dtype, ())
    yield sample(dtype, 3)
    yield sample(dtype, 2, 0, 3)
    yield sample(dtype, [2, 1])
    yield sample(dtype, size=(2, 3), device=torch.device(str(device)))
    yield sample(dtype, (4,), layout=torch.strided, requires_grad=False, pin_memory=False)
    yield SampleInput((2, 2))


def empty_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from size_samples(dtype, device)
    yield sample(dtype, (1, 2, 3, 2), memory_format=torch.channels_last)


def new_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(), 3))
    yield SampleInput((make(3), ()))
    yield SampleInput((make(2, 3).t(), 2, 0, 1))
    yield SampleInput((make(0), [2, 3]))
    yield SampleInput((make(3, 1).expand(3, 2),), {"size": (2, 2), "device": torch.device(str(device))})
    yield SampleInput((make(2), (4,)), {"dtype": torch.float64, "requires_grad": False})


def like_samples(dtype: DType, device: Device, *more: Any) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for layout, shape in (("row-major", ()), ("column-major", (2, 0, 3)), ("gapped", (4, 3)), ("repeated", (2, 3)), ("column-major", (2, 3, 2))):
        yield SampleInput((laid(make, layout, *shape), *more))
    yield SampleInput((make(3, 4).t(), *more), {"memory_format": torch.contiguous_format, "dtype": torch.float64})
    yield SampleInput((make(1, 2, 3, 2), *more), {"memory_format": torch.channels_last, "device": torch.device(str(device))})


def of_size(number: Any, *size: Any, **named: Any) -> np.ndarray:
    return np.full(named.get("size", size[0] if len(size) == 1 else size), number)


def of_dtype(*size: Any, dtype: torch.dtype = torch.float32, **named: Any) -> Drawn:
    return Drawn(of_size(0, *size, **named).shape, dtype)


def filled(number: int, name: str) -> list[OpInfo]:
    """torch.zeros and its like, which take the shape from an argument, a tensor, or a tensor the dtype."""
    return [
        OpInfo(
            symbol_for(f"torch.{name}"),
            size_samples,
            errors((-1, *NEGATIVE), (2.5, TypeError, "must be tuple of ints")),
            by_numpy(partial(of_size, number)),
            ANY,
        ),
        OpInfo(
            symbol_for(f"torch.{name}_like"),
            like_samples,
            partial(refused_rows, (NO_MEMORY_FORMAT,)),
            by_numpy(lambda x, **named: np.full(x.shape, number)),
            ANY,
        ),
        OpInfo(
            symbol_for(f"torch.Tensor.new_{name}"),
            new_samples,
            partial(refused_rows, (((2,), -1, *NEGATIVE), ((2,), "2", TypeError, ""))),
            by_numpy(lambda x, *size, **named: of_size(number, *size, **named)),
            ANY,
        ),
    ]


def full_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield sample(dtype, (), 1)
    yield sample(dtype, (2, 0), True)
    yield sample(dtype, [2, 3], 1, device=torch.device(str(device)))
    yield sample(dtype, size=(3,), fill_value=0, layout=torch.strided, requires_grad=False, pin_memory=False)
    yield SampleInput(((2,), {"bool": True, "int": 7, "float": 0.5, "complex": 1 - 2j}[dtype.kind]))
    if dtype in WIDEST:
        yield sample(dtype, (3,), WIDEST[dtype] + 1)
    if dtype.inexact:
        yield sample(dtype, (2, 2), float("inf"))
        yield sample(dtype, (2, 2), -0.5)
        yield sample(dtype, (3,), -0.0)
        yield sample(dtype, (3,), 0.1)
    if dtype.kind == "complex":
        yield sample(dtype, (2, 2), 1 + 2j)


def new_full_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(), (3,), 1))
    yield SampleInput((make(2, 3).t(), [2, 0], True))
    yield SampleInput((make(2), (), 0), {"dtype": torch.float64})
    yield SampleInput((make(0),), {"size": (2, 3), "fill_value": 1, "device": torch.device(str(device)), "requires_grad": False})
    if dtype in WIDEST:
        yield SampleInput((make(2), (3,), WIDEST[dtype] + 1))
    if dtype.inexact:
        yield SampleInput((make(2), (2, 2), float("-inf")))
        yield SampleInput((make(2), (3,), 0.1))


def full_like_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from like_samples(dtype, device, 1)
    if dtype in WIDEST:
        yield SampleInput((Maker(dtype, device)(3), WIDEST[dtype] + 1))
    if dtype.inexact:
        yield SampleInput((Maker(dtype, device)(2, 3),), {"fill_value": float("nan")})


# Of memory as it is.

STRIDED = (((), ()), ((3,), (1,)), ((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 0), (1, 1)), ((2, 3, 4), (4, 8, 1)))  # size, strides without gaps
PERMUTED = (((), ()), ((3,), (0,)), ((2, 3), (1, 0)), ((1, 2, 3, 2), (0, 2, 3, 1)), ((2, 0), (0, 1)))  # size, dimensions from slow to fast


def laid_out_samples(rows: tuple, second: str, dtype: DType, device: Device) -> Iterator[SampleInput]:
    for row in rows:
        yield sample(dtype, *row)
    yield sample(dtype, [2, 2], [1, 0] if second == "physical_layout" else [2, 1], device=torch.device(str(device)), requires_grad=False)
    yield sample(dtype, **{"size": (3,), second: (0,) if second == "physical_layout" else (1,)})


def new_strided_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for row in STRIDED:
        yield SampleInput((Maker(dtype, device)(2, 3).t(), *row))
    yield SampleInput((Maker(dtype, device)(2),), {"size": (2, 2), "stride": (1, 2), "dtype": torch.int32})


# Sequences of numbers.


def arange_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield sample(dtype, 5)
    yield sample(dtype, 0)
    yield sample(dtype, 2, 9, 3)
    yield sample(dtype, start=1, end=4, device=torch.device(str(device)))
    yield sample(dtype, 7, end=8, step=4, layout=torch.strided, requires_grad=False)
    if dtype.signed:
        yield sample(dtype, 3, -4, -2)
    if dtype in WIDEST:
        yield sample(dtype, WIDEST[dtype] - 3, WIDEST[dtype] + 40, 2)
    if dtype.inexact:
        yield sample(dtype, -0.5, 2, 0.25)
        yield sample(dtype, 0.0, 1000.0, 0.01)  # so many steps that their roundings must not add up
        yield SampleInput((0.5, 3))
    yield SampleInput((4,))


def np_arange(*bounds: Any, start: Any = None, end: Any = None, step: Any = 1, **named: Any) -> np.ndarray:
    bounds = tuple(bound for bound in (start, *bounds, end) if bound is not None)
    return np.arange(*(bounds if len(bounds) == 3 else (0, *bounds, step) if len(bounds) == 1 else (*bounds, step)))


def spaced_samples(more: dict, dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield ends and counts that give whole numbers, and others where the dtype has them."""
    yield sample(dtype, 0, 4, 5, **more)
    yield sample(dtype, 2, 2, 1, **more)
    yield sample(dtype, 1, 3, 0, **more)
    yield sample(dtype, start=0, end=6, steps=4, **more, device=torch.device(str(device)), requires_grad=False)
    yield sample(dtype, torch.tensor(1.0), 5, 5, **more)
    yield sample(dtype, 4, torch.tensor(1), 4, **more)
    if dtype.inexact:
        yield sample(dtype, -0.5, 1.5, 7)
        yield sample(dtype, 0.1, 1.7, 100_003)
    if dtype.kind == "complex":
        yield sample(dtype, 1j, 2 - 1j, 4)
    if dtype is dtypes.float32:
        yield SampleInput((0.5, 2, 3))


def np_spaced(fn: Callable) -> Callable:
    """numpy.linspace or logspace; integers are cut off."""

    def reference(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: torch.dtype = torch.float32, **named: Any) -> np.ndarray:
        values = fn(start, end, steps, **({"base": base} if fn is np.logspace else {}))
        return values if dtype.is_floating_point or dtype.is_complex else np.trunc(values)

    return by_numpy(reference)


def eye_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield sample(dtype, 3)
    yield sample(dtype, 0)
    yield sample(dtype, 2, 3)
    yield sample(dtype, 3, 1, device=torch.device(str(device)))
    yield sample(dtype, n=2, m=0, layout=torch.strided, requires_grad=False)
    yield SampleInput((2,))


def triangle_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield sample(dtype, 3, 3)
    yield sample(dtype, 2, 4, 1)
    yield sample(dtype, 4, 2, -1, device=torch.device(str(device)))
    yield sample(dtype, row=0, col=3, offset=0)
    yield sample(dtype, 2, 3, 9, layout=torch.strided)
    yield SampleInput((2, 2))


def np_triangle(fn: Callable) -> Callable:
    return by_numpy(lambda row, col, offset=0, **named: np.stack(fn(row, offset, col)))


# Data.


def nested(dtype: DType) -> Iterator[Any]:
    """Yield numbers in lists and tuples, and alone."""
    kind = {"bool": bool, "int": int, "float": float, "complex": complex}[dtype.kind]
    yield kind(1)
    yield []
    yield [kind(1), kind(0), kind(1)]
    yield ((kind(0), kind(2)), [kind(1), kind(1)])
    yield [[[], []]]


def data_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield data of the dtype's own kind, with the dtype and without; data of other kinds; NumPy's; another tensor's."""
    for data in nested(dtype):
        yield sample(dtype, data)
        yield SampleInput((data,))
    yield sample(dtype, [True, 2, 0.0], device=torch.device(str(device)))
    yield sample(dtype, np.arange(4).reshape(2, 2))
    yield SampleInput(([1, True, 0],))


def tensor_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from data_samples(dtype, device)
    make = Maker(dtype, device)
    yield sample(dtype, data=[1, 0], requires_grad=False, pin_memory=False)
    yield SampleInput((make(3, 4).t(),))


def as_tensor_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from data_samples(dtype, device)
    make = Maker(dtype, device)
    yield SampleInput((make(3, 4).t(),))
    yield SampleInput((make(2, 3),), {"dtype": torch.complex128, "device": str(device)})


def new_tensor_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for data in nested(dtype):
        yield SampleInput((make(2), data))
    yield SampleInput((make(), [True, 2, 0]))
    yield SampleInput((make(), [1, 2]), {"dtype": torch.float64, "device": torch.device(str(device)), "requires_grad": False})
    yield SampleInput((make(3), make(3, 2).t()))


def np_data(data: Any, *_: Any, **named: Any) -> np.ndarray:
    """Return the numbers as they are; as truth values where the dtype is bool."""
    values, dtype = np.asarray(data), named.get("dtype")
    return values.astype(np.bool_) if dtype is torch.bool else values


def scalar_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield sample(dtype, 1)
    yield sample(dtype, False)
    yield sample(dtype, s=0, device=torch.device(str(device)), layout=torch.strided, requires_grad=False, pin_memory=False)
    yield SampleInput((2,))
    if dtype.inexact:
        yield sample(dtype, -0.5)
    if dtype.kind == "complex":
        yield sample(dtype, 1 - 1j)


def info(name: str, samples: Callable, wrong: Callable, reference: Callable, accepted: tuple[DType, ...] = ANY, **more: Any) -> OpInfo:
    return OpInfo(symbol_for(f"torch.{name}"), samples, wrong, reference, accepted, **more)


LENGTHS = (RuntimeError, "must match dimensionality|mismatch in length")
UNEVEN = (ValueError, "expected sequence of length|sequences of one length")
DATA = (([[1, 2], [3]], *UNEVEN), ([1.0, "a"], TypeError, ""), ([1j], {"dtype": torch.float32}, TypeError, "must be real number, not complex"))
STEPS = ((0, 1, -1, RuntimeError, "number of steps must be non-negative"), (unwritten((2,)), 1, 3, RuntimeError, "0-dimensional start and end"))
SPACED = (*STEPS, (0, 1j, 3, {"dtype": torch.float32}, RuntimeError, "can't be safely cast"))
SIDES = ((-1, RuntimeError, "n must be greater or equal to 0"), (2, -1, RuntimeError, "m must be greater or equal to 0"))
CORNERS = ((-1, 2, RuntimeError, "must be non-negative"), (2, -2, RuntimeError, "must be non-negative"), (2, 2.5, TypeError, "must be int"))
ROUNDED_STEP = 1e-6  # of start + i * step in float32, where the two of them cancel
LAYOUTS = (((2, 3), (0,), RuntimeError, "does not match the length"), ((2, 3), (0, 0), RuntimeError, "Duplicate|no permutation"))

OPINFOS += [*filled(0, "zeros"), *filled(1, "ones")]
OPINFOS += [
    info(
        "empty",
        empty_samples,
        errors((-1, *NEGATIVE), ((2, 3), {"memory_format": torch.channels_last}, RuntimeError, "required rank 4")),
        of_dtype,
        directives=UNSET,
    ),
    info(
        "empty_like",
        like_samples,
        partial(refused_rows, (NO_MEMORY_FORMAT,)),
        lambda x, **named: Drawn(x.shape, named.get("dtype", x.dtype)),
        directives=UNSET,
    ),
    info(
        "Tensor.new_empty",
        new_samples,
        partial(refused_rows, (((2,), -2, *NEGATIVE),)),
        lambda x, *size, **named: of_dtype(*size, **{"dtype": x.dtype, **named}),
        directives=UNSET,
    ),
    info(
        "empty_strided",
        partial(laid_out_samples, STRIDED, "stride"),
        errors(((2, 3), (1,), *LENGTHS), ((-2, 3), (3, 1), *NEGATIVE), ((2, 3), (-3, 1), RuntimeError, "")),
        lambda size=(), stride=(), **named: of_dtype(size, **named),
        directives=UNSET,
    ),
    info(
        "Tensor.new_empty_strided",
        new_strided_samples,
        partial(refused_rows, (((2, 3), (2, 3), (1,), *LENGTHS),)),
        lambda x, size=(), stride=(), **named: of_dtype(size, **{"dtype": x.dtype, **named}),
        directives=UNSET,
    ),
    info(
        "empty_permuted",
        partial(laid_out_samples, PERMUTED, "physical_layout"),
        errors(*LAYOUTS),
        lambda size=(), physical_layout=(), **named: of_dtype(size, **named),
        directives=UNSET,
    ),
    info(
        "full",
        full_samples,
        errors(
            ((-1,), 1, *NEGATIVE), ((2,), "1", *NO_NUMBER), ((2,), unwritten((2,)), *NO_NUMBER), ((2,), 1j, {"dtype": torch.float32}, *NO_COMPLEX)
        ),
        by_numpy(lambda size, fill_value, **named: np.full(size, fill_value)),
    ),
    info(
        "full_like",
        full_like_samples,
        partial(refused_rows, (((2,), "1", *NO_NUMBER), ((2,), 1j, *NO_COMPLEX), ((2,), unwritten((2,)), *NO_NUMBER))),
        by_numpy(lambda x, fill_value, **named: np.full(x.shape, fill_value)),
    ),
    info(
        "Tensor.new_full",
        new_full_samples,
        partial(refused_rows, (((2,), (-1,), 1, *NEGATIVE), ((2,), (2,), 1j, *NO_COMPLEX), ((2,), (2,), "1", *NO_NUMBER))),
        by_numpy(lambda x, size, fill_value, **named: np.full(size, fill_value)),
    ),
    info(
        "arange",
        arange_samples,
        errors(
            (0, 3, 0, RuntimeError, "step must be nonzero"),
            (3, 0, RuntimeError, "upper bound and lower bound inconsistent with step sign"),
            ("3", TypeError, "must be Number"),
            (1j, RuntimeError, "cannot be converted"),
            (3, {"dtype": torch.bool}, NotImplementedError, ""),
        ),
        by_numpy(np_arange),
        INTS + FLOATS,
        cancellation=ROUNDED_STEP,
    ),
    info("linspace", partial(spaced_samples, {}), errors(*SPACED), np_spaced(np.linspace), ANY[1:], cancellation=ROUNDED_STEP),
    info("logspace", partial(spaced_samples, {"base": 2.0}), errors(*SPACED), np_spaced(np.logspace), ANY[1:]),
    info("eye", eye_samples, errors(*SIDES, (2.5, TypeError, "must be int")), by_numpy(lambda n, m=None, **named: np.eye(n, m))),
    info("tril_indices", triangle_samples, errors(*CORNERS), np_triangle(np.tril_indices), (dtypes.int32, dtypes.int64)),
    info("triu_indices", triangle_samples, errors(*CORNERS), np_triangle(np.triu_indices), (dtypes.int32, dtypes.int64)),
    info("tensor", tensor_samples, errors(*DATA), by_numpy(np_data)),
    info("as_tensor", as_tensor_samples, errors(*DATA), by_numpy(np_data), grad=True),
    info(
        "Tensor.new_tensor",
        new_tensor_samples,
        partial(refused_rows, (((2,), [[1, 2], [3]], *UNEVEN), ((2,), [1j], TypeError, "must be real number"), ((2,), "a", TypeError, ""))),
        by_numpy(lambda x, data, **named: np_data(data, dtype=torch.bool if x.dtype == bool and "dtype" not in named else None)),
    ),
    info(
        "scalar_tensor",
        scalar_samples,
        errors(("1", TypeError, "must be Number"), (1j, *NO_COMPLEX)),
        by_numpy(lambda s, **named: np.asarray(s)),
    ),
]
