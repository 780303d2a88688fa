"""Elements in another order or kept in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    ANY,
    COMPLEX,
    EXTREMES,
    LAYOUTS,
    OPINFOS,
    Directive,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    by_position,
    from_rows,
    laid,
    refused_rows,
    unwritten,
)

OUT_OF_RANGE = (IndexError, "Dimension out of range")
IDENTICAL = (RuntimeError, "diagonal dimensions cannot be identical")


def np_roll(x: np.ndarray, shifts: Any, dims: Any = ()) -> np.ndarray:
    return np.roll(x, shifts, None if dims == () else dims) if x.ndim else x


def np_diag_embed(x: np.ndarray, offset: int = 0, dim1: int = -2, dim2: int = -1) -> np.ndarray:
    side, n = x.shape[-1] + abs(offset), np.arange(x.shape[-1])
    out = np.zeros((*x.shape[:-1], side, side), x.dtype)
    out[..., n + max(-offset, 0), n + max(offset, 0)] = x
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def np_unfold(x: np.ndarray, dimension: int, size: int, step: int) -> np.ndarray:
    if not x.ndim:
        return x.reshape(1)[:size]
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dimension)
    return windows[(slice(None),) * (dimension % x.ndim) + (slice(None, None, step),)]


# operation: (reference, rows of samples, rows of errors)
ROWS: dict[str, tuple[Callable, tuple[tuple, ...], tuple[tuple, ...]]] = {
    "torch.flip": (
        np.flip,
        (((), ()), ((3,), (0,)), ((4, 3), (0, -1)), ((2, 3, 4), [1]), ((2, 0, 3), {"dims": (2, 0)}), ((2, 3), ())),
        (((2, 3), (2,), *OUT_OF_RANGE), ((2, 3), (0, -2), RuntimeError, "appears multiple times")),
    ),
    "torch.fliplr": (np.fliplr, (((4, 3),), ((2, 3, 2),), ((2, 0),), ((1, 1),)), (((3,), RuntimeError, "must be >= 2-d"),)),
    "torch.flipud": (np.flipud, (((3,),), ((4, 3),), ((2, 3, 2),), ((0, 2),), ((1,),)), (((), RuntimeError, "must be >= 1-d"),)),
    "torch.rot90": (
        lambda x, k=1, dims=(0, 1): np.rot90(x, k, dims),
        (((4, 3),), ((2, 3), 2), ((2, 3, 4), -1, (1, 2)), ((3, 2), {"k": 3, "dims": [1, 0]}), ((2, 0), 1), ((2, 2), 4)),
        (
            ((3,), RuntimeError, "expected total dims >= 2"),
            ((2, 3), 1, (0,), RuntimeError, "expected total rotation dims == 2"),
            ((2, 3), 1, (0, -2), RuntimeError, "expected rotation dims to be different"),
        ),
    ),
    "torch.roll": (
        np_roll,
        (
            *(((), 1), ((5,), 2), ((5,), 13), ((3,), -4, 0), ((4, 3), 4), ((4, 3), 15), ((4, 3), -1, 0), ((4, 3), 6, 0)),
            *(((2, 3, 4), (1, -6), (0, 2)), ((2, 3), (1, 4), (1, 1)), ((2, 0), 1, 1), ((3, 2), {"shifts": (1,), "dims": (-1,)})),
        ),
        (
            ((2, 3), (1, 2), 0, RuntimeError, "shifts and dimensions must align"),
            ((2, 3), (1, 2), RuntimeError, "shifts and dimensions must align"),
            ((2, 3), 1, 2, *OUT_OF_RANGE),
            ((), 1, 0, IndexError, "no dimensions"),
        ),
    ),
    "torch.diagonal": (
        np.diagonal,
        (((3, 3),), ((3, 4), 1), ((2, 3, 4), 0, 2, 0), ((2, 3, 4), {"offset": -1, "dim1": -2, "dim2": -1}), ((2, 3), 7), ((0, 3),), ((1, 4),)),
        (((3,), *OUT_OF_RANGE), ((2, 3), 0, 1, -1, *IDENTICAL)),
    ),
    "torch.diag_embed": (
        np_diag_embed,
        (((3,),), ((2, 3),), ((2, 3), 1), ((2, 2), -1, 0, 2), ((2, 3), {"offset": 0, "dim1": 0, "dim2": 1}), ((0,),), ((2, 1),)),
        (((), IndexError, "Dimension out of range|at least a 1-dimensional"), ((2, 3), 0, 1, 1, *IDENTICAL), ((2, 3), 0, 3, 0, *OUT_OF_RANGE)),
    ),
    "torch.diag": (
        np.diag,
        (((3,),), ((2,), -1), ((3, 4),), ((3, 4), {"diagonal": 2}), ((2, 3), -5), ((0,),), ((1, 1),)),
        (((), RuntimeError, "1D or 2D"), ((2, 3, 4), RuntimeError, "1D or 2D")),
    ),
    "torch.diagflat": (np.diagflat, (((),), ((3,),), ((2, 2), 1), ((2, 1, 2), {"offset": -1}), ((0, 3),)), (((2,), "0", TypeError, ""),)),
    "torch.tril": (
        np.tril,
        (((3, 3),), ((3, 4), 1), ((4, 2), {"diagonal": -1}), ((2, 3, 3),), ((2, 0),), ((2, 3), 9), ((1, 2, 2, 3), -9)),
        (((3,), RuntimeError, "at least 2 dimensions"),),
    ),
    "torch.triu": (
        np.triu,
        (((3, 3),), ((3, 4), 1), ((4, 2), {"diagonal": -1}), ((2, 3, 3),), ((2, 0),), ((2, 3), 9), ((1, 2, 2, 3), -9)),
        (((3,), RuntimeError, "at least 2 dimensions"),),
    ),
    "torch.Tensor.unfold": (
        np_unfold,
        (((), 0, 1, 1), ((7,), 0, 3, 2), ((4, 5), 1, 3, 1), ((2, 6, 3), -2, 1, 4), ((7,), {"dimension": 0, "size": 2, "step": 3}), ((4, 2), 0, 2, 2)),
        (
            ((3,), 0, 4, 1, RuntimeError, "maximum size for tensor at dimension 0 is 3 but size is 4"),
            ((3,), 0, 1, 0, RuntimeError, "step is 0 but must be > 0"),
            ((3,), 0, -1, 1, RuntimeError, "size is -1 but must be >= 0"),
            ((3,), 1, 1, 1, *OUT_OF_RANGE),
        ),
    ),
}


# Tensors with a part replaced: a row is the tensor's shape, the part's, and the arguments that say where it goes.
SLICES = (
    ((5,), (5,)),
    ((5,), (2,), 0, 1, 3),
    ((4, 3), (2, 3), 0, 0, None, 2),
    ((4, 3), (4, 1), {"dim": -1, "start": -1, "end": None}),
    ((2, 3), (0, 3), 0, 2, 1),
)
SELECTS = (((3,), (), 0, 1), ((4, 3), (4,), 1, -1), ((2, 3, 4), (2, 3), {"dim": -1, "index": 2}), ((2, 0), (0,), 0, 1))
DIAGONALS = (
    ((3, 3), (3,)),
    ((3, 4), (3,), 1),
    ((2, 3, 4), (3, 2), 0, 2, 0),
    ((2, 3, 4), (2, 2), {"offset": -1, "dim1": 1, "dim2": -1}),
    ((2, 3), (0,), 7),
)


def part_samples(rows: tuple[tuple, ...], dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield a row as it is, and with both tensors in other layouts; at the end a part of another dtype.

    The first tensor has no gaps: eager would keep them, and Dovetail makes no tensor that has any.
    """
    make = Maker(dtype, device)
    for (shape, part, *args), layout, other in zip(rows, cycle(("column-major", "repeated")), cycle(LAYOUTS)):
        named = args.pop() if args and isinstance(args[-1], dict) else {}
        yield SampleInput((make(*shape), make(*part), *args), named)
        yield SampleInput((laid(make, layout, *shape), laid(make, other, *part), *args), named)
    shape, part, *args = rows[1]
    yield SampleInput((make(*shape), make(*part, dtype=dtypes.int32), *args))


def part_errors(rows: tuple[tuple, ...], device: Device) -> Iterator[ErrorSample]:
    for shape, part, *args, error, match in rows:
        yield ErrorSample((unwritten(shape), unwritten(part), *args), {}, error, match)


def np_slice_scatter(x: np.ndarray, src: np.ndarray, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> np.ndarray:
    out = x.copy()
    np.moveaxis(out, dim, 0)[start:end:step] = np.moveaxis(src, dim, 0)
    return out


def np_select_scatter(x: np.ndarray, src: np.ndarray, dim: int, index: int) -> np.ndarray:
    out = x.copy()
    np.moveaxis(out, dim, 0)[index] = src
    return out


def np_diagonal_scatter(x: np.ndarray, src: np.ndarray, offset: int = 0, dim1: int = 0, dim2: int = 1) -> np.ndarray:
    out = x.copy()
    which = np.diagonal(np.arange(x.size).reshape(x.shape), offset, dim1, dim2)
    out.reshape(-1)[which] = src
    return out


UNEQUAL = (RuntimeError, "to have a size equal to the slice of self")
# operation: (reference, rows of samples, rows of errors)
PARTS: dict[str, tuple[Callable, tuple[tuple, ...], tuple[tuple, ...]]] = {
    "torch.slice_scatter": (
        np_slice_scatter,
        SLICES,
        (((5,), (4,), 0, 1, 3, *UNEQUAL), ((5,), (5,), 1, *OUT_OF_RANGE), ((5,), (5,), 0, 0, 5, 0, RuntimeError, "slice step must be positive")),
    ),
    "torch.select_scatter": (
        np_select_scatter,
        SELECTS,
        (((2, 3), (2,), 0, 0, *UNEQUAL), ((2, 3), (3,), 0, 2, IndexError, "out of range"), ((2, 3), (3,), 2, 0, *OUT_OF_RANGE)),
    ),
    "torch.diagonal_scatter": (
        np_diagonal_scatter,
        DIAGONALS,
        (((3, 3), (2,), *UNEQUAL), ((3, 3), (3,), 0, 1, 1, *IDENTICAL), ((3,), (3,), *OUT_OF_RANGE)),
    ),
}


def info(name: str, samples: Callable, errors: Callable, reference: Callable, **more: Any) -> OpInfo:
    return OpInfo(symbol_for(name), samples, errors, by_numpy(by_position(reference)), ANY, grad=True, extremes=EXTREMES, **more)


OPINFOS += [info(name, partial(from_rows, rows), partial(refused_rows, errors), reference) for name, (reference, rows, errors) in ROWS.items()]
NO_GRADIENT = Directive("skip", "eager refuses the gradient of a complex result", check="backward", dtypes=COMPLEX)
OPINFOS += [
    info(
        name,
        partial(part_samples, rows),
        partial(part_errors, errors),
        reference,
        directives=(NO_GRADIENT,) if name != "torch.diagonal_scatter" else (),
    )
    for name, (reference, rows, errors) in PARTS.items()
]
