"""Sums of products: matrices, convolutions, embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail_conformance.opinfo import FLOATS, INEXACT, INTS, OPINFOS, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, unwritten


def matmul_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(2, 3), make(3, 4)))
    yield SampleInput((make(3, 2).t(), make(4, 3).t()))
    yield SampleInput((make(2, 0), make(0, 3)))
    yield SampleInput((make(0, 2), make(2, 3)))
    yield SampleInput((make(1, 1), make(1, 1)))
    yield SampleInput((make(2, 3, 4), make(2, 5, 4).transpose(1, 2)))
    yield SampleInput((make(2, 4, 3).transpose(1, 2), make(4, 5, 2).permute(2, 0, 1)))
    yield SampleInput((make(2, 1, 3, 4), make(2, 1, 4, 2)))
    yield SampleInput((make(3, 1).expand(3, 4), make(1, 3).expand(4, 3)))


def matmul_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((2, 3))), {}, RuntimeError, "shapes cannot be multiplied")
    yield ErrorSample((unwritten((3,)), unwritten((3,))), {}, RuntimeError, "shapes cannot be multiplied")
    yield ErrorSample((unwritten((2, 2, 2)), unwritten((1, 2, 2))), {}, RuntimeError, "shapes cannot be multiplied")
    yield ErrorSample((unwritten((2, 2)), unwritten((2, 2), dtypes.float64)), {}, RuntimeError, "expected a and b to have the same dtype")
    yield ErrorSample((unwritten((2, 2), dtypes.bool_),) * 2, {}, NotImplementedError, "expected a tensor of kind")


def linear_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(3), make(2, 3)))
    yield SampleInput((make(4, 3), make(2, 3)))
    yield SampleInput((make(3, 4).t(), make(3, 2).t()))
    yield SampleInput((make(0, 3), make(2, 3)))
    yield SampleInput((make(2, 4, 3), make(1, 3)))
    yield SampleInput((make(4, 2, 3).transpose(0, 1), make(2, 3)))
    yield SampleInput((make(2, 3, 4).transpose(1, 2), make(2, 3)))
    yield SampleInput((make(2, 1, 2, 3), make(2, 6)[:, ::2]))


def linear_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((3, 2))), {}, RuntimeError, "shapes cannot be multiplied")
    yield ErrorSample((unwritten(()), unwritten((3, 2))), {}, RuntimeError, "shapes cannot be multiplied")
    yield ErrorSample((unwritten((2, 3)), unwritten((2, 3), dtypes.float64)), {}, RuntimeError, "to have the same dtype")


PLAIN = {"stride": (1,), "padding": (0,), "dilation": (1,), "transposed": False, "output_padding": (0,), "groups": 1}
CONVOLUTIONS: tuple[tuple[tuple, tuple, dict], ...] = (
    ((2, 3, 5), (4, 3, 2), {}),
    ((2, 4, 6), (4, 2, 3), {"stride": (2,), "padding": (1,), "dilation": (2,), "groups": 2}),
    ((2, 4, 5), (4, 3, 2), {"transposed": True}),
    ((1, 4, 5), (4, 1, 3), {"transposed": True, "stride": (2,), "padding": (1,), "output_padding": (1,), "groups": 2}),
    ((2, 2, 4, 5), (3, 2, 2, 3), {}),
    ((2, 2, 5, 4), (2, 1, 3, 1), {"stride": (1, 2), "padding": (2, 0), "dilation": (2, 1), "groups": 2}),
    ((2, 2, 3, 4), (2, 3, 2, 2), {"transposed": True, "stride": (2, 1), "padding": (0, 1)}),
    ((1, 2, 3, 4, 3), (2, 2, 2, 1, 2), {"padding": (1, 0, 0)}),
)  # input, weight, what differs from PLAIN


def windows(rank: int, changes: dict) -> dict[str, Any]:
    whole = {key: value * (rank - 2) if isinstance(value, tuple) else value for key, value in PLAIN.items()}
    return {**whole, **changes}


def convolution_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape, weight, changes in CONVOLUTIONS:
        window = windows(len(shape), changes)
        yield SampleInput((make(*shape), make(*weight)), window)
        if len(shape) == 4:
            yield SampleInput((channels_last(make(*shape)), make(*weight)), window)
            yield SampleInput((make(*shape), channels_last(make(*weight))), window)


def channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def convolution_errors(device: Device) -> Iterator[ErrorSample]:
    x, weight, window = unwritten((1, 2, 5)), unwritten((4, 2, 3)), windows(3, {})
    yield ErrorSample((x, unwritten((4, 2, 6))), window, RuntimeError, "kernel size can't be greater than actual input size")
    yield ErrorSample((x, unwritten((4, 3, 3))), window, RuntimeError, "expected input to have 3 channels")
    yield ErrorSample((x, weight), {**window, "stride": (0,)}, RuntimeError, "non-positive stride is not supported")
    yield ErrorSample((x, weight), {**window, "padding": (-1,)}, RuntimeError, "negative padding is not supported")
    yield ErrorSample((x, weight), {**window, "dilation": (0,)}, RuntimeError, "dilation should be greater than zero")
    yield ErrorSample((x, weight), {**window, "groups": 0}, RuntimeError, "non-positive groups is not supported")
    yield ErrorSample((x, unwritten((4, 2, 3), dtypes.float64)), window, RuntimeError, "of one dtype and device")
    yield ErrorSample((x, weight), {**window, "stride": (1, 1)}, RuntimeError, "of 1 values each")


def np_convolution(x: np.ndarray, weight: np.ndarray, **window: Any) -> np.ndarray:
    shape, matrix = np_spread(weight, x.shape, **window)
    return np.einsum("bi,io->bo", x.reshape(x.shape[0], -1), matrix).reshape(x.shape[0], *shape)


def np_spread(weight: np.ndarray, shape: tuple, *, transposed: bool, output_padding: tuple, groups: int, **window: Any) -> tuple[tuple, np.ndarray]:
    """Write a convolution of one sample as a matrix from its input to its output, both flat; return it and the shape of the output."""
    sizes = shape[2:]
    if transposed:
        out = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + 1 + extra
            for n, k, s, p, d, extra in zip(
                sizes, weight.shape[2:], window["stride"], window["padding"], window["dilation"], output_padding, strict=True
            )
        )
        channels = weight.shape[1] * groups
        _, matrix = np_spread(weight, (1, channels, *out), transposed=False, output_padding=output_padding, groups=groups, **window)
        return (channels, *out), matrix.T
    out = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(sizes, weight.shape[2:], window["stride"], window["padding"], window["dilation"], strict=True)
    )
    matrix = np.zeros((*shape[1:], weight.shape[0], *out), weight.dtype)
    per_in, per_out = weight.shape[1], weight.shape[0] // groups
    for place, tap in product(np.ndindex(*out), list(np.ndindex(*weight.shape[2:]))):
        at = tuple(o * s - p + t * d for o, s, p, t, d in zip(place, window["stride"], window["padding"], tap, window["dilation"], strict=True))
        if not all(0 <= a < n for a, n in zip(at, sizes, strict=True)):
            continue
        for o in range(weight.shape[0]):
            first = (o // per_out) * per_in
            matrix[(slice(first, first + per_in), *at, o, *place)] += weight[(o, slice(None), *tap)]
    return (weight.shape[0], *out), matrix.reshape(int(np.prod(shape[1:])), -1)


def np_input_grad(g: np.ndarray, weight: np.ndarray, *, input_shape: tuple, **window: Any) -> np.ndarray:
    _, matrix = np_spread(weight, input_shape, **window)
    return (g.reshape(g.shape[0], -1) @ matrix.T).reshape(input_shape)


def np_weight_grad(g: np.ndarray, x: np.ndarray, *, weight_shape: tuple, **window: Any) -> np.ndarray:
    """Compute the gradient by linearity: probe with each weight of one."""
    out = np.zeros(weight_shape, g.dtype)
    for place in np.ndindex(*weight_shape):
        probe = np.zeros(weight_shape, g.dtype)
        probe[place] = 1
        out[place] = (np_convolution(x, probe, **window) * g).sum()
    return out


def input_grad_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for g, _, weight, shape, window in _backward(dtype, device):
        yield SampleInput((g, weight), {"input_shape": shape, **window})


def weight_grad_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for g, x, weight, _, window in _backward(dtype, device):
        yield SampleInput((g, x), {"weight_shape": tuple(weight.shape), **window})


def _backward(dtype: DType, device: Device) -> Iterator[tuple]:
    make = Maker(dtype, device)
    for sample in convolution_samples(dtype, device):
        (x, weight), window = sample.args, sample.kwargs
        shape, _ = np_spread(np.zeros(tuple(weight.shape)), tuple(x.shape), **window)
        g = make(x.shape[0], *shape)
        yield (channels_last(g) if not x.is_contiguous() else g), x, weight, tuple(x.shape), window


def gradient_errors(key: str, device: Device) -> Iterator[ErrorSample]:
    window = {key: (1, 2, 5) if key == "input_shape" else (4, 2, 3), **windows(3, {})}
    other = unwritten((4, 2, 3) if key == "input_shape" else (1, 2, 5))
    yield ErrorSample((unwritten((1, 4, 4)), other), window, RuntimeError, r"expected a cotangent of shape \(1, 4, 3\)")


def embedding_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for weight in (make(5, 3), make(3, 5).t(), make(5, 0)):
        for shape in ((), (4,), (2, 3), (0,)):
            yield SampleInput((weight, make.index(5, *shape)))
    yield SampleInput((make(5, 3), make.index(5, 3, 2).t()))


def embedding_errors(device: Device) -> Iterator[ErrorSample]:
    index = unwritten((2,), dtypes.int64)
    yield ErrorSample((unwritten((5,)), index), {}, RuntimeError, "'weight' must be 2-D")
    yield ErrorSample((unwritten((5, 3)), unwritten((2,))), {}, RuntimeError, "expected an int64 index")


def embedding_backward_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for shape in ((), (4,), (2, 3), (0,)):
        for padding_idx in (-1, 2):
            yield SampleInput((make(*shape, 3), make.index(5, *shape)), {"num_weights": 5, "padding_idx": padding_idx})


def embedding_backward_errors(device: Device) -> Iterator[ErrorSample]:
    wrong = (unwritten((2, 3)), unwritten((3,), dtypes.int64))
    yield ErrorSample(wrong, {"num_weights": 5, "padding_idx": -1}, RuntimeError, "expected one row for each index")


def np_embedding_backward(g: np.ndarray, index: np.ndarray, num_weights: int, padding_idx: int) -> np.ndarray:
    out = np.zeros((num_weights, g.shape[-1]), g.dtype)
    np.add.at(out, index, np.where((index == padding_idx)[..., None], 0, g))
    return out


def coo_mm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for count, num_rows, size, k in ((0, 3, 2, 4), (1, 1, 1, 1), (7, 4, 5, 3), (40, 6, 3, 17), (5, 9, 4, 0)):
        rows, columns = make.index(num_rows, count), make.index(size, count)
        for each in (rows, rows.sort().values):
            yield SampleInput((each, columns, make(count), make(size, k)), {"num_rows": num_rows})
    yield SampleInput((make.index(30, 1300).sort().values, make.index(20, 1300), make(1300), make(20, 10)), {"num_rows": 30})
    both = make.index(3, 2, 6)
    yield SampleInput((both[0], both[1], make(12)[::2], make(3, 4).t()), {"num_rows": 5})


def coo_mm_errors(device: Device) -> Iterator[ErrorSample]:
    at, x = unwritten((3,), dtypes.int64), unwritten((4, 2))
    yield ErrorSample((at, at, unwritten((2,)), x), {"num_rows": 5}, RuntimeError, "expected a row and a column for each value")
    yield ErrorSample((at, at, unwritten((3,)), unwritten((4,))), {"num_rows": 5}, RuntimeError, "expected a matrix")
    yield ErrorSample((unwritten((3,)), at, unwritten((3,)), x), {"num_rows": 5}, RuntimeError, "expected dtype int64 for index")


def np_coo_mm(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, x: np.ndarray, num_rows: int) -> np.ndarray:
    out = np.zeros((num_rows, x.shape[1]), x.dtype)
    np.add.at(out, rows, values[:, None] * x[columns])
    return out


def np_linear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x @ weight.T


OPINFOS += [
    OpInfo(prims.matmul, matmul_samples, matmul_errors, by_numpy(np.matmul), INTS + INEXACT, grad=True),
    OpInfo(prims.linear, linear_samples, linear_errors, by_numpy(np_linear), INEXACT, grad=True),
    OpInfo(prims.convolution, convolution_samples, convolution_errors, by_numpy(np_convolution), INEXACT, grad=True),
    OpInfo(
        prims.convolution_input_grad,
        input_grad_samples,
        lambda device: gradient_errors("input_shape", device),
        by_numpy(np_input_grad),
        INEXACT,
        grad=True,
    ),
    OpInfo(
        prims.convolution_weight_grad,
        weight_grad_samples,
        lambda device: gradient_errors("weight_shape", device),
        by_numpy(np_weight_grad),
        INEXACT,
        grad=True,
    ),
    OpInfo(prims.embedding, embedding_samples, embedding_errors, by_numpy(lambda weight, index: weight[index]), FLOATS, grad=True),
    OpInfo(prims.embedding_backward, embedding_backward_samples, embedding_backward_errors, by_numpy(np_embedding_backward), FLOATS, grad=True),
    OpInfo(prims.coo_mm, coo_mm_samples, coo_mm_errors, by_numpy(np_coo_mm), INEXACT, grad=True),
]
