"""Elements picked along a dimension by an index, and put, added or combined there."""

from __future__ import annotations

from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.names import unsupported_gradient
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import Number, Tensor, torchsymbol
from dovetail.langs.torch.elementwise import is_one
from dovetail.langs.torch.indexing import as_number
from dovetail.langs.torch.shape import reshaped
from dovetail.prims import recorder
from dovetail.prims.shape import flat_reshape, replaced
from dovetail.prims.spec import dense
from dovetail.trace import TensorProxy


def require_index(name: str, index: Tensor) -> Tensor:
    """`index` as int64; eager takes int32 as well."""
    message = "{}(): Expected dtype int32/int64 for index, got {}; convert it with .long()"
    require(index.spec.dtype in (dtypes.int32, dtypes.int64), message, name, index.spec.dtype.short)
    return core.convert(index, dtypes.int64)


def _require_long(name: str, index: Tensor) -> None:
    require(index.spec.dtype is dtypes.int64, "{}(): Expected a long tensor for index, but got {}", name, index.spec.dtype.short)


def _vector(x: Tensor) -> Tensor:
    """Return a 0-d tensor as a vector of one element."""
    return x if x.spec.shape else prims.reshape(x, shape=(1,))


def _along(name: str, x: Tensor, dim: int, index: Tensor) -> tuple[Tensor, int, Tensor]:
    """Return x, dim and index for the prims along a dimension: each with at least one dimension."""
    dim = core.canonical_dim(dim, len(x.spec.shape))
    index = require_index(name, index)
    x, index = _vector(x), _vector(index)
    message = "Index tensor must have the same number of dimensions as input tensor: {}() got {} and {}"
    require(len(index.spec.shape) == len(x.spec.shape), message, name, index.spec, x.spec)
    for d, (n, most) in enumerate(zip(index.spec.shape, x.spec.shape, strict=True)):
        message = "Size does not match at dimension {} expected index {} to be no larger than self {} apart from dimension {}"
        require(d == dim or n <= most, message, d, list(index.spec.shape), list(x.spec.shape), dim)
    return x, dim, index


@torchsymbol("torch.gather", methods=("gather",))
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False):
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on."""
    shape, spec = index.spec.shape, input.spec
    if sparse_grad and spec.requires_grad and recorder.get().environment.grad_enabled():
        raise unsupported_gradient("gather", "sparse_grad")
    if not index.spec.numel:
        core.canonical_dim(dim, len(spec.shape))
        empty = prims.strided_slice(reshaped(input, (spec.numel,)), starts=(0,), stops=(0,), steps=(1,))
        return flat_reshape(prims.clone(empty), shape)  # of the input, so that a gradient can flow
    x, dim, index = _along("gather", input, dim, index)
    return flat_reshape(prims.take_along_axis(x, index, dim=dim), shape)


@torchsymbol("torch.take_along_dim", methods=("take_along_dim",))
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None):
    """`gather` with shapes that broadcast apart from `dim`; None: of the flattened tensors."""
    require(indices.spec.dtype is dtypes.int64, "torch.take_along_dim(): dtype of indices should be Long but got {}", indices.spec.dtype.short)
    if dim is None:
        return gather(reshaped(input, (input.spec.numel,)), 0, reshaped(indices, (indices.spec.numel,)))
    a, b = input.spec.shape, indices.spec.shape
    message = (
        "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {} dimensions for input, and {} for indices"
    )
    require(len(a) == len(b), message, len(a), len(b))
    dim = core.canonical_dim(dim, len(a))
    shape = core.broadcast_shapes(replaced(a, dim, 1), replaced(b, dim, 1))
    indices = core.from_front(indices, a[dim])
    return gather(core.expand(input, replaced(shape, dim, a[dim])), dim, core.expand(indices, replaced(shape, dim, b[dim])))


# Scatter.


def _source(name: str, x: Tensor, index: Tensor, src: Any) -> Tensor:
    """Return the source values for `index`: a tensor of its shape, sliced from a larger one."""
    if not isinstance(src, TensorProxy):
        number = as_number(src, x.spec.dtype, x.spec.device)
        if isinstance(number, TensorProxy):
            return core.expand(number, index.spec.shape)
        return prims.full(shape=index.spec.shape, value=number, dtype=x.spec.dtype, device=x.spec.device)
    message = "{}(): Expected self.dtype to be equal to src.dtype, got {} and {}; convert one of them"
    require(src.spec.dtype is x.spec.dtype, message, name, x.spec.dtype.short, src.spec.dtype.short)
    src, shape = _vector(src), index.spec.shape
    is_covered = len(src.spec.shape) == len(shape) and all([n <= m for n, m in zip(shape, src.spec.shape, strict=True)])
    require(is_covered, "{}(): Expected index {} to be no larger than src {} in any dimension", name, list(shape), list(src.spec.shape))
    return src if src.spec.shape == shape else prims.strided_slice(src, starts=(0,) * len(shape), stops=shape, steps=(1,) * len(shape))


def scattered(name: str, prim: Any, input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """Apply `prim`, a scatter of src at index along dim, to normalized operands."""
    if not index.spec.numel:
        return prims.clone(input)
    x, dim, index = _along(name, input, dim, index)
    return flat_reshape(prim(x, index, _source(name, x, index, src), dim=dim), input.spec.shape)


def _scatter_arguments(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> tuple[tuple, dict]:
    return (input, dim, index, value if src is None else src), {} if reduce is None else {"reduce": reduce}


@torchsymbol("torch.scatter", methods=("scatter",), bind=_scatter_arguments)
def scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | Number, *, reduce: str | None = None):
    """A copy with out[index[i][j]][j] = src[i][j] for dim 0, and so on; `reduce` "add" or "multiply" combines with the previous values."""
    require(reduce in (None, "add", "multiply"), "reduce argument must be either add or multiply, got {!r}", reduce)
    if reduce == "multiply":
        value_kwargs = {} if isinstance(src, TensorProxy) else {"value": src}
        return opaque(torch.scatter, (input, dim, index, *(() if value_kwargs else (src,))), {**value_kwargs, "reduce": reduce})
    return scattered("scatter", prims.scatter_add if reduce == "add" else prims.scatter, input, dim, index, src)


@torchsymbol("torch.scatter_add", methods=("scatter_add",))
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor):
    """A copy with src[i][j] added at [index[i][j]][j] for dim 0, and so on."""
    return scattered("scatter_add", prims.scatter_add, input, dim, index, src)


@torchsymbol("torch.scatter_reduce", methods=("scatter_reduce",))
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True):
    """A copy with the src values of each position reduced, with the input's value if `include_self`: "sum", "mean", "prod", "amax", "amin"."""
    reductions = ("sum", "prod", "mean", "amax", "amin")
    require(reduce in reductions, "reduce argument must be either sum, prod, mean, amax or amin, got {}", reduce)
    if reduce not in ("sum", "mean") or input.spec.dtype is dtypes.bool_ or not index.spec.numel:
        return opaque(torch.scatter_reduce, (input, dim, index, src, reduce), {} if include_self else {"include_self": False})
    base = input if include_self else scattered("scatter_reduce", prims.scatter, input, dim, index, 0)
    total = scattered("scatter_reduce", prims.scatter_add, base, dim, index, src)
    if reduce == "sum":
        return total
    dtype, spec = input.spec.dtype, input.spec
    ones = prims.full(shape=spec.shape, value=as_number(1, dtype), dtype=dtype, device=spec.device)
    if not include_self:
        ones = scattered("scatter_reduce", prims.scatter, ones, dim, index, 0)
    count = scattered("scatter_reduce", prims.scatter_add, ones, dim, index, 1)
    if not include_self:
        count = core.where(core.eq(count, 0), as_number(1, dtype), count)
    return prims.div(total, count) if dtype.inexact else prims.floordiv(total, count)


# Rows along a dimension, selected by a vector.


def _rows(name: str, x: Tensor, dim: int, index: Tensor) -> tuple[Tensor, int, Tensor]:
    dim = core.canonical_dim(dim, len(x.spec.shape))
    require(len(index.spec.shape) <= 1, "{}(): Index is supposed to be a vector, but got {}", name, index.spec, error=IndexError)
    return _vector(x), dim, _vector(require_index(name, index))


@torchsymbol("torch.index_select", methods=("index_select",))
def index_select(input: Tensor, dim: int, index: Tensor):
    """The rows along `dim` that the vector `index` names."""
    x, dim, index = _rows("index_select", input, dim, index)
    rows = prims.take(x, index, dim=dim)
    return rows if input.spec.shape else flat_reshape(rows, ())


def _source_rows(name: str, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`source` as one row for each entry of `index`."""
    message = "{}(): self and source expected to have the same dtype, but got (self) {} and (source) {}"
    require(source.spec.dtype is x.spec.dtype, message, name, x.spec.dtype.short, source.spec.dtype.short)
    shape = replaced(x.spec.shape, dim, index.spec.shape[0])
    source = _vector(source) if len(shape) == 1 else source
    message = "{}(): expected a source of shape {}: that of self, with the length of index at dim {}; got {}"
    require(source.spec.shape == shape, message, name, list(shape), dim, list(source.spec.shape))
    return source


@torchsymbol("torch.index_add", methods=("index_add",))
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1):
    """A copy with alpha times the rows of `source` added to the rows along `dim` that `index` names."""
    x, dim, index = _rows("index_add", input, dim, index)
    source = _source_rows("index_add", x, dim, index, source)
    if not is_one(alpha):
        source = core.mul(source, core.stored(alpha, x.spec.dtype))
    return flat_reshape(prims.index_add(x, index, source, dim=dim), input.spec.shape)


@torchsymbol("torch.index_copy", methods=("index_copy",))
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor):
    """A copy with the rows along `dim` that `index` names replaced by those of `source`."""
    x, dim, rows = _rows("index_copy", input, dim, index)
    _require_long("index_copy_", index)
    counted = not source.spec.shape or (len(source.spec.shape) == len(x.spec.shape) and source.spec.shape[dim] == index.spec.numel)
    message = "index_copy_(): Number of indices ({}) should be equal to source.size(dim), in a source of the rank of self; got {}"
    require(counted, message, index.spec.numel, source.spec, error=IndexError)
    source = _source_rows("index_copy", x, dim, rows, source)
    return flat_reshape(prims.index_copy(x, rows, source, dim=dim), input.spec.shape)


@torchsymbol("torch.index_fill", methods=("index_fill",))
def index_fill(input: Tensor, dim: int, index: Tensor, value: Number | Tensor):
    """A copy with the rows along `dim` that `index` names full of `value`, a number or a tensor of no dimensions."""
    require(index.spec.dtype is dtypes.int64, "index_fill_(): Expected dtype int64 for index, got {}", index.spec.dtype.short, error=IndexError)
    require(len(index.spec.shape) <= 1, "Index has to be a vector/scalar, got {}", index.spec)
    x, dim, index = _rows("index_fill", input, dim, index)
    size, spec = x.spec.shape[dim], x.spec
    index = core.from_front(index, size)
    if isinstance(value, TensorProxy):
        require(
            not value.spec.shape,
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
            len(value.spec.shape),
        )
        value = core.convert(value, spec.dtype)
    else:
        value = as_number(value, spec.dtype, spec.device)
    no_rows = prims.full(shape=(size,), value=False, dtype=dtypes.bool_, device=spec.device)
    ones = prims.full(shape=index.spec.shape, value=True, dtype=dtypes.bool_, device=spec.device)
    hit = prims.index_copy(no_rows, index, ones, dim=0)  # a duplicate row is filled once, and its gradient counted once
    hit = prims.broadcast_in_dim(hit, shape=spec.shape, dims=(dim,))
    return flat_reshape(core.where(hit, value, x), input.spec.shape)


# Positions in the flattened tensor.


@torchsymbol("torch.take", methods=("take",))
def take(input: Tensor, index: Tensor):
    """The elements at `index` in the flattened tensor; positions may count from the end."""
    _require_long("take", index)
    flat = reshaped(input, (input.spec.numel,))
    picked = prims.index(flat, [core.from_front(index, input.spec.numel)])
    return core.in_layout(picked, picked.spec.fresh())


@torchsymbol("torch.put", methods=("put",))
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False):
    """A copy with `source` at the positions `index` of the flattened tensor, or added there."""
    _require_long("put_", index)
    message = "put_(): self and source expected to have the same dtype, but got self.dtype = {} and source.dtype = {}"
    require(source.spec.dtype is input.spec.dtype, message, input.spec.dtype.short, source.spec.dtype.short)
    message = "put_(): Expected source and index to have the same number of elements, but got source.numel() = {}, index.numel() = {}"
    require(source.spec.numel == index.spec.numel, message, source.spec.numel, index.spec.numel, error=IndexError)
    n = input.spec.numel
    flat, places = reshaped(input, (n,)), core.from_front(reshaped(index, (index.spec.numel,)), n)
    new = prims.index_put(flat, [places], reshaped(source, (source.spec.numel,)), accumulate=accumulate)
    return core.in_layout(reshaped(new, input.spec.shape), dense(input.spec))
