"""Elements in another order or kept in part: flips, rolls, diagonals, triangles, windows, and tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail import dtypes, prims
from dovetail.errors import Unsupported, require
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.joining import position
from dovetail.langs.torch.shape import reshaped, swapped
from dovetail.prims.shape import replaced
from dovetail.prims.sizes import index_of
from dovetail.prims.spec import TensorSpec, row_major


def flipped(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Return a copy of x with the order along `dims` reversed."""
    dims = [core.canonical_dim(d, len(x.spec.shape)) for d in dims]
    require(len(set(dims)) == len(dims), "dim {} appears multiple times in the list of dims", dims)
    return prims.flip(x, dims=tuple(sorted(dims)) if x.spec.shape else ())


@torchsymbol("torch.flip", methods=("flip",), variadic="dims")
def flip(input: Tensor, dims: Sequence[int]):
    """A copy with the order along `dims` reversed."""
    return flipped(input, dims)


@torchsymbol("torch.fliplr", methods=("fliplr",))
def fliplr(input: Tensor):
    """A copy with the columns reversed."""
    require(len(input.spec.shape) >= 2, "Input must be >= 2-d.")
    return flipped(input, (1,))


@torchsymbol("torch.flipud", methods=("flipud",))
def flipud(input: Tensor):
    """A copy with the rows reversed."""
    require(len(input.spec.shape) >= 1, "Input must be >= 1-d.")
    return flipped(input, (0,))


@torchsymbol("torch.rot90", methods=("rot90",))
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)):
    """A copy rotated k times by 90 degrees, from the first of `dims` towards the second."""
    rank = len(input.spec.shape)
    require(len(dims) == 2, "expected total rotation dims == 2, but got dims = {}", len(dims))
    require(rank >= 2, "expected total dims >= 2, but got total dims = {}", rank)
    a, b = [core.canonical_dim(d, rank) for d in dims]
    require(a != b, "expected rotation dims to be different, but got dim0 = {} and dim1 = {}", *dims)
    k %= 4
    if k == 0:
        return prims.clone(input)
    if k == 2:
        return flipped(input, (a, b))
    return swapped(flipped(input, (b if k == 1 else a,)), a, b)


@torchsymbol("torch.roll", methods=("roll",))
def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = ()):
    """A copy with the elements moved along `dims`, wrapping around at the end; without dims, of the flattened tensor."""
    shifts = tuple(shifts) if isinstance(shifts, (tuple, list)) else (shifts,)
    dims = tuple(dims or ()) if dims is None or isinstance(dims, (tuple, list)) else (dims,)
    if not dims:
        require(len(shifts) == 1, "shifts and dimensions must align. shifts: {}, dims: 0", len(shifts))
        flat = _rolled(reshaped(input, (input.spec.numel,)), shifts[0], 0)
        return reshaped(flat, input.spec.shape)
    require(len(shifts) == len(dims), "shifts and dimensions must align. shifts: {}, dims: {}", len(shifts), len(dims))
    x = input
    require(bool(x.spec.shape), "Dimension specified as {} but tensor has no dimensions", dims[0], error=IndexError)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, core.canonical_dim(dim, len(x.spec.shape)))
    return core.clone(x) if x is input else x


def _rolled(x: Tensor, shift: int, dim: int) -> Tensor:
    n = x.spec.shape[dim]
    if not x.spec.numel:
        return core.clone(x)
    at = (n - shift) % n
    return prims.cat([core.sliced(x, dim, at, n), core.sliced(x, dim, 0, at)], dim=dim)


# Diagonals and triangles.


def diagonal_dims(x: Tensor, dim1: int, dim2: int) -> dict[str, int]:
    """Return the two dimensions of a diagonal, counted from 0."""
    rank = len(x.spec.shape)
    dim1, dim2 = core.canonical_dim(dim1, rank), core.canonical_dim(dim2, rank)
    require(dim1 != dim2, "diagonal dimensions cannot be identical {}, {}", dim1, dim2)
    return {"dim1": dim1, "dim2": dim2}


@torchsymbol("torch.diagonal", methods=("diagonal",))
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """The view of the diagonals of the matrices in dim1 and dim2, in a new last dimension."""
    return prims.diagonal(input, offset=offset, **diagonal_dims(input, dim1, dim2))


def embedded(x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """Return zeros with the vectors in x's last dimension on the diagonals of the matrices in dim1 and dim2."""
    *batch, n = x.spec.shape
    rank = len(batch) + 2
    dim1, dim2 = core.canonical_dim(dim1, rank), core.canonical_dim(dim2, rank)
    require(dim1 != dim2, "diagonal dimensions cannot be identical {}, {}", dim1, dim2)
    sizes, side = iter(batch), n + abs(offset)
    shape = tuple([side if d in (dim1, dim2) else next(sizes) for d in range(rank)])
    zeros = prims.full(shape=shape, value=core.fit(0, (), x.spec.dtype), dtype=x.spec.dtype, device=x.spec.device)
    return prims.put_diagonal(zeros, x, offset=offset, dim1=dim1, dim2=dim2)


@torchsymbol("torch.diag_embed", methods=("diag_embed",))
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """Matrices with the last dimension's vectors on their diagonals and zeros elsewhere."""
    require(bool(input.spec.shape), "diag_embed expects at least a 1-dimensional tensor", error=IndexError)
    return embedded(input, offset, dim1, dim2)


@torchsymbol("torch.diag", methods=("diag",))
def diag(input: Tensor, diagonal: int = 0):
    """The matrix with a vector on its diagonal, or a copy of a matrix's diagonal."""
    rank = len(input.spec.shape)
    require(rank in (1, 2), "diag(): Supports 1D or 2D tensors. Got {}D", rank)
    if rank == 1:
        return embedded(input, diagonal, 0, 1)
    return prims.clone(prims.diagonal(input, offset=diagonal, dim1=0, dim2=1))


@torchsymbol("torch.diagflat", methods=("diagflat",))
def diagflat(input: Tensor, offset: int = 0):
    """The matrix with all elements on its diagonal."""
    return embedded(reshaped(input, (input.spec.numel,)), offset, 0, 1)


def positions(n: int, x: Tensor) -> Tensor:
    """0, 1, ..., n - 1 on x's device."""
    return prims.iota(length=n, start=0, step=1, dtype=dtypes.int64, device=x.spec.device)


def _triangle(x: Tensor, diagonal: int, lower: bool) -> Tensor:
    shape = x.spec.shape
    require(len(shape) >= 2, "{}: input tensor must have at least 2 dimensions", "tril" if lower else "triu")
    matrix, rank, diagonal = shape[-2:], len(shape), index_of(diagonal)
    row = prims.broadcast_in_dim(positions(matrix[0], x), shape=matrix, dims=(0,))
    column = prims.broadcast_in_dim(positions(matrix[1], x), shape=matrix, dims=(1,))
    column_offset = prims.sub(column, row)
    inside = prims.le(column_offset, diagonal) if lower else prims.ge(column_offset, diagonal)
    inside = inside if rank == 2 else prims.broadcast_in_dim(inside, shape=shape, dims=(rank - 2, rank - 1))
    out = prims.where(inside, x, core.fit(0, (), x.spec.dtype))
    return out if out.spec.strides is None else prims.clone(out)


@torchsymbol("torch.tril", methods=("tril",))
def tril(input: Tensor, diagonal: int = 0):
    """The lower triangles of matrices, up to `diagonal`, with zeros above."""
    return _triangle(input, diagonal, True)


@torchsymbol("torch.triu", methods=("triu",))
def triu(input: Tensor, diagonal: int = 0):
    """The upper triangles of matrices, from `diagonal` on, with zeros below."""
    return _triangle(input, diagonal, False)


@torchsymbol(methods=("unfold",))
def unfold(self: Tensor, dimension: int, size: int, step: int):
    """The view of windows of `size` elements along `dimension`, one every `step`; they lie in a new last dimension."""
    if not self.spec.shape:
        core.canonical_dim(dimension, 0)
        require(size <= 1, "maximum size for tensor at dimension 0 is 1 but size is {}", size)
        require(step > 0, "step is {} but must be > 0", step)
        one = prims.reshape(self, shape=(1,))
        return one if size else core.sliced(one, 0, 0, 0)
    return prims.unfold(self, dim=core.canonical_dim(dimension, len(self.spec.shape)), size=size, step=step)


@torchsymbol("torch.as_strided", methods=("as_strided",))
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None):
    """The view of the input's memory with these strides, where the input lies densely in memory and the view within it."""
    spec, size, stride = input.spec, tuple(map(index_of, size)), tuple(map(index_of, stride))
    require(len(size) == len(stride), "mismatch in length of strides and shape: {} and {}", list(stride), list(size))
    require(all([n >= 0 for n in size]), "as_strided: sizes are not negative, got {}", list(size))
    require(all([n >= 0 for n in stride]), "as_strided: Negative strides are not supported at the moment, got strides: {}", list(stride))
    if storage_offset is None and (permuted := _order_of(spec, size, stride)) is not None:
        return prims.transpose(input, order=permuted)
    order = tuple(sorted(range(spec.rank), key=lambda d: (-spec.steps[d], -spec.shape[d])))
    rows = row_major(tuple([spec.shape[d] for d in order]))
    is_dense = spec.numel == 0 or all([spec.shape[d] == 1 or step == spec.steps[d] for d, step in zip(order, rows)])
    empty = any([n == 0 for n in size])
    span = 0 if empty else 1 + sum([(n - 1) * s for n, s in zip(size, stride)])
    if storage_offset is not None or not is_dense or span > spec.numel:
        raise Unsupported(
            "as_strided is traced where the input is dense in memory, without storage_offset and within the elements of the input; "
            "write it with indexing, transpose, expand or unfold"
        )
    flat = prims.reshape(prims.transpose(input, order=order), shape=(spec.numel,))
    if empty:
        return prims.reshape(core.sliced(flat, 0, 0, 0), shape=size)
    return _windows(core.sliced(flat, 0, 0, span), size, stride)


def _order_of(spec: TensorSpec, size: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the order of dimensions that results in these sizes and strides, or None."""
    remaining = list(enumerate(zip(spec.shape, spec.steps, strict=True)))
    order = []
    for target in zip(size, stride, strict=True):
        match = next((item for item in remaining if item[1] == target or (target[0] == 1 and item[1][0] == 1)), None)
        if match is None:
            return None
        remaining.remove(match)
        order.append(match[0])
    return None if remaining else tuple(order)


def _windows(flat: Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """Return the elements of a vector from its first to its last in dimensions of these sizes and strides: windows within windows."""
    moving = sorted([d for d, (n, s) in enumerate(zip(size, stride)) if n != 1 and s != 0], key=lambda d: -stride[d])
    x, span = flat, flat.spec.numel
    for i, d in enumerate(moving):
        span -= (size[d] - 1) * stride[d]
        x = prims.unfold(x, dim=i, size=span, step=stride[d])
    x = prims.squeeze(x, dims=(len(moving),))
    dims = sorted(moving)
    x = prims.transpose(x, order=tuple([moving.index(d) for d in dims]))
    return prims.broadcast_in_dim(x, shape=size, dims=tuple(dims))


# Tensors with a part replaced.


def _part(x: Tensor, src: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Convert `src` to x's dtype, checking that it has the shape of the part it replaces."""
    message = "expected src to have a size equal to the slice of self. src size = {}, slice size = {}"
    require(src.spec.shape == shape, message, list(src.spec.shape), list(shape))
    return core.convert(src, x.spec.dtype)


@torchsymbol("torch.slice_scatter", methods=("slice_scatter",))
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1):
    """A copy with input[start:end:step] along `dim` replaced by src."""
    shape = input.spec.shape
    dim = core.canonical_dim(dim, len(shape))
    require(step > 0, "slice step must be positive, got {}", step)
    start, stop, step = core.window(slice(start, end, step), shape[dim])
    count = (stop - start + step - 1) // step
    part = _part(input, src, replaced(shape, dim, count))
    starts, steps = replaced((0,) * len(shape), dim, start), replaced((1,) * len(shape), dim, step)
    return prims.put_slice(input, part, starts=starts, stops=replaced(shape, dim, stop), steps=steps)


@torchsymbol("torch.select_scatter", methods=("select_scatter",))
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int):
    """A copy with the slice at `index` along `dim` replaced by src."""
    shape = input.spec.shape
    dim, index = position(input, dim, index)
    part = _part(input, src, (*shape[:dim], *shape[dim + 1 :]))
    part = prims.broadcast_in_dim(part, shape=replaced(shape, dim, 1), dims=tuple([d for d in range(len(shape)) if d != dim]))
    starts = replaced((0,) * len(shape), dim, index)
    return prims.put_slice(input, part, starts=starts, stops=replaced(shape, dim, index + 1), steps=(1,) * len(shape))


@torchsymbol("torch.diagonal_scatter", methods=("diagonal_scatter",))
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """A copy with a diagonal replaced by src."""
    diagonal_args = {"offset": offset, **diagonal_dims(input, dim1, dim2)}
    shape = prims.diagonal.meta(input.spec, **diagonal_args).shape
    return prims.put_diagonal(input, _part(input, src, shape), **diagonal_args)
