"""Several tensors made one, and one made several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import (
    ANY,
    EXTREMES,
    LAYOUTS,
    OPINFOS,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    from_rows,
    laid,
    refused_rows,
    unwritten,
)

OUT_OF_RANGE = (IndexError, "Dimension out of range")
NO_DIMS = (RuntimeError, "at least a 1-dimensional tensor")


def tensors_of(make: Maker, shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    """Return tensors of these shapes, the first row-major, the others in other layouts."""
    return [laid(make, layout, *shape) for layout, shape in zip(itertools.cycle(("row-major", *LAYOUTS)), shapes)]


def joined_samples(rows: tuple[tuple, ...], dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield samples: a row is the shapes of the tensors, then further arguments, perhaps a dict of keywords; the last ones promote."""
    make = Maker(dtype, device)
    for shapes, *args in rows:
        named = args.pop() if args and isinstance(args[-1], dict) else {}
        yield SampleInput((tensors_of(make, shapes), *args), named)
    yield SampleInput((tuple(make(2, 3, dtype=d) for d in (dtypes.int32, dtype, dtypes.float32)),))
    if any((0,) in shapes for shapes, *_ in rows):
        yield SampleInput(((make(3), make(0, dtype=dtypes.complex64), make(2)),))  # one without elements has a dtype that counts


def joined_errors(rows: tuple[tuple, ...], device: Device) -> Iterator[ErrorSample]:
    for shapes, *args, error, match in rows:
        yield ErrorSample(([unwritten(shape) for shape in shapes], *args), {}, error, match)
    yield ErrorSample(([unwritten((2,)), 3],), {}, TypeError, "expected Tensor as element 1")


def np_cat(tensors: Any, dim: int = 0) -> np.ndarray:
    return np.concatenate([x for x in tensors if x.shape != (0,)] or tensors[:1], dim)


def listed(fn: Callable) -> Callable:
    """Adapt a NumPy function of a list of arrays to a list or tuple of tensors."""
    numpy = by_numpy(lambda arrays, *args: fn(arrays, *args))
    return lambda tensors, *args, **named: numpy(list(tensors), *args, *named.values())


MISMATCH = (RuntimeError, "Sizes of tensors must match|must match the size")
# operation: (reference, rows of samples, rows of errors)
JOINED: dict[str, tuple[Callable, tuple[tuple, ...], tuple[tuple, ...]]] = {
    "torch.cat": (
        np_cat,
        (
            (((3,),),),
            (((3,), (0,), (2,)),),
            (((2, 3), (2, 1), (2, 0)), 1),
            (((2, 3), (0,), (4, 3)), {"dim": -2}),
            (((2, 3, 4), (2, 1, 4)), 1),
            (((0, 3), (0, 3)),),
            (((3, 4), (3, 4), (3, 4), (3, 4)), {"dim": -1}),
        ),
        (
            (((2,), ()), RuntimeError, "zero-dimensional tensor"),
            (((2, 3), (2, 2)), *MISMATCH),
            (((2, 3), (2,)), RuntimeError, "same number of dimensions"),
            (((2, 3), (2, 3)), 2, *OUT_OF_RANGE),
            ((), ValueError, "non-empty list of Tensors"),
        ),
    ),
    "torch.stack": (
        np.stack,
        ((((), ()),), (((3,), (3,), (3,)), 1), (((2, 3), (2, 3)), {"dim": -1}), (((0, 2), (0, 2)),), (((2, 3, 2), (2, 3, 2)), 1)),
        ((((2, 3), (3, 2)), RuntimeError, "equal size"), (((2, 3),), 3, *OUT_OF_RANGE), ((), RuntimeError, "non-empty TensorList")),
    ),
    "torch.hstack": (
        np.hstack,
        ((((), (2,)),), (((3,), (0,), (2,)),), (((2, 3), (2, 1)),), (((2, 3, 2), (2, 1, 2)),), (((0, 2), (0, 3)),)),
        ((((2, 3), (3, 3)), *MISMATCH),),
    ),
    "torch.vstack": (
        np.vstack,
        ((((), ()),), (((3,), (3,)),), (((3,), (2, 3)),), (((2, 3, 2), (1, 3, 2)),), (((0, 2), (1, 2)),)),
        ((((2, 3), (2, 2)), *MISMATCH),),
    ),
    "torch.dstack": (
        np.dstack,
        ((((), ()),), (((3,), (3,)),), (((2, 3), (2, 3)),), (((2, 3, 2), (2, 3, 1)),), (((0, 2), (0, 2)),)),
        ((((2, 3), (2, 2)), *MISMATCH),),
    ),
    "torch.column_stack": (
        np.column_stack,
        ((((), ()),), (((3,), (3,)),), (((2,), (2, 3)),), (((2, 3), (2, 1)),), (((0, 2), (0, 2)),)),
        ((((2, 3), (3,)), *MISMATCH),),
    ),
}


def block_diag_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shapes in (((),), ((3,), (2, 2)), ((2, 3), (1, 1), (3, 2)), ((0, 2), (2, 0), (1, 1)), ((2, 1), ())):
        yield SampleInput((*tensors_of(make, shapes),))
    yield SampleInput((make(2, 2), make(1, 2, dtype=dtypes.float32)))


def block_diag_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 2)), unwritten((1, 2, 2))), {}, RuntimeError, "must have 2 or fewer dimensions")
    yield ErrorSample((unwritten((2, 2)), 3), {}, TypeError, "expected Tensor as element 1")


def np_block_diag(*arrays: np.ndarray) -> np.ndarray:
    if arrays[0].dtype == bool:
        return scipy.linalg.block_diag(*[x.astype(np.int8) if x.dtype == bool else x for x in arrays])
    return scipy.linalg.block_diag(*arrays)


def meshgrid_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shapes in (((3,),), ((3,), (2,)), ((), (3,), (2,)), ((0,), (2,)), ((1,), (2,), (1,), (2,))):
        yield SampleInput((*tensors_of(make, shapes),), {"indexing": "ij"})
    yield SampleInput((make(3), make(2), make(2)), {"indexing": "xy"})
    yield SampleInput(([make(4)[::2], make(3)],))


def meshgrid_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((3,))
    yield ErrorSample((x, unwritten((2, 2))), {}, RuntimeError, "Expected 0D or 1D tensor")
    yield ErrorSample((x, unwritten((2,), dtypes.int64)), {}, RuntimeError, "same dtype")
    yield ErrorSample((x, x), {"indexing": "ji"}, RuntimeError, "indexing must be one of")


def np_meshgrid(*arrays: Any, indexing: str = "ij") -> tuple[np.ndarray, ...]:
    return tuple(np.meshgrid(*(arrays[0] if isinstance(arrays[0], list) else arrays), indexing=indexing))


def product_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shapes in (((3,),), ((3,), (2,)), ((2,), (1,), (3,)), ((2,), (0,))):
        yield SampleInput((*tensors_of(make, shapes),))


def product_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)), unwritten((2, 2))), {}, RuntimeError, "Expect a 1D vector")


def np_product(*arrays: np.ndarray) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.array(list(itertools.product(*arrays)), arrays[0].dtype).reshape(-1, len(arrays))


# One made several.


def np_split(x: np.ndarray, size: Any = None, dim: int = 0, **named: Any) -> tuple[np.ndarray, ...]:
    """Split into parts of one size, or of the sizes listed."""
    size = next(iter(named.values())) if size is None else size
    ends = list(itertools.accumulate(size))[:-1] if isinstance(size, (tuple, list)) else range(size, x.shape[dim], size) if size else []
    return tuple(np.split(x, ends, dim))


def np_chunk(x: np.ndarray, chunks: int, dim: int = 0) -> tuple[np.ndarray, ...]:
    size = -(-x.shape[dim] // chunks)
    return np_split(x, size, dim) if size else (x,) * chunks


def np_tensor_split(x: np.ndarray, where: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None) -> tuple[np.ndarray, ...]:
    where = next(w for w in (where, indices, sections) if w is not None)
    return tuple(np.array_split(x, where, dim))


def by_name(fn: Callable) -> Callable:
    """numpy.hsplit and its like, whose second argument torch knows by two names."""
    return lambda x, *where, **named: tuple(fn(x, *where, *named.values()))


SIZES = ((RuntimeError, "sum exactly to"), (RuntimeError, "non-negative"))
SPLITS = (
    (((5,), 2), ((2, 5), (1, 0, 4), 1), ((2, 6, 3), 6, {"dim": 1}), ((0, 3), 0), ((4, 1), [3, 1], -2), ((3,), 7)),
    (((), 1, *NO_DIMS), ((3,), (1, 1), *SIZES[0]), ((3,), -1, *SIZES[1]), ((3,), 1, 1, *OUT_OF_RANGE), ((3,), "1", TypeError, "")),
)
# operation: (reference, rows of samples, rows of errors)
PARTED: dict[str, tuple[Callable, tuple[tuple, ...], tuple[tuple, ...]]] = {
    "torch.split": (np_split, (*SPLITS[0], ((4, 3), {"split_size_or_sections": 3})), SPLITS[1]),
    "torch.Tensor.split": (np_split, (*SPLITS[0], ((4, 3), {"split_size": 3})), SPLITS[1]),
    "torch.unsafe_split": (
        np_split,
        (((5,), 2), ((2, 5), 2, 1), ((2, 6, 3), {"split_size": 6, "dim": 1}), ((0, 3), 0), ((3,), 7)),
        (((), 1, *NO_DIMS), ((3,), -1, *SIZES[1]), ((3,), 1, 1, *OUT_OF_RANGE), ((3,), "1", TypeError, "")),
    ),
    "torch.split_with_sizes": (
        np_split,
        (((5,), (2, 3)), ((2, 5), (1, 0, 4), 1), ((2, 3, 4), {"split_sizes": [1, 3], "dim": -1}), ((0,), (0, 0))),
        (((), (1,), RuntimeError, ""), ((3,), (1, 1), *SIZES[0]), ((3,), (4, -1), *SIZES[1]), ((3,), (3,), 1, *OUT_OF_RANGE)),
    ),
    "torch.unsafe_split_with_sizes": (
        np_split,
        (((5,), (2, 3)), ((2, 5), (1, 0, 4), 1), ((2, 3, 4), {"split_sizes": [1, 3], "dim": -1}), ((0,), (0, 0))),
        (((), (1,), RuntimeError, ""), ((3,), (1, 1), *SIZES[0]), ((3,), (4, -1), *SIZES[1]), ((3,), (3,), 1, *OUT_OF_RANGE)),
    ),
    "torch.chunk": (
        np_chunk,
        (((5,), 2), ((2, 5), 3, 1), ((2, 6, 3), {"chunks": 2, "dim": -1}), ((0, 3), 2), ((3,), 5), ((1,), 1)),
        (((), 1, *NO_DIMS), ((3,), 0, RuntimeError, "greater than 0"), ((3,), 1, 1, *OUT_OF_RANGE)),
    ),
    "torch.unsafe_chunk": (
        np_chunk,
        (((5,), 2), ((2, 5), 3, 1), ((2, 6, 3), {"chunks": 2, "dim": -1}), ((0, 3), 2), ((3,), 5), ((1,), 1)),
        (((), 1, *NO_DIMS), ((3,), 0, RuntimeError, "greater than 0"), ((3,), 1, 1, *OUT_OF_RANGE)),
    ),
    "torch.tensor_split": (
        np_tensor_split,
        (((5,), 2), ((2, 5), (1, 3), 1), ((2, 6, 3), {"sections": 4, "dim": -1}), ((0, 3), 2), ((5,), {"indices": [2, -1, 9]}), ((3,), 5)),
        (((), 1, *NO_DIMS), ((3,), 0, RuntimeError, "larger than 0"), ((3,), 1, 1, *OUT_OF_RANGE), ((3,), 1.5, TypeError, "")),
    ),
    "torch.hsplit": (
        by_name(np.hsplit),
        (((6,), 2), ((2, 6), 3), ((2, 5, 3), (1, 3)), ((2, 0), 2), ((4,), {"indices": [1]}), ((4, 2), {"sections": 1})),
        (((), 1, RuntimeError, "at least 1 dimension|at least a 1-dimensional"), ((2, 3), 2, RuntimeError, "not divisible")),
    ),
    "torch.vsplit": (
        by_name(np.vsplit),
        (((6, 2), 2), ((2, 6), (1,)), ((4, 2, 3), (1, 3)), ((0, 2), 2), ((4, 1), {"indices": [1]}), ((4, 2), {"sections": 1})),
        (((3,), 1, RuntimeError, "at least 2 dimension"), ((3, 2), 2, RuntimeError, "not divisible")),
    ),
    "torch.dsplit": (
        by_name(np.dsplit),
        (((1, 2, 6), 2), ((2, 1, 6), (1,)), ((2, 3, 5), (1, 3)), ((2, 2, 0), 2), ((2, 2, 4, 1), {"indices": [1]}), ((1, 1, 2), {"sections": 1})),
        (((3, 2), 1, RuntimeError, "at least 3 dimension"), ((1, 2, 3), 2, RuntimeError, "not divisible")),
    ),
    "torch.unbind": (
        lambda x, dim=0: tuple(np.moveaxis(x, dim, 0)),
        (((3,),), ((2, 3), 1), ((2, 3, 2), {"dim": -1}), ((0, 2),), ((1, 3),)),
        (((), IndexError, "no dimensions"), ((3,), 1, *OUT_OF_RANGE)),
    ),
    "torch.select": (
        lambda x, dim, index: x.take(index, dim),
        (((3,), 0, 1), ((2, 3), 1, -1), ((2, 3, 4), {"dim": -1, "index": 0}), ((1, 3), 0, -1), ((2, 0), 0, 1)),
        (((), 0, 0, IndexError, "0-dim tensor"), ((3,), 0, 3, IndexError, "out of range"), ((3,), 1, 0, *OUT_OF_RANGE)),
    ),
    "torch.narrow": (
        lambda x, dim, start, length: np.moveaxis(np.moveaxis(x, dim, 0)[start:][:length], 0, dim),
        (((3,), 0, 1, 2), ((2, 3), 1, -2, 1), ((2, 3, 4), {"dim": -1, "start": 0, "length": 4}), ((3, 2), 0, 3, 0), ((0, 2), 1, 1, 1)),
        (
            ((), 0, 0, 0, RuntimeError, "0-dim tensor"),
            ((3,), 0, 4, 0, IndexError, "start out of range"),
            ((3,), 0, 2, 2, RuntimeError, "exceeds dimension size"),
            ((3,), 0, 0, -1, RuntimeError, "non-negative"),
            ((3,), 1, 0, 1, *OUT_OF_RANGE),
        ),
    ),
}


def info(name: str, samples: Callable, errors: Callable, reference: Callable) -> OpInfo:
    return OpInfo(symbol_for(name), samples, errors, reference, ANY, grad=True, extremes=EXTREMES)


OPINFOS += [
    info(name, partial(joined_samples, rows), partial(joined_errors, errors), listed(reference)) for name, (reference, rows, errors) in JOINED.items()
]
OPINFOS += [
    info(name, partial(from_rows, rows), partial(refused_rows, errors), by_numpy(reference)) for name, (reference, rows, errors) in PARTED.items()
]
OPINFOS += [
    info("torch.block_diag", block_diag_samples, block_diag_errors, by_numpy(np_block_diag)),
    info("torch.meshgrid", meshgrid_samples, meshgrid_errors, by_numpy(np_meshgrid)),
    info("torch.cartesian_prod", product_samples, product_errors, by_numpy(np_product)),
]
