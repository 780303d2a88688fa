"""One step of a recurrent layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import INEXACT, NUMBERS, OPINFOS, ROUNDED, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, laid, unwritten

SIZES = ((3, 4, 5), (1, 1, 1), (2, 7, 3), (0, 4, 2))  # batch, input, hidden


def cell_samples(gates: int, states: int, dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, domain=(-2, 2))
    for i, (batch, size, hidden) in enumerate(SIZES):
        layouts = ("row-major", "column-major", "gapped")
        x, *before = [laid(make, layouts[(i + j) % 3], batch, n) for j, n in enumerate((size, *(hidden,) * states))]
        weights = laid(make, layouts[i % 3], gates * hidden, size), laid(make, layouts[(i + 1) % 3], gates * hidden, hidden)
        biases = make(gates * hidden), make(gates * hidden)
        hx = tuple(before) if states > 1 else before[0]
        yield SampleInput((x, hx, *weights, *biases))
        yield SampleInput((x, hx, *weights))
        yield SampleInput((x, hx, *weights), {"b_hh": biases[1]})


def cell_errors(gates: int, states: int, device: Device) -> Iterator[ErrorSample]:
    rows = gates * 5
    x, h, w_ih, w_hh = unwritten((3, 4)), unwritten((3, 5)), unwritten((rows, 4)), unwritten((rows, 5))

    def of(state: Any) -> Any:
        return state if states == 1 else (state, h)

    yield ErrorSample((x[0], of(h), w_ih, w_hh), {}, IndexError, "Dimension out of range")
    yield ErrorSample((unwritten((3, 6)), of(h), w_ih, w_hh), {}, RuntimeError, "input has inconsistent input_size: got 6 expected 4")
    yield ErrorSample((x, of(unwritten((2, 5))), w_ih, w_hh), {}, RuntimeError, "Input batch size 3 doesn't match hidden0 batch size 2")
    yield ErrorSample((x, of(unwritten((3, 6))), w_ih, w_hh), {}, RuntimeError, "hidden0 has inconsistent hidden_size: got 6, expected 5")
    yield ErrorSample((x, of(h), unwritten((rows + 1, 4)), w_hh), {}, RuntimeError, "weight_ih first dim must be")
    yield ErrorSample((x, of(h), w_ih, w_hh, unwritten((rows,), dtypes.float64)), {}, RuntimeError, "must have the same dtype")
    if states > 1:
        yield ErrorSample((x, (h,), w_ih, w_hh), {}, RuntimeError, "lstm_cell expects two hidden states")
        yield ErrorSample((x, (h, unwritten((3, 1))), w_ih, w_hh), {}, RuntimeError, "hidden1 has inconsistent hidden_size: got 1, expected 5")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def np_lstm(x: np.ndarray, hx: tuple, w_ih: np.ndarray, w_hh: np.ndarray, b_ih: Any = 0, b_hh: Any = 0) -> tuple:
    i, f, g, o = np.split(x @ w_ih.T + b_ih + hx[0] @ w_hh.T + b_hh, 4, 1)
    cell = sigmoid(f) * hx[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def np_gru(x: np.ndarray, hx: np.ndarray, w_ih: np.ndarray, w_hh: np.ndarray, b_ih: Any = 0, b_hh: Any = 0) -> np.ndarray:
    (a_r, a_z, a_n), (b_r, b_z, b_n) = np.split(x @ w_ih.T + b_ih, 3, 1), np.split(hx @ w_hh.T + b_hh, 3, 1)
    z = sigmoid(a_z + b_z)
    return (1 - z) * np.tanh(a_n + sigmoid(a_r + b_r) * b_n) + z * hx


def np_plain(activation: Callable, x: np.ndarray, hx: np.ndarray, w_ih: np.ndarray, w_hh: np.ndarray, b_ih: Any = 0, b_hh: Any = 0) -> np.ndarray:
    return activation(x @ w_ih.T + b_ih + hx @ w_hh.T + b_hh)


# name: (gates, states, reference, dtypes)
CELLS: dict[str, tuple[int, int, Callable, tuple[DType, ...]]] = {
    "torch.lstm_cell": (4, 2, np_lstm, INEXACT),
    "torch.gru_cell": (3, 1, np_gru, INEXACT),
    "torch.rnn_tanh_cell": (1, 1, partial(np_plain, np.tanh), NUMBERS),
    "torch.rnn_relu_cell": (1, 1, partial(np_plain, lambda x: np.maximum(x, 0)), ROUNDED),
}

OPINFOS += [
    OpInfo(symbol_for(name), partial(cell_samples, gates, states), partial(cell_errors, gates, states), by_numpy(fn), accepted, True)
    for name, (gates, states, fn, accepted) in CELLS.items()
]
