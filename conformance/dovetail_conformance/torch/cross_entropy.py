"""Losses by class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.special
import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import EXTREMES, FLOATS, OPINFOS, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, unwritten

# shape of the input, whose classes are its first dimension or its second, and what else is given
CASES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((5,), {}),
    ((3, 5), {"reduction": "sum"}),
    ((3, 5), {"weight": True}),
    ((3, 5), {"weight": True, "ignore_index": 2, "reduction": "none"}),
    ((4, 3), {"ignore_index": 1}),
    ((2, 3, 4), {"weight": True}),
    ((1, 1), {}),
    ((2, 3, 2, 2), {"reduction": "none"}),
    ((0, 3), {"reduction": "sum"}),
    ((3, 5), {"size_average": False}),
    ((3, 5), {"reduce": False}),
)


def class_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield targets that are classes; inputs by turns row-major and transposed."""
    make = Maker(dtype, device)
    for i, (shape, options) in enumerate(CASES):
        x = make(*shape) if i % 2 else make(*reversed(shape)).permute(*reversed(range(len(shape))))
        classes = shape[min(1, len(shape) - 1)]
        yield weighted(make, x, make.index(classes, *shape[:1][len(shape) == 1 :], *shape[2:]), classes, options)
    yield SampleInput((make(3, 10)[:, ::2], make.index(5, 3).to(torch.uint8)))


def weighted(make: Maker, x: torch.Tensor, target: torch.Tensor, classes: int, options: dict[str, Any]) -> SampleInput:
    """Make a sample with a weight for each class in the place of True, by which eager does not differentiate."""
    weight = make(classes, low=0.5, high=2)
    kwargs = {key: weight if key == "weight" else value for key, value in options.items()}
    return SampleInput((x, target), kwargs, (weight,) if "weight" in options else ())


def cross_entropy_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield classes, some of them smoothed, and probabilities."""
    for i, sample in enumerate(class_samples(dtype, device)):
        if i % 3 == 2:
            sample.kwargs["label_smoothing"] = 0.05 * i
        yield sample
    make = Maker(dtype, device)
    for shape, options in (((3, 5), {}), ((2, 3, 4), {"weight": True, "reduction": "sum"}), ((5,), {"label_smoothing": 0.5, "reduction": "none"})):
        yield weighted(make, make(*shape), make(*shape, low=0, high=1), shape[min(1, len(shape) - 1)], options)
    yield SampleInput((make(2, 3), make(2, 3, low=0, high=1, dtype=dtypes.float64)))


def class_errors(device: Device) -> Iterator[ErrorSample]:
    x, target = unwritten((3, 5)), unwritten((3,), dtypes.int64)
    yield ErrorSample((x, unwritten((2,), dtypes.int64)), {}, ValueError, r"Expected input batch_size \(3\) to match target batch_size \(2\)")
    yield ErrorSample((x, unwritten((3,))), {}, RuntimeError, "expected a target of class indices")
    yield ErrorSample((x, target), {"weight": unwritten((4,))}, RuntimeError, "weight tensor should be defined either for all 5 classes")
    yield ErrorSample((x, target), {"reduction": "average"}, ValueError, "got 'average'")


def cross_entropy_errors(device: Device) -> Iterator[ErrorSample]:
    yield from class_errors(device)
    x, target = unwritten((3, 5)), unwritten((3,), dtypes.int64)
    yield ErrorSample((x, target), {"label_smoothing": 1.5}, RuntimeError, "label_smoothing must be between 0.0 and 1.0")


def np_nll(
    x: np.ndarray, target: np.ndarray, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None, **more: Any
) -> np.ndarray:
    """-weight[target] * x[target], and with `label_smoothing` some of the mean over the classes."""
    smoothing, how = more.get("label_smoothing", 0.0), reduction(size_average, reduce, more)
    rows = np.moveaxis(x, 1, -1) if x.ndim > 1 else x
    target = target.astype(np.int64)
    scale = np.ones(rows.shape[-1]) if weight is None else weight
    counted = np.where(target == ignore_index, 0, scale[target])
    picked = -np.take_along_axis(rows, target[..., None], -1)[..., 0] * counted
    spread = np.where(target == ignore_index, 0, -(rows * scale).sum(-1)) / rows.shape[-1]
    loss = (1 - smoothing) * picked + smoothing * spread
    return loss if how == "none" else loss.sum() if how == "sum" else loss.sum() / counted.sum()


def reduction(size_average: Any, reduce: Any, more: dict[str, Any]) -> str:
    return "none" if reduce is False else "sum" if size_average is False else more.get("reduction", "mean")


def np_cross_entropy(x: np.ndarray, target: np.ndarray, weight: Any = None, **more: Any) -> np.ndarray:
    logp = scipy.special.log_softmax(x, axis=min(1, x.ndim - 1)) if x.size else x
    if target.dtype.kind in "iu":
        return np_nll(logp, target, weight, **more)
    smoothing, at = more.get("label_smoothing", 0.0), min(1, x.ndim - 1)
    scale = 1 if weight is None else weight.reshape(-1, *(1 for _ in x.shape[2:]))
    loss = -(logp * scale * (target * (1 - smoothing) + smoothing / x.shape[at])).sum(at)
    how = more.get("reduction", "mean")
    return loss if how == "none" else loss.sum() if how == "sum" else loss.sum() / loss.size


# name: (samples, error samples, reference, extremes); eager rounds halves between the steps of a smoothed loss, and some overflow
LOSSES: dict[str, tuple[Callable, Callable, Callable, tuple[str, ...]]] = {
    "torch.nn.functional.nll_loss": (class_samples, class_errors, np_nll, EXTREMES),
    "torch.nn.functional.cross_entropy": (cross_entropy_samples, cross_entropy_errors, np_cross_entropy, ("inf", "nan")),
}

OPINFOS += [
    OpInfo(symbol_for(name), samples, errors, by_numpy(fn), FLOATS, True, extremes=extremes)
    for name, (samples, errors, fn, extremes) in LOSSES.items()
]
