"""Products of matrices and vectors: a table for those of two tensors, a table for those added to a third, and the odd ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from functools import reduce as fold
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    ANY,
    EXTREMES,
    INEXACT,
    NUMBERS,
    OPINFOS,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    laid,
    unwritten,
)

LARGE = ("large",)
LAYOUTS = ("column-major", "gapped", "repeated")

Shapes = tuple[tuple[int, ...], ...]


def product_samples(rows: tuple[Shapes, ...], options: tuple[dict, ...], promotes: bool, dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield from products(make, rows, options)
    if promotes:
        yield SampleInput(tuple(make(*shape, dtype=dtypes.float32 if i else dtype) for i, shape in enumerate(rows[0])))


def products(make: Maker, rows: tuple[Shapes, ...], options: tuple[dict, ...] = ()) -> Iterator[SampleInput]:
    """Yield tensors of each row of shapes, row-major; then the first rows in other layouts, and the first with each of `options`."""
    for shapes in rows:
        yield SampleInput(tuple(make(*shape) for shape in shapes))
    for i, layout in enumerate(LAYOUTS):
        yield SampleInput(tuple(laid(make, layout, *shape) for shape in rows[i % len(rows)]))
    for keywords in options:
        yield SampleInput(tuple(make(*shape) for shape in rows[0]), keywords)


def shape_errors(wrong: tuple[tuple[Shapes, str], ...], device: Device) -> Iterator[ErrorSample]:
    """Yield shapes that do not fit, with the text of the error; and a number in the place of the last tensor."""
    for shapes, message in wrong:
        yield ErrorSample(tuple(map(unwritten, shapes)), {}, RuntimeError, message)
    yield ErrorSample((*map(unwritten, wrong[0][0][:-1]), 1.0), {}, TypeError, "must be")


def product_errors(wrong: tuple[tuple[Shapes, str], ...], right: Shapes, device: Device) -> Iterator[ErrorSample]:
    """Yield the errors of shapes, and tensors of two dtypes."""
    yield from shape_errors(wrong, device)
    *most, last = right
    yield ErrorSample((*map(unwritten, most), unwritten(last, dtypes.float64)), {}, RuntimeError, "dtype")


def np_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.matmul(x, y)


def np_cross(x: np.ndarray, y: np.ndarray, dim: int | None = None) -> np.ndarray:
    return np.cross(x, y, axis=x.shape.index(3) if dim is None else dim)


def np_linalg_cross(x: np.ndarray, y: np.ndarray, dim: int = -1) -> np.ndarray:
    return np.cross(x, y, axis=dim)


def np_vecdot(x: np.ndarray, y: np.ndarray, dim: int = -1) -> np.ndarray:
    return np.sum(np.conj(x) * y, axis=dim)


def np_linear(x: np.ndarray, weight: np.ndarray, bias: Any = 0) -> np.ndarray:
    return x @ weight.T + bias


MULTIPLIED = "shapes cannot be multiplied"
MATRICES: tuple[Shapes, ...] = (((2, 3), (3, 4)), ((1, 1), (1, 1)), ((0, 2), (2, 3)), ((2, 0), (0, 3)))
BATCHES: tuple[Shapes, ...] = (((2, 2, 3), (2, 3, 2)), ((1, 1, 1), (1, 1, 1)), ((0, 2, 3), (0, 3, 2)), ((2, 2, 0), (2, 0, 2)))
VECTORS: tuple[Shapes, ...] = (((4,), (4,)), ((1,), (1,)), ((0,), (0,)))
ANY_RANKS: tuple[Shapes, ...] = (
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 2)),
    ((2, 2, 3), (3, 2)),
    ((2, 3), (2, 3, 2)),
    ((2, 1, 2, 3), (2, 3, 2)),
    ((3,), (2, 3, 2)),
    ((2, 2, 3), (3,)),
    ((2, 0, 3), (3, 2)),
)

# name: (shapes, options, what does not fit, reference, dtypes, extremes)
PRODUCTS: dict[str, tuple[tuple[Shapes, ...], tuple[dict, ...], Callable, Callable, tuple[DType, ...], tuple[str, ...]]] = {
    "torch.matmul": (
        ANY_RANKS,
        (),
        partial(product_errors, ((((2, 3), (2, 3)), MULTIPLIED), (((), (3,)), "need to be at least 1D")), ((2, 2), (2, 2))),
        np_product,
        NUMBERS,
        LARGE,
    ),
    "torch.mm": (
        MATRICES,
        (),
        partial(product_errors, ((((2, 3), (2, 3)), MULTIPLIED), (((3,), (3, 3)), "expected input with 2 dimensions")), ((2, 2), (2, 2))),
        np_product,
        NUMBERS,
        LARGE,
    ),
    "torch.bmm": (
        BATCHES,
        (),
        partial(product_errors, ((((2, 2, 3), (3, 3, 2)), MULTIPLIED), (((2, 3), (3, 3)), "with 3 dimensions")), ((1, 2, 2), (1, 2, 2))),
        np_product,
        NUMBERS,
        LARGE,
    ),
    "torch.mv": (
        (((2, 3), (3,)), ((1, 1), (1,)), ((0, 2), (2,)), ((2, 0), (0,))),
        (),
        partial(product_errors, ((((2, 3), (2,)), MULTIPLIED), (((3,), (3,)), "expected input with 2 dimensions")), ((2, 2), (2,))),
        np_product,
        NUMBERS,
        LARGE,
    ),
    "torch.dot": (
        VECTORS,
        (),
        partial(product_errors, ((((3,), (4,)), "inconsistent tensor size"), (((2, 2), (2,)), "with 1 dimensions")), ((2,), (2,))),
        np.dot,
        NUMBERS,
        LARGE,
    ),
    "torch.vdot": (
        VECTORS,
        (),
        partial(product_errors, ((((3,), (4,)), "inconsistent tensor size"), (((2, 2), (2,)), "with 1 dimensions")), ((2,), (2,))),
        np.vdot,
        NUMBERS,
        LARGE,
    ),
    "torch.inner": (
        (((3,), (3,)), ((2, 3), (3,)), ((2, 3), (4, 3)), ((2, 2, 3), (2, 3)), ((), (2, 3)), ((2,), ()), ((2, 0), (3, 0))),
        (),
        partial(shape_errors, ((((2, 3), (2, 4)), "the last dimension must match"),)),
        np.inner,
        NUMBERS,
        LARGE,
    ),
    "torch.outer": (
        (((3,), (4,)), ((1,), (1,)), ((0,), (3,))),
        (),
        partial(shape_errors, ((((2, 2), (2,)), "with 1 dimensions"),)),
        np.outer,
        ANY,
        EXTREMES,
    ),
    "torch.kron": (
        (((2, 3), (2, 2)), ((), (3,)), ((2,), (3,)), ((2, 1, 2), (2, 2)), ((0, 2), (2, 2)), ((1,), (1,))),
        (),
        lambda device: iter([ErrorSample((unwritten((2,)), 1.0), {}, TypeError, "must be")]),
        np.kron,
        ANY,
        EXTREMES,
    ),
    "torch.linalg.vecdot": (
        (((3, 4), (3, 4)), ((4,), (2, 4)), ((2, 3, 4), (3, 1)), ((2, 0), (2, 0)), ((1,), (1,))),
        ({"dim": 0},),
        partial(product_errors, ((((2, 3), (2, 4)), "size|shape|broadcast"),), ((2,), (2,))),
        np_vecdot,
        INEXACT,
        LARGE,
    ),
    "torch.linalg.cross": (
        (((3, 3), (3, 3)), ((3,), (3,)), ((2, 3), (1, 3)), ((2, 2, 3), (2, 1, 3)), ((0, 3), (0, 3))),
        ({"dim": 0}, {"dim": -2}),
        partial(product_errors, ((((2, 4), (2, 4)), "must have length 3"), (((2, 3), (3,)), "same number of dimensions")), ((2, 3), (2, 3))),
        np_linalg_cross,
        NUMBERS,
        LARGE,
    ),
    "torch.cross": (
        (((3, 3), (3, 3)), ((3,), (3,)), ((2, 3), (2, 3)), ((3, 2), (3, 1)), ((0, 3), (0, 3))),
        ({"dim": 1}, {"dim": -2}),
        partial(product_errors, ((((2, 4), (2, 4)), "no dimension of size 3"), (((2, 3), (3,)), "same number of dimensions")), ((2, 3), (2, 3))),
        np_cross,
        NUMBERS,
        LARGE,
    ),
    "torch.nn.functional.linear": (
        (
            ((2, 3), (4, 3), (4,)),
            ((2, 3), (4, 3)),
            ((3,), (2, 3), (2,)),
            ((2, 2, 3), (2, 3), (1,)),
            ((2, 3), (3,)),
            ((0, 3), (2, 3), (2,)),
            ((2, 0), (2, 0)),
        ),
        (),
        partial(
            product_errors,
            ((((2, 3), (4, 2)), MULTIPLIED), (((), (4, 3)), "at least 1D"), (((2, 3), (4, 3), (3,)), "size|shape|broadcast")),
            ((2, 3), (2, 3)),
        ),
        np_linear,
        NUMBERS,
        LARGE,
    ),
}


PROMOTING = {"torch.outer", "torch.kron"}  # others want one dtype


def scaled(product: Callable) -> Callable:
    def reference(input: np.ndarray, x: np.ndarray, y: np.ndarray, beta: Any = 1, alpha: Any = 1) -> np.ndarray:
        return ((beta * input if beta else 0) + alpha * product(x, y)).astype(input.dtype)

    return by_numpy(reference)


def scaled_samples(rows: tuple[Shapes, ...], dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield the products, and factors of the dtype's kind; with beta 0 the input is not read."""
    make = Maker(dtype, device, (-1, 1) if dtype.inexact else (-inf, inf))  # eager rounds halves between the steps
    yield from products(make, rows)
    first, *others = (make(*shape) for shape in rows[0])
    if dtype.kind == "int":
        yield SampleInput((first, *others), {"beta": 2, "alpha": 3})
    if dtype.inexact:
        yield SampleInput((first, *others), {"beta": 0.5, "alpha": -1.5})
        yield SampleInput((torch.full_like(first, torch.nan), *others), {"beta": 0}, (first,))


BATCHED = (((2, 2, 4), (2, 2, 3), (2, 3, 4)), ((4,), (2, 2, 3), (2, 3, 4)), ((1, 1, 1), (1, 1, 1), (1, 1, 1)), ((2, 2), (0, 2, 3), (0, 3, 2)))
TO_ONE = (((2, 4), (2, 2, 3), (2, 3, 4)), ((4,), (2, 2, 3), (2, 3, 4)), ((1, 1), (1, 1, 1), (1, 1, 1)), ((2, 2), (0, 2, 3), (0, 3, 2)))

# name: (shapes, shapes that do not fit and the error, reference of the product, dtypes)
SCALED: dict[str, tuple[tuple[Shapes, ...], tuple[tuple[Shapes, str], ...], Callable, tuple[DType, ...]]] = {
    "torch.addmm": (
        (((2, 4), (2, 3), (3, 4)), ((4,), (2, 3), (3, 4)), ((2, 1), (2, 3), (3, 4)), ((1, 1), (1, 1), (1, 1)), ((2, 3), (2, 0), (0, 3))),
        (
            (((2, 2), (2, 3), (2, 3)), MULTIPLIED),
            (((2, 4), (3,), (3, 4)), "expected mat1 with 2 dimensions"),
            (((3, 3), (2, 3), (3, 4)), "size|shape|expand"),
        ),
        np.matmul,
        NUMBERS,
    ),
    "torch.addmv": (
        (((2,), (2, 3), (3,)), ((1,), (2, 3), (3,)), ((), (2, 3), (3,)), ((1,), (1, 1), (1,)), ((2,), (2, 0), (0,))),
        ((((2,), (2, 3), (2,)), MULTIPLIED), (((2,), (3,), (3,)), "expected mat with 2 dimensions")),
        np.matmul,
        NUMBERS,
    ),
    "torch.baddbmm": (
        BATCHED,
        ((((2, 2, 4), (2, 2, 3), (3, 3, 4)), MULTIPLIED), (((4,), (2, 3), (2, 3, 4)), "expected batch1 with 3 dimensions")),
        np.matmul,
        NUMBERS,
    ),
    "torch.addbmm": (
        TO_ONE,
        ((((2, 4), (2, 2, 3), (3, 3, 4)), "expected batches"), (((4,), (2, 3), (2, 3, 4)), "expected batch1 with 3 dimensions")),
        lambda x, y: np.matmul(x, y).sum(0, dtype=x.dtype),
        NUMBERS,
    ),
    "torch.addr": (
        (((3, 4), (3,), (4,)), ((4,), (3,), (4,)), ((), (3,), (4,)), ((1, 1), (1,), (1,)), ((0, 2), (0,), (2,))),
        ((((3, 4), (3, 1), (4,)), "expected vec1 with 1 dimensions"), (((2, 2), (3,), (4,)), "size|shape|expand|broadcast")),
        np.outer,
        ANY,
    ),
}


def power_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield inverses of what is well conditioned, for dtypes that can be inverted."""
    make = Maker(dtype, device, (-2, 2))
    x = make(3, 3)
    yield SampleInput((x, 0), fixed=(x,))  # a result that depends on no value has no history
    for n in (1, 2, 3):
        yield SampleInput((make(3, 3), n))
    yield SampleInput((make(2, 3, 3).transpose(1, 2), 2))
    yield SampleInput((make(2, 4)[:, ::2], 3))
    yield SampleInput((make(0, 2, 2), 2))
    yield SampleInput((make(1, 1), 5))
    if dtype.bytes > 2 and dtype.inexact:
        x = make(2, 3, 3) + 6 * torch.eye(3)
        yield SampleInput((x, -1))
        yield SampleInput((x[0],), {"n": -3})


def diagonal_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in (make(3, 3), make(2, 4).t(), make(2, 3, 4), make(3, 1).expand(3, 4), make(0, 3), make(1, 1)):
        yield SampleInput((x,))
    for options in ({"offset": 1}, {"offset": -1, "dim1": 0}, {"offset": 1, "dim1": 2, "dim2": 0}):
        yield SampleInput((make(2, 3, 4),), options)


CHAINS: tuple[Shapes, ...] = (((2, 3), (3, 4)), ((2, 3), (3, 4), (4, 2)), ((3, 1), (1, 4), (4, 2), (2, 3)), ((2, 3), (3, 0), (0, 2)))


def chains(make: Maker) -> Iterator[list[Tensor]]:
    for i, shapes in enumerate(CHAINS):
        yield [laid(make, (*LAYOUTS, "row-major")[i], *shape) for shape in shapes]


def multi_dot_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for matrices in chains(make):
        yield SampleInput((matrices,))
    for shapes in (((3,), (3, 2), (2,)), ((3,), (3, 2), (2, 4)), ((2, 3), (3,))):
        yield SampleInput(([make(*shape) for shape in shapes],))


def chain_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for matrices in chains(Maker(dtype, device)):
        yield SampleInput(tuple(matrices))
    yield SampleInput((Maker(dtype, device)(2, 3),))


def power_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)), 2), {}, RuntimeError, "must have at least 2 dimensions")
    yield ErrorSample((unwritten((2, 3)), 2), {}, RuntimeError, "must be batches of square matrices")
    yield ErrorSample((unwritten((2, 2)), 1.5), {}, TypeError, "must be int")


def diagonal_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)),), {}, IndexError, "Dimension out of range")
    yield ErrorSample((unwritten((3, 3)),), {"dim1": 1, "dim2": -1}, RuntimeError, "identical|distinct|different")


def multi_dot_errors(device: Device) -> Iterator[ErrorSample]:
    matrix = unwritten((2, 3))
    yield ErrorSample(([matrix],), {}, RuntimeError, "expected at least 2 tensors but got 1")
    yield ErrorSample(([matrix, matrix, matrix],), {}, RuntimeError, "cannot be multiplied")
    yield ErrorSample(([matrix, unwritten((3,)), matrix],), {}, RuntimeError, "tensor 1 must be 2D")


def chain_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((3,))), {}, RuntimeError, "with 2 dimensions")
    yield ErrorSample((unwritten((2, 3)), unwritten((2, 3))), {}, RuntimeError, "cannot be multiplied")


def np_power(x: np.ndarray, n: int) -> np.ndarray:
    return np.linalg.matrix_power(x, n)


def np_diagonal(x: np.ndarray, offset: int = 0, dim1: int = -2, dim2: int = -1) -> np.ndarray:
    return np.diagonal(x, offset, dim1, dim2)


# name: (samples, error samples, reference, dtypes)
ODD: dict[str, tuple[Callable, Callable, Callable, tuple[DType, ...]]] = {
    "torch.linalg.matrix_power": (power_samples, power_errors, np_power, NUMBERS),
    "torch.linalg.diagonal": (diagonal_samples, diagonal_errors, np_diagonal, ANY),
    "torch.linalg.multi_dot": (multi_dot_samples, multi_dot_errors, lambda matrices: fold(np.matmul, matrices), NUMBERS),
    "torch.chain_matmul": (chain_samples, chain_errors, lambda *matrices: fold(np.matmul, matrices), NUMBERS),
}

OPINFOS += [
    OpInfo(symbol_for(name), partial(product_samples, rows, options, name in PROMOTING), errors, by_numpy(fn), accepted, True, extremes=extremes)
    for name, (rows, options, errors, fn, accepted, extremes) in PRODUCTS.items()
]
OPINFOS += [
    OpInfo(symbol_for(name), partial(scaled_samples, rows), partial(shape_errors, wrong), scaled(fn), accepted, True)
    for name, (rows, wrong, fn, accepted) in SCALED.items()
]
OPINFOS += [OpInfo(symbol_for(name), samples, errors, by_numpy(fn), accepted, True) for name, (samples, errors, fn, accepted) in ODD.items()]
