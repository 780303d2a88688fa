"""What each prim computes, in eager PyTorch: PRIMS maps every prim to a function of the same signature on real tensors.

A row is torch's own function where the signatures agree, else a small function.  Results are laid out as the prim's meta says.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from dovetail import prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import NotTracing
from dovetail.extend.advanced import torch_internals
from dovetail.langs.torch import TO_TORCH
from dovetail.prims import Symbol
from dovetail.prims.arithmetic_table import ARITHMETIC
from dovetail_torch_exec import philox
from dovetail_torch_exec.convolution import convolution, convolution_input_grad, convolution_weight_grad, in_format

TORCH_DEVICE: dict[Device, torch.device] = {}


def torch_device(device: Device) -> torch.device:
    """torch's name for a device."""
    try:
        return TORCH_DEVICE[device]
    except KeyError:
        return TORCH_DEVICE.setdefault(device, torch.device(str(device)))


def placed(dtype: DType, device: Device) -> dict[str, Any]:
    return {"dtype": TO_TORCH[dtype], "device": torch_device(device)}


def of_tensors(fn: Callable) -> Callable:
    """`fn` of two tensors, taking a number for one of them."""

    def on_either(a: Any, b: Any) -> Tensor:
        if not isinstance(a, Tensor):
            a = torch.scalar_tensor(a, dtype=b.dtype, device=b.device)
        elif not isinstance(b, Tensor):
            b = torch.scalar_tensor(b, dtype=a.dtype, device=a.device)
        return fn(a, b)

    on_either.__name__ = fn.__name__
    return on_either


def truncdiv(a: Any, b: Any) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def convert_element_type(x: Tensor, *, dtype: DType) -> Tensor:
    return x.to(TO_TORCH[dtype], copy=True)


def bitcast(x: Tensor, *, dtype: DType) -> Tensor:
    return x.view(TO_TORCH[dtype])


def real(x: Tensor) -> Tensor:
    return x.real.clone()


def imag(x: Tensor) -> Tensor:
    return x.imag.clone()


def polygamma(x: Tensor, *, n: int) -> Tensor:
    return torch.polygamma(n, x)


def row_major(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def sum(x: Tensor, *, dims: tuple) -> Tensor:
    return torch.sum(x, dims, dtype=x.dtype) if dims else row_major(x)


def prod(x: Tensor, *, dims: tuple) -> Tensor:
    if not dims:
        return row_major(x)
    for d in reversed(dims):
        x = torch.prod(x, d, dtype=x.dtype)
    return x


def amax(x: Tensor, *, dims: tuple) -> Tensor:
    return torch.amax(x, dims) if dims else row_major(x)


def amin(x: Tensor, *, dims: tuple) -> Tensor:
    return torch.amin(x, dims) if dims else row_major(x)


def any(x: Tensor, *, dims: tuple) -> Tensor:
    return torch.any(x, dims) if dims else row_major(x)


def all(x: Tensor, *, dims: tuple) -> Tensor:
    return torch.all(x, dims) if dims else row_major(x)


def var(x: Tensor, *, dims: tuple, correction: float) -> Tensor:
    return torch.var(x, dims, correction=correction) if dims else torch.var(x.unsqueeze(-1), (-1,), correction=correction)


def var_mean(x: Tensor, *, dims: tuple, correction: float) -> tuple[Tensor, Tensor]:
    return torch.var_mean(x, dims, correction=correction) if dims else torch.var_mean(x.unsqueeze(-1), (-1,), correction=correction)


def broadcast_in_dim(x: Tensor, *, shape: tuple, dims: tuple) -> Tensor:
    if not dims and 1 in shape:  # `expand` gives what has no dimensions strides of 0, for sizes of 1, too
        return x.view((1,) * len(shape)).expand(shape)
    if dims == tuple(range(len(shape) - len(dims), len(shape))):  # `expand` adds dimensions in front itself, and indexing costs as much as it
        return x.expand(shape)
    return x[tuple(slice(None) if d in dims else None for d in range(len(shape)))].expand(shape)


def cumsum(x: Tensor, *, dim: int) -> Tensor:
    return torch.cumsum(x, dim, dtype=x.dtype)


def cumprod(x: Tensor, *, dim: int) -> Tensor:
    return torch.cumprod(x, dim, dtype=x.dtype)


def reshape(x: Tensor, *, shape: tuple) -> Tensor:
    return x.view(shape)


def transpose(x: Tensor, *, order: tuple) -> Tensor:
    return x.t() if order == (1, 0) else x.permute(order)  # half the time of `permute`


def squeeze(x: Tensor, *, dims: tuple) -> Tensor:
    return x.squeeze(dims)


def strided_slice(x: Tensor, *, starts: tuple, stops: tuple, steps: tuple) -> Tensor:
    return x[tuple(map(slice, starts, stops, steps))]


def put_slice(x: Tensor, value: Tensor, *, starts: tuple, stops: tuple, steps: tuple) -> Tensor:
    if not torch_internals.has_storage(value):
        return _put_without_writing(x, value, tuple(zip(starts, stops, steps, strict=True)))
    out = x.clone()
    out[tuple(map(slice, starts, stops, steps))] = value
    return out


def _put_without_writing(x: Tensor, value: Tensor, windows: tuple, dim: int = 0) -> Tensor:
    """Put a tensor of a transform, as of vmap, which may not be written into another tensor, in the place of a slice."""
    if dim == len(windows):
        return value
    start, stop, step = windows[dim]
    inner = x[(slice(None),) * dim + (slice(start, stop, step),)]
    return torch.slice_scatter(x, _put_without_writing(inner, value, windows, dim + 1), dim, start, stop, step)


def put_diagonal(x: Tensor, value: Tensor, *, offset: int, dim1: int, dim2: int) -> Tensor:
    if not torch_internals.has_storage(value):
        return torch.diagonal_scatter(x, value, offset, dim1, dim2)
    out = x.clone()
    out.diagonal(offset, dim1, dim2).copy_(value)
    return out


def unfold(x: Tensor, *, dim: int, size: int, step: int) -> Tensor:
    return x.unfold(dim, size, step)


def fold_add(x: Tensor, *, shape: tuple, dim: int, size: int, step: int) -> Tensor:
    return torch.ops.aten.unfold_backward(x, shape, dim, size, step)


def pad(x: Tensor, *, value: float, low: tuple, high: tuple, interior: tuple) -> Tensor:
    if not torch_internals.has_storage(x):
        return _pad_without_writing(x, value, low, high, interior)
    shape = [n + max(n - 1, 0) * k + a + b for n, a, b, k in zip(x.shape, low, high, interior, strict=True)]
    out = in_format(torch.full(shape, value, dtype=x.dtype, device=x.device), x)
    here, there = [], []
    for n, size, a, k in zip(x.shape, shape, low, interior, strict=True):
        # Element i goes to a + i * (k + 1): those from `first` to before `last` land inside.
        step = k + 1
        first = max(0, -(a // step))
        last = max(first, min(n, -((a - size) // step)))
        there.append(slice(first, last))
        here.append(slice(a + first * step, max(a + (last - 1) * step + 1, 0), step) if last > first else slice(0))
    out[tuple(here)] = x[tuple(there)]
    return out


def _pad_without_writing(x: Tensor, value: float, low: tuple, high: tuple, interior: tuple) -> Tensor:
    """Pad a tensor of a transform, as vmap, which may not be written into another: each dimension gets one more value, which an index selects."""
    for dim, (n, a, b, k) in enumerate(zip(x.shape, low, high, interior, strict=True)):
        if a or b or k:
            places = {a + i * (k + 1): i for i in range(n)}
            index = [places.get(at, n) for at in range(n + max(n - 1, 0) * k + a + b)]
            one_more = torch.constant_pad_nd(x, [0, 0] * (x.dim() - 1 - dim) + [0, 1], value)
            x = torch.index_select(one_more, dim, torch.tensor(index, dtype=torch.int64, device=x.device))
    return x


def take(x: Tensor, index: Tensor, *, dim: int) -> Tensor:
    return torch.index_select(x, dim, index)


def index_add(x: Tensor, index: Tensor, value: Tensor, *, dim: int) -> Tensor:
    return torch.index_add(x, dim, index, value)


def index_copy(x: Tensor, index: Tensor, value: Tensor, *, dim: int) -> Tensor:
    return torch.index_copy(x, dim, index, value)


def take_along_axis(x: Tensor, index: Tensor, *, dim: int) -> Tensor:
    return torch.gather(x, dim, index)


def scatter(x: Tensor, index: Tensor, value: Tensor, *, dim: int) -> Tensor:
    return torch.scatter(x, dim, index, value)


def scatter_add(x: Tensor, index: Tensor, value: Tensor, *, dim: int) -> Tensor:
    return torch.scatter_add(x, dim, index, value)


def index(x: Tensor, indices: list) -> Tensor:
    """Index x. Sizes of 1 stay out of PyTorch's choice of layout: their strides, which specs do not hold, have a say in it."""
    ones = () if x.is_contiguous() else [d for d in range(len(indices), x.dim()) if x.shape[d] == 1]
    out = torch.ops.aten.index.Tensor(x.squeeze(ones) if ones else x, from_front(x, indices))
    for d in ones:
        out = out.unsqueeze(d - len(indices) + indices[0].dim())
    return out


def index_put(x: Tensor, indices: list, value: Tensor, *, accumulate: bool) -> Tensor:
    return torch.ops.aten.index_put.default(x, from_front(x, indices), value, accumulate)


def from_front(x: Tensor, indices: list) -> list:
    """Return positions of which negative ones lie out of bounds: aten counts these from the end, the program has done so before."""
    return [torch.add(index, index >> 63, alpha=n) for index, n in zip(indices, x.shape, strict=False)]


def full(*, shape: tuple, value: float, dtype: DType, device: Device) -> Tensor:
    return torch.full(shape, value, **placed(dtype, device))


def iota(*, length: int, start: float, step: float, dtype: DType, device: Device) -> Tensor:
    into = placed(dtype, device)
    if dtype.kind == "int" and step != 0:
        return torch.arange(start, start + length * step, step, **into)
    steps = torch.arange(length, dtype=torch.float64 if dtype.kind == "float" else torch.int64, device=into["device"])
    return (steps * step + start).to(into["dtype"])


def tensor_from_sequence(*, values: Any, dtype: DType, device: Device) -> Tensor:
    return torch.tensor(values, **placed(dtype, device))


def uniform(*, shape: tuple, low: float, high: float, dtype: DType, device: Device) -> Tensor:
    return torch.empty(shape, **placed(dtype, device)).uniform_(low, high)


def normal(*, shape: tuple, mean: float, std: float, dtype: DType, device: Device) -> Tensor:
    return torch.empty(shape, **placed(dtype, device)).normal_(mean, std)


def exponential(*, shape: tuple, rate: float, dtype: DType, device: Device) -> Tensor:
    return torch.empty(shape, **placed(dtype, device)).exponential_(rate)


def randint(*, shape: tuple, low: int, high: int, dtype: DType, device: Device) -> Tensor:
    return torch.randint(low, high, shape, **placed(dtype, device))


def randperm(*, length: int, dtype: DType, device: Device) -> Tensor:
    return torch.randperm(length, **placed(dtype, device))


def uniform_philox(seed: Tensor, offset: Tensor, *, shape: tuple, low: float, high: float, dtype: DType, device: Device) -> Tensor:
    return philox.uniform(seed, offset, shape, low, high, **placed(dtype, device))


def normal_philox(seed: Tensor, offset: Tensor, *, shape: tuple, mean: float, std: float, dtype: DType, device: Device) -> Tensor:
    return philox.normal(seed, offset, shape, mean, std, **placed(dtype, device))


def bernoulli(p: Tensor, *, shape: tuple | None = None) -> Tensor:
    """Draw; on the CPU one probability for all as torch's own dropout draws it, so that a seed gives its numbers, others by torch.bernoulli."""
    if shape is None:
        return torch.bernoulli(p)
    return torch.empty(shape, dtype=p.dtype).bernoulli_(p.item()) if p.device.type == "cpu" else torch.bernoulli(p.expand(shape))


def embedding(weight: Tensor, index: Tensor) -> Tensor:
    return torch.nn.functional.embedding(index, weight)


def embedding_backward(g: Tensor, index: Tensor, *, num_weights: int, padding_idx: int) -> Tensor:
    return torch.ops.aten.embedding_dense_backward(g, index, num_weights, padding_idx, False)


COMPRESSED = 1 << 13  # products of numbers, from which torch's kernel for compressed rows pays


def coo_mm(rows: Tensor, columns: Tensor, values: Tensor, x: Tensor, *, num_rows: int) -> Tensor:
    """Multiply with torch's matrix of coordinates, which checks them; in order on a CPU by its compressed rows, which is faster."""
    if values.dtype in (torch.float16, torch.bfloat16):
        return coo_mm(rows, columns, values.float(), x.float(), num_rows=num_rows).to(x.dtype)
    size = (num_rows, x.shape[0])
    compressed = rows.shape[0] * x.shape[1] >= COMPRESSED and x.device.type == "cpu" and torch.backends.mkl.is_available()
    compressed = compressed and bool((rows[1:] >= rows[:-1]).all()) and _within(rows, columns, size)
    matrix = torch.sparse_coo_tensor(_stacked(rows, columns), values, size, is_coalesced=compressed, check_invariants=False)
    if not compressed:
        return matrix @ x
    _warn_of_compressed_rows()
    return matrix.to_sparse_csr() @ x


def _within(rows: Tensor, columns: Tensor, size: tuple[int, int]) -> bool:
    """Return whether positions, of which the rows are in order, lie in a matrix of this size."""
    low, high = torch.aminmax(columns)
    return bool((rows[0] >= 0) & (rows[-1] < size[0]) & (low >= 0) & (high < size[1]))


def _stacked(rows: Tensor, columns: Tensor) -> Tensor:
    """Return both in one tensor; where they are its rows already, without a copy."""
    count = rows.shape[0]
    one = rows.untyped_storage().data_ptr() == columns.untyped_storage().data_ptr() and rows.stride() == columns.stride() == (1,)
    if one and columns.storage_offset() - rows.storage_offset() == count:
        return rows.as_strided((2, count), (count, 1))
    return torch.stack((rows, columns))


@cache
def _warn_of_compressed_rows() -> None:
    """Let torch warn unseen, once, that its compressed rows are new: the program need not have any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1, device="cpu").to_sparse_csr()


def stride_order(x: Tensor, *, order: tuple) -> Tensor:
    return torch.empty_permuted(x.shape, order, dtype=x.dtype, device=x.device).copy_(x)


def copy_(x: Tensor, value: Tensor) -> None:
    """Copy a value into x. One that was computed in x's own memory lies there already: autograd learns of the write, and nothing is copied."""
    if (value is x or value.data_ptr() == x.data_ptr()) and _lies_in(x, value):
        increment_version(x)
    else:
        x.copy_(value)


def with_history(x: Tensor, other: Tensor) -> Tensor:
    return _WithHistory.apply(x.detach(), other)


class _WithHistory(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, other: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return None, g


def _lies_in(x: Tensor, value: Tensor) -> bool:
    """Return whether the elements of x are those of `value`, which begins where x does, and no gradient flows from one to the other."""
    if torch.is_grad_enabled() and (x.requires_grad or value.grad_fn is not None):
        return False
    if value is x:
        return not x.is_inference()
    same = x.stride() == value.stride() and x.dtype is value.dtype and x.is_neg() == value.is_neg() and x.is_conj() == value.is_conj()
    return same and not x.is_inference()


def device_put(x: Tensor, *, device: Device) -> Tensor:
    return x.to(torch_device(device), copy=True)


def print_(x: Tensor, *, message: str) -> None:
    print(message, x)


def evaluate(x: Any) -> None:
    """Do nothing: the value has been computed."""


def size(x: Tensor, *, dim: int) -> int:
    return x.shape[dim]


def integer(*, value: int) -> int:
    return value


def arithmetic(*numbers: Any, op: str) -> Any:
    return ARITHMETIC[op][1](*numbers)


def format_number(number: Any, *, form: str) -> str:
    return format(number, form)


def format_tensor(x: Tensor) -> str:
    return str(x)


def join_text(*parts: str) -> str:
    return "".join(parts)


def delete(*tensors: Tensor) -> None:
    """Do nothing: the program that prints as `del` drops its names."""


def get_grad(out: Tensor) -> Tensor:
    raise NotTracing("get_grad means something only in a grad rule; call it in a rule given to register_grad")


def put_grad(x: Tensor, gx: Tensor) -> None:
    raise NotTracing("put_grad means something only in a grad rule; call it in a rule given to register_grad")


PRIMS: dict[Symbol, Callable] = {
    # elementwise, one operand
    prims.neg: torch.neg,
    prims.abs: torch.abs,
    prims.signbit: torch.signbit,
    prims.ceil: torch.ceil,
    prims.floor: torch.floor,
    prims.round: torch.round,
    prims.trunc: torch.trunc,
    prims.reciprocal: torch.reciprocal,
    prims.isnan: torch.isnan,
    prims.isinf: torch.isinf,
    prims.isfinite: torch.isfinite,
    prims.bitwise_not: torch.bitwise_not,
    prims.frexp: torch.frexp,
    prims.sqrt: torch.sqrt,
    prims.rsqrt: torch.rsqrt,
    prims.exp: torch.exp,
    prims.exp2: torch.exp2,
    prims.expm1: torch.expm1,
    prims.log: torch.log,
    prims.log2: torch.log2,
    prims.log10: torch.log10,
    prims.log1p: torch.log1p,
    prims.sin: torch.sin,
    prims.cos: torch.cos,
    prims.tan: torch.tan,
    prims.asin: torch.asin,
    prims.acos: torch.acos,
    prims.atan: torch.atan,
    prims.sinh: torch.sinh,
    prims.cosh: torch.cosh,
    prims.tanh: torch.tanh,
    prims.asinh: torch.asinh,
    prims.acosh: torch.acosh,
    prims.atanh: torch.atanh,
    prims.sigmoid: torch.sigmoid,
    prims.erf: torch.erf,
    prims.erfc: torch.erfc,
    prims.erfinv: torch.erfinv,
    prims.lgamma: torch.lgamma,
    prims.digamma: torch.digamma,
    prims.sign: torch.sgn,
    prims.conj: torch.conj_physical,
    prims.ndtri: torch.special.ndtri,
    prims.polygamma: polygamma,
    prims.convert_element_type: convert_element_type,
    prims.bitcast: bitcast,
    prims.real: real,
    prims.imag: imag,
    # elementwise, several operands: torch's own where it takes a number on either side
    prims.add: torch.add,
    prims.sub: torch.sub,
    prims.mul: torch.mul,
    prims.div: torch.div,
    prims.remainder: torch.remainder,
    prims.pow: torch.pow,
    prims.bitwise_and: torch.bitwise_and,
    prims.bitwise_or: torch.bitwise_or,
    prims.bitwise_xor: torch.bitwise_xor,
    prims.bitwise_left_shift: torch.bitwise_left_shift,
    prims.bitwise_right_shift: torch.bitwise_right_shift,
    prims.where: torch.where,
    prims.floordiv: torch.floor_divide,
    prims.truncdiv: truncdiv,
    prims.zeta: torch.special.zeta,
    prims.eq: operator.eq,
    prims.ne: operator.ne,
    prims.lt: operator.lt,
    prims.le: operator.le,
    prims.gt: operator.gt,
    prims.ge: operator.ge,
    prims.fmod: of_tensors(torch.fmod),
    prims.atan2: of_tensors(torch.atan2),
    prims.maximum: of_tensors(torch.maximum),
    prims.minimum: of_tensors(torch.minimum),
    prims.nextafter: of_tensors(torch.nextafter),
    prims.copysign: of_tensors(torch.copysign),
    prims.complex: of_tensors(torch.complex),
    # reductions and scans
    prims.sum: sum,
    prims.prod: prod,
    prims.amax: amax,
    prims.amin: amin,
    prims.any: any,
    prims.all: all,
    prims.var: var,
    prims.var_mean: var_mean,
    prims.broadcast_in_dim: broadcast_in_dim,
    prims.cumsum: cumsum,
    prims.cumprod: cumprod,
    prims.argmax: torch.argmax,
    prims.argmin: torch.argmin,
    prims.cummax: torch.cummax,
    prims.cummin: torch.cummin,
    prims.sort: torch.sort,
    prims.topk: torch.topk,
    # shape
    prims.reshape: reshape,
    prims.transpose: transpose,
    prims.squeeze: squeeze,
    prims.strided_slice: strided_slice,
    prims.put_slice: put_slice,
    prims.put_diagonal: put_diagonal,
    prims.unfold: unfold,
    prims.fold_add: fold_add,
    prims.pad: pad,
    prims.diagonal: torch.diagonal,
    prims.cat: torch.cat,
    prims.flip: torch.flip,
    prims.view_as_real: torch.view_as_real,
    prims.view_as_complex: torch.view_as_complex,
    prims.detach: torch.detach,
    # indexing
    prims.take: take,
    prims.index_add: index_add,
    prims.index_copy: index_copy,
    prims.take_along_axis: take_along_axis,
    prims.scatter: scatter,
    prims.scatter_add: scatter_add,
    prims.index: index,
    prims.index_put: index_put,
    # creation and random
    prims.full: full,
    prims.iota: iota,
    prims.tensor_from_sequence: tensor_from_sequence,
    prims.uniform: uniform,
    prims.normal: normal,
    prims.exponential: exponential,
    prims.randint: randint,
    prims.randperm: randperm,
    prims.uniform_philox: uniform_philox,
    prims.normal_philox: normal_philox,
    prims.bernoulli: bernoulli,
    prims.multinomial: torch.multinomial,
    # sums of products
    prims.matmul: torch.matmul,
    prims.linear: torch.nn.functional.linear,
    prims.convolution: convolution,
    prims.convolution_input_grad: convolution_input_grad,
    prims.convolution_weight_grad: convolution_weight_grad,
    prims.embedding: embedding,
    prims.embedding_backward: embedding_backward,
    prims.coo_mm: coo_mm,
    # memory and host
    prims.clone: row_major,
    prims.stride_order: stride_order,
    prims.copy_: copy_,
    prims.with_history: with_history,
    prims.device_put: device_put,
    prims.item: Tensor.item,
    prims.print_: print_,
    prims.evaluate: evaluate,
    prims.delete: delete,
    prims.size: size,
    prims.integer: integer,
    prims.arithmetic: arithmetic,
    prims.format_number: format_number,
    prims.format_tensor: format_tensor,
    prims.join_text: join_text,
    prims.get_grad: get_grad,
    prims.put_grad: put_grad,
}
