"""Broadcast and convert operands, and normalize dims that count from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail import prims
from dovetail.devices import Device, cpu
from dovetail.dtypes import DType, overflows
from dovetail.errors import InputDimensionError, require
from dovetail.prims import NumberSpec
from dovetail.prims.sizes import Size
from dovetail.trace import NumberProxy, TensorProxy

_PYTHON = {"bool": bool, "int": int, "float": float, "complex": complex}


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that `shapes` broadcast to.  Raises RuntimeError where they do not."""
    first = shapes[0]
    if all([len(shape) == len(first) and shape == first for shape in shapes]):
        return first
    rank, out = max(map(len, shapes)), []
    for d, sizes in enumerate(zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True)):
        n = next((n for n in sizes if n != 1), 1)
        require(
            all([m == 1 or m == n for m in sizes]),
            "expected shapes that broadcast, got {}: at dimension {} the sizes {} differ and are not 1",
            " and ".join(map(str, shapes)) if rank else "",
            d,
            " and ".join(str(m) for m in dict.fromkeys(sizes) if m != 1),
        )
        out.append(n)
    return tuple(out)


def expand(x: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    """Broadcast x to `shape`."""
    if len(x.spec.shape) == len(shape) and x.spec.shape == shape:
        return x
    return prims.broadcast_in_dim(x, shape=shape, dims=tuple(range(len(shape) - len(x.spec.shape), len(shape))))


def convert(x: TensorProxy, dtype: DType) -> TensorProxy:
    """Convert x to `dtype`, recording nothing where it has it already."""
    return x if x.spec.dtype is dtype else prims.convert_element_type(x, dtype=dtype)


def fit(x: Any, shape: tuple[int, ...], dtype: DType, device: Device | None = None) -> Any:
    """Return an operand for a strict prim: a tensor of `shape` and `dtype`, or a number of the dtype's kind."""
    if isinstance(x, TensorProxy):
        if device is not None and x.spec.device is not device and not x.spec.shape and x.spec.device is cpu:
            x = prims.device_put(x, device=device)
        return expand(convert(x, dtype), shape)
    return x if isinstance(x, NumberProxy) and x.spec == NumberSpec(dtype.kind) else _number(x, dtype)


def stored(x: Any, dtype: DType) -> Any:
    """Return a number as an element of `dtype`, truncated as by a cast; one that the program computes as a 0-d operand."""
    if isinstance(x, (bool, int, float, complex)):
        require(not overflows(x, dtype), "value cannot be converted to type {} without overflow, got {}; pass one that it can hold", dtype.short, x)
        if isinstance(x, complex) and dtype.kind in ("int", "float"):
            x = x.real
    return fit(x, (), dtype)


def as_float(x: Any) -> Any:
    """Return a number as a float; one that the program computes as it is."""
    return x if isinstance(x, NumberProxy) and x.spec.kind == "float" else float(x)


def _number(x: Any, dtype: DType) -> Any:
    if isinstance(x, (NumberProxy, Size)):
        return x
    return x if type(x) is _PYTHON[dtype.kind] else _PYTHON[dtype.kind](x)


def canonical_dim(dim: int, rank: int) -> int:
    """Return `dim` counted from the front; 0 and -1 are valid for a tensor without dimensions."""
    bound = max(rank, 1)
    dim = int(dim) if type(dim) is Size else dim
    require(isinstance(dim, int) and not isinstance(dim, bool), "a dimension must be an int, got {!r}", dim, error=TypeError)
    if not -bound <= dim < bound:
        raise InputDimensionError(f"Dimension out of range: expected one in [{-bound}, {bound - 1}], got {dim}")
    return dim % bound


def canonical_dims(dim: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the dims of a reduction, non-negative, sorted and distinct; None and () are every dimension."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(rank))
    dims = [canonical_dim(d, rank) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    require(len(set(dims)) == len(dims), "expected distinct dimensions, got {}: one appears twice", dim)
    return tuple(sorted(dims)) if rank else ()


def unsqueezed(x: TensorProxy, dim: int) -> TensorProxy:
    """Return a view of x with a size of 1 at `dim`, counted from 0."""
    shape = x.spec.shape
    return keep_dims(x, (*shape[:dim], 1, *shape[dim:]), (dim,))


def keep_dims(x: TensorProxy, shape: tuple[int, ...], dims: tuple[int, ...]) -> TensorProxy:
    """Reshape a reduction's result so that the reduced `dims` of `shape` have size 1."""
    reduced = set(dims)
    positions = tuple([d for d in range(len(shape)) if d not in reduced])
    return prims.broadcast_in_dim(x, shape=tuple([1 if d in reduced else n for d, n in enumerate(shape)]), dims=positions)
