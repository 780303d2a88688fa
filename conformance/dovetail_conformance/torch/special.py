"""Special functions of each element: error and gamma functions, entropy, stable sums of exponentials.  SciPy is their reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np
import scipy.special

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail_conformance.opinfo import ANY, BOOLS, EXTREMES, FLOATS, FULL_FLOATS, INTS, OPINFOS, ErrorSample, Maker, SampleInput, unwritten
from dovetail_conformance.torch.elementwise import (
    EVERYWHERE,
    INEXACT,
    REAL,
    inexact,
    layouts,
    pair_errors,
    row,
    two,
    two_samples,
    unary_errors,
    unary_samples,
)


def np_sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def np_logaddexp(a: Any, b: Any) -> Any:
    if not (np.iscomplexobj(a) or np.iscomplexobj(b)):
        return np.logaddexp(a, b)
    first = a.real >= b.real
    large, small = np.where(first, a, b), np.where(first, b, a)
    return large + np.log1p(np.exp(small - large))


# torch's name: (reference, dtypes, domain)
UNARY: dict[str, tuple[Callable, tuple[DType, ...], tuple[float, float]]] = {
    "torch.sigmoid": (np_sigmoid, ANY, EVERYWHERE),
    "torch.sinc": (np.sinc, ANY, EVERYWHERE),
    "torch.erf": (scipy.special.erf, REAL, EVERYWHERE),
    "torch.erfc": (scipy.special.erfc, REAL, EVERYWHERE),
    "torch.erfinv": (scipy.special.erfinv, REAL, (-0.9, 0.9)),
    "torch.special.ndtr": (scipy.special.ndtr, REAL, EVERYWHERE),
    "torch.special.ndtri": (scipy.special.ndtri, BOOLS + INTS + FULL_FLOATS, (0.1, 0.9)),
    "torch.special.entr": (scipy.special.entr, REAL, (0.1, inf)),
    "torch.lgamma": (scipy.special.gammaln, REAL, (0.1, inf)),
    "torch.digamma": (scipy.special.psi, REAL, (0.1, inf)),
}

# torch's name: (reference, dtypes, domain, extremes, options of the samples)
BINARY: dict[str, tuple[Callable, tuple[DType, ...], tuple[float, float], tuple[str, ...], dict[str, Any]]] = {
    "torch.xlogy": (scipy.special.xlogy, REAL, (0.1, inf), EXTREMES, {"numbers": "either"}),
    "torch.special.xlog1py": (scipy.special.xlog1py, REAL, (0.1, inf), EXTREMES, {"numbers": "either"}),
    "torch.logaddexp": (np_logaddexp, INEXACT, EVERYWHERE, EXTREMES, {}),
    "torch.logaddexp2": (np.logaddexp2, FLOATS, EVERYWHERE, EXTREMES, {}),
}


def zeta_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from two_samples((2, inf), dtype, device, numbers="either")


def logit_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from unary_samples((0.05, 0.95), dtype, device)
    x = Maker(dtype, device)(3, 4).t()
    yield SampleInput((x, 0.1))
    yield SampleInput((x,), {"eps": 0.3})


def logit_errors(device: Device) -> Iterator[ErrorSample]:
    yield from unary_errors(REAL, NotImplementedError, device)
    yield ErrorSample((unwritten((2,)), "0.1"), {}, TypeError, "must be float, not str")


def np_logit(x: Any, eps: float | None = None) -> Any:
    return scipy.special.logit(x if eps is None else np.clip(x, eps, 1 - eps))


def mvlgamma_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (2, inf))
    for x in layouts(make):
        yield SampleInput((x, 1 if x.ndim == 1 else 3))
    yield SampleInput((make(3),), {"p": 2})


def mvlgamma_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,)), 0), {}, RuntimeError, "p has to be greater than or equal to 1, got 0")
    yield ErrorSample((unwritten((2,), dtypes.bool_), 1), {}, RuntimeError, "may not be a boolean tensor")
    yield ErrorSample((unwritten((2,), dtypes.complex64), 1), {}, NotImplementedError, "expected a tensor of kind float")
    yield ErrorSample((unwritten((2,)), 1.5), {}, TypeError, "must be int, not float")


def np_mvlgamma(x: Any, p: int) -> Any:
    return scipy.special.multigammaln(x, p) if x.size else x


def polygamma_samples(method: bool, dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.5, inf))
    orders = ((x, 1) for x in layouts(make))
    for x, n in (*orders, *((make(3), n) for n in (0, 2, 4))):
        yield SampleInput((x, n) if method else (n, x))
    yield SampleInput((make(3),) if method else (), {"n": 3} if method else {"n": 3, "input": make(3)})


def polygamma_errors(method: bool, device: Device) -> Iterator[ErrorSample]:
    x, z = unwritten((2,)), unwritten((2,), dtypes.complex64)
    yield ErrorSample((x, -1) if method else (-1, x), {}, RuntimeError, "order that is not negative, got -1")
    yield ErrorSample((z, 1) if method else (1, z), {}, NotImplementedError, "expected a tensor of kind float")


def np_polygamma(x: Any, n: int) -> Any:
    return scipy.special.polygamma(n, x)


OPINFOS += [
    row(name, partial(unary_samples, domain), partial(unary_errors, accepted, NotImplementedError), inexact(fn), accepted, grad=True, domain=domain)
    for name, (fn, accepted, domain) in UNARY.items()
]
OPINFOS += [
    row(
        name,
        partial(two_samples, domain, **how),
        partial(pair_errors, accepted, NotImplementedError),
        two(fn),
        accepted,
        grad=True,
        domain=domain,
        extremes=extremes,
    )
    for name, (fn, accepted, domain, extremes, how) in BINARY.items()
]
OPINFOS += [
    row(
        "torch.special.zeta",
        zeta_samples,
        partial(pair_errors, REAL, NotImplementedError),
        two(scipy.special.zeta),
        BOOLS + INTS + FULL_FLOATS,
        domain=(2, inf),
        extremes=("large", "nan"),
    ),
    row("torch.logit", logit_samples, logit_errors, inexact(np_logit), REAL, grad=True, domain=(0.05, 0.95)),
    row("torch.mvlgamma", mvlgamma_samples, mvlgamma_errors, inexact(np_mvlgamma), INTS + FLOATS, grad=True, domain=(2, inf)),
    row(
        "torch.polygamma",
        partial(polygamma_samples, False),
        partial(polygamma_errors, False),
        inexact(lambda n, input: np_polygamma(input, n)),
        REAL,
        grad=True,
        domain=(0.5, inf),
        extremes=("nan",),
    ),
    row(
        "torch.Tensor.polygamma",
        partial(polygamma_samples, True),
        partial(polygamma_errors, True),
        inexact(np_polygamma),
        REAL,
        grad=True,
        domain=(0.5, inf),
        extremes=("nan",),
    ),
]
