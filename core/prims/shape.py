"""The same elements in another arrangement.  The `put` rule of a view returns its base after the view is overwritten."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from dovetail.dtypes import COMPLEX_OF, REAL_OF, bool_, uint8
from dovetail.errors import require, require_dtype
from dovetail.prims.creation import full, require_number, sized, zeros_like
from dovetail.prims.elementwise import where
from dovetail.prims.memory import clone
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import TensorSpec, ceildiv, channels_last_order, dense, is_channels_last, laid_out, prod, view_strides
from dovetail.prims.unary import NUMBERS, convert_element_type, require_kind

VIEW = frozenset({Tag.VIEW, Tag.CHEAP})


def require_dim(x: TensorSpec, *dims: int) -> None:
    """Raise unless each of `dims` is a dimension of x, counted from 0."""
    for d in dims:
        require(0 <= d < x.rank, "expected a dim of {} from 0 to {}, got {}", x, x.rank - 1, d, error=IndexError)


def require_dims(x: TensorSpec, dims: tuple[int, ...]) -> None:
    """Raise unless `dims` are sorted, distinct dimensions of x."""
    require_dim(x, *dims)
    require(all(a < b for a, b in pairwise(dims)), "expected sorted, distinct dims of {}, got {}", x, dims)


def replaced(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    """Return `shape` with `size` at `dim`."""
    return (*shape[:dim], size, *shape[dim + 1 :])


@prim(tags=VIEW)
def reshape(x: TensorSpec, *, shape: tuple[int, ...]) -> TensorSpec:
    """x's elements in row-major order, as `shape`, without a copy."""
    require(prod(sized(shape)) == x.numel, "shape {} is invalid for {}, which has {} elements", shape, x, x.numel)
    strides = view_strides(x, shape)
    require(strides is not None, "{} cannot be viewed as {} without a copy; clone it first", x, shape)
    return x.view(shape, strides)


@reshape.vjp
def reshape_vjp(g, out, x, *, shape):
    return (flat_reshape(g, x.spec.shape),)


@reshape.put
def reshape_put(base, value, *, shape):
    return flat_reshape(value, base.spec.shape)


def flat_reshape(x: Any, shape: tuple[int, ...]) -> Any:
    """Reshape x, copying it where no view exists; x itself where it already has the shape."""
    if x.spec.shape == shape:
        return x
    return reshape(x if view_strides(x.spec, shape) is not None else clone(x), shape=shape)


@prim(tags=VIEW)
def squeeze(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """x without the dimensions `dims`, all of size 1."""
    require_dims(x, dims)
    require(all(x.shape[d] == 1 for d in dims), "expected size 1 at dims {}, got {}", dims, x)
    kept = [d for d in range(x.rank) if d not in dims]
    return x.view(tuple(x.shape[d] for d in kept), tuple(x.steps[d] for d in kept))


@squeeze.vjp
def squeeze_vjp(g, out, x, *, dims):
    return (flat_reshape(g, x.spec.shape),)


@squeeze.put
def squeeze_put(base, value, *, dims):
    return flat_reshape(value, base.spec.shape)


@prim(tags=VIEW)
def transpose(x: TensorSpec, *, order: tuple[int, ...]) -> TensorSpec:
    """Dimension i of the result is dimension order[i] of x."""
    require(sorted(order) == list(range(x.rank)), "expected a permutation of the dims of {}, got {}", x, order)
    return x.view(tuple(x.shape[d] for d in order), tuple(x.steps[d] for d in order))


@transpose.vjp
def transpose_vjp(g, out, x, *, order):
    return (transpose(g, order=tuple(order.index(d) for d in range(len(order)))),)


@transpose.put
def transpose_put(base, value, *, order):
    return transpose(value, order=tuple(order.index(d) for d in range(len(order))))


@prim(tags=VIEW)
def strided_slice(x: TensorSpec, *, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> TensorSpec:
    """x[starts[0]:stops[0]:steps[0], ...], with 0 <= start <= stop <= size and step >= 1."""
    complete = len(starts) == len(stops) == len(steps) == x.rank
    require(complete, "expected one start, stop and step for each dim of {}, got {}, {}, {}", x, starts, stops, steps, error=IndexError)
    for start, stop, step, n in zip(starts, stops, steps, x.shape, strict=True):
        require(step >= 1, "slice step must be positive, got {}", step, error=ValueError)
        require(0 <= start <= stop <= n, "expected bounds in order and within {}, got {}:{}", n, start, stop, error=IndexError)
    shape = tuple(ceildiv(stop - start, step) for start, stop, step in zip(starts, stops, steps, strict=True))
    return x.view(shape, tuple(s * step for s, step in zip(x.steps, steps, strict=True)))


@strided_slice.vjp
def strided_slice_vjp(g, out, x, **window):
    return (put_slice(zeros_like(x), g, **window),)


@strided_slice.put
def strided_slice_put(base, value, **window):
    return put_slice(base, value, **window)


@prim
def put_slice(x: TensorSpec, value: TensorSpec, *, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> TensorSpec:
    """x with x[starts:stops:steps] replaced by `value`."""
    require_fits(strided_slice.meta(x, starts=starts, stops=stops, steps=steps), value)
    return dense(x, alike=False)


@put_slice.vjp
def put_slice_vjp(g, out, x, value, **window):
    return put_slice(g, zeros_like(value), **window), strided_slice(g, **window)


def require_fits(place: TensorSpec, value: TensorSpec) -> None:
    """Raise unless `value` has the shape, dtype and device of `place`."""
    require(place.agrees(value), "expected a value for {}, got {}", place, value)


@prim(tags=VIEW)
def diagonal(x: TensorSpec, *, offset: int, dim1: int, dim2: int) -> TensorSpec:
    """The elements whose indices in dim1 and dim2 are i and i + offset, as a new last dimension; dim1 and dim2 are dropped."""
    require_dim(x, dim1, dim2)
    require(dim1 != dim2, "diagonal dimensions cannot be identical, got {} and {}", dim1, dim2)
    rows, columns = x.shape[dim1] + min(offset, 0), x.shape[dim2] - max(offset, 0)
    length = max(min(rows, columns), 0)
    kept = [d for d in range(x.rank) if d not in (dim1, dim2)]
    steps = x.steps
    return x.view((*(x.shape[d] for d in kept), length), (*(steps[d] for d in kept), steps[dim1] + steps[dim2]))


@diagonal.vjp
def diagonal_vjp(g, out, x, **window):
    return (put_diagonal(zeros_like(x), g, **window),)


@diagonal.put
def diagonal_put(base, value, **window):
    return put_diagonal(base, value, **window)


@prim
def put_diagonal(x: TensorSpec, value: TensorSpec, *, offset: int, dim1: int, dim2: int) -> TensorSpec:
    """x with its diagonal replaced by `value`."""
    require_fits(diagonal.meta(x, offset=offset, dim1=dim1, dim2=dim2), value)
    return dense(x, alike=False)


@put_diagonal.vjp
def put_diagonal_vjp(g, out, x, value, **window):
    return put_diagonal(g, zeros_like(value), **window), diagonal(g, **window)


@prim(tags=VIEW)
def unfold(x: TensorSpec, *, dim: int, size: int, step: int) -> TensorSpec:
    """Windows of `size` elements along `dim`, one every `step`: they are counted at `dim` and lie in a new last dimension."""
    require_dim(x, dim)
    require(size >= 0, "size is {} but must be >= 0", size)
    require(size <= x.shape[dim], "maximum size for tensor at dimension {} is {} but size is {}", dim, x.shape[dim], size)
    require(step > 0, "step is {} but must be > 0", step)
    count = (x.shape[dim] - size) // step + 1
    strides = (*replaced(x.steps, dim, x.steps[dim] * step), x.steps[dim])
    return x.view((*replaced(x.shape, dim, count), size), strides)


@unfold.vjp
def unfold_vjp(g, out, x, **windows):
    return (fold_add(g, shape=x.spec.shape, **windows),)


@unfold.put
def unfold_put(base, value, *, dim, size, step):
    require(step >= size, "windows of {} every {} overlap, so a write to them is ambiguous; clone the windows before writing", size, step)
    shape, dtype = base.spec.shape, base.spec.dtype
    ones = full(shape=value.spec.shape, value=1, dtype=uint8, device=value.spec.device)
    covered = fold_add(ones, shape=shape, dim=dim, size=size, step=step) != 0
    if dtype is bool_:
        value = convert_element_type(value, dtype=uint8)
    folded = fold_add(value, shape=shape, dim=dim, size=size, step=step)
    return where(covered, convert_element_type(folded, dtype=bool_) if dtype is bool_ else folded, base)


@prim
def fold_add(x: TensorSpec, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> TensorSpec:
    """The adjoint of `unfold`: windows put back where they came from in zeros of `shape`, and added up where they overlap."""
    require_kind(x, NUMBERS)
    whole = x.fresh(sized(shape))
    windows = unfold.meta(whole, dim=dim, size=size, step=step)
    require(windows.shape == x.shape, "expected windows of shape {}, got {}", windows.shape, x)
    return whole


@fold_add.vjp
def fold_add_vjp(g, out, x, *, shape, **windows):
    return (unfold(g, **windows),)


@prim
def pad(x: TensorSpec, *, value: float, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]) -> TensorSpec:
    """`value` put before (low), after (high) and between (interior) the elements of each dimension; negative low and high crop."""
    complete = len(low) == len(high) == len(interior) == x.rank
    require(complete, "expected low, high and interior for each dim of {}, got {}, {}, {}", x, low, high, interior)
    require(all(k >= 0 for k in interior), "expected interior padding that is not negative, got {}", interior)
    require_kind(x)
    require_number(value, x.dtype)
    shape = tuple(n + max(n - 1, 0) * k + a + b for n, a, b, k in zip(x.shape, low, high, interior, strict=True))
    require(all(n >= 0 for n in shape), "padding {} and {} of {} leaves a negative size: {}", low, high, x, shape)
    out = x.fresh(shape)
    return laid_out(out, channels_last_order(x.rank)) if is_channels_last(x) else out


@pad.vjp
def pad_vjp(g, out, x, *, value, low, high, interior):
    zero = (0,) * len(low)
    if any(low) or any(high):
        g = pad(g, value=0.0, low=tuple(-n for n in low), high=tuple(-n for n in high), interior=zero)
    if any(interior):
        g = strided_slice(g, starts=zero, stops=g.spec.shape, steps=tuple(k + 1 for k in interior))
    return (g,)


@prim
def cat(tensors: list[TensorSpec], *, dim: int) -> TensorSpec:
    """`tensors` one after the other along `dim`; their other sizes agree."""
    require(len(tensors) > 0, "expected a non-empty list of Tensors")
    first = tensors[0]
    require_dim(first, dim)
    total = 0
    for x in tensors:
        same_kind = x.rank == first.rank and x.dtype is first.dtype and x.device is first.device
        fits = same_kind and replaced(x.shape, dim, 0) == replaced(first.shape, dim, 0)
        require(fits, "expected tensors alike but for their size at dim {}, got {} and {}", dim, first, x)
        total += x.shape[dim]
    out = first.fresh(replaced(first.shape, dim, total))
    return laid_out(out, channels_last_order(first.rank)) if all(is_channels_last(x) for x in tensors) else out


@cat.vjp
def cat_vjp(g, out, tensors, *, dim):
    shape, grads, at = g.spec.shape, [], 0
    starts, steps = (0,) * len(shape), (1,) * len(shape)
    for x in tensors:
        end = at + x.spec.shape[dim]
        grads.append(strided_slice(g, starts=replaced(starts, dim, at), stops=replaced(shape, dim, end), steps=steps))
        at = end
    return (grads,)


@prim
def flip(x: TensorSpec, *, dims: tuple[int, ...]) -> TensorSpec:
    """x with the order of elements along each of `dims` reversed."""
    require_dims(x, dims)
    require_kind(x)
    return dense(x, alike=False)


@flip.vjp
def flip_vjp(g, out, x, *, dims):
    return (flip(g, dims=dims),)


@prim(tags=VIEW)
def view_as_real(x: TensorSpec) -> TensorSpec:
    """The real and imaginary parts of a complex tensor in a new last dimension of size 2."""
    require_dtype(x.dtype.kind == "complex", "view_as_real is only supported for complex tensors, got {}", x)
    return TensorSpec(x.shape, REAL_OF[x.dtype], x.device).view((*x.shape, 2), (*(2 * s for s in x.steps), 1))


@view_as_real.vjp
def view_as_real_vjp(g, out, x):
    return (view_as_complex(paired(g)),)


@view_as_real.put
def view_as_real_put(base, value):
    return view_as_complex(paired(value))


def paired(x: Any) -> Any:
    """Return x with each pair of parts adjacent in memory, as `view_as_complex` requires: x itself or a copy."""
    steps = x.spec.steps
    return x if steps[-1] == 1 and not any(s % 2 for s in steps[:-1]) else clone(x)


@prim(tags=VIEW)
def view_as_complex(x: TensorSpec) -> TensorSpec:
    """The last dimension, of size 2, as the real and imaginary parts of complex numbers."""
    require_dtype(x.dtype.kind == "float" and x.dtype.bytes in (4, 8), "view_as_complex is only supported for floating point tensors, got {}", x)
    require(x.rank > 0 and x.shape[-1] == 2, "Tensor must have a last dimension of size 2, got {}", x)
    *steps, last = x.steps
    paired = last == 1 and not any(s % 2 for s in steps)
    require(paired, "Tensor must have a last dimension with stride 1 and even strides elsewhere, got {}; clone it first", x)
    return TensorSpec(x.shape, COMPLEX_OF[x.dtype], x.device).view(x.shape[:-1], tuple(s // 2 for s in steps))


@view_as_complex.vjp
def view_as_complex_vjp(g, out, x):
    return (view_as_real(g),)


@view_as_complex.put
def view_as_complex_put(base, value):
    return view_as_real(value)


@prim(tags=VIEW | {Tag.NO_GRAD})
def detach(x: TensorSpec) -> TensorSpec:
    """x, without its gradient."""
    return x.like(requires_grad=False)


@detach.put
def detach_put(base, value):
    return value
