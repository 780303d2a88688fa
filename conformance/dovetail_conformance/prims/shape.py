"""Views, and what rearranges elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail_conformance.opinfo import (
    ANY,
    COMPLEX,
    FULL_FLOATS,
    NUMBERS,
    OPINFOS,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    by_numpy,
    unwritten,
)

STORED = (*ANY, dtypes.float8_e5m2)


def reshape_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),), {"shape": (1, 1)})
    yield SampleInput((make(1, 1),), {"shape": ()})
    yield SampleInput((make(4, 6),), {"shape": (2, 2, 3, 2)})
    yield SampleInput((make(4, 6),), {"shape": (24,)})
    yield SampleInput((make(0, 3),), {"shape": (3, 0, 2)})
    yield SampleInput((make(4, 8)[:, :6],), {"shape": (2, 2, 3, 2)})
    yield SampleInput((make(3, 4).t(),), {"shape": (2, 2, 1, 3)})
    yield SampleInput((make(3, 1).expand(3, 4),), {"shape": (3, 2, 2)})
    yield SampleInput((make(6)[::2],), {"shape": (1, 3, 1)})


def reshape_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)),), {"shape": (5,)}, RuntimeError, "shape .* is invalid for .* 6 elements")
    yield ErrorSample((unwritten((2, 3)),), {"shape": (-1, 3)}, RuntimeError, "non-negative sizes")
    yield ErrorSample((unwritten((2, 3)).t(),), {"shape": (6,)}, RuntimeError, "without a copy; clone it first")


def transpose_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device).layouts():
        for turn in range(x.ndim or 1):
            order = tuple((d + turn) % x.ndim for d in range(x.ndim))
            yield SampleInput((x,), {"order": order})
            yield SampleInput((x,), {"order": tuple(reversed(order))})


def transpose_errors(device: Device) -> Iterator[ErrorSample]:
    for order in ((0,), (0, 0), (0, 2)):
        yield ErrorSample((unwritten((2, 3)),), {"order": order}, RuntimeError, "expected a permutation of the dims")


def squeeze_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),), {"dims": ()})
    yield SampleInput((make(2, 1, 3),), {"dims": (1,)})
    yield SampleInput((make(1, 2, 1),), {"dims": (0, 2)})
    yield SampleInput((make(1, 2, 1),), {"dims": (2,)})
    yield SampleInput((make(1, 1),), {"dims": (0, 1)})
    yield SampleInput((make(3, 1, 4).permute(2, 1, 0),), {"dims": (1,)})


def squeeze_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 1)),), {"dims": (0,)}, RuntimeError, "expected size 1")
    yield ErrorSample((unwritten((2, 1)),), {"dims": (2,)}, IndexError, "expected a dim")


WINDOWS = (
    ((), (), (), ()),
    ((5,), (1,), (4,), (1,)),
    ((5,), (0,), (5,), (2,)),
    ((5,), (2,), (2,), (1,)),
    ((4, 6), (1, 0), (4, 6), (2, 3)),
    ((4, 6), (0, 1), (4, 2), (1, 1)),
    ((2, 3, 4), (0, 1, 0), (2, 3, 3), (1, 1, 2)),
)  # shape, starts, stops, steps


def slice_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, starts, stops, steps in WINDOWS:
        window = {"starts": starts, "stops": stops, "steps": steps}
        yield SampleInput((make(*shape),), window)
        yield SampleInput((_turned(make, shape),), window)


def _turned(make: Maker, shape: tuple[int, ...]) -> Any:
    """Make a tensor of `shape` that is column-major."""
    return make(*reversed(shape)).permute(tuple(reversed(range(len(shape)))))


def slice_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((3,))
    yield ErrorSample((x,), {"starts": (0,), "stops": (4,), "steps": (1,)}, IndexError, "expected bounds in order and within 3")
    yield ErrorSample((x,), {"starts": (2,), "stops": (1,), "steps": (1,)}, IndexError, "expected bounds in order")
    yield ErrorSample((x,), {"starts": (0,), "stops": (1,), "steps": (0,)}, ValueError, "slice step must be positive")
    yield ErrorSample((x,), {"starts": (0, 0), "stops": (1, 1), "steps": (1, 1)}, IndexError, "expected one start, stop and step")


def window_of(starts: tuple, stops: tuple, steps: tuple) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops, steps))


def put_slice_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for sample in slice_samples(dtype, device):
        (x,) = sample.args
        yield SampleInput((x, make(*x[window_of(**sample.kwargs)].shape)), sample.kwargs)
    window = {"starts": (0, 0), "stops": (3, 2), "steps": (1, 1)}
    yield SampleInput((make(3, 8)[:, ::2], make(2, 3).t()), window)
    yield SampleInput((make(3, 1).expand(3, 4), make(3, 2)), window)


def put_slice_errors(device: Device) -> Iterator[ErrorSample]:
    window = {"starts": (0,), "stops": (2,), "steps": (1,)}
    yield ErrorSample((unwritten((3,)), unwritten((3,))), window, RuntimeError, "expected a value for")
    yield ErrorSample((unwritten((3,)), unwritten((2,), dtypes.int64)), window, RuntimeError, "expected a value for")


def np_put_slice(x: np.ndarray, value: np.ndarray, **window: Any) -> np.ndarray:
    out = x.copy()
    out[window_of(**window)] = value
    return out


DIAGONALS = (
    ((3, 3), 0, 0, 1),
    ((3, 4), 1, 0, 1),
    ((4, 3), -2, 0, 1),
    ((2, 3, 4), 0, 2, 0),
    ((2, 3, 4), 1, 1, 2),
    ((2, 3), 7, 0, 1),
    ((0, 3), 0, 0, 1),
)


def diagonal_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, offset, dim1, dim2 in DIAGONALS:
        which = {"offset": offset, "dim1": dim1, "dim2": dim2}
        yield SampleInput((make(*shape),), which)
        yield SampleInput((_turned(make, shape),), which)


def put_diagonal_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for sample in diagonal_samples(dtype, device):
        (x,) = sample.args
        yield SampleInput((x, make(*x.diagonal(**sample.kwargs).shape)), sample.kwargs)


def diagonal_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)),), {"offset": 0, "dim1": 0, "dim2": 2}, IndexError, "expected a dim")
    yield ErrorSample((unwritten((2, 3)),), {"offset": 0, "dim1": 1, "dim2": 1}, RuntimeError, "diagonal dimensions cannot be identical")


def put_diagonal_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((3,))), {"offset": 0, "dim1": 0, "dim2": 1}, RuntimeError, "expected a value for")


def np_put_diagonal(x: np.ndarray, value: np.ndarray, *, offset: int, dim1: int, dim2: int) -> np.ndarray:
    out = x.copy()
    np.moveaxis(out, (dim1, dim2), (-2, -1))[..., *_positions(out.shape[dim1], out.shape[dim2], offset)] = value
    return out


def _positions(rows: int, columns: int, offset: int) -> tuple[np.ndarray, np.ndarray]:
    row = np.arange(rows)
    row = row[(row + offset >= 0) & (row + offset < columns)]
    return row, row + offset


def unfold_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(7),), {"dim": 0, "size": 3, "step": 2})
    yield SampleInput((make(7),), {"dim": 0, "size": 2, "step": 3})
    yield SampleInput((make(4),), {"dim": 0, "size": 2, "step": 2})
    yield SampleInput((make(4, 5),), {"dim": 1, "size": 3, "step": 1})
    yield SampleInput((make(4, 5).t(),), {"dim": 0, "size": 5, "step": 2})
    yield SampleInput((make(2, 6, 3),), {"dim": 1, "size": 1, "step": 4})


def unfold_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)),), {"dim": 0, "size": 4, "step": 1}, RuntimeError, "maximum size for tensor at dimension 0 is 3 but size is 4")
    yield ErrorSample((unwritten((3,)),), {"dim": 0, "size": 1, "step": 0}, RuntimeError, "step is 0 but must be > 0")
    yield ErrorSample((unwritten((3,)),), {"dim": 0, "size": -1, "step": 1}, RuntimeError, "size is -1 but must be >= 0")
    yield ErrorSample((unwritten((3,)),), {"dim": 1, "size": 1, "step": 1}, IndexError, "expected a dim")


def np_unfold(x: np.ndarray, *, dim: int, size: int, step: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim)
    return windows[tuple(slice(None, None, step if d == dim else 1) for d in range(x.ndim))]


def fold_add_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for sample in unfold_samples(dtype, device):
        (x,), how = sample.args, sample.kwargs
        windows = x.unfold(how["dim"], how["size"], how["step"])
        yield SampleInput((make(*windows.shape),), {"shape": tuple(x.shape), **how})


def fold_add_errors(device: Device) -> Iterator[ErrorSample]:
    how = {"shape": (4,), "dim": 0, "size": 2, "step": 2}
    yield ErrorSample((unwritten((3, 2)),), how, RuntimeError, "expected windows of shape")
    yield ErrorSample((unwritten((2, 2), dtypes.bool_),), how, NotImplementedError, "expected a tensor of kind")


def np_fold_add(x: np.ndarray, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> np.ndarray:
    out = np.zeros(shape, x.dtype)
    whole, windows = np.moveaxis(out, dim, -1), np.moveaxis(x, dim, -2)
    for i in range(x.shape[dim]):
        whole[..., i * step : i * step + size] += windows[..., i, :]
    return out


PADDINGS = (
    ((), (), (), ()),
    ((3,), (1,), (2,), (0,)),
    ((3,), (-1,), (0,), (0,)),
    ((3,), (1,), (-2,), (2,)),
    ((3,), (-2,), (-1,), (1,)),
    ((3,), (-5,), (4,), (0,)),
    ((0, 2), (1, 0), (1, 0), (2, 2)),
    ((2, 3), (0, 1), (1, 0), (0, 1)),
    ((2, 3), (-1, 3), (0, -2), (1, 0)),
    ((2, 3, 4), (0, 0, 1), (0, 0, 1), (0, 0, 0)),
)  # shape, low, high, interior


def pad_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, low, high, interior in PADDINGS:
        how = {"value": True if dtype.kind == "bool" else 2, "low": low, "high": high, "interior": interior}
        yield SampleInput((make(*shape),), how)
        yield SampleInput((_turned(make, shape),), how)
    image = make(2, 5, 4, 3).permute(0, 3, 1, 2)
    yield SampleInput((image,), {"value": how["value"], "low": (0, 0, 1, 1), "high": (0, 0, 1, 2), "interior": (0, 0, 0, 0)})


def pad_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((3,))
    yield ErrorSample((x,), {"value": 0.0, "low": (-2,), "high": (-2,), "interior": (0,)}, RuntimeError, "leaves a negative size")
    yield ErrorSample((x,), {"value": 0.0, "low": (0,), "high": (0,), "interior": (-1,)}, RuntimeError, "interior padding that is not negative")
    yield ErrorSample((x,), {"value": 1j, "low": (0,), "high": (0,), "interior": (0,)}, RuntimeError, "expected a number of kind float")
    yield ErrorSample((x,), {"value": 0.0, "low": (0, 0), "high": (0,), "interior": (0,)}, RuntimeError, "expected low, high and interior")


def np_pad(x: np.ndarray, *, value: float, low: tuple, high: tuple, interior: tuple) -> np.ndarray:
    for d, (a, b, k) in enumerate(zip(low, high, interior, strict=True)):
        n = x.shape[d]
        spaced = np.full(_resized(x, d, n + max(n - 1, 0) * k), value, x.dtype)
        np.moveaxis(spaced, d, 0)[:: k + 1] = np.moveaxis(x, d, 0)
        grown = np.full(_resized(x, d, spaced.shape[d] + max(a, 0) + max(b, 0)), value, x.dtype)
        np.moveaxis(grown, d, 0)[max(a, 0) : max(a, 0) + spaced.shape[d]] = np.moveaxis(spaced, d, 0)
        x = np.moveaxis(np.moveaxis(grown, d, 0)[max(-a, 0) : grown.shape[d] - max(-b, 0)], 0, d)
    return x


def _resized(x: np.ndarray, dim: int, size: int) -> tuple[int, ...]:
    return (*x.shape[:dim], size, *x.shape[dim + 1 :])


def cat_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput(([make(3)],), {"dim": 0})
    yield SampleInput(([make(3), make(0), make(2)],), {"dim": 0})
    yield SampleInput(([make(2, 3), make(2, 1)],), {"dim": 1})
    yield SampleInput(([make(3, 2).t(), make(3, 4).t()],), {"dim": 0})
    yield SampleInput(([make(2, 3, 4), make(2, 3, 1).expand(2, 3, 4)],), {"dim": 2})
    images = [make(2, 5, 4, 3).permute(0, 3, 1, 2), make(2, 5, 4, 2).permute(0, 3, 1, 2)]
    yield SampleInput((images,), {"dim": 1})
    yield SampleInput(([images[0], images[0].contiguous()],), {"dim": 2})


def cat_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample(([],), {"dim": 0}, RuntimeError, "expected a non-empty list of Tensors")
    yield ErrorSample(([unwritten((2,))],), {"dim": 1}, IndexError, "expected a dim")
    yield ErrorSample(([unwritten((2, 3)), unwritten((2, 2))],), {"dim": 0}, RuntimeError, "expected tensors alike but for their size at dim 0")
    yield ErrorSample(([unwritten((2,)), unwritten((2,), dtypes.int64)],), {"dim": 0}, RuntimeError, "expected tensors alike")


def flip_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device).layouts():
        yield SampleInput((x,), {"dims": ()})
        yield SampleInput((x,), {"dims": tuple(range(x.ndim))})
        if x.ndim > 1:
            yield SampleInput((x,), {"dims": (1,)})


def flip_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,)),), {"dims": (1,)}, IndexError, "expected a dim")
    yield ErrorSample((unwritten((2, 2)),), {"dims": (0, 0)}, RuntimeError, "expected sorted, distinct dims")


def plain_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device).layouts():
        yield SampleInput((x,))


def as_complex_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape in ((2,), (3, 2), (0, 2), (2, 3, 2)):
        yield SampleInput((make(*shape),))
    yield SampleInput((make(3, 4, 2).transpose(0, 1),))
    yield SampleInput((make(3, 8)[:, 2:4],))


def as_complex_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)),), {}, RuntimeError, "Tensor must have a last dimension of size 2")
    yield ErrorSample((unwritten((2, 2)).t(),), {}, RuntimeError, "stride 1 and even strides")
    yield ErrorSample((unwritten((2,), dtypes.int64),), {}, RuntimeError, "only supported for floating point tensors")


def as_real_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((3,)),), {}, RuntimeError, "only supported for complex tensors")


OPINFOS += [
    OpInfo(prims.reshape, reshape_samples, reshape_errors, by_numpy(lambda x, shape: x.reshape(shape)), STORED, grad=True),
    OpInfo(prims.transpose, transpose_samples, transpose_errors, by_numpy(lambda x, order: x.transpose(order)), STORED, grad=True),
    OpInfo(prims.squeeze, squeeze_samples, squeeze_errors, by_numpy(lambda x, dims: x.squeeze(dims)), STORED, grad=True),
    OpInfo(prims.strided_slice, slice_samples, slice_errors, by_numpy(lambda x, **window: x[window_of(**window)]), STORED, grad=True),
    OpInfo(prims.put_slice, put_slice_samples, put_slice_errors, by_numpy(np_put_slice), ANY, grad=True),
    OpInfo(
        prims.diagonal,
        diagonal_samples,
        diagonal_errors,
        by_numpy(lambda x, offset, dim1, dim2: np.diagonal(x, offset, dim1, dim2)),
        ANY,
        grad=True,
    ),
    OpInfo(prims.put_diagonal, put_diagonal_samples, put_diagonal_errors, by_numpy(np_put_diagonal), ANY, grad=True),
    OpInfo(prims.unfold, unfold_samples, unfold_errors, by_numpy(np_unfold), ANY, grad=True),
    OpInfo(prims.fold_add, fold_add_samples, fold_add_errors, by_numpy(np_fold_add), NUMBERS, grad=True),
    OpInfo(prims.pad, pad_samples, pad_errors, by_numpy(np_pad), ANY, grad=True),
    OpInfo(prims.cat, cat_samples, cat_errors, by_numpy(lambda tensors, dim: np.concatenate(tensors, axis=dim)), ANY, grad=True),
    OpInfo(prims.flip, flip_samples, flip_errors, by_numpy(lambda x, dims: np.flip(x, axis=dims)), ANY, grad=True),
    OpInfo(prims.view_as_real, plain_samples, as_real_errors, by_numpy(lambda x: np.stack((x.real, x.imag), axis=-1)), COMPLEX, grad=True),
    OpInfo(prims.view_as_complex, as_complex_samples, as_complex_errors, by_numpy(lambda x: x[..., 0] + 1j * x[..., 1]), FULL_FLOATS, grad=True),
    OpInfo(prims.detach, plain_samples, reference=by_numpy(lambda x: x), dtypes=ANY),
]
