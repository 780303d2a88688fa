"""Comparison and choice of each element: order, logic, bits, predicates, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf, nan
from typing import Any

import numpy as np
import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail_conformance.opinfo import ANY, BOOLS, FLOATS, INTS, OPINFOS, TO_TORCH, ErrorSample, Maker, SampleInput, by_numpy, unwritten
from dovetail_conformance.torch.elementwise import (
    EVERYWHERE,
    NO_COMPLEX_GRADIENT,
    REAL,
    ROUNDED,
    exact,
    inexact,
    layouts,
    pair_errors,
    row,
    two_samples,
    unary_errors,
    unary_samples,
)

BITS = BOOLS + INTS


def edges(dtype: DType, device: Device) -> torch.Tensor:
    """Return zeros of both signs, infinities and NaN among other numbers; of integers, zeros and others."""
    values = (0.0, -0.0, 1.5, inf, -inf, nan) if dtype.inexact else (0, 1, 0, 2)
    return torch.tensor(values, dtype=TO_TORCH[dtype], device=str(device))


def predicate_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from unary_samples(EVERYWHERE, dtype, device)
    yield SampleInput((edges(dtype, device),))


def comparison_samples(dtype: DType, device: Device, **how: Any) -> Iterator[SampleInput]:
    """Yield pairs, and two tensors with half of their elements equal, where a gradient would be as one likes."""
    yield from two_samples(EVERYWHERE, dtype, device, **how)
    make = Maker(dtype, device)
    x = make(6)
    yield SampleInput((x, torch.cat((x[:3], make(3)))))


def isposinf(x: Any) -> Any:
    return np.isposinf(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def isneginf(x: Any) -> Any:
    return np.isneginf(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def signbit(x: Any) -> Any:
    return np.signbit(x) if x.dtype.kind == "f" else x < 0


# torch's name: (reference, dtypes, the error that other dtypes raise)
UNARY: dict[str, tuple[Callable, tuple[DType, ...], type[Exception]]] = {
    "torch.isnan": (np.isnan, ANY, NotImplementedError),
    "torch.isinf": (np.isinf, ANY, NotImplementedError),
    "torch.isfinite": (np.isfinite, ANY, NotImplementedError),
    "torch.isreal": (np.isreal, ANY, NotImplementedError),
    "torch.isposinf": (isposinf, REAL, RuntimeError),
    "torch.isneginf": (isneginf, REAL, RuntimeError),
    "torch.signbit": (signbit, REAL, NotImplementedError),
    "torch.logical_not": (np.logical_not, ANY, NotImplementedError),
    "torch.bitwise_not": (np.invert, BITS, NotImplementedError),
}

NUMBER, NONE = {"numbers": "second"}, {}
BITWISE = {"numbers": "either", "of": (2, 1), "partners": (dtypes.int64,)}

# torch's name: (reference, dtypes, whether it has a gradient, options of the samples)
BINARY: dict[str, tuple[Callable, tuple[DType, ...], bool, dict[str, Any]]] = {
    "torch.eq": (np.equal, ANY, False, NUMBER),
    "torch.ne": (np.not_equal, ANY, False, NUMBER),
    "torch.lt": (np.less, REAL, False, NUMBER),
    "torch.le": (np.less_equal, REAL, False, NUMBER),
    "torch.gt": (np.greater, REAL, False, NUMBER),
    "torch.ge": (np.greater_equal, REAL, False, NUMBER),
    "torch.logical_and": (np.logical_and, ANY, False, NONE),
    "torch.logical_or": (np.logical_or, ANY, False, NONE),
    "torch.logical_xor": (np.logical_xor, ANY, False, NONE),
    "torch.bitwise_and": (np.bitwise_and, BITS, False, BITWISE),
    "torch.bitwise_or": (np.bitwise_or, BITS, False, BITWISE),
    "torch.bitwise_xor": (np.bitwise_xor, BITS, False, BITWISE),
    "torch.maximum": (np.maximum, REAL, True, NONE),
    "torch.minimum": (np.minimum, REAL, True, NONE),
    "torch.fmax": (np.fmax, REAL, True, NONE),
    "torch.fmin": (np.fmin, REAL, True, NONE),
    "torch.copysign": (np.copysign, REAL, True, {"numbers": "second", "of": (2, -2.5, -0.0)}),
    "torch.nextafter": (np.nextafter, FLOATS, True, NONE),
}


RUNTIME_ERRORS = ("torch.maximum", "torch.minimum", "torch.fmax", "torch.fmin")  # what they raise for a dtype that they do not take


def shift_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from two_samples((0, 3), dtype, device, **BITWISE)


def isclose_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x, x.clone()))
    x = make(3, 4, low=1).t()
    off = torch.tensor([[0], [0], [2], [1]], device=str(device)).to(x.dtype)
    yield SampleInput((x, x + off if dtype.kind != "bool" else ~x))
    yield SampleInput((x, x + off if dtype.kind != "bool" else ~x, 0.0, 1.5))
    yield SampleInput((x,), {"other": make(4, 1, low=1), "rtol": 0.6, "atol": 0.0})
    e = edges(dtype, device)
    for same in (True, False):
        yield SampleInput((e, e.clone()), {"equal_nan": same})
    yield SampleInput((e, e.clone(), 0.0, 0.0, True))


def isclose_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2,))
    yield ErrorSample((x, unwritten((2,), dtypes.int64)), {}, RuntimeError, "expected tensors of one dtype")
    yield ErrorSample((x, x), {"rtol": -1.0}, RuntimeError, "expected an rtol that is not negative")
    yield ErrorSample((x, x), {"atol": -1.0}, RuntimeError, "expected an atol that is not negative")
    yield ErrorSample((x, unwritten((3,))), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((x, 1.0), {}, TypeError, "must be Tensor, not float")


def np_isclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return np.isclose(input, other, rtol, atol, equal_nan)


def choices(dtype: DType, device: Device) -> Iterator[tuple[Any, Any, Any]]:
    """Yield a condition and what it chooses from."""
    make = Maker(dtype, device)
    yes = partial(make, dtype=dtypes.bool_)
    for x in layouts(make):
        yield yes(*x.shape), x, make(*x.shape)
    yield yes(3, 4).t(), make(3), make()
    yield yes(3), make(4, 1), make(3, dtype=dtypes.int64)
    yield yes(2, 1), make(3), 2
    yield yes(2, 1), make(3), 2.5


def where_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for each in choices(dtype, device):
        yield SampleInput(each)
    make = Maker(dtype, device)
    yield SampleInput((make(3, dtype=dtypes.bool_), 1, make(3)))
    yield SampleInput((make(3, dtype=dtypes.bool_),), {"input": make(3), "other": make(2, 3)})
    yield SampleInput((make(4, dtype=dtypes.uint8, high=1), make(4), make(1)))


def method_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for condition, x, y in choices(dtype, device):
        yield SampleInput((x, condition, y))


def where_errors(device: Device) -> Iterator[ErrorSample]:
    x, yes = unwritten((2,)), unwritten((2,), dtypes.bool_)
    yield ErrorSample((x, x, x), {}, RuntimeError, "where expected condition to be a boolean tensor")
    yield ErrorSample((yes, x, unwritten((3,))), {}, RuntimeError, "expected shapes that broadcast")


def torch_where_errors(device: Device) -> Iterator[ErrorSample]:
    yield from where_errors(device)
    yield ErrorSample((unwritten((2,), dtypes.bool_), unwritten((2,)), "1"), {}, TypeError, "invalid combination of arguments")
    yield ErrorSample((unwritten((2,), dtypes.bool_), unwritten((2,))), {}, TypeError, "invalid combination of arguments")


def method_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,)), unwritten((2,)), 1), {}, RuntimeError, "where expected condition to be a boolean tensor")
    yield ErrorSample((unwritten((2,)), unwritten((3,), dtypes.bool_), 1), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((unwritten((2,)), unwritten((2,), dtypes.bool_), "1"), {}, TypeError, "must be Tensor or Number, not str")


def np_where(condition: Any, input: Any, other: Any) -> Any:
    return np.where(condition != 0, input, other)


def masked_fill_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yes = partial(make, dtype=dtypes.bool_)
    for x in layouts(make):
        yield SampleInput((x, yes(*x.shape), 1))
    yield SampleInput((make(4, 3), yes(3), make()))
    yield SampleInput((make(3), yes(2, 3), True))
    yield SampleInput((make(3, 4).t(), yes(4, 1)), {"value": make(dtype=dtypes.int64)})
    if dtype.inexact:
        yield SampleInput((make(4, 3), yes(4, 3), -inf))


def masked_fill_errors(device: Device) -> Iterator[ErrorSample]:
    x, yes = unwritten((2,)), unwritten((2,), dtypes.bool_)
    yield ErrorSample((x, x, 1.0), {}, RuntimeError, "only supports boolean masks")
    yield ErrorSample((x, yes, x), {}, RuntimeError, "only supports a 0-dimensional value tensor")
    yield ErrorSample((x, yes, 1j), {}, RuntimeError, "expected a real value for f32, got 1j")
    yield ErrorSample((x, unwritten((3,), dtypes.bool_), 1.0), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((x, yes, "1"), {}, TypeError, "invalid combination of arguments")


def np_masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return np.where(mask, np.asarray(value).astype(x.dtype), x)


def clamp_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x, 0, 1))
    yield SampleInput((make(4, 3), 0.5))
    yield SampleInput((make(4, 3),), {"max": 1})
    yield SampleInput((make(3), 2, 1))
    bound = partial(make, dtype=dtypes.int64 if dtype.kind == "bool" else dtype)
    yield SampleInput((make(3, 4).t(), bound(4, 1), bound(3)))
    yield SampleInput((make(3),), {"min": bound(2, 3)})
    yield SampleInput((make(3), bound(), make(dtype=dtypes.int64)))


def clamp_errors(device: Device) -> Iterator[ErrorSample]:
    x, z = unwritten((2,)), unwritten((2,), dtypes.complex64)
    yield ErrorSample((x,), {}, RuntimeError, "At least one of 'min' or 'max' must not be None")
    yield ErrorSample((x, x, 1), {}, TypeError, "expected two tensors or two numbers for min and max")
    yield ErrorSample((z, 0), {}, NotImplementedError, "expected a tensor of kind bool or int or float")
    yield ErrorSample((x, unwritten((3,))), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((x, "0"), {}, TypeError, "invalid combination of arguments")


def np_clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def bound_samples(other: str, dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from two_samples(EVERYWHERE, dtype, device, numbers="second", of=(1, 0.5), other=other)


def heaviside_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x, y in ((s.args[0], s.args[1]) for s in two_samples(EVERYWHERE, dtype, device, partners=()) if not s.kwargs):
        yield SampleInput((x, y))
    make = Maker(dtype, device)
    yield SampleInput((edges(dtype, device),), {"values": make(1)})


def heaviside_errors(device: Device) -> Iterator[ErrorSample]:
    x, z = unwritten((2,)), unwritten((2,), dtypes.complex64)
    yield ErrorSample((x, unwritten((2,), dtypes.int64)), {}, RuntimeError, "not implemented for tensors with different dtypes")
    yield ErrorSample((z, z), {}, RuntimeError, "not implemented for complex tensors")
    yield ErrorSample((x, unwritten((3,))), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((x, 1.0), {}, TypeError, "must be Tensor, not float")


def nan_to_num_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from unary_samples(EVERYWHERE, dtype, device)
    e = edges(dtype, device)
    yield SampleInput((e,))
    yield SampleInput((e, 0.5, 2.0, -2.0))
    yield SampleInput((e.flip(0),), {"nan": 1.0, "posinf": 3.0})
    yield SampleInput((e,), {"neginf": -1.0})


def nan_to_num_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,)),), {"nan": "0"}, TypeError, "must be float, not str")
    yield ErrorSample(("1",), {}, TypeError, "must be Tensor, not str")


def threshold_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x, 1, 2))
    yield SampleInput((make(4, 3), 0.5, 2.5))
    yield SampleInput((make(4, 3),), {"threshold": 0, "value": 3})


def threshold_errors(device: Device) -> Iterator[ErrorSample]:
    for dtype in (dtypes.bool_, dtypes.complex64):
        yield ErrorSample((unwritten((2,), dtype), 1, 1), {}, NotImplementedError, "expected a tensor of kind float or int")
    yield ErrorSample((unwritten((2,)), "1", 1), {}, TypeError, "must be Number, not str")


def np_threshold(x: Any, threshold: Any, value: Any) -> Any:
    threshold, value = (np.asarray(v).astype(x.dtype) for v in (threshold, value))
    return np.where(x > threshold, x, value)


OPINFOS += [
    row(name, predicate_samples, partial(unary_errors, accepted, error), by_numpy(fn), accepted) for name, (fn, accepted, error) in UNARY.items()
]
OPINFOS += [
    row(
        name,
        partial(comparison_samples, **how) if not grad else partial(two_samples, EVERYWHERE, **how),
        partial(pair_errors, accepted, RuntimeError if name in RUNTIME_ERRORS else NotImplementedError),
        exact(fn),
        accepted,
        grad=grad,
    )
    for name, (fn, accepted, grad, how) in BINARY.items()
]
OPINFOS += [
    row(f"torch.bitwise_{side}_shift", shift_samples, partial(pair_errors, INTS, NotImplementedError), exact(fn), INTS, domain=(0, 3))
    for side, fn in (("left", np.left_shift), ("right", np.right_shift))
]
OPINFOS += [
    row(f"torch.clamp_{end}", partial(bound_samples, end), partial(pair_errors, REAL, NotImplementedError), exact(fn), REAL, grad=True)
    for end, fn in (("min", np.maximum), ("max", np.minimum))
]
OPINFOS += [
    row("torch.isclose", isclose_samples, isclose_errors, inexact(np_isclose), ANY),
    row("torch.where", where_samples, torch_where_errors, by_numpy(np_where), ANY, grad=True),
    row("torch.Tensor.where", method_samples, method_errors, by_numpy(lambda x, condition, y: np_where(condition, x, y)), ANY, grad=True),
    row("torch.masked_fill", masked_fill_samples, masked_fill_errors, by_numpy(np_masked_fill), ANY, grad=True),
    row("torch.clamp", clamp_samples, clamp_errors, by_numpy(np_clamp), REAL, grad=True),
    row("torch.heaviside", heaviside_samples, heaviside_errors, exact(lambda x, values: np.where(x == 0, values, x > 0)), REAL),
    row("torch.nan_to_num", nan_to_num_samples, nan_to_num_errors, None, ANY, grad=True, directives=(NO_COMPLEX_GRADIENT,)),
    row("torch.threshold", threshold_samples, threshold_errors, by_numpy(np_threshold), ROUNDED, grad=True),
]
