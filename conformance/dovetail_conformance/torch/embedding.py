"""Rows of a table, and classes as rows of an identity matrix."""

from __future__ import annotations

from collections.abc import Iterator
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
    OPINFOS,
    Directive,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    laid,
    unwritten,
)

CLASSES = unwritten((3,), dtypes.int64)
NOT_LONG = (RuntimeError, "Expected tensor for argument .*'indices'")
FLAT = (RuntimeError, "'weight' must be 2-D")


def embedding_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for layout, shape in (("row-major", ()), ("column-major", (3,)), ("gapped", (2, 3)), ("repeated", (2, 0))):
        yield SampleInput((make.index(4, *shape), laid(make, layout, 4, 3)))
    yield SampleInput((make.index(4, 3, 2).t().to(torch.int32), make(4, 1)))
    yield SampleInput((torch.tensor([1, 3, 1]), make(4, 3), 1))
    yield SampleInput((torch.tensor([[0, 3]]),), {"weight": make(4, 3), "padding_idx": -1, "norm_type": 1.0, "sparse": False})


def embedding_errors(device: Device) -> Iterator[ErrorSample]:
    table = unwritten((4, 3))
    yield ErrorSample((table, table), {}, *NOT_LONG)
    yield ErrorSample((CLASSES, unwritten((4,))), {}, *FLAT)
    yield ErrorSample((CLASSES, table, 4), {}, AssertionError, "padding_idx")
    yield ErrorSample((CLASSES, 3), {}, TypeError, "'weight'.* must be Tensor")


def rows_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for layout, shape in (("row-major", ()), ("column-major", (3,)), ("gapped", (2, 3)), ("repeated", (2, 0))):
        yield SampleInput((laid(make, layout, 4, 3), make.index(4, *shape)))
    yield SampleInput((make(4, 1), torch.tensor([1, 3, 1]), 1))
    yield SampleInput((make(4, 3),), {"indices": torch.tensor([[0, 3]], dtype=torch.int32), "padding_idx": 3})


def rows_errors(device: Device) -> Iterator[ErrorSample]:
    table = unwritten((4, 3))
    yield ErrorSample((table, table), {}, *NOT_LONG)
    yield ErrorSample((unwritten((4,)), CLASSES), {}, *FLAT)


def one_hot_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape in ((), (3,), (2, 3), (2, 0)):
        yield SampleInput((make.index(4, *shape), 4))
    yield SampleInput((make.index(2, 3, 2).t(),), {"num_classes": 5})
    yield SampleInput((torch.zeros(2, 1, dtype=torch.int64).expand(2, 3), 1))


def one_hot_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)), 3), {}, RuntimeError, "only applicable to index tensor of type LongTensor")
    yield ErrorSample((unwritten((3,), dtypes.int32), 3), {}, RuntimeError, "only applicable to index tensor of type LongTensor")
    yield ErrorSample((CLASSES, 0), {}, RuntimeError, "num_classes")


NO_GRADIENT = Directive("skip", "eager refuses the gradient of a complex result", check="backward", dtypes=COMPLEX)


def np_embedding(index: np.ndarray, weight: np.ndarray, *_: Any, **named: Any) -> np.ndarray:
    return weight[index]


OPINFOS += [
    OpInfo(symbol_for(f"torch.{name}"), samples, errors, by_numpy(reference), ANY, grad=True, extremes=EXTREMES, directives=(NO_GRADIENT,))
    for name, samples, errors, reference in (
        ("nn.functional.embedding", embedding_samples, embedding_errors, np_embedding),
        ("embedding", rows_samples, rows_errors, lambda weight, indices, padding_idx=-1: weight[indices]),
    )
]
OPINFOS += [
    OpInfo(
        symbol_for("torch.nn.functional.one_hot"),
        one_hot_samples,
        one_hot_errors,
        by_numpy(lambda x, num_classes: np.eye(num_classes, dtype=np.int64)[x]),
        (dtypes.int64,),
    ),
]
