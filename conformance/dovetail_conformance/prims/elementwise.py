"""Elementwise prims: a table for those of one operand, a table for those of two, and the odd ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np
import scipy.special
import torch

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.prims import Symbol
from dovetail_conformance.opinfo import (
    ANY,
    BOOLS,
    COMPLEX,
    EXTREMES,
    FLOATS,
    FROM_TORCH,
    FULL_FLOATS,
    INEXACT,
    INTS,
    NUMBERS,
    OPINFOS,
    REAL,
    ROUNDED,
    TO_TORCH,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)

EVERYWHERE = (-inf, inf)


def refused(accepted: tuple[DType, ...]) -> tuple[DType, ...]:
    """List dtypes of the kinds that an operation does not take, and one for storage."""
    kinds = {d.kind for d in accepted}
    return (*(d for d in (dtypes.bool_, dtypes.int64, dtypes.float32, dtypes.complex64) if d.kind not in kinds), dtypes.float8_e5m2)


# symbol: (reference, dtypes, domain, whether it has a gradient)
UNARY: dict[Symbol, tuple[Callable | None, tuple[DType, ...], tuple[float, float], bool]] = {
    prims.neg: (np.negative, NUMBERS, EVERYWHERE, True),
    prims.abs: (np.abs, NUMBERS, EVERYWHERE, True),
    prims.sign: (lambda x: x if x.dtype == bool else np.sign(x), ANY, EVERYWHERE, True),
    prims.signbit: (np.signbit, REAL, EVERYWHERE, False),
    prims.ceil: (np.ceil, ROUNDED, EVERYWHERE, True),
    prims.floor: (np.floor, ROUNDED, EVERYWHERE, True),
    prims.round: (np.round, ROUNDED, EVERYWHERE, True),
    prims.trunc: (np.trunc, ROUNDED, EVERYWHERE, True),
    prims.reciprocal: (np.reciprocal, INEXACT, (0.1, inf), True),
    prims.isnan: (np.isnan, ANY, EVERYWHERE, False),
    prims.isinf: (np.isinf, ANY, EVERYWHERE, False),
    prims.isfinite: (np.isfinite, ANY, EVERYWHERE, False),
    prims.bitwise_not: (np.invert, BOOLS + INTS, EVERYWHERE, False),
    prims.conj: (np.conj, COMPLEX, EVERYWHERE, True),
    prims.real: (np.real, COMPLEX, EVERYWHERE, True),
    prims.imag: (np.imag, COMPLEX, EVERYWHERE, True),
    prims.frexp: (np.frexp, FLOATS, EVERYWHERE, True),
    prims.sqrt: (np.sqrt, INEXACT, (0.01, inf), True),
    prims.rsqrt: (lambda x: 1 / np.sqrt(x), INEXACT, (0.1, inf), True),
    prims.exp: (np.exp, INEXACT, EVERYWHERE, True),
    prims.exp2: (lambda x: np.power(np.asarray(2, dtype=x.dtype), x), INEXACT, EVERYWHERE, True),
    prims.expm1: (np.expm1, INEXACT, EVERYWHERE, True),
    prims.log: (np.log, INEXACT, (0.1, inf), True),
    prims.log2: (np.log2, INEXACT, (0.1, inf), True),
    prims.log10: (np.log10, INEXACT, (0.1, inf), True),
    prims.log1p: (np.log1p, INEXACT, (-0.9, inf), True),
    prims.sin: (np.sin, INEXACT, EVERYWHERE, True),
    prims.cos: (np.cos, INEXACT, EVERYWHERE, True),
    prims.tan: (np.tan, INEXACT, (-1.3, 1.3), True),
    prims.asin: (np.arcsin, INEXACT, (-0.9, 0.9), True),
    prims.acos: (np.arccos, INEXACT, (-0.9, 0.9), True),
    prims.atan: (np.arctan, INEXACT, (-0.9, inf), True),
    prims.sinh: (np.sinh, INEXACT, EVERYWHERE, True),
    prims.cosh: (np.cosh, INEXACT, EVERYWHERE, True),
    prims.tanh: (np.tanh, INEXACT, (-1.3, 1.3), True),
    prims.asinh: (np.arcsinh, INEXACT, (-0.9, inf), True),
    prims.acosh: (np.arccosh, INEXACT, (1.1, inf), True),
    prims.atanh: (np.arctanh, INEXACT, (-0.9, 0.9), True),
    prims.sigmoid: (lambda x: 1 / (1 + np.exp(-x)), INEXACT, EVERYWHERE, True),
    prims.erf: (scipy.special.erf, FLOATS, EVERYWHERE, True),
    prims.erfc: (scipy.special.erfc, FLOATS, EVERYWHERE, True),
    prims.erfinv: (scipy.special.erfinv, FLOATS, (-0.9, 0.9), True),
    prims.ndtri: (scipy.special.ndtri, FULL_FLOATS, (0.1, 0.9), True),
    prims.lgamma: (scipy.special.gammaln, FLOATS, (0.1, inf), True),
    prims.digamma: (scipy.special.psi, FLOATS, (0.1, inf), True),
}

# symbol: (reference, dtypes, domain, whether it has a gradient)
BINARY: dict[Symbol, tuple[Callable | None, tuple[DType, ...], tuple[float, float], bool]] = {
    prims.add: (np.add, ANY, EVERYWHERE, True),
    prims.sub: (np.subtract, NUMBERS, EVERYWHERE, True),
    prims.mul: (np.multiply, ANY, EVERYWHERE, True),
    prims.div: (np.divide, INEXACT, (0.5, inf), True),
    prims.floordiv: (np.floor_divide, ROUNDED, (1, inf), True),
    prims.truncdiv: (lambda a, b: np.trunc(np.divide(a, b)), INTS, (1, inf), False),
    prims.remainder: (np.remainder, ROUNDED, (1, inf), True),
    prims.fmod: (np.fmod, ROUNDED, (1, inf), True),
    prims.pow: (np.power, NUMBERS, (0.5, 3), True),
    prims.atan2: (np.arctan2, FLOATS, EVERYWHERE, True),
    prims.maximum: (np.maximum, REAL, EVERYWHERE, True),
    prims.minimum: (np.minimum, REAL, EVERYWHERE, True),
    prims.nextafter: (np.nextafter, FULL_FLOATS, EVERYWHERE, True),
    prims.copysign: (np.copysign, FLOATS, EVERYWHERE, True),
    prims.zeta: (scipy.special.zeta, FULL_FLOATS, (1.5, inf), False),
    prims.bitwise_and: (np.bitwise_and, BOOLS + INTS, EVERYWHERE, False),
    prims.bitwise_or: (np.bitwise_or, BOOLS + INTS, EVERYWHERE, False),
    prims.bitwise_xor: (np.bitwise_xor, BOOLS + INTS, EVERYWHERE, False),
    prims.bitwise_left_shift: (np.left_shift, INTS, (0, 3), False),
    prims.bitwise_right_shift: (np.right_shift, INTS, (0, 3), False),
    prims.eq: (np.equal, ANY, EVERYWHERE, False),
    prims.ne: (np.not_equal, ANY, EVERYWHERE, False),
    prims.lt: (np.less, REAL, EVERYWHERE, False),
    prims.le: (np.less_equal, REAL, EVERYWHERE, False),
    prims.gt: (np.greater, REAL, EVERYWHERE, False),
    prims.ge: (np.greater_equal, REAL, EVERYWHERE, False),
    prims.complex: (lambda a, b: a + 1j * np.asarray(b), FULL_FLOATS, EVERYWHERE, True),
}


def unary_samples(domain: tuple[float, float], dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device, domain).layouts():
        yield SampleInput((x,))


def kind_errors(accepted: tuple[DType, ...], operands: int, device: Device) -> Iterator[ErrorSample]:
    for dtype in refused(accepted):
        yield ErrorSample((unwritten((2,), dtype),) * operands, {}, NotImplementedError, "expected a tensor of kind .*convert it first")


def number(dtype: DType, value: int) -> Any:
    """Make a Python number of the dtype's kind."""
    return {"bool": bool, "int": int, "float": float, "complex": complex}[dtype.kind](value)


def binary_samples(domain: tuple[float, float], dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, domain)
    for x in make.layouts():
        yield SampleInput((x, make(*x.shape)))
        yield SampleInput((make(*x.shape), x))
    x, y = make(3, 4).t(), make(4, 6)[:, ::2]
    yield SampleInput((x, y))
    yield SampleInput((y, x))
    for value in (2, 1):
        yield SampleInput((x, number(dtype, value)))
        yield SampleInput((number(dtype, value), y))
        yield SampleInput((number(dtype, value), x))
    yield SampleInput((make(), number(dtype, 2)))


def binary_errors(accepted: tuple[DType, ...], device: Device) -> Iterator[ErrorSample]:
    yield from kind_errors(accepted, 2, device)
    dtype, other = accepted[0], accepted[1]
    yield ErrorSample((unwritten((2, 3), dtype), unwritten((3,), dtype)), {}, RuntimeError, "expected operands of equal shape")
    yield ErrorSample((unwritten((2,), dtype), unwritten((2,), other)), {}, RuntimeError, "expected operands of equal shape")
    yield ErrorSample((number(dtype, 1), number(dtype, 1)), {}, TypeError, "expected a tensor among")
    yield ErrorSample((unwritten((2,), dtype), "1"), {}, TypeError, "expected a tensor or a Python number, got str")
    if dtype.kind != "complex":
        yield ErrorSample((unwritten((2,), dtype), 1j), {}, RuntimeError, f"expected a number of kind {dtype.kind}")


def where_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in make.layouts():
        yield SampleInput((make(*x.shape, dtype=dtypes.bool_), x, make(*x.shape)))
    condition = make(3, 4, dtype=dtypes.bool_).t()
    yield SampleInput((condition, make(4, 3), number(dtype, 1)))
    yield SampleInput((condition, number(dtype, 1), make(3, 4).t()))


def where_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2,))
    yield ErrorSample((x, x, x), {}, RuntimeError, "expected a boolean condition")
    yield ErrorSample((unwritten((3,), dtypes.bool_), x, x), {}, RuntimeError, r"expected a condition of shape \(2,\)")
    yield ErrorSample((unwritten((2,), dtypes.bool_), 1.0, 2.0), {}, TypeError, "expected a tensor among")


def polygamma_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device, (0.5, inf)).layouts():
        for n in (0, 1, 3):
            yield SampleInput((x,), {"n": n})


def polygamma_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,)),), {"n": -1}, RuntimeError, "order that is not negative")
    yield ErrorSample((unwritten((2,), dtypes.int64),), {"n": 1}, NotImplementedError, "expected a tensor of kind float")


def np_polygamma(x: np.ndarray, n: int) -> np.ndarray:
    return scipy.special.polygamma(n, x)


def convert_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device, (0, inf)).layouts():
        for to in (dtypes.float64, dtypes.int32, dtypes.bool_, dtypes.complex64, dtype):
            if dtype.kind != "complex" or to.kind == "complex":
                yield SampleInput((x,), {"dtype": to})
    if dtype.kind != "complex":
        yield SampleInput((Maker(dtype, device)(3, 4).t(),), {"dtype": dtypes.float8_e5m2})


def convert_reference(x: torch.Tensor, *, dtype: DType) -> torch.Tensor:
    return x.to(TO_TORCH[dtype])


SAME_SIZE = {1: dtypes.uint8, 2: dtypes.float16, 4: dtypes.int32, 8: dtypes.float64, 16: dtypes.complex128}


def bitcast_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device).layouts():
        yield SampleInput((x,), {"dtype": SAME_SIZE[dtype.bytes]})
    make = Maker(dtype, device)
    yield SampleInput((make(3, 16),), {"dtype": dtypes.complex128})
    yield SampleInput((make(2, 5, 3).transpose(0, 1),), {"dtype": dtypes.uint8})


def bitcast_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)),), {"dtype": dtypes.int64}, RuntimeError, r"self.size\(-1\) must be divisible by 2")
    yield ErrorSample((unwritten(()),), {"dtype": dtypes.uint8}, RuntimeError, r"self.dim\(\) cannot be 0")


def bitcast_reference(x: torch.Tensor, *, dtype: DType) -> torch.Tensor:
    bits = x.contiguous().numpy() if FROM_TORCH[x.dtype] is not dtypes.bfloat16 else x.contiguous().view(torch.int16).numpy()
    shape = x.shape if x.dtype.itemsize == dtype.bytes else (*x.shape[:-1], -1)
    return torch.frombuffer(bytearray(bits.tobytes()), dtype=TO_TORCH[dtype]).reshape(shape) if x.numel() else x.to(TO_TORCH[dtype])


SETTLED: dict[Symbol, tuple[str, ...]] = {  # the extremes of which the result is settled, where it is not that of all
    prims.frexp: ("large",),  # C leaves the exponents of infinities and NaN open
    prims.zeta: ("large", "nan"),
}

OPINFOS += [
    OpInfo(
        symbol,
        partial(unary_samples, domain),
        partial(kind_errors, accepted, 1),
        by_numpy(fn),
        accepted,
        grad,
        domain,
        extremes=SETTLED.get(symbol, EXTREMES),
    )
    for symbol, (fn, accepted, domain, grad) in UNARY.items()
]
OPINFOS += [
    OpInfo(
        symbol,
        partial(binary_samples, domain),
        partial(binary_errors, accepted),
        by_numpy(fn),
        accepted,
        grad,
        domain,
        extremes=SETTLED.get(symbol, EXTREMES),
    )
    for symbol, (fn, accepted, domain, grad) in BINARY.items()
]
OPINFOS += [
    OpInfo(prims.where, where_samples, where_errors, by_numpy(np.where), ANY, grad=True, extremes=EXTREMES),
    OpInfo(prims.polygamma, polygamma_samples, polygamma_errors, by_numpy(np_polygamma), FLOATS, grad=True, extremes=("nan",)),
    OpInfo(
        prims.convert_element_type,
        convert_samples,
        reference=convert_reference,
        dtypes=(*ANY, dtypes.float8_e5m2),
        grad=True,
        extremes=("large",),  # no integer stands for an infinity
    ),
    OpInfo(prims.bitcast, bitcast_samples, bitcast_errors, bitcast_reference, ANY, extremes=EXTREMES),
]
