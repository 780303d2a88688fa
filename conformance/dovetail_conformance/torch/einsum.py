"""Sums of products spelled with subscripts, and what is short for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import NUMBERS, OPINFOS, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, laid, unwritten

LAYOUTS = ("row-major", "column-major", "gapped", "repeated")

# equation, shapes of the operands
EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 2))),
    ("bij, bkj -> bik", ((2, 2, 3), (2, 4, 3))),
    ("i,i->", ((4,), (4,))),
    ("i,j->ij", ((2,), (3,))),
    ("ii->i", ((3, 3),)),
    ("ij->ji", ((2, 3),)),
    ("ijk->j", ((2, 3, 2),)),
    ("...ij,...jk->...ik", ((2, 1, 2, 3), (2, 3, 2))),
    ("ij,jk,kl->il", ((2, 3), (3, 2), (2, 2))),
    ("ij,j->i", ((2, 3), (1,))),
    ("ij,jk->ik", ((2, 0), (0, 3))),
    ("ba", ((2, 3),)),  # letters of an implicit result are sorted
    ("kj,ji", ((2, 3), (3, 4))),
    ("ii", ((3, 3),)),
)


def einsum_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the equations with operands in layouts by turns, operands in a list, and lists of subscripts."""
    make = Maker(dtype, device)
    for i, (equation, shapes) in enumerate(EQUATIONS):
        yield SampleInput((equation, *(laid(make, LAYOUTS[(i + j) % 4], *shape) for j, shape in enumerate(shapes))))
    yield SampleInput(("ij,j->i", [make(2, 3), make(3)]))
    yield SampleInput((make(2, 3), [0, 1], make(3, 2), [1, 2], [0, 2]))


def einsum_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample(("ij,jk->ik", x), {}, RuntimeError, "more operands were provided|fewer operands were provided")
    yield ErrorSample(("ijk->i", x), {}, RuntimeError, "do not match the number of dimensions")
    yield ErrorSample(("ij,jk->ik", x, x), {}, RuntimeError, "does not broadcast with previously seen size")
    yield ErrorSample(("ij->ik", x), {}, RuntimeError, "does not appear in the equation for any input operand")
    yield ErrorSample(("i1->i", x), {}, RuntimeError, "invalid subscript")


def bilinear_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield samples; eager gives complex results no gradient, and rounds halves between the two sums."""
    for sample in bilinear_calls(Maker(dtype, device, (-1, 1) if dtype.inexact else (-inf, inf))):
        if dtype.kind == "complex":
            sample.fixed = (*sample.args, *sample.kwargs.values())
        yield sample


def bilinear_calls(make: Maker) -> Iterator[SampleInput]:
    weight = make(2, 3, 4)
    yield SampleInput((make(5, 3), make(5, 4), weight))
    yield SampleInput((make(3, 5).t(), make(5, 8)[:, ::2], weight, make(2)))
    yield SampleInput((make(1, 3).expand(5, 3), make(5, 4), make(4, 3, 2).permute(2, 1, 0)), {"bias": make(2)})
    yield SampleInput((make(2, 2, 3), make(2, 2, 4), weight))
    yield SampleInput((make(0, 3), make(0, 4), weight))
    yield SampleInput((make(1, 1), make(1, 1), make(1, 1, 1), make(1)))


def bilinear_errors(device: Device) -> Iterator[ErrorSample]:
    x, y, weight = unwritten((5, 3)), unwritten((5, 4)), unwritten((2, 3, 4))
    yield ErrorSample((unwritten((5, 2)), y, weight), {}, RuntimeError, "input1 size does not match weight size")
    yield ErrorSample((x, unwritten((5, 2)), weight), {}, RuntimeError, "input2 size does not match weight size")
    yield ErrorSample((unwritten((4, 3)), y, weight), {}, RuntimeError, "input batch dimensions do not match")
    yield ErrorSample((x, y, weight, unwritten((3,))), {}, RuntimeError, "expected a bias of 2 elements")


def tensordot_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(2, 3, 4), make(3, 4, 2)))
    yield SampleInput((make(4, 3, 2).permute(2, 1, 0), make(4, 3), ([1, 2], [1, 0])))
    yield SampleInput((make(2, 8)[:, ::2], make(4, 3), 1))
    yield SampleInput((make(2, 1).expand(2, 3), make(2)), {"dims": 0})
    yield SampleInput((make(2, 3), make(3, 2)), {"dims": ([-1], [0])})
    yield SampleInput((make(2, 0), make(0, 3)), {"dims": 1})
    yield SampleInput((make(3), make(3), 1))
    yield SampleInput((make(2, 1), make(3, 2), 1))


def tensordot_errors(device: Device) -> Iterator[ErrorSample]:
    x, y = unwritten((2, 3)), unwritten((4, 2))
    yield ErrorSample((x, y, 1), {}, RuntimeError, "contracted dimensions need to match")
    yield ErrorSample((x, y, -1), {}, RuntimeError, "expects dims from 0")
    yield ErrorSample((x, y, ([0], [0, 1])), {}, RuntimeError, "both dimension lists should have same length")
    yield ErrorSample((x, y, ([2], [0])), {}, IndexError, "Dimension out of range")
    yield ErrorSample((x, unwritten((3, 2), dtypes.float64), 1), {}, RuntimeError, "dtype")


def np_einsum(*args: Any) -> np.ndarray:
    """NumPy has operands in no list, and no sizes of 1 that broadcast."""
    if isinstance(args[0], str):
        equation, *operands = args
        operands = operands[0] if isinstance(operands[0], list) else operands
        if equation == "ij,j->i" and operands[1].size == 1:
            return (operands[0] * operands[1]).sum(1)
        return np.einsum(equation, *operands)
    return np.einsum(*args)


def np_bilinear(x: np.ndarray, y: np.ndarray, weight: np.ndarray, bias: Any = 0) -> np.ndarray:
    return np.einsum("...i,oij,...j->...o", x, weight, y) + bias


def np_tensordot(x: np.ndarray, y: np.ndarray, dims: Any = 2) -> np.ndarray:
    if dims == 1 and x.shape[-1] == 1:
        x = np.repeat(x, y.shape[0], -1)
    return np.tensordot(x, y, dims)


# name: (samples, error samples, reference, dtypes)
SUMS: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...]]] = {
    "torch.einsum": (einsum_samples, einsum_errors, np_einsum, NUMBERS),
    "torch.nn.functional.bilinear": (bilinear_samples, bilinear_errors, np_bilinear, NUMBERS),
    "torch.tensordot": (tensordot_samples, tensordot_errors, np_tensordot, NUMBERS),
}

OPINFOS += [OpInfo(symbol_for(name), samples, errors, by_numpy(fn), accepted, True) for name, (samples, errors, fn, accepted) in SUMS.items()]
