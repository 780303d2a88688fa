"""Losses: a table for those of an input and a target of its shape, and those of more tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf, log, pi
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import BOOLS, COMPLEX, EXTREMES, FLOATS, INTS, OPINFOS, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, unwritten

REDUCTIONS = ("mean", "sum", "none")
FLAGS = ({"size_average": False}, {"reduce": False})  # what a reduction used to be
ANYWHERE, PROBABILITY, POSITIVE, SIGN = (-inf, inf), (0.05, 0.95), (0.1, inf), None


def shapes(make: Maker) -> Iterator[Tensor]:
    """Row-major, transposed, with gaps, expanded, of no dimensions, of one element, of none."""
    yield make(3, 4)
    yield make(4, 3).t()
    yield make(2, 3, 4)[..., ::2]
    yield make(3, 1).expand(3, 4)
    yield make()
    yield make(1)
    yield make(2, 0)


def targets(domain: tuple[float, float] | None, dtype: DType, device: Device) -> Callable[..., Tensor]:
    """Return a function that makes targets in `domain`, or 1 and -1."""
    make = Maker(dtype, device, domain or ANYWHERE)
    if domain is not None:
        return make
    return lambda *shape: (make.index(2, *shape) * 2 - 1).to(make(1).dtype)


def named(make: Maker, options: dict[str, Any]) -> dict[str, Any]:
    """`options` with a tensor in the place of each shape, which none of the tensors is differentiated by."""
    return {key: make(*value, low=0.5, high=2) if isinstance(value, tuple) else value for key, value in options.items()}


def fixed(args: tuple, kwargs: dict[str, Any], domain: tuple | None) -> SampleInput:
    """Make a sample that marks what eager gives no gradient: weights, and of the loss by signs the targets, and whatever is complex."""
    signs = args if args[0].is_complex() else args[1:]
    return SampleInput(args, kwargs, (*(value for key, value in kwargs.items() if "weight" in key), *(signs if domain is SIGN else ())))


def pair_samples(
    domains: tuple[tuple[float, float], tuple[float, float] | None], options: tuple[dict, ...], broadcasts: bool, dtype: DType, device: Device
) -> Iterator[SampleInput]:
    """(input, target): the shapes with the reductions by turns, then `options`."""
    make, target = Maker(dtype, device, domains[0]), targets(domains[1], dtype, device)
    for i, x in enumerate(shapes(make)):
        yield fixed((x, target(*x.shape)), {"reduction": REDUCTIONS[i % 3]}, domains[1])
    for keywords in options:
        yield fixed((make(3, 4), target(3, 4)), named(make, keywords), domains[1])
    if broadcasts:
        yield SampleInput((make(3, 1), target(2, 1, 4)))
    if domains != (PROBABILITY, PROBABILITY) and dtype.kind != "complex":  # binary_cross_entropy alone wants one dtype
        yield fixed((make(3, 4), target(3, 4).to(torch.float64)), {}, domains[1])


def pair_errors(ints: bool, device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, x), {"reduction": "average"}, ValueError, "reduction 'none', 'mean' or 'sum', got 'average'")
    yield ErrorSample((x, 1.0), {}, (TypeError, AttributeError), "must be|no attribute")
    if not ints:
        yield ErrorSample((unwritten((2,), dtypes.int64),) * 2, {}, RuntimeError, "expected floating")


def broadcast_errors(ints: bool, device: Device) -> Iterator[ErrorSample]:
    yield from pair_errors(ints, device)
    yield ErrorSample((unwritten((2, 3)), unwritten((2,))), {}, RuntimeError, "size|shape|broadcast")


def weighted_errors(ints: bool, device: Device) -> Iterator[ErrorSample]:
    yield from broadcast_errors(ints, device)
    yield ErrorSample((unwritten((2, 3)),) * 2, {"weight": unwritten((3,))}, ValueError, "Weights and input must have the same size")


def bound_errors(option: str, value: float, message: str, device: Device) -> Iterator[ErrorSample]:
    yield from broadcast_errors(False, device)
    yield ErrorSample((unwritten((2,)),) * 2, {option: value}, RuntimeError, message)


def entropy_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, x), {"reduction": "average"}, ValueError, "reduction 'none', 'mean' or 'sum', got 'average'")
    yield ErrorSample((x, unwritten((2,))), {}, ValueError, "expected a target of the size of input")
    yield ErrorSample((x, unwritten((2, 3), dtypes.int64)), {}, RuntimeError, "dtype of input|can't be cast to the desired output type")


def np_reduced(loss: np.ndarray, how: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return loss if how == "none" else loss.sum() if how == "sum" else np.divide(loss.sum(), loss.size)


def reduces(fn: Callable, by_weight: bool = False) -> Callable:
    """Make a reference from the loss of each element; a mean divides by the sum of the weights where `by_weight`."""

    def reference(x: Any, y: Any, *rest: Any, reduction: str = "mean", size_average: Any = None, reduce: Any = None, **kwargs: Any) -> Any:
        how = "none" if reduce is False else "sum" if size_average is False else reduction
        weight = kwargs.pop("weight", None)
        with np.errstate(all="ignore"):
            loss = fn(x, y, *rest, **kwargs)
        if weight is None:
            return np_reduced(loss, how)
        return (loss * weight).sum() / weight.sum() if how == "mean" and by_weight else np_reduced(loss * weight, how)

    return by_numpy(reference)


def np_smooth(x: np.ndarray, y: np.ndarray, beta: float = 1.0) -> np.ndarray:
    d = np.abs(x - y)
    return np.where(d < beta, d * d / 2 / (beta or 1), d - beta / 2)


def np_huber(x: np.ndarray, y: np.ndarray, delta: float = 1.0) -> np.ndarray:
    d = np.abs(x - y)
    return np.where(d <= delta, d * d / 2, delta * (d - delta / 2))


def np_logits(x: np.ndarray, y: np.ndarray, pos_weight: Any = 1.0) -> np.ndarray:
    return (1 - y) * np.logaddexp(0, x) + pos_weight * y * np.logaddexp(0, -x)


def np_kl(x: np.ndarray, y: np.ndarray, log_target: bool = False) -> np.ndarray:
    return np.exp(y) * (y - x) if log_target else scipy.special.xlogy(y, y) - y * x


def np_poisson(x: np.ndarray, y: np.ndarray, log_input: bool = True, full: bool = False, eps: float = 1e-8) -> np.ndarray:
    x, y = (v if v.dtype.kind == "f" else v.astype(np.float64) for v in (x, y))
    loss = np.exp(x) - y * x if log_input else x - y * np.log(x + eps)
    many = np.where(y > 1, y, 2)
    return loss + np.where(y > 1, many * np.log(many) - many + np.log(2 * pi * many) / 2, 0) if full else loss


def batchmean(reference: Callable) -> Callable:
    """Divide the sum by the first size."""

    def divided(x: Tensor, y: Tensor, **kwargs: Any) -> Any:
        if kwargs.get("reduction") != "batchmean":
            return reference(x, y, **kwargs)
        return reference(x, y, **{**kwargs, "reduction": "sum"}) / x.shape[0]

    return divided


# name: (loss of each element, domains of input and target, options, error samples, whether the target broadcasts, dtypes)
PAIRS: dict[str, tuple[Callable, tuple, tuple[dict, ...], Callable, bool, tuple[DType, ...]]] = {
    "mse_loss": (
        reduces(lambda x, y: (x - y) ** 2, True),
        (ANYWHERE, ANYWHERE),
        ({"weight": (3, 4)}, {"weight": (3, 4), "reduction": "none"}, *FLAGS),
        partial(weighted_errors, False),
        True,
        FLOATS,
    ),
    "l1_loss": (
        reduces(lambda x, y: np.abs(x - y), True),
        (ANYWHERE, ANYWHERE),
        ({"weight": (3, 4)}, {"weight": (3, 4), "reduction": "sum"}, *FLAGS),
        partial(weighted_errors, True),
        True,
        FLOATS + COMPLEX,
    ),
    "smooth_l1_loss": (
        reduces(np_smooth),
        (ANYWHERE, ANYWHERE),
        ({"beta": 0.5}, {"beta": 0.0}, {"beta": 3.0, "reduction": "none"}, *FLAGS),
        partial(bound_errors, "beta", -1.0, "does not support negative values for beta"),
        True,
        FLOATS,
    ),
    "huber_loss": (
        reduces(np_huber),
        (ANYWHERE, ANYWHERE),
        ({"delta": 0.5}, {"weight": (3, 4)}, {"weight": (3, 4), "delta": 2.0, "reduction": "none"}),
        partial(bound_errors, "delta", 0.0, "does not support non-positive values for delta"),
        True,
        FLOATS,
    ),
    "binary_cross_entropy": (
        reduces(lambda x, y: -(y * np.log(x) + (1 - y) * np.log1p(-x))),
        (PROBABILITY, PROBABILITY),
        ({"weight": (3, 4)}, {"weight": (3, 4), "reduction": "none"}, *FLAGS),
        entropy_errors,
        False,
        FLOATS,
    ),
    "binary_cross_entropy_with_logits": (
        reduces(np_logits),
        (ANYWHERE, PROBABILITY),
        ({"weight": (3, 4)}, {"pos_weight": (4,)}, {"weight": (4,), "pos_weight": (3, 4), "reduction": "none"}, *FLAGS),
        entropy_errors,
        False,
        FLOATS,
    ),
    "kl_div": (
        batchmean(reduces(np_kl)),
        (ANYWHERE, POSITIVE),
        (
            *({"reduction": "batchmean"}, {"log_target": True}, {"log_target": True, "reduction": "none"}, *FLAGS),
            {"size_average": False, "reduction": "batchmean"},
        ),
        partial(broadcast_errors, False),
        True,
        FLOATS,
    ),
    "soft_margin_loss": (
        reduces(lambda x, y: np.log1p(np.exp(-y * x))),
        (ANYWHERE, SIGN),
        FLAGS,
        partial(broadcast_errors, False),
        False,
        FLOATS + COMPLEX,
    ),
    "hinge_embedding_loss": (
        reduces(lambda x, y, margin=1.0: np.where(y == 1, x, np.maximum(0, margin - x))),
        (ANYWHERE, SIGN),
        ({"margin": 0.5}, {"margin": 2.0, "reduction": "none"}, *FLAGS),
        partial(pair_errors, False),
        False,
        FLOATS,
    ),
    "poisson_nll_loss": (
        reduces(np_poisson),
        (POSITIVE, (0.1, inf)),
        ({"log_input": False}, {"full": True}, {"log_input": False, "full": True, "eps": 0.1, "reduction": "none"}, *FLAGS),
        partial(broadcast_errors, True),
        True,
        INTS + FLOATS,
    ),
}


def ranking_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make, sign = Maker(dtype, device), targets(SIGN, dtype, device)
    for i, x in enumerate(shapes(make)):
        yield SampleInput((x, make(*x.shape), sign(*x.shape)), {"reduction": REDUCTIONS[i % 3]})
    for options in ({"margin": 0.5}, {"margin": -0.5, "reduction": "none"}, {"size_average": False}, {"reduce": False}):
        yield SampleInput((make(3, 4), make(3, 4), sign(3, 4)), options)
    yield SampleInput((make(3, 1), make(1, 4, dtype=dtypes.float64), targets(SIGN, dtypes.int64, device)(3, 4)))


def cosine_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make, sign = Maker(dtype, device), targets(SIGN, dtype, device)
    for i, x in enumerate((make(3, 4), make(4, 3).t(), make(3, 8)[:, ::2], make(3, 1).expand(3, 4), make(1, 2))):
        yield SampleInput((x, make(*x.shape), sign(x.shape[0])), {"reduction": REDUCTIONS[i % 3]})
    for options in ({"margin": 0.5}, {"margin": -0.5, "reduction": "none"}, {"size_average": False}, {"reduce": False}):
        yield SampleInput((make(3, 4), make(3, 4), sign(3)), options)
    yield SampleInput((make(4), make(4), sign()))
    yield SampleInput((make(3, 4), make(3, 4, dtype=dtypes.float32), targets(SIGN, dtypes.float64, device)(3)))


def gaussian_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make, positive = Maker(dtype, device), partial(Maker(dtype, device), low=0.5, high=3)
    for i, x in enumerate(shapes(make)):
        yield SampleInput((x, make(*x.shape), positive(*x.shape)), {"reduction": REDUCTIONS[i % 3]})
    x, y = make(3, 4), make(3, 4)
    yield SampleInput((x, y, positive(3, 1)), {"full": True})
    yield SampleInput((x, y, positive(3)), {"eps": 1.5, "reduction": "none"})
    yield SampleInput((x, y, 2.0))
    yield SampleInput((x, make(3, 1), positive(3, 4)), {"full": True, "reduction": "none"})


def triplet_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for i, x in enumerate((make(3, 4), make(4, 3).t(), make(3, 8)[:, ::2], make(3, 1).expand(3, 4), make(2), make(2, 0))):
        yield SampleInput((x, make(*x.shape), make(*x.shape)), {"reduction": REDUCTIONS[i % 3]})
    for options in ({"p": 1.0}, {"p": 3.0, "margin": 2.0}, {"swap": True, "reduction": "none"}, {"eps": 0.1, "p": inf}):
        yield SampleInput((make(3, 4), make(3, 4), make(3, 4)), options)
    for options in ({"size_average": False}, {"reduce": False}):
        yield SampleInput((make(2, 3, 4), make(2, 3, 4), make(3, 4)[None]), options)


def ranking_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, x, unwritten((3,))), {}, RuntimeError, "the same number of dimensions")
    yield ErrorSample((x, x, x), {"reduction": "average"}, ValueError, "got 'average'")


def cosine_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, x, x), {}, RuntimeError, "1D target with 2D inputs")
    yield ErrorSample((x, unwritten((2, 4)), unwritten((2,))), {}, RuntimeError, "size|shape|broadcast")
    yield ErrorSample((x, x, unwritten((2,))), {"reduction": "average"}, ValueError, "got 'average'")


def gaussian_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, x, -1.0), {}, ValueError, "var has negative")
    yield ErrorSample((x, x, unwritten((3,))), {}, ValueError, "var is of incorrect size")
    yield ErrorSample((x, x, unwritten((2, 3), dtypes.int64)), {}, RuntimeError, "expected a floating var")
    yield ErrorSample((x, x, x), {"reduction": "average"}, ValueError, "average")


def triplet_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, x, x), {"margin": 0.0}, ValueError, "margin must be greater than 0")
    yield ErrorSample((x, x, unwritten((3,))), {}, RuntimeError, "the same number of dimensions")
    yield ErrorSample((x, x, unwritten((2, 4))), {}, RuntimeError, "size|shape|broadcast")


def np_cosine_embedding(a: np.ndarray, b: np.ndarray, y: np.ndarray, margin: float = 0.0) -> np.ndarray:
    cosine = (a * b).sum(-1) / np.sqrt(((a * a).sum(-1) + 1e-12) * ((b * b).sum(-1) + 1e-12))
    return np.where(y == 1, 1 - cosine, np.maximum(0, cosine - margin))


def np_gaussian(x: np.ndarray, y: np.ndarray, var: Any, full: bool = False, eps: float = 1e-6) -> np.ndarray:
    var = np.maximum(var[..., None] if np.ndim(var) and np.ndim(var) < x.ndim else var, eps)
    return (np.log(var) + (x - y) ** 2 / var + (log(2 * pi) if full else 0)) / 2


def np_triplet(
    a: np.ndarray, near: np.ndarray, far: np.ndarray, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False
) -> np.ndarray:
    def apart(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        d = np.abs(u - v + eps)
        return d.max(-1) if p == inf else (d**p).sum(-1) ** (1 / p)

    away = np.minimum(apart(a, far), apart(near, far)) if swap else apart(a, far)
    return np.maximum(0, margin + apart(a, near) - away)


def np_ranking(a: np.ndarray, b: np.ndarray, y: np.ndarray, margin: float = 0.0) -> np.ndarray:
    return np.maximum(0, -y * (a - b) + margin)


# name: (samples, error samples, loss of each element, dtypes)
OTHERS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...]]] = {
    "margin_ranking_loss": (ranking_samples, ranking_errors, np_ranking, INTS + FLOATS),
    "cosine_embedding_loss": (cosine_samples, cosine_errors, np_cosine_embedding, BOOLS + INTS + FLOATS),
    "gaussian_nll_loss": (gaussian_samples, gaussian_errors, np_gaussian, FLOATS),
    "triplet_margin_loss": (triplet_samples, triplet_errors, np_triplet, INTS + FLOATS + COMPLEX),
}


# Those that stay finite where eager's halves, or its powers, overflow on the way.
SAFER = {
    "binary_cross_entropy_with_logits",
    "kl_div",
    "soft_margin_loss",
    "hinge_embedding_loss",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "triplet_margin_loss",
}


# Those of which eager looks at the values, and refuses some: a program cannot, as the torch language says of each.
CHECKED: dict[str, tuple[str, ...]] = {"binary_cross_entropy": (), "gaussian_nll_loss": ("nan",)}


def info(name: str, samples: Callable, errors: Callable, reference: Callable, accepted: tuple[DType, ...]) -> OpInfo:
    extremes = CHECKED.get(name, ("inf", "nan") if name in SAFER else EXTREMES)
    return OpInfo(symbol_for(f"torch.nn.functional.{name}"), samples, errors, reference, accepted, True, extremes=extremes)


OPINFOS += [
    info(name, partial(pair_samples, domains, options, broadcasts), errors, reference, accepted)
    for name, (reference, domains, options, errors, broadcasts, accepted) in PAIRS.items()
]
OPINFOS += [info(name, samples, errors, reduces(fn), accepted) for name, (samples, errors, fn, accepted) in OTHERS.items()]
