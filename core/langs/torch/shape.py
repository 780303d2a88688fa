"""The same elements in another shape: views where PyTorch returns views, copies where it copies."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.devices import cpu
from dovetail.errors import ValueDependent, require, require_traced
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import dtype_of
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import LANGUAGE, Tensor, torchsymbol
from dovetail.langs.torch.padding import in_memory_format
from dovetail.prims.shape import flat_reshape, replaced
from dovetail.prims.sizes import index_of, same_shape
from dovetail.prims.spec import prod, view_strides
from dovetail.prims.unary import conjugated
from dovetail.trace import TensorProxy, value_of


def inferred(shape: Sequence[int], numel: int) -> tuple[int, ...]:
    """Replace the -1 in `shape` by the size that results in `numel` elements."""
    sizes = tuple([index_of(n) for n in shape])
    known_product = prod([n for n in sizes if n != -1])
    inferred_dims = [i for i, n in enumerate(sizes) if n == -1]
    require(all([n >= -1 for n in sizes]), "invalid shape dimension in {}: sizes are not negative, but for one -1", list(sizes))
    require(len(inferred_dims) < 2, "only one dimension can be inferred, got shape {}", list(sizes))
    if not inferred_dims:
        require(known_product == numel, "shape '{}' is invalid for input of size {}", list(sizes), numel)
        return sizes
    message = "cannot reshape tensor of 0 elements into shape {} because the unspecified dimension size -1 can be any value and is ambiguous"
    require(known_product != 0, message, list(sizes))
    require(numel % known_product == 0, "shape '{}' is invalid for input of size {}", list(sizes), numel)
    return tuple([numel // known_product if n == -1 else n for n in sizes])


def reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Reshape x: a view where its strides allow one, else a row-major copy."""
    return prims.reshape(x if view_strides(x.spec, shape) is not None else prims.clone(x), shape=shape)


def _view_arguments(self: Tensor, *shape: Any, dtype: Any = None, size: Any = None) -> tuple[tuple, dict]:
    dtype = shape[0] if dtype is None and len(shape) == 1 and isinstance(shape[0], (torch.dtype, type)) else dtype
    if dtype is not None:
        return (self, dtype), {}
    shape = (size,) if size is not None else shape
    return (self, tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape), {}


@torchsymbol(methods=("view",), bind=_view_arguments)
def view(self: Tensor, shape: Any):
    """The same elements as another shape, or the same bytes as another dtype; never a copy."""
    if isinstance(shape, (torch.dtype, type)):
        return prims.bitcast(self, dtype=dtype_of(shape))
    return as_view(self, shape)


def as_view(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return x viewed as `shape`.  Raises where that needs a copy."""
    shape = inferred(shape, x.spec.numel)
    possible = view_strides(x.spec, shape) is not None
    require(possible, "view size {} is not compatible with the strides of {}; use reshape, which copies where it must", list(shape), x.spec)
    return prims.reshape(x, shape=shape)


@torchsymbol(methods=("view_as",))
def view_as(self: Tensor, other: Tensor):
    """A view in the shape of `other`."""
    return as_view(self, other.spec.shape)


@torchsymbol("torch.reshape", methods=("reshape",), variadic="shape")
def reshape(input: Tensor, shape: Sequence[int]):
    """The elements in row-major order as `shape`: a view where the strides allow one, else a copy."""
    return reshaped(input, inferred(shape, input.spec.numel))


@torchsymbol(methods=("reshape_as",))
def reshape_as(self: Tensor, other: Tensor):
    """`reshape` to the shape of `other`."""
    return reshaped(self, inferred(other.spec.shape, self.spec.numel))


@torchsymbol("torch.flatten", methods=("flatten",))
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1):
    """The dimensions from start_dim to end_dim as one; the input itself when that is one already."""
    shape = input.spec.shape
    first, last = core.canonical_dim(start_dim, len(shape)), core.canonical_dim(end_dim, len(shape))
    require(first <= last, "flatten() has invalid args: start_dim cannot come after end_dim, got {} and {}", start_dim, end_dim)
    if not shape:
        return prims.reshape(input, shape=(1,))
    return input if first == last else reshaped(input, (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))


@torchsymbol("torch.unflatten", methods=("unflatten",))
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]):
    """Dimension `dim` as several, of `sizes`."""
    shape = input.spec.shape
    dim = core.canonical_dim(dim, len(shape))
    require(len(sizes) > 0, "unflatten: sizes must be non-empty")
    return prims.reshape(input, shape=(*shape[:dim], *inferred(sizes, shape[dim] if shape else 1), *shape[dim + 1 :]))


@torchsymbol("torch.ravel", methods=("ravel",))
def ravel(input: Tensor):
    """The elements in row-major order, in one dimension: a view of a row-major tensor."""
    x = input if input.spec.strides is None else prims.clone(input)
    return prims.reshape(x, shape=(input.spec.numel,))


@torchsymbol("torch.permute", methods=("permute",), variadic="dims")
def permute(input: Tensor, dims: Sequence[int]):
    """Dimension i of the result is dimension dims[i]."""
    rank = len(input.spec.shape)
    require(len(dims) == rank, "permute(): number of dimensions in the tensor input, {}, does not match the length of dims, {}", rank, len(dims))
    order = tuple([core.canonical_dim(operator.index(d), rank) for d in dims])
    require(len(set(order)) == rank, "permute(): duplicate dims are not allowed, got {}", tuple(dims))
    return prims.transpose(input, order=order)


def swapped(x: Tensor, a: int, b: int) -> Tensor:
    """Return a view of x with dimensions a and b exchanged."""
    rank = len(x.spec.shape)
    a, b = core.canonical_dim(a, rank), core.canonical_dim(b, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return prims.transpose(x, order=tuple(order))


@torchsymbol("torch.transpose", "torch.swapdims", methods=("transpose", "swapdims"))
def transpose(input: Tensor, dim0: int, dim1: int):
    """A view with dim0 and dim1 exchanged."""
    return swapped(input, dim0, dim1)


@torchsymbol("torch.swapaxes", methods=("swapaxes",))
def swapaxes(input: Tensor, axis0: int, axis1: int):
    """A view with axis0 and axis1 exchanged."""
    return swapped(input, axis0, axis1)


@torchsymbol("torch.t", methods=("t",))
def t(input: Tensor):
    """The transposed matrix; a vector or number as it is."""
    rank = len(input.spec.shape)
    require(rank <= 2, "t() expects a tensor with <= 2 dimensions, but self is {}D", rank)
    return prims.transpose(input, order=tuple(reversed(range(rank))))


@torchsymbol("torch.adjoint", methods=("adjoint",))
def adjoint(input: Tensor):
    """The matrices transposed and conjugated."""
    rank = len(input.spec.shape)
    require(rank != 1, "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
    x = core.conj(input) if input.spec.dtype.kind == "complex" else input
    return swapped(x, -2, -1) if rank else prims.transpose(x, order=())


def _reversed(x: Tensor) -> Any:
    return permute(x, tuple(reversed(range(len(x.spec.shape)))))


def _matrix_transposed(x: Tensor) -> Any:
    rank = len(x.spec.shape)
    require(rank != 1, "tensor.mT is only supported on matrices or batches of matrices. Got {}-D tensor.", rank)
    return transpose(x, -2, -1) if rank else x


def _matrix_adjoint(x: Tensor) -> Any:
    rank = len(x.spec.shape)
    require(rank != 1, "tensor.mH is only supported on matrices or batches of matrices. Got {}-D tensor.", rank)
    return adjoint(x) if rank else conjugated(x)


def _hermitian(x: Tensor) -> Any:
    rank = len(x.spec.shape)
    require(rank in (0, 2), "tensor.H is only supported on matrices (2-D tensors). Got {}-D tensor.", rank)
    return adjoint(x) if rank else conjugated(x)


LANGUAGE.properties |= {"T": _reversed, "mT": _matrix_transposed, "mH": _matrix_adjoint, "H": _hermitian}


@torchsymbol("torch.squeeze", methods=("squeeze",), variadic="dim")
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None):
    """A view without the dimensions of size 1, or without those of `dim` that have size 1."""
    shape = input.spec.shape
    dims = range(len(shape)) if dim is None else [core.canonical_dim(d, len(shape)) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    require(len(set(dims)) == len(dims), "squeeze(): a dimension appears twice in {}", dim)
    return prims.squeeze(input, dims=tuple(sorted([d for d in dims if shape and shape[d] == 1])))


@torchsymbol("torch.unsqueeze", methods=("unsqueeze",))
def unsqueeze(input: Tensor, dim: int):
    """A view with a dimension of size 1 put in at `dim`."""
    return core.unsqueezed(input, core.canonical_dim(dim, len(input.spec.shape) + 1))


@torchsymbol(methods=("expand",), bind=lambda self, *size, implicit=False, **named: ((self, _sizes(size, **named)), {}))
def expand(self: Tensor, size: Sequence[int]):
    """A view with dimensions of size 1 repeated, and new ones in front; -1 leaves a size as it is."""
    return expanded(self, size)


def _sizes(size: tuple, **named: Any) -> tuple:
    size = tuple(named.values()) if named else size
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def expanded(x: Tensor, size: Sequence[int]) -> Tensor:
    """Return a view of x as `size`, in which -1 keeps the size of x."""
    shape, lead = x.spec.shape, len(size) - len(x.spec.shape)
    message = "expand: the number of sizes provided ({}) must be greater or equal to the number of dimensions in the tensor ({})"
    require(lead >= 0, message, len(size), len(shape))
    out = []
    for d, n in enumerate(size):
        n, own_size = index_of(n), shape[d - lead] if d >= lead else None
        require(n != -1 or own_size is not None, "the expanded size -1 isn't allowed in a leading, non-existing dimension {}", d)
        require(n >= -1, "expand: sizes are not negative, but for -1, got {}", list(size))
        n = own_size if n == -1 else n
        message = (
            "The expanded size of the tensor ({}) must match the existing size ({}) at non-singleton dimension {}. Target sizes: {}. Tensor sizes: {}"
        )
        require(own_size in (None, 1, n), message, n, own_size, d, list(size), list(shape))
        out.append(n)
    return prims.broadcast_in_dim(x, shape=tuple(out), dims=tuple(range(lead, len(size))))


@torchsymbol(methods=("expand_as",))
def expand_as(self: Tensor, other: Tensor):
    """`expand` to the shape of `other`."""
    return expanded(self, other.spec.shape)


@torchsymbol("torch.broadcast_to", methods=("broadcast_to",), variadic="size")
def broadcast_to(input: Tensor, size: Sequence[int]):
    """A view broadcast to `size`."""
    return expanded(input, size)


def _spread(*tensors: Any) -> tuple[tuple, dict]:
    """Return the tensors of a call that passes them one by one or in one list."""
    return tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors, {}


@torchsymbol("torch.broadcast_tensors", "torch.functional.broadcast_tensors", bind=_spread)
def broadcast_tensors(*tensors: Tensor):
    """Each tensor as a view in the shape that all broadcast to; itself where it has that."""
    _require_tensors(tensors)
    shape = core.broadcast_shapes(*[x.spec.shape for x in tensors]) if tensors else ()
    return tuple([x if same_shape(x.spec.shape, shape) else expanded(x, shape) for x in tensors])


@torchsymbol(methods=("repeat",), variadic="repeats")
def repeat(self: Tensor, repeats: Sequence[int]):
    """The tensor repeated along each dimension, in a copy."""
    return repeated(self, repeats)


def repeated(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Return a row-major copy of x with dimension i of the result repeats[i] times as long."""
    lead = len(repeats) - len(x.spec.shape)
    message = "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor, got {} and {}"
    require(lead >= 0, message, len(repeats), len(x.spec.shape))
    repeats = [index_of(n) for n in repeats]
    require(all([n >= 0 for n in repeats]), "Repeats must be non-negative, got {}", repeats)
    shape = (*(1,) * lead, *x.spec.shape)
    new = [(repeats[d], n) for d, n in enumerate(shape)]
    dims = tuple(range(2 * lead + 1, 2 * len(shape), 2))
    tiles = prims.broadcast_in_dim(x, shape=tuple([n for pair in new for n in pair]), dims=dims)
    return flat_reshape(prims.clone(tiles), tuple([a * b for a, b in new]))


@torchsymbol("torch.tile", methods=("tile",), variadic="dims")
def tile(input: Tensor, dims: Sequence[int]):
    """The tensor repeated along its last dimensions, or along new ones in front, in a copy."""
    return repeated(input, (*(1,) * (len(input.spec.shape) - len(dims)), *dims))


@torchsymbol("torch.repeat_interleave", methods=("repeat_interleave",))
def repeat_interleave(input: Tensor | None = None, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None):
    """Each element along `dim` (None: of all) repeated `repeats` times; of a tensor of repeats alone, its positions."""
    if input is None or repeats is None:
        repeats = input if repeats is None else repeats
        require(isinstance(repeats, Tensor), "repeat_interleave() missing 1 required positional argument: 'repeats'", error=TypeError)
        input = prims.iota(length=repeats.spec.numel, start=0, step=1, dtype=repeats.spec.dtype, device=repeats.spec.device)
    whole = isinstance(repeats, Tensor) and repeats.spec.dtype.kind == "int"
    if whole and output_size is None and (known := value_of(repeats)) is not None:
        repeats, output_size = (int(known), None) if known.numel() == 1 else (repeats, int(known.sum()))
    if isinstance(repeats, Tensor):
        dim_kwargs = {} if dim is None else {"dim": dim}
        if output_size is None:
            raise ValueDependent(
                "repeat_interleave by a tensor is not traced without output_size: its shape depends on values; pass output_size, or an int",
                (torch.repeat_interleave, (input, repeats), dim_kwargs),
            )
        return opaque(torch.repeat_interleave, (input, repeats), {**dim_kwargs, "output_size": output_size})
    require(repeats >= 0, "repeats has to be non-negative, got {}", repeats)
    x = input if dim is not None else reshaped(input, (input.spec.numel,))
    if not x.spec.shape:
        x = prims.reshape(x, shape=(1,))
    dim = core.canonical_dim(0 if dim is None else dim, len(x.spec.shape))
    shape = x.spec.shape
    wide = prims.broadcast_in_dim(x, shape=(*shape[: dim + 1], repeats, *shape[dim + 1 :]), dims=tuple([d + (d > dim) for d in range(len(shape))]))
    return prims.reshape(prims.clone(wide), shape=replaced(shape, dim, shape[dim] * repeats))


@torchsymbol("torch.movedim", "torch.moveaxis", methods=("movedim", "moveaxis"))
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]):
    """A view with the dimensions `source` moved to the positions `destination`."""
    rank = len(input.spec.shape)
    sources = source if isinstance(source, (tuple, list)) else (source,)
    destinations = destination if isinstance(destination, (tuple, list)) else (destination,)
    message = "movedim: invalid source or destination dims: source ({}) should contain the same number of dims as destination ({})"
    require(len(sources) == len(destinations), message, list(sources), list(destinations))
    sources, destinations = [core.canonical_dim(d, rank) for d in sources], [core.canonical_dim(d, rank) for d in destinations]
    distinct = len(set(sources)) == len(sources) and len(set(destinations)) == len(destinations)
    require(distinct, "movedim: repeated dim in {} or {}", source, destination)
    at = dict(zip(destinations, sources, strict=True))
    others = iter([d for d in range(rank) if d not in set(sources)])
    return prims.transpose(input, order=tuple([at[d] if d in at else next(others) for d in range(rank)]))


@torchsymbol("torch.view_as_real")
def view_as_real(input: Tensor):
    """A complex tensor's parts in a new last dimension of size 2."""
    return prims.view_as_real(input)


@torchsymbol("torch.view_as_complex")
def view_as_complex(input: Tensor):
    """The last dimension, of size 2, as the parts of complex numbers."""
    require_traced(input.spec.dtype is not dtypes.float16, "complex numbers of half precision are not traced; convert the parts to float32 first")
    return prims.view_as_complex(input)


def _unpacked(*tensors: Any) -> tuple[tuple, dict]:
    return tensors, {}


@torchsymbol("torch.atleast_1d", "torch.functional.atleast_1d", bind=_unpacked)
def atleast_1d(*tensors: Tensor):
    """Numbers as vectors of one; other tensors themselves."""
    return _map_tensors(tensors, lambda x: x if x.spec.shape else prims.reshape(x, shape=(1,)))


@torchsymbol("torch.atleast_2d", "torch.functional.atleast_2d", bind=_unpacked)
def atleast_2d(*tensors: Tensor):
    """Numbers and vectors as matrices of one row; other tensors themselves."""
    return _map_tensors(tensors, as_2d)


@torchsymbol("torch.atleast_3d", "torch.functional.atleast_3d", bind=_unpacked)
def atleast_3d(*tensors: Tensor):
    """Numbers as [1, 1, 1], vectors as [1, n, 1], matrices as [m, n, 1]; other tensors themselves."""
    return _map_tensors(tensors, as_3d)


def as_2d(x: Tensor) -> Tensor:
    """x with at least two dimensions, a vector as a row."""
    return x if len(x.spec.shape) >= 2 else core.unsqueezed(x, 0) if x.spec.shape else prims.reshape(x, shape=(1, 1))


def as_3d(x: Tensor) -> Tensor:
    """x with at least three dimensions."""
    rank = len(x.spec.shape)
    return x if rank >= 3 else core.unsqueezed(as_2d(x), 2)


def _map_tensors(tensors: tuple, fn: Any) -> Any:
    """Apply fn to each tensor; return a tuple unless a single tensor was passed outside of a list."""
    single = len(tensors) == 1 and not isinstance(tensors[0], (tuple, list))
    sequence = tensors[0] if len(tensors) == 1 and not single else tensors
    _require_tensors(sequence)
    return fn(sequence[0]) if single else tuple([fn(x) for x in sequence])


def _require_tensors(tensors: Sequence[Any]) -> None:
    for i, x in enumerate(tensors):
        require(isinstance(x, TensorProxy), "expected Tensor as element {}, but got {}", i, type(x).__name__, error=TypeError)


@torchsymbol("torch.nn.functional.pixel_shuffle", "torch.pixel_shuffle")
def pixel_shuffle(input: Tensor, upscale_factor: int):
    """[..., c * r * r, h, w] as [..., c, h * r, w * r]."""
    require(len(input.spec.shape) >= 3, "pixel_shuffle expects input to have at least 3 dimensions, but got {}", input.spec)
    require(upscale_factor > 0, "pixel_shuffle expects a positive upscale_factor, but got {}", upscale_factor)
    *batch, channels, height, width = input.spec.shape
    r, n = upscale_factor, len(batch)
    message = "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but {} is not by {}"
    require(channels % (r * r) == 0, message, channels, r * r)
    parts = (*batch, channels // (r * r), r, r, height, width)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return _dealt_out(input, parts, order, (*batch, channels // (r * r), height * r, width * r))


def _dealt_out(x: Tensor, parts: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """Copy x, viewed as `parts` and transposed by `order`, to `shape`; channels last where x is."""
    return in_memory_format(prims.reshape(prims.clone(prims.transpose(reshaped(x, parts), order=order)), shape=shape), x)


@torchsymbol("torch.nn.functional.pixel_unshuffle", "torch.pixel_unshuffle")
def pixel_unshuffle(input: Tensor, downscale_factor: int):
    """[..., c, h * r, w * r] as [..., c * r * r, h, w]."""
    require(len(input.spec.shape) >= 3, "pixel_unshuffle expects input to have at least 3 dimensions, but got {}", input.spec)
    require(downscale_factor > 0, "pixel_unshuffle expects a positive downscale_factor, but got {}", downscale_factor)
    *batch, channels, height, width = input.spec.shape
    r, n = downscale_factor, len(batch)
    fits = height % r == 0 and width % r == 0
    require(fits, "pixel_unshuffle expects height and width to be divisible by downscale_factor, got {} and {} and {}", height, width, r)
    if not input.spec.numel and input.spec.device is cpu:
        return core.clone(input)  # as PyTorch's kernel does
    parts = (*batch, channels, height // r, r, width // r, r)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return _dealt_out(input, parts, order, (*batch, channels * r * r, height // r, width // r))


@torchsymbol("torch.nn.functional.channel_shuffle", "torch.channel_shuffle", "torch.native_channel_shuffle")
def channel_shuffle(input: Tensor, groups: int):
    """Channels in `groups` groups, interleaved."""
    shape = input.spec.shape
    require(len(shape) > 2, "channel_shuffle expects input with > 2 dims, but got {}", input.spec)
    require(groups > 0, "Number of groups to divide channels in must be positive, got {}", groups)
    require(shape[1] % groups == 0, "Number of channels must be divisible by groups, got {} channels and {} groups", shape[1], groups)
    parts = (shape[0], groups, shape[1] // groups, *shape[2:])
    return _dealt_out(input, parts, (0, 2, 1, *range(3, len(shape) + 1)), shape)
