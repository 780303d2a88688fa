"""Concatenation, stacking and splitting of tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.shape import as_2d, as_3d, reshaped
from dovetail.prims.shape import replaced
from dovetail.prims.sizes import index_of
from dovetail.prims.spec import ceildiv, prod, view_strides
from dovetail.trace import TensorProxy, value_of
from dovetail.trace.proxies import no_value


def require_tensors(name: str, tensors: Any) -> None:
    """Raise unless `tensors` is a sequence of tensors with at least one."""
    require(isinstance(tensors, (tuple, list)), "{}(): expected a tuple or list of tensors, got {}", name, type(tensors).__name__, error=TypeError)
    for i, x in enumerate(tensors):
        require(isinstance(x, TensorProxy), "{}(): expected Tensor as element {}, but got {}", name, i, type(x).__name__, error=TypeError)
    require(len(tensors) > 0, "{}(): expected a non-empty list of Tensors", name)


def joined(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate `tensors` in the dtype they promote to; empty vectors are skipped."""
    dtype = common_dtype(tensors)
    for i, x in enumerate(tensors):
        require(bool(x.spec.shape), "zero-dimensional tensor (at position {}) cannot be concatenated; unsqueeze it first", i)
    first = next((x for x in tensors if x.spec.shape != (0,)), tensors[0])
    dim = core.canonical_dim(dim if first.spec.shape != (0,) else 0, len(first.spec.shape))  # with nothing but empty vectors, it may be any
    empty_shape = replaced(first.spec.shape, dim, 0)
    tensors = [x if x.spec.shape != (0,) else prims.reshape(x, shape=empty_shape) for x in tensors]
    for x in tensors:
        _require_fits(first, x, dim)
    return prims.cat([core.convert(x, dtype) for x in tensors], dim=dim)


def common_dtype(tensors: Sequence[Tensor]) -> DType:
    """Return the dtype that `tensors` promote to, whatever their ranks."""
    dtype = tensors[0].spec.dtype
    for x in tensors[1:]:
        dtype = dtypes.wider(dtype, x.spec.dtype)
    return dtype


def _require_fits(first: Tensor, x: Tensor, dim: int) -> None:
    a, b = first.spec.shape, x.spec.shape
    require(len(a) == len(b), "Tensors must have same number of dimensions: got {} and {}", len(a), len(b))
    message = "Sizes of tensors must match except in dimension {}. Expected {} but got {}"
    require(replaced(a, dim, 0) == replaced(b, dim, 0), message, dim, list(a), list(b))
    message = "Expected all tensors to be on the same device, but got {} and {}; move one of them first"
    require(first.spec.device is x.spec.device, message, first.spec.device, x.spec.device)


@torchsymbol("torch.cat", "torch.concat", "torch.concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0):
    """The tensors one after the other along `dim`."""
    require_tensors("cat", tensors)
    return joined(tensors, dim)


@torchsymbol("torch.stack")
def stack(tensors: Sequence[Tensor], dim: int = 0):
    """The tensors, of one shape, along a new dimension."""
    require_tensors("stack", tensors)
    first = tensors[0].spec.shape
    for i, x in enumerate(tensors):
        message = "stack expects each tensor to be equal size, but got {} at entry 0 and {} at entry {}"
        require(x.spec.shape == first, message, list(first), list(x.spec.shape), i)
    dim = core.canonical_dim(dim, len(first) + 1)
    out = joined([core.unsqueezed(x, dim) for x in tensors], dim)
    if dim == len(first) or all([x.spec.strides is None for x in tensors]):
        return out
    whole = prims.cat.meta([x.spec.like(dtype=out.spec.dtype) for x in tensors], dim=dim)  # as PyTorch joins them, and splits the dimension
    return core.in_layout(out, whole.view(out.spec.shape, view_strides(whole, out.spec.shape)))


@torchsymbol("torch.hstack")
def hstack(tensors: Sequence[Tensor]):
    """Vectors one after the other, other tensors side by side."""
    require_tensors("hstack", tensors)
    tensors = [x if x.spec.shape else prims.reshape(x, shape=(1,)) for x in tensors]
    return joined(tensors, 0 if len(tensors[0].spec.shape) == 1 else 1)


@torchsymbol("torch.vstack", "torch.row_stack")
def vstack(tensors: Sequence[Tensor]):
    """Rows one below the other."""
    require_tensors("vstack", tensors)
    return joined([as_2d(x) for x in tensors], 0)


@torchsymbol("torch.dstack")
def dstack(tensors: Sequence[Tensor]):
    """Tensors one behind the other in the third dimension."""
    require_tensors("dstack", tensors)
    return joined([as_3d(x) for x in tensors], 2)


@torchsymbol("torch.column_stack")
def column_stack(tensors: Sequence[Tensor]):
    """Vectors as the columns of a matrix, matrices side by side."""
    require_tensors("column_stack", tensors)
    return joined([x if len(x.spec.shape) > 1 else reshaped(x, (x.spec.numel, 1)) for x in tensors], 1)


@torchsymbol("torch.block_diag", "torch.functional.block_diag", bind=lambda *tensors: (tensors, {}))
def block_diag(*tensors: Tensor):
    """The matrices along the diagonal of one, with zeros elsewhere."""
    require_tensors("block_diag", tensors)
    dtype = core.promote(*tensors)  # a tensor without dimensions promotes by its kind alone, unlike in `cat`
    for i, x in enumerate(tensors):
        require(
            len(x.spec.shape) <= 2,
            "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {} has {} dimensions",
            i,
            len(x.spec.shape),
        )
    blocks = [core.convert(as_2d(x), dtype) for x in tensors]
    width, before, rows = sum([x.spec.shape[1] for x in blocks]), 0, []
    for x in blocks:
        n = x.spec.shape[1]
        zero = core.fit(0, (), dtype)
        rows.append(prims.pad(x, value=zero, low=(0, before), high=(0, width - before - n), interior=(0, 0)))
        before += n
    return prims.cat(rows, dim=0)


def _as_one_sequence(*tensors: Any, indexing: str | None = None) -> tuple[tuple, dict]:
    sequence = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    return (sequence,), {} if indexing is None else {"indexing": indexing}


@torchsymbol("torch.meshgrid", "torch.functional.meshgrid", bind=_as_one_sequence)
def meshgrid(tensors: Sequence[Tensor], indexing: str = "ij"):
    """Each vector spread over the grid that all of them span; indexing "xy" exchanges the first two dimensions."""
    require_tensors("meshgrid", tensors)
    require(indexing in ("ij", "xy"), 'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {}', indexing)
    for x in tensors:
        require(len(x.spec.shape) <= 1, "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {}", x.spec)
        alike = x.spec.dtype is tensors[0].spec.dtype and x.spec.device is tensors[0].spec.device
        require(alike, "torch.meshgrid expects all tensors to have the same dtype and device, got {} and {}", tensors[0].spec, x.spec)
    order = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        order[:2] = 1, 0
    shape = tuple([tensors[i].spec.numel for i in order])
    return tuple(
        [
            prims.broadcast_in_dim(x if x.spec.shape else prims.reshape(x, shape=(1,)), shape=shape, dims=(order.index(i),))
            for i, x in enumerate(tensors)
        ]
    )


# Splitting, into views.


def _parts(x: Tensor, dim: int, ends: Sequence[int]) -> tuple[Tensor, ...]:
    """Return consecutive views of x along `dim` that end at `ends`."""
    return tuple([core.sliced(x, dim, start, end) for start, end in zip([0, *ends], ends, strict=False)])


def _splittable(name: str, x: Tensor, dim: int) -> int:
    require(bool(x.spec.shape), "{} expects at least a 1-dimensional tensor", name)
    return core.canonical_dim(dim, len(x.spec.shape))


def split_in(x: Tensor, size: int | Sequence[int], dim: int) -> tuple[Tensor, ...]:
    """Return views of x: parts of one size and the remainder, or parts of the listed sizes."""
    dim = _splittable("split", x, dim)
    n = x.spec.shape[dim]
    if not isinstance(size, (tuple, list)):
        size = index_of(size)
        require(size >= 0, "split expects split_size be non-negative, but got split_size={}", size)
        require(size > 0 or n == 0, "split_size can only be 0 if dimension size is 0, but got dimension size of {}", n)
        count = max(ceildiv(n, size), 1) if size else 1
        return _parts(x, dim, [*[(i + 1) * size for i in range(count - 1)], n])
    sizes = [index_of(s) for s in size]
    require(all([s >= 0 for s in sizes]), "split_with_sizes expects split_sizes have only non-negative entries, but got {}", sizes)
    message = "split_with_sizes expects split_sizes to sum exactly to {} (input tensor's size at dimension {}), but got split_sizes={}"
    require(sum(sizes) == n, message, n, dim, sizes)
    return _parts(x, dim, [sum(sizes[: i + 1]) for i in range(len(sizes))])


@torchsymbol(methods=("split",))
def split(self: Tensor, split_size: int | Sequence[int], dim: int = 0):
    """Views of parts along `dim`: of one size, the last smaller, or of the sizes listed."""
    return split_in(self, split_size, dim)


@torchsymbol("torch.split", "torch.functional.split")
def split_tensor(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0):
    """Views of parts along `dim`: of one size, the last smaller, or of the sizes listed."""
    return split_in(tensor, split_size_or_sections, dim)


@torchsymbol("torch.unsafe_split", methods=("unsafe_split",))
def unsafe_split(input: Tensor, split_size: int, dim: int = 0):
    """Views of parts of one size along `dim`, the last smaller, with right gradients where the input and parts are written, unlike eager mode."""
    return split_in(input, index_of(split_size), dim)


@torchsymbol("torch.unsafe_split_with_sizes", methods=("unsafe_split_with_sizes",))
def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0):
    """Views of parts along `dim` of the sizes listed, with right gradients where the input and parts are written, unlike eager mode."""
    return split_in(input, tuple(split_sizes), dim)


@torchsymbol("torch.split_with_sizes", methods=("split_with_sizes",))
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0):
    """Views of parts along `dim` of the sizes listed."""
    return split_in(input, tuple(split_sizes), dim)


@torchsymbol("torch.chunk", methods=("chunk",))
def chunk(input: Tensor, chunks: int, dim: int = 0):
    """At most `chunks` views along `dim`, of one size but for the last."""
    return _chunks(input, chunks, dim)


@torchsymbol("torch.unsafe_chunk", methods=("unsafe_chunk",))
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0):
    """The same views, with right gradients where the input and parts are written, unlike eager mode."""
    return _chunks(input, chunks, dim)


def _chunks(input: Tensor, chunks: int, dim: int) -> tuple[Tensor, ...]:
    dim = _splittable("chunk", input, dim)
    require(chunks > 0, "chunk expects `chunks` to be greater than 0, got: {}", chunks)
    n = input.spec.shape[dim]
    size = ceildiv(n, chunks)
    return split_in(input, size, dim) if size else _parts(input, dim, [0] * chunks)


def _numbers(positions: Tensor) -> Any:
    """Return the int that a tensor holds, or the list of them, which the program needs."""
    shape, name = positions.spec.shape, "tensor_split expected tensor_indices_or_sections to"
    require(positions.spec.dtype is dtypes.int64, "{} have dtype of long, but got {}", name, positions.spec.dtype)
    require(len(shape) < 2, "{} be a zero-dimensional or one-dimensional tensor, but got a tensor with {} dims", name, len(shape))
    if not shape:
        return operator.index(positions)
    if shape == (0,):
        return []
    if (known := value_of(positions)) is None:
        raise no_value(positions, "tolist")
    return known.tolist()


def tensor_split_in(x: Tensor, sections_or_indices: Any, dim: int) -> tuple[Tensor, ...]:
    """Return views of x: a number of parts whose sizes differ by at most one, or the parts between positions."""
    dim = _splittable("tensor_split", x, dim)
    n = x.spec.shape[dim]
    if isinstance(sections_or_indices, TensorProxy):
        sections_or_indices = _numbers(sections_or_indices)
    if not isinstance(sections_or_indices, (tuple, list)):
        require(sections_or_indices > 0, "number of sections must be larger than 0, got {}", sections_or_indices)
        small, more = divmod(n, sections_or_indices)
        return _parts(x, dim, [small * (i + 1) + min(i + 1, more) for i in range(sections_or_indices)])
    starts = [core.window(slice(i, None), n)[0] for i in (0, *sections_or_indices)]
    stops = [core.window(slice(0, i), n)[1] for i in (*sections_or_indices, n)]
    return tuple([core.sliced(x, dim, start, max(start, stop)) for start, stop in zip(starts, stops, strict=True)])


@torchsymbol("torch.tensor_split", methods=("tensor_split",), bind=lambda input, *args, **kwargs: ((input, *args), kwargs))
def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None, tensor_indices_or_sections: Any = None
):
    """Views along `dim`: a number of parts, or the parts between the listed positions."""
    sections_or_indices = next((w for w in (indices_or_sections, indices, sections, tensor_indices_or_sections) if w is not None), None)
    return tensor_split_in(input, sections_or_indices, dim)


def _numpy_split(name: str, x: Tensor, sections_or_indices: Any, least: int, dim: int) -> tuple[Tensor, ...]:
    rank = len(x.spec.shape)
    require(rank >= least, "torch.{} requires a tensor with at least {} dimension, but got a tensor with {} dimensions!", name, least, rank)
    n = x.spec.shape[dim]
    if not isinstance(sections_or_indices, (tuple, list)):
        message = "torch.{} attempted to split along dimension {}, but the size of the dimension {} is not divisible by the split_size {}!"
        require(sections_or_indices > 0 and n % sections_or_indices == 0, message, name, dim, n, sections_or_indices)
    return tensor_split_in(x, sections_or_indices, dim)


def _sections(input: Any, *args: Any, **kwargs: Any) -> tuple[tuple, dict]:
    sections_or_indices = args or tuple(kwargs.values())
    return (input, sections_or_indices[0] if len(sections_or_indices) == 1 else sections_or_indices), {}


@torchsymbol("torch.hsplit", methods=("hsplit",), bind=_sections)
def hsplit(input: Tensor, indices_or_sections: Any):
    """Views side by side: along dimension 1, or 0 of a vector."""
    return _numpy_split("hsplit", input, indices_or_sections, 1, 0 if len(input.spec.shape) == 1 else 1)


@torchsymbol("torch.vsplit", methods=("vsplit",), bind=_sections)
def vsplit(input: Tensor, indices_or_sections: Any):
    """Views one below the other: along dimension 0."""
    return _numpy_split("vsplit", input, indices_or_sections, 2, 0)


@torchsymbol("torch.dsplit", methods=("dsplit",), bind=_sections)
def dsplit(input: Tensor, indices_or_sections: Any):
    """Views one behind the other: along dimension 2."""
    return _numpy_split("dsplit", input, indices_or_sections, 3, 2)


def selected(x: Tensor, dim: int, index: int) -> Tensor:
    """Return the view x[..., index, ...] in dimension `dim`, counted from 0."""
    return prims.squeeze(core.sliced(x, dim, index, index + 1), dims=(dim,))


@torchsymbol("torch.unbind", methods=("unbind",))
def unbind(input: Tensor, dim: int = 0):
    """The views along `dim`, without it."""
    require(bool(input.spec.shape), "Dimension specified as {} but tensor has no dimensions", dim, error=IndexError)
    dim = core.canonical_dim(dim, len(input.spec.shape))
    return tuple([selected(input, dim, i) for i in range(input.spec.shape[dim])])


@torchsymbol("torch.select", methods=("select",))
def select(input: Tensor, dim: int, index: int):
    """The view at `index` along `dim`, without it."""
    dim, index = position(input, dim, index)
    return selected(input, dim, index)


def position(x: Tensor, dim: int, index: int) -> tuple[int, int]:
    """Return `dim` and `index`, both counted from the front."""
    require(bool(x.spec.shape), "select() cannot be applied to a 0-dim tensor.", error=IndexError)
    dim = core.canonical_dim(dim, len(x.spec.shape))
    n, index = x.spec.shape[dim], index_of(index)
    message = "select(): index {} out of range for tensor of size {} at dimension {}"
    require(-n <= index < n, message, index, list(x.spec.shape), dim, error=IndexError)
    return dim, index + n if index < 0 else index


@torchsymbol("torch.narrow", methods=("narrow",))
def narrow(input: Tensor, dim: int, start: int, length: int):
    """The view of `length` elements along `dim` from `start` on."""
    require(bool(input.spec.shape), "narrow() cannot be applied to a 0-dim tensor.")
    dim = core.canonical_dim(dim, len(input.spec.shape))
    is_index = not isinstance(start, TensorProxy) or (not start.spec.shape and start.spec.dtype.kind == "int")
    require(is_index, "narrow(): start must be an int or a 0-dimensional integer tensor, got {}", start)
    n, start, length = input.spec.shape[dim], index_of(start), index_of(length)
    require(length >= 0, "narrow(): length must be non-negative, got {}", length)
    require(-n <= start <= n, "start out of range (expected to be in range of [-{}, {}], but got {})", n, n, start, error=IndexError)
    start = start + n if start < 0 else start
    require(start + length <= n, "start ({}) + length ({}) exceeds dimension size ({}).", start, length, n)
    return core.sliced(input, dim, start, start + length)


@torchsymbol("torch.cartesian_prod", "torch.functional.cartesian_prod", bind=lambda *tensors: (tensors, {}))
def cartesian_prod(*tensors: Tensor):
    """Every combination of an element of each vector, as rows; the vector itself when there is one."""
    require_tensors("cartesian_prod", tensors)
    for x in tensors:
        require(len(x.spec.shape) == 1, "Expect a 1D vector, but got shape {}", list(x.spec.shape))
    if len(tensors) == 1:
        return tensors[0]
    shape = tuple([x.spec.shape[0] for x in tensors])
    columns = [reshaped(prims.broadcast_in_dim(x, shape=shape, dims=(i,)), (prod(shape), 1)) for i, x in enumerate(tensors)]
    return joined(columns, 1)
