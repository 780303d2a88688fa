"""Arithmetic of each element: a table for operations of one tensor, a table for those of two operands, and those with options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
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
    FLOATS,
    FULL_FLOATS,
    INEXACT,
    NUMBERS,
    OPINFOS,
    REAL,
    ROUNDED,
    TO_TORCH,
    Directive,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)

EVERYWHERE = (-inf, inf)
STRANGERS = (dtypes.bool_, dtypes.int64, dtypes.float32, dtypes.complex64)


def inexact(fn: Callable) -> Callable:
    """Make a reference from a function of NumPy arrays that computes integers and booleans in float64."""
    return by_numpy(lambda *args, **kwargs: fn(*map(_as_float, args), **kwargs))


def _as_float(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind in "biu" else x


def layouts(make: Maker) -> Iterator[torch.Tensor]:
    """Yield tensors of no dimensions, no elements and one element; row-major, transposed, with gaps and repeated."""
    yield make()
    yield make(2, 0, 3)
    yield make(1)
    yield make(4, 3)
    yield make(3, 4).t()
    yield make(2, 3, 8)[:, :, ::2].permute(1, 2, 0)
    yield make(3, 1).expand(3, 4)


def unary_samples(domain: tuple[float, float], dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in layouts(Maker(dtype, device, domain)):
        yield SampleInput((x,))


def pairs(make: Maker, partners: tuple[DType, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield two tensors that broadcast in each of the ways they can, and that promote: with `partners`, and where one has no dimensions.

    Next to float64 there is no other float, so that the gradients of what it computes have float64's precision.
    """
    yield make(), make()
    yield make(0, 3), make(3)
    yield make(4, 3), make(1)
    yield make(3, 4).t(), make(4, 1)
    yield make(2, 3, 8)[:, :, ::2], make(1, 3, 1).expand(2, 3, 4)
    yield make(3), make()
    for i, dtype in enumerate(partners):
        if not (dtype.inexact and make.dtype is dtypes.float64) and dtype is not make.dtype:
            yield (make(2, 3, dtype=dtype), make(3)) if i % 2 else (make(3), make(3, dtype=dtype))


MIXED = (dtypes.int64, dtypes.float32)


def two_samples(
    domain: tuple[float, float],
    dtype: DType,
    device: Device,
    *,
    numbers: str = "",
    of: tuple = (2, 2.5),
    partners: tuple[DType, ...] = MIXED,
    other: str = "other",
) -> Iterator[SampleInput]:
    """Yield two tensors, the second by the name `other` too; with `numbers` "second" or "either" also a tensor and each of the numbers `of`."""
    make = Maker(dtype, device, domain)
    for x, y in pairs(make, partners):
        yield SampleInput((x, y))
    yield SampleInput((make(3),), {other: make(2, 3)})
    for number in of if numbers else ():
        yield SampleInput((make(3), number))
        if numbers == "either":
            yield SampleInput((number, make(3)))


def signed_pairs(dtype: DType, device: Device) -> Iterator[tuple[Any, Any]]:
    """Yield dividends and divisors of either sign; none of the quotients of floats is a whole number."""
    if dtype.kind not in ("int", "float") or not dtype.signed:
        return
    x = torch.arange(-7, 8, device=str(device)).to(TO_TORCH[dtype])
    x = x + 0.25 if dtype.inexact else x
    yield x, torch.tensor([[3], [-3]], dtype=x.dtype, device=x.device)
    yield x, -4


def stranger_errors(accepted: tuple[DType, ...], error: type[Exception], operands: int, device: Device) -> Iterator[ErrorSample]:
    """Yield tensors of each kind that the operation does not take."""
    kinds = {d.kind for d in accepted}
    for dtype in STRANGERS:
        if dtype.kind not in kinds:
            yield ErrorSample((unwritten((2,), dtype),) * operands, {}, error, "expect|not supported|convert")


def unary_errors(accepted: tuple[DType, ...], error: type[Exception], device: Device) -> Iterator[ErrorSample]:
    yield from stranger_errors(accepted, error, 1, device)
    yield ErrorSample(("1",), {}, TypeError, "must be Tensor, not str")


def pair_errors(accepted: tuple[DType, ...], error: type[Exception], device: Device) -> Iterator[ErrorSample]:
    yield from stranger_errors(accepted, error, 2, device)
    dtype = accepted[-1]
    yield ErrorSample((unwritten((2, 3), dtype), unwritten((2,), dtype)), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((unwritten((2,), dtype), "1"), {}, TypeError, "must be Tensor, not str|invalid combination of arguments")


def sgn(x: Any) -> Any:
    return x if x.dtype == bool else np.sign(x)


def np_angle(x: Any) -> Any:
    return np.angle(x) if x.dtype.kind == "c" else np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0.0))


def np_frexp(x: Any) -> tuple:
    mantissa, exponent = np.frexp(x)
    return np.asarray(mantissa), np.asarray(exponent)


# torch's name: (reference, dtypes, domain)
UNARY: dict[str, tuple[Callable, tuple[DType, ...], tuple[float, float]]] = {
    "torch.abs": (by_numpy(np.abs), NUMBERS, EVERYWHERE),
    "torch.ceil": (by_numpy(np.ceil), ROUNDED, EVERYWHERE),
    "torch.floor": (by_numpy(np.floor), ROUNDED, EVERYWHERE),
    "torch.trunc": (by_numpy(np.trunc), ROUNDED, EVERYWHERE),
    "torch.frac": (by_numpy(lambda x: x - np.trunc(x)), FLOATS, EVERYWHERE),
    "torch.neg": (by_numpy(np.negative), NUMBERS, EVERYWHERE),
    "torch.positive": (by_numpy(np.positive), NUMBERS, EVERYWHERE),
    "torch.sign": (by_numpy(sgn), REAL, EVERYWHERE),
    "torch.sgn": (by_numpy(sgn), ANY, EVERYWHERE),
    "torch.square": (by_numpy(lambda x: x * x), ANY, EVERYWHERE),
    "torch.deg2rad": (inexact(np.deg2rad), REAL, EVERYWHERE),
    "torch.rad2deg": (inexact(np.rad2deg), REAL, EVERYWHERE),
    "torch.real": (by_numpy(np.real), ANY, EVERYWHERE),
    "torch.imag": (by_numpy(np.imag), COMPLEX, EVERYWHERE),
    "torch.conj_physical": (by_numpy(lambda x: np.conj(x) if x.dtype.kind == "c" else x), ANY, EVERYWHERE),
    "torch.angle": (by_numpy(np_angle), ANY, EVERYWHERE),
    "torch.reciprocal": (inexact(np.reciprocal), ANY, (0.1, inf)),
    "torch.sqrt": (inexact(np.sqrt), ANY, (0.01, inf)),
    "torch.rsqrt": (inexact(lambda x: 1 / np.sqrt(x)), ANY, (0.1, inf)),
    "torch.exp": (inexact(np.exp), ANY, EVERYWHERE),
    "torch.exp2": (inexact(lambda x: np.power(np.asarray(2, dtype=x.dtype), x)), ANY, EVERYWHERE),
    "torch.expm1": (inexact(np.expm1), ANY, EVERYWHERE),
    "torch.log": (inexact(np.log), ANY, (0.1, inf)),
    "torch.log2": (inexact(np.log2), ANY, (0.1, inf)),
    "torch.log10": (inexact(np.log10), ANY, (0.1, inf)),
    "torch.log1p": (inexact(np.log1p), ANY, (-0.9, inf)),
    "torch.sin": (inexact(np.sin), ANY, EVERYWHERE),
    "torch.cos": (inexact(np.cos), ANY, EVERYWHERE),
    "torch.tan": (inexact(np.tan), ANY, (-1.3, 1.3)),
    "torch.asin": (inexact(np.arcsin), ANY, (-0.9, 0.9)),
    "torch.acos": (inexact(np.arccos), ANY, (-0.9, 0.9)),
    "torch.atan": (inexact(np.arctan), ANY, (-0.9, inf)),
    "torch.sinh": (inexact(np.sinh), ANY, EVERYWHERE),
    "torch.cosh": (inexact(np.cosh), ANY, EVERYWHERE),
    "torch.tanh": (inexact(np.tanh), ANY, (-1.3, 1.3)),
    "torch.asinh": (inexact(np.arcsinh), ANY, (-0.9, inf)),
    "torch.acosh": (inexact(np.arccosh), ANY, (1.1, inf)),
    "torch.atanh": (inexact(np.arctanh), ANY, (-0.9, 0.9)),
}
NO_COMPLEX_GRADIENT = Directive("skip", "eager has no gradient of it for complex numbers", "backward", COMPLEX)

RUNTIME_ERRORS = frozenset(  # operations that raise RuntimeError for a dtype that they do not take; the others NotImplementedError
    f"torch.{name}" for name in ("neg", "positive", "imag", "deg2rad", "rad2deg", "complex", "polar")
)


def refusal(name: str) -> type[Exception]:
    return RuntimeError if name in RUNTIME_ERRORS else NotImplementedError


def two(fn: Callable) -> Callable:
    """Make a reference of two operands, the second of which may be named, from a function of two NumPy arrays."""
    return inexact(lambda *args, **named: fn(*args, *named.values()))


def exact(fn: Callable) -> Callable:
    """Make a reference as `two` does, of integers as such."""
    return by_numpy(lambda *args, **named: fn(*args, *named.values()))


EITHER, ALIKE = {"numbers": "either"}, {"partners": ()}

# torch's name: (reference, dtypes, domain, options of the samples)
BINARY: dict[str, tuple[Callable, tuple[DType, ...], tuple[float, float], dict[str, Any]]] = {
    "torch.mul": (exact(lambda a, b: a * b), ANY, EVERYWHERE, EITHER),
    "torch.true_divide": (two(lambda a, b: a / b), ANY, (0.5, inf), EITHER),
    "torch.float_power": (two(np.power), ANY, (0.5, 3), {"other": "exponent", **EITHER}),
    "torch.ldexp": (two(lambda a, b: a * 2.0**b), ANY, (0, inf), {"partners": (dtypes.int64,)}),
    "torch.atan2": (two(np.arctan2), REAL, EVERYWHERE, {}),
    "torch.hypot": (two(np.hypot), FLOATS, EVERYWHERE, {}),
    # of float16 parts eager makes complex32, which Dovetail lacks
    "torch.complex": (two(lambda a, b: a + 1j * b), FULL_FLOATS, EVERYWHERE, {"other": "imag", **ALIKE}),
    "torch.polar": (two(lambda a, b: a * np.exp(1j * b)), FULL_FLOATS, (0.1, inf), {"other": "angle", **ALIKE}),
}

INTEGERS = {"torch.ldexp": (0, 62)}  # eager's gradient computes 2**exponent in int64: 0 above, and a NaN or an error below

# torch's name: (reference, whether it has a gradient, where numbers may stand)
DIVISIONS: dict[str, tuple[Callable, bool, str]] = {
    "torch.floor_divide": (exact(np.floor_divide), False, "either"),
    "torch.remainder": (exact(np.remainder), True, "second"),
    "torch.fmod": (exact(np.fmod), True, "second"),
}


def division_samples(numbers: str, dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from two_samples((1, inf), dtype, device, numbers=numbers)
    for x, y in signed_pairs(dtype, device):
        yield SampleInput((x, y))


def reversed_errors(device: Device) -> Iterator[ErrorSample]:
    """Yield errors of x.__rdiv__, which leaves what is no number to Python."""
    yield ErrorSample((unwritten((2, 3)), unwritten((2,))), {}, RuntimeError, "expected shapes that broadcast")


def sum_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from two_samples(EVERYWHERE, dtype, device, numbers="second")
    make = Maker(dtype, device)
    alphas = {"bool": (True,), "int": (2, 3), "float": (2, -0.5), "complex": (0.5, 2j)}[dtype.kind]
    for alpha in alphas:
        yield SampleInput((make(4, 3), make(3)), {"alpha": alpha})
    yield SampleInput((make(3, 4).t(), True if dtype.kind == "bool" else 3), {"alpha": alphas[0]})


def sum_errors(accepted: tuple[DType, ...], device: Device) -> Iterator[ErrorSample]:
    yield from pair_errors(accepted, RuntimeError, device)
    x, n = unwritten((2,)), unwritten((2,), dtypes.int64)
    yield ErrorSample((x, x), {"alpha": 1j}, RuntimeError, "expected an alpha of kind float")
    yield ErrorSample((n, n), {"alpha": 0.5}, RuntimeError, "alpha must not be a floating point number")
    yield ErrorSample((n, n), {"alpha": True}, RuntimeError, "Boolean alpha only supported for Boolean results")


def summed(sign: int, swapped: bool = False) -> Callable:
    """a + alpha * b, or with `sign` -1 the difference; `swapped` takes b first."""

    def reference(a: Any, b: Any = None, *, other: Any = None, alpha: Any = 1) -> Any:
        b = other if b is None else b
        a, b = (b, a) if swapped else (a, b)
        b = b if alpha == 1 else alpha * b
        return a + b if sign > 0 else a - b

    return by_numpy(reference)


def div_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from two_samples((0.5, inf), dtype, device, numbers="either", of=(2.5,))
    for x, y in signed_pairs(dtype, device):
        for mode in ("trunc", "floor"):
            yield SampleInput((x, y), {"rounding_mode": mode})


def reversed_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.5, inf))
    for x in layouts(make):
        yield SampleInput((x, 2))
    yield SampleInput((make(3), 2.5))
    yield SampleInput((make(4, 3), make(3)))


def div_errors(device: Device) -> Iterator[ErrorSample]:
    yield from pair_errors(ANY, NotImplementedError, device)
    x, z = unwritten((2,)), unwritten((2,), dtypes.complex64)
    yield ErrorSample((x, x), {"rounding_mode": "up"}, RuntimeError, "expected rounding_mode None, 'trunc' or 'floor', got 'up'")
    yield ErrorSample((z, z), {"rounding_mode": "floor"}, NotImplementedError, "expected a tensor of kind int or float")
    yield ErrorSample((z, z), {"rounding_mode": "trunc"}, NotImplementedError, "expected integer or floating operands")


def np_div(a: Any, b: Any = None, *, other: Any = None, rounding_mode: str | None = None) -> Any:
    b = other if b is None else b
    with np.errstate(all="ignore"):
        if rounding_mode == "floor":
            return np.floor_divide(a, b)
        return np.trunc(_as_float(a) / b) if rounding_mode else _as_float(a) / b


def pow_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from two_samples((0.5, 3), dtype, device, numbers="either", of=(2,), other="exponent")
    make = Maker(dtype, device, (0.5, 3))
    for exponent in (0, 2.5, *((-1, 0.5) if dtype.inexact else (1, 3))):
        yield SampleInput((make(4), exponent))


def pow_errors(device: Device) -> Iterator[ErrorSample]:
    yield from pair_errors(NUMBERS, NotImplementedError, device)
    yield ErrorSample((unwritten((2,), dtypes.int64), -1), {}, RuntimeError, "integers to negative integer powers are not allowed")


def round_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from unary_samples(EVERYWHERE, dtype, device)
    for decimals in (0, 1, 2, -1) if dtype.inexact else ():
        yield SampleInput((Maker(dtype, device)(3, 4).t() * 10,), {"decimals": decimals})


def round_errors(device: Device) -> Iterator[ErrorSample]:
    yield from unary_errors(ROUNDED, NotImplementedError, device)
    yield ErrorSample((unwritten((2,), dtypes.int64),), {"decimals": 1}, NotImplementedError, "expected a tensor of kind float")
    yield ErrorSample((unwritten((2,)),), {"decimals": 1.5}, TypeError, "invalid combination of arguments")


def lerp_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x, make(*x.shape), 0.3))
    yield SampleInput((make(4, 3), make(3), 0.7))
    yield SampleInput((make(3),), {"end": make(2, 3), "weight": 2})
    yield SampleInput((make(4, 3), make(3), make(4, 1)))
    yield SampleInput((make(3, 4).t(), make(4, 1), make()))
    yield SampleInput((make(3), make(3), make(dtype=dtypes.float64)))
    if dtype.kind == "complex":
        yield SampleInput((make(3), make(3), 0.5 + 1j))


def np_lerp(input: Any, end: Any, weight: Any) -> Any:
    return input + weight * (end - input)


def lerp_errors(device: Device) -> Iterator[ErrorSample]:
    x, wide, n = unwritten((2,)), unwritten((2,), dtypes.float64), unwritten((2,), dtypes.int64)
    yield ErrorSample((x, wide, 0.5), {}, RuntimeError, "expected tensors of dtype f32")
    yield ErrorSample((x, x, wide), {}, RuntimeError, "expected tensors of dtype f32")
    yield ErrorSample((n, n, 0.5), {}, NotImplementedError, "expected a tensor of kind float or complex")
    yield ErrorSample((x, unwritten((3,)), 0.5), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((x, x, None), {}, TypeError, "invalid combination of arguments")


def three_samples(low: float | None, dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield three tensors, the last of them from `low` on; with `value` and without."""
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x, make(*x.shape), make(*x.shape, low=low)))
    yield SampleInput((make(4, 3), make(3), make(2, 1, 1, low=low)), {"value": 2})
    yield SampleInput((make(3, dtype=dtypes.int64), make(2, 3), make(3, low=low)), {"value": 1})
    if dtype.inexact:
        yield SampleInput((make(3),), {"tensor1": make(3), "tensor2": make(3, low=low), "value": -0.5})
    if dtype.kind == "complex":
        yield SampleInput((make(3), make(3), make(3, low=low)), {"value": 2j})


def np_addcmul(x: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    return x + value * tensor1 * tensor2


def np_addcdiv(x: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    return x + value * tensor1 / tensor2


def three_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2,))
    yield ErrorSample((x, x, unwritten((3,))), {}, RuntimeError, "expected shapes that broadcast")
    yield ErrorSample((x, 1, x), {}, TypeError, "must be Tensor, not int")
    yield ErrorSample((x, x, x), {"value": "1"}, TypeError, "must be Number, not str")
    yield ErrorSample((x, x, x), {"value": 1j}, RuntimeError, "expected a value of kind float")


def addcmul_errors(device: Device) -> Iterator[ErrorSample]:
    yield from three_errors(device)
    yield ErrorSample((unwritten((2,), dtypes.bool_),) * 3, {}, NotImplementedError, "expected numbers, got booleans")


def addcdiv_errors(device: Device) -> Iterator[ErrorSample]:
    yield from three_errors(device)
    yield ErrorSample((unwritten((2,), dtypes.int64),) * 3, {}, RuntimeError, "expected a floating quotient")


def row(name: str, samples: Callable, errors: Callable, reference: Callable | None, accepted: tuple[DType, ...], **more: Any) -> OpInfo:
    return OpInfo(symbol_for(name), samples, errors, reference, accepted, **{"extremes": EXTREMES, **more})


OPINFOS += [
    row(name, partial(unary_samples, domain), partial(unary_errors, accepted, refusal(name)), fn, accepted, domain=domain, grad=True)
    for name, (fn, accepted, domain) in UNARY.items()
]
OPINFOS += [
    row(
        name,
        partial(two_samples, domain, **how),
        partial(pair_errors, accepted, refusal(name)),
        fn,
        accepted,
        domain=domain,
        integers=INTEGERS.get(name, EVERYWHERE),
        grad=True,
    )
    for name, (fn, accepted, domain, how) in BINARY.items()
]
OPINFOS += [
    row(name, partial(division_samples, numbers), partial(pair_errors, ROUNDED, NotImplementedError), fn, ROUNDED, domain=(1, inf), grad=grad)
    for name, (fn, grad, numbers) in DIVISIONS.items()
]
OPINFOS += [
    row(
        "torch.frexp",
        partial(unary_samples, EVERYWHERE),
        partial(unary_errors, FLOATS, RuntimeError),
        by_numpy(np_frexp),
        FLOATS,
        grad=True,
        extremes=("large",),  # C leaves the exponents of infinities and NaN open
    ),
    row("torch.add", sum_samples, partial(sum_errors, ANY), summed(1), ANY, grad=True),
    row("torch.sub", sum_samples, partial(sum_errors, NUMBERS), summed(-1), NUMBERS, grad=True),
    row("torch.rsub", sum_samples, partial(sum_errors, NUMBERS), summed(-1, swapped=True), NUMBERS, grad=True),
    row("torch.div", div_samples, div_errors, by_numpy(np_div), ANY, grad=True, domain=(0.5, inf)),
    row("torch.Tensor.__rdiv__", reversed_samples, reversed_errors, two(lambda a, b: b / a), ANY, grad=True, domain=(0.5, inf)),
    row("torch.pow", pow_samples, pow_errors, exact(np.power), NUMBERS, grad=True, domain=(0, inf)),
    row("torch.round", round_samples, round_errors, by_numpy(lambda x, decimals=0: np.round(x, decimals)), ROUNDED, grad=True),
    row("torch.lerp", lerp_samples, lerp_errors, by_numpy(np_lerp), INEXACT, grad=True),
    row("torch.addcmul", partial(three_samples, None), addcmul_errors, by_numpy(np_addcmul), NUMBERS, grad=True),
    row("torch.addcdiv", partial(three_samples, 0.5), addcdiv_errors, by_numpy(np_addcdiv), INEXACT, grad=True),
]
