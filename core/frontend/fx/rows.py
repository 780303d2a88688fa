"""Prims in PyTorch's own functions, without writes: ROWS maps a prim to a torch function or to a small program of several.

A program here runs on torch.fx proxies with the prim's specs as `.spec`, and so records its calls.  It returns NotImplemented for calls
that it does not cover.  Results have the layout of the prim's meta.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from dovetail import prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail.langs.torch.binding.bridge import placed
from dovetail.prims import Symbol
from dovetail.prims.spec import is_channels_last

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def of_tensors(fn: Callable) -> Callable:
    """Return `fn` of two tensors as a function that takes a number for one of them."""

    def on_either(a: Any, b: Any) -> Any:
        if not hasattr(a, "spec"):
            a = torch.scalar_tensor(a, **placed(b.spec.dtype, b.spec.device))
        elif not hasattr(b, "spec"):
            b = torch.scalar_tensor(b, **placed(a.spec.dtype, a.spec.device))
        return fn(a, b)

    return on_either


def of_dims(fn: Callable) -> Callable:
    """Return a reduction over `dims`; without dims it is a copy."""
    return lambda x, *, dims: fn(x, dims) if dims else row_major(x)


def row_major(x: Any) -> Any:
    return x.clone(memory_format=torch.contiguous_format)


def truncdiv(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode="trunc")


def convert_element_type(x: Any, *, dtype: DType) -> Any:
    return x.to(TO_TORCH[dtype], copy=True)


def bitcast(x: Any, *, dtype: DType) -> Any:
    return x.view(TO_TORCH[dtype])


def real(x: Any) -> Any:
    return torch.real(x).clone()


def imag(x: Any) -> Any:
    return torch.imag(x).clone()


def polygamma(x: Any, *, n: int) -> Any:
    return torch.polygamma(n, x)


def sum(x: Any, *, dims: tuple) -> Any:
    return torch.sum(x, dims, dtype=TO_TORCH[x.spec.dtype]) if dims else row_major(x)


def prod(x: Any, *, dims: tuple) -> Any:
    if not dims:
        return row_major(x)
    dtype = TO_TORCH[x.spec.dtype]
    for d in reversed(dims):
        x = torch.prod(x, d, dtype=dtype)
    return x


def var(x: Any, *, dims: tuple, correction: float) -> Any:
    return torch.var(x, dims, correction=correction) if dims else torch.var(x.unsqueeze(-1), (-1,), correction=correction)


def var_mean(x: Any, *, dims: tuple, correction: float) -> Any:
    return torch.var_mean(x, dims, correction=correction) if dims else torch.var_mean(x.unsqueeze(-1), (-1,), correction=correction)


def broadcast_in_dim(x: Any, *, shape: tuple, dims: tuple) -> Any:
    for d in range(len(shape)):
        if d not in dims:
            x = x.unsqueeze(d)
    return x.expand(shape)


def cumsum(x: Any, *, dim: int) -> Any:
    return torch.cumsum(x, dim, dtype=TO_TORCH[x.spec.dtype])


def cumprod(x: Any, *, dim: int) -> Any:
    return torch.cumprod(x, dim, dtype=TO_TORCH[x.spec.dtype])


def strided_slice(x: Any, *, starts: tuple, stops: tuple, steps: tuple) -> Any:
    result = x
    for d, (n, start, stop, step) in enumerate(zip(x.spec.shape, starts, stops, steps, strict=True)):
        if (start, stop, step) != (0, n, 1):
            result = aten.slice.Tensor(result, d, start, stop, step)
    return aten.alias.default(x) if result is x else result


def compact(x: Any) -> Any:
    """Return x, or where its elements do not fill its memory, a copy in which they do."""
    return x if x.spec.is_dense else x.clone()


def put_slice(x: Any, value: Any, *, starts: tuple, stops: tuple, steps: tuple) -> Any:
    windows = [(d, *w) for d, (n, *w) in enumerate(zip(x.spec.shape, starts, stops, steps, strict=True)) if tuple(w) != (0, n, 1)]
    if not windows:
        return aten.slice_scatter.default(compact(x), value) if x.spec.shape else value.clone()
    parts = [compact(x)]
    for d, start, stop, step in windows[:-1]:
        parts.append(aten.slice.Tensor(parts[-1], d, start, stop, step))
    for part, (d, start, stop, step) in zip(reversed(parts), reversed(windows), strict=True):
        value = aten.slice_scatter.default(part, value, d, start, stop, step)
    return value


def put_diagonal(x: Any, value: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    return torch.diagonal_scatter(compact(x), value, offset, dim1, dim2)


def unfold(x: Any, *, dim: int, size: int, step: int) -> Any:
    return x.unfold(dim, size, step)


def fold_add(x: Any, *, shape: tuple, dim: int, size: int, step: int) -> Any:
    return aten.unfold_backward.default(x, shape, dim, size, step)


def pad(x: Any, *, value: float, low: tuple, high: tuple, interior: tuple) -> Any:
    result, rank, ends = x, len(low), []
    for d, (n, k, before, after) in enumerate(zip(x.spec.shape, interior, low, high, strict=True)):
        if k and n > 1:
            result = aten.constant_pad_nd.default(result.unsqueeze(d + 1), [0, 0] * (rank - d - 1) + [0, k], value)
            n = n * (k + 1) - k
            result = aten.slice.Tensor(result.flatten(d, d + 1), d, 0, n, 1)
        size = n + before + after
        start, stop = max(0, -before), min(n, size - before)  # of the elements that land inside
        start, stop = (start, stop) if start < stop else (0, 0)
        if stop - start < n:
            result = aten.slice.Tensor(result, d, start, stop, 1)
        first = max(before, 0) if start < stop else size
        ends = [first, size - first - (stop - start), *ends]
    result = aten.constant_pad_nd.default(result, ends, value)
    return result.contiguous(memory_format=_FORMATS[rank] if is_channels_last(x.spec) else torch.contiguous_format)


def index(x: Any, indices: list) -> Any:
    """Keep sizes of 1 out of PyTorch's choice of layout, as specs hold no strides of theirs."""
    ones = () if x.spec.strides is None else [d for d in range(len(indices), len(x.spec.shape)) if x.spec.shape[d] == 1]
    out = aten.index.Tensor(x.squeeze(ones) if ones else x, indices)
    for d in ones:
        out = out.unsqueeze(d - len(indices) + len(indices[0].spec.shape))
    return out


def index_put(x: Any, indices: list, value: Any, *, accumulate: bool) -> Any:
    return aten.index_put.default(compact(x), indices, value, accumulate)


def full(*, shape: tuple, value: float, dtype: DType, device: Device) -> Any:
    return torch.full(shape, value, **placed(dtype, device))


def iota(*, length: int, start: float, step: float, dtype: DType, device: Device) -> Any:
    into = placed(dtype, device)
    if dtype.kind == "int" and step != 0:
        return torch.arange(start, start + length * step, step, **into)
    steps = torch.arange(length, dtype=torch.float64 if dtype.kind == "float" else torch.int64, device=into["device"])
    return (steps * step + start).to(into["dtype"])


def tensor_from_sequence(*, values: Any, dtype: DType, device: Device) -> Any:
    return torch.tensor(values, **placed(dtype, device))


def uniform(*, shape: tuple, low: float, high: float, dtype: DType, device: Device) -> Any:
    return torch.empty(shape, **placed(dtype, device)).uniform_(low, high)


def normal(*, shape: tuple, mean: float, std: float, dtype: DType, device: Device) -> Any:
    return torch.empty(shape, **placed(dtype, device)).normal_(mean, std)


def exponential(*, shape: tuple, rate: float, dtype: DType, device: Device) -> Any:
    return torch.empty(shape, **placed(dtype, device)).exponential_(rate)


def randint(*, shape: tuple, low: int, high: int, dtype: DType, device: Device) -> Any:
    return torch.randint(low, high, shape, **placed(dtype, device))


def randperm(*, length: int, dtype: DType, device: Device) -> Any:
    return torch.randperm(length, **placed(dtype, device))


def convolution(x: Any, weight: Any, **window: Any) -> Any:
    return NotImplemented if x.spec.dtype.kind == "complex" else torch.convolution(x, weight, None, *_window(window))


def _window(window: dict) -> list:
    return [window[name] for name in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")]


def convolution_input_grad(g: Any, weight: Any, *, input_shape: tuple, **window: Any) -> Any:
    if g.spec.dtype.kind == "complex":
        return NotImplemented
    return aten.convolution_backward.default(g, _blank(input_shape, g), weight, None, *_window(window), [True, False, False])[0]


def convolution_weight_grad(g: Any, x: Any, *, weight_shape: tuple, **window: Any) -> Any:
    if g.spec.dtype.kind == "complex":
        return NotImplemented
    return aten.convolution_backward.default(g, x, _blank(weight_shape, g), None, *_window(window), [False, True, False])[1]


def _blank(shape: tuple, like: Any) -> Any:
    """Return a tensor without values: its layout tells torch which layout to use."""
    blank = torch.empty(shape, **placed(like.spec.dtype, like.spec.device))
    return blank.to(memory_format=_FORMATS[len(shape)]) if is_channels_last(like.spec) else blank


def embedding_backward(g: Any, index: Any, *, num_weights: int, padding_idx: int) -> Any:
    return aten.embedding_dense_backward.default(g, index, num_weights, padding_idx, False)


def coo_mm(rows: Any, columns: Any, values: Any, x: Any, *, num_rows: int) -> Any:
    terms = values.unsqueeze(1) * torch.index_select(x, 0, columns)
    return torch.index_add(x.new_zeros((num_rows, x.shape[1])), 0, rows, terms)


def stride_order(x: Any, *, order: tuple) -> Any:
    return x.permute(order).clone(memory_format=torch.contiguous_format).permute([order.index(d) for d in range(len(order))])


SAME = """
    neg abs signbit ceil floor round trunc reciprocal isnan isinf isfinite bitwise_not frexp sqrt rsqrt exp exp2 expm1 log log2 log10 log1p
    sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma
    add sub mul div remainder pow bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift where
    argmax argmin cummax cummin sort topk diagonal cat flip view_as_real view_as_complex detach multinomial matmul
"""  # prims with the name and signature of torch's functions
ROWS: dict[Symbol, Callable] = {
    **{getattr(prims, name): getattr(torch, name) for name in SAME.split()},
    **{getattr(prims, name): getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{
        getattr(prims, name): of_tensors(getattr(torch, name)) for name in ("fmod", "atan2", "maximum", "minimum", "nextafter", "copysign", "complex")
    },
    **{getattr(prims, name): of_dims(getattr(torch, name)) for name in ("amax", "amin", "any", "all")},
    prims.sign: torch.sgn,
    prims.conj: torch.conj_physical,
    prims.ndtri: torch.special.ndtri,
    prims.zeta: torch.special.zeta,
    prims.floordiv: torch.floor_divide,
    prims.linear: torch.nn.functional.linear,
    prims.item: torch.Tensor.item,
    prims.truncdiv: truncdiv,
    prims.polygamma: polygamma,
    prims.convert_element_type: convert_element_type,
    prims.bitcast: bitcast,
    prims.real: real,
    prims.imag: imag,
    prims.sum: sum,
    prims.prod: prod,
    prims.var: var,
    prims.var_mean: var_mean,
    prims.broadcast_in_dim: broadcast_in_dim,
    prims.cumsum: cumsum,
    prims.cumprod: cumprod,
    prims.reshape: lambda x, *, shape: x.view(shape),
    prims.transpose: lambda x, *, order: x.permute(order),
    prims.squeeze: lambda x, *, dims: x.squeeze(dims),
    prims.strided_slice: strided_slice,
    prims.put_slice: put_slice,
    prims.put_diagonal: put_diagonal,
    prims.unfold: unfold,
    prims.fold_add: fold_add,
    prims.pad: pad,
    prims.take: lambda x, index, *, dim: torch.index_select(x, dim, index),
    prims.index_add: lambda x, index, value, *, dim: torch.index_add(x, dim, index, value),
    prims.index_copy: lambda x, index, value, *, dim: torch.index_copy(x, dim, index, value),
    prims.take_along_axis: lambda x, index, *, dim: torch.gather(x, dim, index),
    prims.scatter: lambda x, index, value, *, dim: torch.scatter(x, dim, index, value),
    prims.scatter_add: lambda x, index, value, *, dim: torch.scatter_add(x, dim, index, value),
    prims.index: index,
    prims.index_put: index_put,
    prims.full: full,
    prims.iota: iota,
    prims.tensor_from_sequence: tensor_from_sequence,
    prims.uniform: uniform,
    prims.normal: normal,
    prims.exponential: exponential,
    prims.randint: randint,
    prims.randperm: randperm,
    prims.convolution: convolution,
    prims.convolution_input_grad: convolution_input_grad,
    prims.convolution_weight_grad: convolution_weight_grad,
    prims.embedding: lambda weight, index: torch.nn.functional.embedding(index, weight),
    prims.embedding_backward: embedding_backward,
    prims.coo_mm: coo_mm,
    prims.clone: row_major,
    prims.stride_order: stride_order,
    prims.copy_: lambda x, value: x.copy_(value),
    prims.device_put: lambda x, *, device: x.to(torch_device(device), copy=True),
}
