"""Activations: functions of each element that networks put between layers, and softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.special
import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.torch_internals import clamp_saturates
from dovetail_conformance.opinfo import (
    COMPLEX,
    EXTREMES,
    FLOATS,
    OPINFOS,
    TO_TORCH,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    refused_rows,
    unwritten,
)
from dovetail_conformance.torch.elementwise import NO_COMPLEX_GRADIENT, ROUNDED, layouts, row, unary_errors
from dovetail_conformance.torch.special import np_sigmoid


def samples_of(options: tuple[dict[str, Any], ...], in_place: bool, dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield each layout, each of the options, and, where there is such an option, a call that writes its result into the argument."""
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x,))
    for more in options:
        yield SampleInput((make(3, 4).t(),), more)
    if in_place:
        yield SampleInput((make(4, 3),), {**(options[0] if options else {}), "inplace": True})


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta)


def elu(x: Any, alpha: float = 1.0, scale: float = 1.0, per: float = 1.0) -> Any:
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / per))


def selu(x: Any) -> Any:
    return elu(x, 1.6732632423543772, 1.0507009873554805)


def leaky(x: Any, slope: float = 0.01) -> Any:
    return np.where(x > 0, x, x * slope)


def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x * scipy.special.ndtr(x)


def hardsigmoid(x: Any) -> Any:
    return np.clip(x / 6 + 0.5, 0, 1)


def hardshrink(x: Any, lambd: float = 0.5) -> Any:
    return np.where(np.abs(x) > lambd, x, 0)


def softshrink(x: Any, lambd: float = 0.5) -> Any:
    return np.sign(x) * np.maximum(np.abs(x) - lambd, 0)


# name in torch.nn.functional: (reference, dtypes, options, whether it can write its argument, calls that it refuses)
TABLE: dict[str, tuple[Callable, tuple[DType, ...], tuple[dict[str, Any], ...], bool, tuple[tuple, ...]]] = {
    "relu": (relu, ROUNDED, (), True, ()),
    "relu6": (lambda x: np.clip(x, 0, 6), ROUNDED, (), True, ()),
    "elu": (lambda x, alpha=1.0: elu(x, alpha), FLOATS, ({"alpha": 0.5}, {"alpha": -1.5}), True, ()),
    "selu": (selu, FLOATS, (), True, ()),
    "celu": (
        lambda x, alpha=1.0: elu(x, alpha, per=alpha),
        FLOATS,
        ({"alpha": 0.5}, {"alpha": 2.0}),
        True,
        (((2,), {"alpha": 0.0}, RuntimeError, "expected an alpha that is not 0"),),
    ),
    "leaky_relu": (lambda x, negative_slope=0.01: leaky(x, negative_slope), FLOATS, ({"negative_slope": 0.3}, {"negative_slope": 0}), True, ()),
    "rrelu": (
        lambda x, lower=1 / 8, upper=1 / 3: leaky(x, (lower + upper) / 2),
        FLOATS,
        ({"lower": 0.1, "upper": 0.5},),
        True,
        (((2,), 0.5, 0.1, RuntimeError, "expected lower no greater than upper, got 0.5 and 0.1"),),
    ),
    "gelu": (
        gelu,
        FLOATS,
        ({"approximate": "tanh"}, {"approximate": "none"}),
        False,
        (((2,), {"approximate": "erf"}, RuntimeError, "approximate argument must be either none or tanh, got 'erf'"),),
    ),
    "silu": (lambda x: x * np_sigmoid(x), FLOATS + COMPLEX, (), True, ()),
    "mish": (lambda x: x * np.tanh(softplus(x)), FLOATS, (), True, ()),
    "softplus": (softplus, FLOATS, ({"beta": 2.0}, {"beta": 0.5, "threshold": 1.0}, {"threshold": 0}), False, ()),
    "logsigmoid": (lambda x: -np.logaddexp(0, -x), FLOATS, (), False, ()),
    "hardsigmoid": (hardsigmoid, FLOATS, (), True, ()),
    "hardswish": (lambda x: x * hardsigmoid(x), FLOATS, (), True, ()),
    "hardshrink": (hardshrink, FLOATS, ({"lambd": 1.5}, {"lambd": 0}), False, ()),
    "softshrink": (
        softshrink,
        FLOATS,
        ({"lambd": 1.5}, {"lambd": 0}),
        False,
        (((2,), -1.0, RuntimeError, "lambda must be greater or equal to 0, but found to be -1.0"),),
    ),
}


def errors_of(accepted: tuple[DType, ...], rows: tuple[tuple, ...], device: Device) -> Iterator[ErrorSample]:
    yield from unary_errors(accepted, RuntimeError if accepted is ROUNDED else NotImplementedError, device)
    yield from refused_rows(rows, device)


def in_place_and_not(fn: Callable) -> Callable:
    """`fn` of NumPy arrays, which does not write into its argument, as a reference of calls that may."""
    return by_numpy(lambda x, *args, inplace=False, **kwargs: fn(x, *args, **kwargs))


def hardtanh_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the usual samples; those of an unsigned integer have bounds from 0 on."""
    make = Maker(dtype, device)
    low = {} if dtype.signed else {"min_val": 0}
    for x in layouts(make):
        yield SampleInput((x,), low)
    yield SampleInput((make(3, 4).t(), 1, 2.5 if dtype.inexact else 2))
    yield SampleInput((make(4, 3),), {"min_val": 0, "max_val": 2, "inplace": True})


def hardtanh_errors(device: Device) -> Iterator[ErrorSample]:
    yield from errors_of(ROUNDED, (((2,), 1.0, -1.0, ValueError, "expected min_val no greater than max_val, got 1.0 and -1.0"),), device)
    if not clamp_saturates():
        yield ErrorSample((unwritten((2,), dtypes.uint8),), {}, RuntimeError, "cannot bound an unsigned type below by -1.0")


def np_hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return np.clip(x, min_val, max_val)


def threshold_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x, 1, 2))
    yield SampleInput((make(3, 4).t(),), {"threshold": 0.5, "value": 2.5})
    yield SampleInput((make(4, 3), 1, 2, True))


def threshold_errors(device: Device) -> Iterator[ErrorSample]:
    for dtype in (dtypes.bool_, dtypes.complex64):
        yield ErrorSample((unwritten((2,), dtype), 1, 1), {}, NotImplementedError, "expected a tensor of kind float or int")
    yield ErrorSample((unwritten((2,)), "1", 1), {}, TypeError, "must be Number, not str")


def np_threshold(x: Any, threshold: Any, value: Any, inplace: bool = False) -> Any:
    threshold, value = (np.asarray(v).astype(x.dtype) for v in (threshold, value))
    return np.where(x > threshold, x, value)


def prelu_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in layouts(make):
        yield SampleInput((x, make(1)))
    yield SampleInput((make(4, 3), make(3)))
    yield SampleInput((make(3, 4).t(), make()))
    yield SampleInput((make(2, 3, 2, 2),), {"weight": make(3)})
    yield SampleInput((make(2, 3, 4).transpose(0, 2), make(3)))
    yield SampleInput((make(0, 3), make(3)))


def prelu_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, unwritten((3,), dtypes.float64)), {}, RuntimeError, "expected a weight of dtype f32")
    yield ErrorSample((x, unwritten((2,))), {}, RuntimeError, "expected one weight for each of 3 channels")
    yield ErrorSample((x, unwritten((2, 3))), {}, RuntimeError, "expected a weight with at most one dimension")
    yield ErrorSample((unwritten(()), unwritten((2,))), {}, RuntimeError, "expected dimensions in input")
    yield ErrorSample((x, 0.5), {}, TypeError, "must be Tensor, not float")


def np_prelu(x: Any, weight: Any) -> Any:
    if weight.size > 1:
        weight = weight.reshape(-1, *[1] * (x.ndim - 2))
    return np.where(x > 0, x, x * weight.reshape(() if weight.size == 1 else weight.shape))


def glu_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in (make(2), make(0, 4), make(3, 0), make(3, 4), make(4, 6)[:, ::3], make(3, 1).expand(3, 4)):
        yield SampleInput((x,))
    yield SampleInput((make(3, 4).t(), 0))
    yield SampleInput((make(2, 4, 3).permute(2, 0, 1),), {"dim": 1})
    yield SampleInput((make(2, 4, 3),), {"dim": -2})


GLU_ERRORS = (
    ((), RuntimeError, "glu does not support 0-dimensional tensors"),
    ((3,), RuntimeError, "Halving dimension must be even, but dimension 0 is size 3"),
    ((2,), 1, IndexError, "Dimension out of range"),
    ((2,), "0", TypeError, "a dimension must be an int"),
)


def glu_errors(device: Device) -> Iterator[ErrorSample]:
    yield from refused_rows(GLU_ERRORS, device)
    yield ErrorSample((unwritten((2,), dtypes.int64),), {}, NotImplementedError, "expected a tensor of kind float")


def np_glu(x: Any, dim: int = -1) -> Any:
    a, b = np.split(x, 2, axis=dim)
    return a * np_sigmoid(b)


def softmax_samples(implicit: bool, dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield samples along the last dimension, along the first by name, in another dtype, and with `dim` left out where that is allowed."""
    make = Maker(dtype, device)
    for i, x in enumerate(layouts(make)):
        yield SampleInput((x,), {"dim": 0}) if i % 2 else SampleInput((x, -1))
    yield SampleInput((make(2, 3, 4), 1))
    yield SampleInput((make(4, 3), 1), {"dtype": torch.float64})
    yield SampleInput((make(4, 3, dtype=dtypes.int64), 0), {"dtype": TO_TORCH[dtype]})
    for shape in ((3,), (2, 3), (2, 3, 2)) if implicit else ():
        yield SampleInput((make(*shape),))


SOFTMAX_ERRORS = (
    ((2, 3), 2, IndexError, "Dimension out of range"),
    ((2, 3), "0", TypeError, "must be int, not str|a dimension must be an int"),
    ((2, 3), 0, {"dtype": torch.int64}, NotImplementedError, "expected a tensor of kind float"),
)


def softmax_errors(device: Device) -> Iterator[ErrorSample]:
    yield from refused_rows(SOFTMAX_ERRORS, device)
    for dtype in (dtypes.int64, dtypes.complex64):
        yield ErrorSample((unwritten((2,), dtype), 0), {}, NotImplementedError, "expected a tensor of kind float")


def softmax(fn: Callable) -> Callable:
    """Adapt a SciPy softmax to torch's arguments."""

    def reference(x: Any, dim: int | None = None, dtype: Any = None) -> Any:
        dim = (0 if x.ndim in (0, 1, 3) else 1) if dim is None else dim
        return fn(x.astype(np.float64), axis=dim) if x.ndim and x.size else np.exp(x * 0) if fn is scipy.special.softmax else x * 0

    return by_numpy(reference)


DEFINED = {"gelu": ("large", "nan")}  # eager's gelu of infinity is NaN or infinity, as the kernel has it


def activation(name: str) -> OpInfo:
    fn, accepted, options, in_place, rows = TABLE[name]
    errors, extremes = partial(errors_of, accepted, rows), DEFINED.get(name, EXTREMES)
    samples = partial(samples_of, options, in_place)
    directives = (NO_COMPLEX_GRADIENT,) if dtypes.complex64 in accepted else ()
    return row(f"torch.nn.functional.{name}", samples, errors, in_place_and_not(fn), accepted, grad=True, extremes=extremes, directives=directives)


OPINFOS += [activation(name) for name in TABLE]
OPINFOS += [
    row(name, partial(softmax_samples, ".functional." in name), softmax_errors, softmax(fn), FLOATS, grad=True)
    for name, fn in (
        ("torch.softmax", scipy.special.softmax),
        ("torch.log_softmax", scipy.special.log_softmax),
        ("torch.nn.functional.softmax", scipy.special.softmax),
        ("torch.nn.functional.log_softmax", scipy.special.log_softmax),
    )
]
OPINFOS += [
    row("torch.relu", partial(samples_of, (), False), partial(errors_of, ROUNDED, ()), by_numpy(relu), ROUNDED, grad=True),
    row("torch.nn.functional.hardtanh", hardtanh_samples, hardtanh_errors, by_numpy(np_hardtanh), ROUNDED, grad=True),
    row("torch.nn.functional.threshold", threshold_samples, threshold_errors, by_numpy(np_threshold), ROUNDED, grad=True),
    row("torch.nn.functional.prelu", prelu_samples, prelu_errors, by_numpy(np_prelu), FLOATS, grad=True),
    row("torch.nn.functional.glu", glu_samples, glu_errors, by_numpy(np_glu), FLOATS, grad=True),
]
