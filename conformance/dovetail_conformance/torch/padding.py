"""Borders around tensors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import ANY, EXTREMES, OPINFOS, Maker, OpInfo, SampleInput, by_numpy, from_rows, laid, refused_rows

# Rows of a shape and the numbers of places before and after, from the last dimension on.
CONSTANT = (
    ((), ()),
    ((3,), (1, 2)),
    ((2, 3), (0, 1, 1, 0)),
    ((2, 3), [-1, 2]),
    ((2, 3, 4), (1, -1, 0, 2)),
    ((0, 2), (1, 1)),
    ((4, 3), (-1, 0, -2, 0)),
)
BORDERED = (((1, 4), (2, 1)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (-1, 2, 1, 0)), ((1, 2, 3, 4), (1, 1, 2, 0)), ((2, 2, 3, 2), (1, 0, 1, 1, 0, 1)))
MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # torch's names and NumPy's


def value_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield constant borders, with a value and without."""
    yield from from_rows(CONSTANT, dtype, device)
    make = Maker(dtype, device)
    yield SampleInput((make(2, 3), (1, 1), True if dtype.kind == "bool" else 2))
    yield SampleInput((make(2, 3),), {"pad": (0, 2), "value": 1})
    yield SampleInput((make(2, 3, 2), (1, 0, 0, 2, -1, 1), True if dtype.kind == "bool" else 3))


def pad_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from from_rows(CONSTANT, dtype, device, layouts=())
    make = Maker(dtype, device)
    yield SampleInput((make(2, 3).t(), (1, 1), "constant", True if dtype.kind == "bool" else 2))
    yield SampleInput((laid(make, "channels-last", 1, 3, 2, 2),), {"pad": (1, 0, 0, 1), "mode": "constant", "value": 1})
    yield SampleInput((laid(make, "gapped", 2, 3), (0, 0, 1, 1)), {"value": None})
    yield SampleInput((make(2, 3, 2), (1, 0, 0, 2, -1, 1)), {"value": True if dtype.kind == "bool" else 3})


def bordered_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield constant borders, and where torch has kernels, borders of the tensor's own elements."""
    yield from pad_samples(dtype, device)
    if dtype.kind == "bool":
        return
    make = Maker(dtype, device)
    for i, (shape, pad) in enumerate(BORDERED):
        for mode, layout in zip([*MODES, *MODES][i % 3 : i % 3 + 2], ("row-major", "column-major")):
            yield SampleInput((laid(make, layout, *shape), pad), {"mode": mode})
    yield SampleInput((laid(make, "channels-last", 1, 3, 3, 2), (1, 0, 0, 1), "reflect"))


def np_pad(x: np.ndarray, pad: Any, mode: str = "constant", value: Any = None) -> np.ndarray:
    pairs = [*reversed([tuple(pad[i : i + 2]) for i in range(0, len(pad), 2)])]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs))]
    wide = [(max(a, 0), max(b, 0)) for a, b in pairs]
    return np.pad(x, wide, **({"constant_values": value or 0} if mode == "constant" else {"mode": MODES[mode]})) if wide else x


LENGTHS = (((2, 3), (1,), RuntimeError, "must be (divisible by 2|even)|divisible by 2"), ((2, 3), (-2, -2), RuntimeError, "negative"))
PAD_ERRORS = (
    *LENGTHS,
    ((2, 3), (1,) * 6, RuntimeError, "two times the input dimension"),
    ((2, 3), (1, 1), "mirror", NotImplementedError, "Unrecognised padding mode"),
    ((2, 3), (1, 1), "reflect", 1.0, RuntimeError, "doesn't take in value argument"),
    ((2, 3), (3, 1), "reflect", RuntimeError, "Padding size should be less than"),
    ((2, 3), (4, 1), "circular", RuntimeError, "wrapping around more than once"),
    ((2, 3), (1, 1, 1, 1), "reflect", NotImplementedError, ""),
    ((2, 3), (1.5, 1), TypeError, "argument 'pad'"),
    ((2, 3), (1, 1), "constant", 1j, TypeError, "must be float, not complex"),
)
VALUE_ERRORS = (*LENGTHS, ((2, 3), (1, 1), 1j, RuntimeError, "cannot be converted"), ((2, 3), (1, 1), "1", TypeError, "must be Number"))

OPINFOS += [
    OpInfo(symbol_for(name), samples, partial(refused_rows, errors), by_numpy(reference), ANY, grad=True, extremes=EXTREMES)
    for name, samples, errors, reference in (
        ("torch.nn.functional.pad", bordered_samples, PAD_ERRORS, np_pad),
        ("torch.constant_pad_nd", value_samples, VALUE_ERRORS, lambda x, pad, value=0: np_pad(x, pad, "constant", value)),
    )
]
