"""Normalisations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.extend.advanced import torch_internals
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import COMPLEX, FLOATS, OPINFOS, Directive, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, no_errors, unwritten


def channels_last(x: Tensor) -> Tensor:
    """Return the same image with its channels innermost."""
    return x.contiguous(memory_format=torch.channels_last)


def images(make: Maker) -> Iterator[Tensor]:
    """[batch, channels = 4, ...] with one to three more dimensions, in several layouts."""
    yield make(2, 4, 5)
    yield channels_last(make(2, 4, 3, 2))
    yield make(2, 4, 2, 1, 3)
    yield make(4, 2, 5).transpose(0, 1)
    yield make(2, 4, 10)[..., ::2]
    yield make(2, 1, 5).expand(2, 4, 5)


def parameters(make: Maker, *shape: int, dtype: DType | None = None) -> dict[str, Tensor]:
    return {"weight": make(*shape, low=0.5, high=2, dtype=dtype), "bias": make(*shape, dtype=dtype)}


def running(make: Maker, channels: int, dtype: DType | None = None) -> tuple[Tensor, Tensor]:
    """Return a running mean and a running variance."""
    return make(channels, dtype=dtype), make(channels, low=0.5, high=2, dtype=dtype)


def layer_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in (make(5), make(3, 4), make(4, 3).t(), make(2, 3, 8)[..., ::2], make(3, 1, 4).expand(3, 2, 4), make(0, 4)):
        yield SampleInput((x, x.shape[-1:]))
    weight, bias = parameters(make, 3, 4).values()
    yield SampleInput((make(2, 3, 4), (3, 4), weight, bias, 0.1))
    yield SampleInput((make(2, 3, 4), [3, 4]), {"weight": weight.t().contiguous().t(), "eps": 0.01})
    yield SampleInput((make(3, 4), (4,)), {"bias": make(4)})
    yield SampleInput((make(3, 4), (4,)), parameters(make, 4, dtype=dtypes.float64 if dtype is dtypes.float64 else dtypes.float32))
    yield SampleInput((make(2, 1), (1,)))


def native_layer_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for sample in layer_norm_samples(dtype, device):
        x, shape, *rest = sample.args
        rest += [sample.kwargs.get("weight"), sample.kwargs.get("bias"), sample.kwargs.get("eps", 1e-5)][len(rest) :]
        yield SampleInput((x, shape, *rest))


def rms_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for sample in layer_norm_samples(dtype, device):
        x, shape, *rest = sample.args
        if x.numel() > 2 and (rest or "bias" not in sample.kwargs):
            yield SampleInput((x, shape, *rest[:1]), {**sample.kwargs, **({"eps": 0.1} if rest else {})})
    make = Maker(dtype, device)
    yield SampleInput((make(3, 4), (4,), make(4), 0.01))


def batch_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for i, x in enumerate(images(make)):
        for training in (False, True):
            statistics = running(make, 4)
            yield SampleInput((x, *statistics), {"training": training, **(parameters(make, 4) if i % 2 else {})}, statistics)
    x, statistics = make(5, 4), running(make, 4)
    yield SampleInput((x, None, None), {"training": True, "eps": 0.1})
    yield SampleInput((x, *statistics, make(4), make(4), True, 0.5, 0.1), {}, statistics)


def functional_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for i, x in enumerate(images(make)):
        weight, bias = parameters(make, 4).values() if i % 2 else (None, None)
        statistics = running(make, 4)
        yield SampleInput((x, weight, bias, *statistics, True, 0.1 + 0.1 * i, 1e-5), {}, statistics)


def instance_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for i, x in enumerate(images(make)):
        yield SampleInput((x,), parameters(make, 4) if i % 2 else {})
    x, statistics = make(2, 4, 3), running(make, 4)
    yield SampleInput((x, *statistics), {}, statistics)
    yield SampleInput((x, *statistics, make(4), make(4), False, 0.1, 0.1), {}, statistics)
    yield SampleInput((x, *statistics), {"momentum": 0.5, "eps": 0.1}, statistics)


def group_norm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for i, x in enumerate(images(make)):
        yield SampleInput((x, (1, 2, 4)[i % 3]), parameters(make, 4) if i % 2 else {})
    weight, bias = parameters(make, 6).values()
    yield SampleInput((make(3, 6), 2, weight, bias, 0.1))
    yield SampleInput((make(2, 6, 2), 3), {"weight": weight, "eps": 0.01})
    yield SampleInput((make(0, 6, 2), 3))


def last_dims_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, (4,)), {}, RuntimeError, r"expected input with shape \[\*, 4\]")
    yield ErrorSample((x, ()), {}, RuntimeError, "Expected normalized_shape to be at least 1-dimensional")
    yield ErrorSample((x, (3,), unwritten((2,))), {}, RuntimeError, "Expected weight to be of same shape")


def layer_norm_errors(device: Device) -> Iterator[ErrorSample]:
    yield from last_dims_errors(device)
    yield ErrorSample((unwritten((2, 3)), 3), {}, TypeError, "argument 'normalized_shape'")
    yield ErrorSample((unwritten((2, 3), dtypes.int64), (3,)), {}, NotImplementedError, "not implemented for i64")
    half, wide = unwritten((3,), dtypes.float16), unwritten((3,))
    yield ErrorSample((unwritten((2, 3), dtypes.float16), (3,), half, wide), {}, RuntimeError, "expected weight and bias of one dtype")


def native_layer_norm_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, (4,), None, None, 1e-5), {}, RuntimeError, r"expected input with shape \[\*, 4\]")
    yield ErrorSample((x, (3,), None, unwritten((2,)), 1e-5), {}, RuntimeError, "Expected bias to be of same shape")
    yield ErrorSample((x, (3,), None), {}, TypeError, "missing")


def batch_norm_errors(device: Device) -> Iterator[ErrorSample]:
    x, three, four = unwritten((2, 3, 2)), unwritten((3,)), unwritten((4,))
    yield ErrorSample((x, None, None), {}, RuntimeError, "must be defined in evaluation mode")
    yield ErrorSample((x, four, four), {}, RuntimeError, "running_mean should contain 3 elements")
    yield ErrorSample((x, three, three, four), {}, RuntimeError, "weight should contain 3 elements")
    yield ErrorSample((unwritten((1, 3)), three, three), {"training": True}, ValueError, "Expected more than 1 value per channel")
    yield ErrorSample((unwritten((2, 3), dtypes.complex64), None, None), {"training": True}, NotImplementedError, "not implemented")


def instance_norm_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3, 2))
    yield ErrorSample((x,), {"use_input_stats": False}, RuntimeError, "Expected running_mean and running_var to be defined")
    yield ErrorSample((unwritten((2, 3, 1)),), {}, ValueError, "Expected more than 1 spatial element")
    yield ErrorSample((x,), {"weight": unwritten((4,))}, RuntimeError, "weight should contain 3 elements")


def group_norm_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), 2), {}, RuntimeError, "number of channels in input to be divisible by num_groups")
    yield ErrorSample((unwritten((3,)), 1), {}, RuntimeError, "Expected at least 2 dimensions")
    yield ErrorSample((unwritten((2, 4)), 2), {"weight": unwritten((3,))}, RuntimeError, "weight should contain 4 elements")
    yield ErrorSample((unwritten((1, 2)), 2), {}, ValueError, "Expected more than 1 value per channel")


def standardized(x: np.ndarray, axis: tuple[int, ...], eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """((x - mean) / deviation, mean, 1 / deviation) over `axis`."""
    with np.errstate(all="ignore"):
        mean = x.sum(axis, keepdims=True) / np.prod([x.shape[d] for d in axis])
        scale = 1 / np.sqrt(((x - mean) ** 2).sum(axis, keepdims=True) / np.prod([x.shape[d] for d in axis]) + eps)
    return (x - mean) * scale, mean, scale


def np_layer_norm(x: np.ndarray, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> np.ndarray:
    return np_native_layer_norm(x, shape, weight, bias, eps)[0]


def np_native_layer_norm(x: np.ndarray, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[np.ndarray, ...]:
    out, mean, scale = standardized(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    return out * (1 if weight is None else weight) + (0 if bias is None else bias), mean, scale


def np_rms_norm(x: np.ndarray, shape: Any, weight: Any = None, eps: float | None = None) -> np.ndarray:
    axis = tuple(range(x.ndim - len(shape), x.ndim))
    eps = np.finfo(x.dtype).eps if eps is None else eps
    with np.errstate(all="ignore"):
        return x / np.sqrt(np.mean(x * x, axis, keepdims=True) + eps) * (1 if weight is None else weight)


def by_channel(x: np.ndarray, weight: Any, bias: Any) -> np.ndarray:
    """x * weight + bias along dimension 1."""
    shape = (-1, *(1 for _ in x.shape[2:]))
    return x * (1 if weight is None else weight.reshape(shape)) + (0 if bias is None else bias.reshape(shape))


def np_batch_norm(
    x: np.ndarray, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5
) -> np.ndarray:
    if training:
        return by_channel(standardized(x, (0, *range(2, x.ndim)), eps)[0], weight, bias)
    scale = 1 / np.sqrt(var + eps)
    return by_channel(by_channel(x, scale, -mean * scale), weight, bias)


def np_functional(
    x: np.ndarray, weight: Any, bias: Any, mean: np.ndarray, var: np.ndarray, training: bool, momentum: float, eps: float
) -> tuple[np.ndarray, ...]:
    axis = (0, *range(2, x.ndim))
    out, batch, scale = standardized(x, axis, eps)
    moved = [(1 - momentum) * old + momentum * new for old, new in ((mean, batch.ravel()), (var, np.var(x, axis, ddof=1)))]
    return by_channel(out, weight, bias), batch.ravel(), scale.ravel(), *moved


def np_instance_norm(
    x: np.ndarray,
    mean: Any = None,
    var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> np.ndarray:
    if not use_input_stats:
        return np_batch_norm(x, mean, var, weight, bias, eps=eps)
    return by_channel(standardized(x, tuple(range(2, x.ndim)), eps)[0], weight, bias)


def np_group_norm(x: np.ndarray, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> np.ndarray:
    parted = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return by_channel(standardized(parted, tuple(range(2, parted.ndim)), eps)[0].reshape(x.shape), weight, bias)


Row = tuple[Callable, Callable, Callable, tuple[DType, ...], tuple[str, ...]]

# name: (samples, error samples, reference, dtypes, extremes); what becomes of infinities beside numbers depends on the algorithm
NORMALISATIONS: dict[str, Row] = {
    "torch.nn.functional.layer_norm": (layer_norm_samples, layer_norm_errors, np_layer_norm, FLOATS, ("large", "inf", "nan")),
    "torch.native_layer_norm": (native_layer_norm_samples, native_layer_norm_errors, np_native_layer_norm, FLOATS, ("nan",)),
    "torch.nn.functional.rms_norm": (rms_norm_samples, last_dims_errors, np_rms_norm, FLOATS + COMPLEX, ("large", "inf", "nan")),
    f"{torch_internals.ATEN}._native_batch_norm_legit_functional": (functional_samples, no_errors, np_functional, FLOATS, ("nan",)),
    "torch.nn.functional.batch_norm": (batch_norm_samples, batch_norm_errors, np_batch_norm, FLOATS, ("nan",)),
    "torch.nn.functional.instance_norm": (instance_norm_samples, instance_norm_errors, np_instance_norm, FLOATS, ("nan",)),
    "torch.nn.functional.group_norm": (group_norm_samples, group_norm_errors, np_group_norm, FLOATS, ("large", "nan")),
}

DIRECTIVES = {
    f"{torch_internals.ATEN}._native_batch_norm_legit_functional": (
        Directive("skip", "PyTorch does not check the sizes of its arguments, and reads past them", check="variants"),
    )
}
OPINFOS += [
    OpInfo(symbol_for(name), samples, errors, by_numpy(fn), accepted, True, extremes=extremes, directives=DIRECTIVES.get(name, ()))
    for name, (samples, errors, fn, accepted, extremes) in NORMALISATIONS.items()
]
