"""Tensors from nothing, and draws.  What is random has no reference: shape, dtype and bounds are all that is checked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from dovetail import devices, dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail_conformance.opinfo import ANY, OPINFOS, ROUNDED, TO_TORCH, ErrorSample, Maker, OpInfo, SampleInput, unwritten

F32 = {"dtype": dtypes.float32, "device": devices.cpu}
SHAPES = ((), (0,), (3,), (2, 3), (2, 1, 0))


def sample(dtype: DType, device: Device, **more: Any) -> SampleInput:
    return SampleInput((), {**more, "dtype": dtype, "device": device})


def full_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for shape in SHAPES:
        yield sample(dtype, device, shape=shape, value=True)
        if dtype.kind != "bool":
            yield sample(dtype, device, shape=shape, value=3)
        if dtype.inexact:
            yield sample(dtype, device, shape=shape, value=-1.5)
            yield sample(dtype, device, shape=shape, value=float("inf"))
        if dtype.kind == "complex":
            yield sample(dtype, device, shape=shape, value=1 + 2j)


def full_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((), {"shape": (-1,), "value": 0.0, **F32}, RuntimeError, "non-negative sizes")
    yield ErrorSample((), {"shape": (2,), "value": 1j, **F32}, RuntimeError, "expected a number of kind float")
    yield ErrorSample((), {"shape": (2,), "value": "0", **F32}, TypeError, "expected a tensor or a Python number, got str")


def full_reference(*, shape: tuple, value: Any, dtype: DType, device: Device) -> torch.Tensor:
    return torch.as_tensor(np.full(shape, value)).to(TO_TORCH[dtype])


def iota_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for length, start, step in ((0, 0, 1), (5, 0, 1), (4, 2, 3), (3, 1, 0), (1, 7, 2)):
        yield sample(dtype, device, length=length, start=start, step=step)
    if dtype.signed:
        yield sample(dtype, device, length=4, start=3, step=-2)
    if dtype.inexact:
        yield sample(dtype, device, length=6, start=-0.5, step=0.1)


def iota_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((), {"length": -1, "start": 0, "step": 1, **F32}, RuntimeError, "non-negative sizes")
    plain = {"length": 2, "start": 0, "step": 1, "device": device}
    yield ErrorSample((), {**plain, "dtype": dtypes.bool_}, NotImplementedError, "expected an integer or floating dtype")
    yield ErrorSample((), {**plain, "step": 0.5, "dtype": dtypes.int64}, RuntimeError, "expected a number of kind int")


def iota_reference(*, length: int, start: float, step: float, dtype: DType, device: Device) -> torch.Tensor:
    return torch.as_tensor(np.arange(length) * step + start).to(TO_TORCH[dtype])


def sequence_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for values in (1, (), (1, 0), ((1, 0, 1), (0, 1, 1)), ((), ()), (((1,),),)):
        yield sample(dtype, device, values=_cast(values, bool if dtype.kind == "bool" else int))
        if dtype.inexact:
            yield sample(dtype, device, values=_cast(values, float))


def _cast(values: Any, kind: type) -> Any:
    return tuple(_cast(v, kind) for v in values) if isinstance(values, tuple) else kind(values)


def sequence_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((), {"values": ((1.0, 2.0), (3.0,)), **F32}, ValueError, "expected sequences of one length at dim 1")
    yield ErrorSample((), {"values": (1.0, (2.0,)), **F32}, ValueError, "expected sequences of one length")
    yield ErrorSample((), {"values": (1j,), **F32}, RuntimeError, "expected a number of kind float")


def sequence_reference(*, values: Any, dtype: DType, device: Device) -> torch.Tensor:
    return torch.as_tensor(np.array(values)).to(TO_TORCH[dtype])


def drawn_samples(more: dict, dtype: DType, device: Device) -> Iterator[SampleInput]:
    for shape in SHAPES:
        yield sample(dtype, device, shape=shape, **more)


def drawn_errors(more: dict, wrong: dict, match: str, device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((), {"shape": (-2,), **more, **F32}, RuntimeError, "non-negative sizes")
    yield ErrorSample((), {"shape": (2,), **more, **wrong, **F32}, RuntimeError, match)
    yield ErrorSample((), {"shape": (2,), **more, "dtype": dtypes.bool_, "device": device}, NotImplementedError, "expected a tensor of kind")


def randperm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for length in (0, 1, 7):
        yield sample(dtype, device, length=length)


def randperm_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((), {"length": -1, **F32}, RuntimeError, "non-negative sizes")


def bernoulli_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for p in Maker(dtype, device, (0, 1)).layouts():
        yield SampleInput((p,))
    yield SampleInput((Maker(dtype, device, (0, 1))(),), {"shape": (4, 3)})
    yield SampleInput((Maker(dtype, device, (0, 1))(),), {"shape": ()})


def bernoulli_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,), dtypes.float32),), {"shape": (2,)}, RuntimeError, "expected one probability for the elements of a shape")
    yield ErrorSample((unwritten((2,), dtypes.int64),), {}, NotImplementedError, "expected a tensor of kind float")


def multinomial_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.1, 1))
    for weights in (make(5), make(3, 5), make(5, 3).t()):
        for replacement in (True, False):
            yield SampleInput((weights,), {"num_samples": 4, "replacement": replacement})


def multinomial_errors(device: Device) -> Iterator[ErrorSample]:
    x, how = unwritten((3,)), {"num_samples": 4, "replacement": False}
    yield ErrorSample((x,), how, RuntimeError, r"cannot sample n_sample > prob_dist.size\(-1\)")
    yield ErrorSample((x,), {**how, "num_samples": 0}, RuntimeError, "cannot sample n_sample <= 0")
    yield ErrorSample((unwritten((2, 2, 2)),), how, RuntimeError, "prob_dist must be 1 or 2 dim")


def counted_samples(more: dict, dtype: DType, device: Device) -> Iterator[SampleInput]:
    for seed, offset in ((0, 0), (7, 3), (-1, 2**40)):
        for shape in SHAPES:
            state = tuple(torch.tensor(v, device=str(device)) for v in (seed, offset))
            yield SampleInput(state, {"shape": shape, **more, "dtype": dtype, "device": device})


def counted_errors(more: dict, device: Device) -> Iterator[ErrorSample]:
    seed = unwritten((), dtypes.int64)
    yield ErrorSample(
        (seed, unwritten((1,), dtypes.int64)), {"shape": (2,), **more, **F32}, RuntimeError, "expected an int64 tensor of no dimensions"
    )
    yield ErrorSample((unwritten(()), seed), {"shape": (2,), **more, **F32}, RuntimeError, "expected an int64 tensor of no dimensions")


UNIFORM, NORMAL, INTEGER, EXPONENTIAL = {"low": -1.0, "high": 2.0}, {"mean": 1.0, "std": 0.5}, {"low": 2, "high": 9}, {"rate": 2.0}

OPINFOS += [
    OpInfo(prims.full, full_samples, full_errors, full_reference, ANY),
    OpInfo(prims.iota, iota_samples, iota_errors, iota_reference, ROUNDED),
    OpInfo(prims.tensor_from_sequence, sequence_samples, sequence_errors, sequence_reference, ANY),
    OpInfo(prims.uniform, partial(drawn_samples, UNIFORM), partial(drawn_errors, UNIFORM, {"low": 3.0}, "uniform expects low <= high")),
    OpInfo(prims.normal, partial(drawn_samples, NORMAL), partial(drawn_errors, NORMAL, {"std": -1.0}, "normal expects std >= 0.0")),
    OpInfo(
        prims.exponential, partial(drawn_samples, EXPONENTIAL), partial(drawn_errors, EXPONENTIAL, {"rate": 0.0}, "exponential expects rate > 0.0")
    ),
    OpInfo(prims.randint, partial(drawn_samples, INTEGER), partial(drawn_errors, INTEGER, {"low": 9}, "randint expects low < high"), dtypes=ROUNDED),
    OpInfo(prims.randperm, randperm_samples, randperm_errors, dtypes=ROUNDED),
    OpInfo(prims.bernoulli, bernoulli_samples, bernoulli_errors, domain=(0, 1)),
    OpInfo(prims.multinomial, multinomial_samples, multinomial_errors, domain=(0, 1)),
    OpInfo(prims.uniform_philox, partial(counted_samples, UNIFORM), partial(counted_errors, UNIFORM)),
    OpInfo(prims.normal_philox, partial(counted_samples, NORMAL), partial(counted_errors, NORMAL)),
]
