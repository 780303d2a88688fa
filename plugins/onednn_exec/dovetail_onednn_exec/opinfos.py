"""Samples of `onednn.linear_epilogue` for the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import erf

from dovetail.devices import Device
from dovetail.dtypes import DType, bfloat16, float32
from dovetail_conformance import OPINFOS, Maker, OpInfo, SampleInput, by_numpy
from dovetail_onednn_exec.epilogues import EPILOGUES, linear_epilogue


def samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield each function with and without a bias, and several layouts of the input and the weight."""
    make = Maker(dtype, device)
    for name in EPILOGUES:
        other = (make(5, 4),) if name == "add" else ()
        yield SampleInput((make(5, 3), make(4, 3), make(4), *other), {"epilogue": name})
        yield SampleInput((make(5, 3), make(4, 3), None, *other), {"epilogue": name})
    yield SampleInput((make(2, 3, 7), make(6, 7), make(6)), {"epilogue": "relu"})
    yield SampleInput((make(3, 5).t(), make(3, 4).t(), make(4)), {"epilogue": "silu"})
    yield SampleInput((make(5, 6)[:, ::2], make(4, 3), make(4)), {"epilogue": "gelu"})
    yield SampleInput((make(5, 3), make(4, 3), make(4), make(4, 5).t()), {"epilogue": "add"})
    yield SampleInput((make(0, 3), make(4, 3), make(4)), {"epilogue": "tanh"})


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
}


def reference(input: np.ndarray, weight: np.ndarray, bias: Any = None, other: Any = None, *, epilogue: str) -> np.ndarray:
    """Compute the operation with NumPy."""
    product = input @ weight.T + (0 if bias is None else bias)
    return product + other if other is not None else FUNCTIONS[epilogue](product)


# Where tanh and erf are close to -1, gelu multiplies a rounding of theirs, 6e-8, by up to half of its argument.
OPINFOS.append(OpInfo(linear_epilogue, samples, reference=by_numpy(reference), dtypes=(bfloat16, float32), cancellation=5e-7))
