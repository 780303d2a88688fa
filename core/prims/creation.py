"""Tensors created without tensor inputs."""

from __future__ import annotations

from typing import Any

from dovetail.devices import Device
from dovetail.dtypes import PYTHON, DType
from dovetail.dtypes import rank as kind_rank
from dovetail.errors import require, require_dtype
from dovetail.prims.op import Tag, prim
from dovetail.prims.sizes import Size
from dovetail.prims.spec import NumberSpec, TensorSpec

CREATION = {Tag.CREATION, Tag.NO_GRAD}
_ZERO = {"bool": False, "int": 0, "float": 0.0, "complex": 0.0}


def sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return `shape` unchanged; raise where a size is negative."""
    for n in shape:
        require(n >= 0, "expected non-negative sizes, got shape {}", shape)
    return shape


def number_kind(value: Any) -> str:
    """Return the kind of a number: bool, int, float or complex."""
    if type(value) is NumberSpec:
        require(value.kind != "str", "expected a tensor or a number, got text that the program writes", error=TypeError)
        return value.kind
    dtype = PYTHON.get(int if type(value) is Size else type(value))
    require(dtype is not None, "expected a tensor or a Python number, got {}", type(value).__name__, error=TypeError)
    return dtype.kind


def require_number(value: Any, dtype: DType) -> None:
    """Raise unless the kind of `value` converts to `dtype`: an int to a float, but no float to an int."""
    kind = number_kind(value)
    require(kind_rank(kind) <= kind_rank(dtype.kind), "expected a number of kind {} for {}, got {}", dtype.kind, dtype, value)


def zero_of(dtype: DType) -> float:
    """Return zero, as a number that operations on `dtype` take."""
    return _ZERO[dtype.kind]


def zeros_like(x: Any) -> Any:
    """Return zeros of the shape, dtype and device of a traced tensor."""
    return full(shape=x.spec.shape, value=zero_of(x.spec.dtype), dtype=x.spec.dtype, device=x.spec.device)


def ones_like(x: Any) -> Any:
    """Return ones of the shape, dtype and device of a traced tensor."""
    return full(shape=x.spec.shape, value=type(_ZERO[x.spec.dtype.kind])(1), dtype=x.spec.dtype, device=x.spec.device)


@prim(tags=CREATION | {Tag.CHEAP})
def full(*, shape: tuple[int, ...], value: float, dtype: DType, device: Device) -> TensorSpec:
    """A tensor of `shape` filled with `value`."""
    require_number(value, dtype)
    return TensorSpec(sized(shape), dtype, device)


@prim(tags=CREATION | {Tag.CHEAP})
def iota(*, length: int, start: float, step: float, dtype: DType, device: Device) -> TensorSpec:
    """start, start + step, ..., start + (length - 1) * step; computed in float64 for floating dtypes, then rounded."""
    require_dtype(dtype.kind in ("int", "float") and not dtype.storage_only, "expected an integer or floating dtype, got {}", dtype)
    require_number(start, dtype)
    require_number(step, dtype)
    return TensorSpec(sized((length,)), dtype, device)


@prim(tags=CREATION)
def tensor_from_sequence(*, values: Any, dtype: DType, device: Device) -> TensorSpec:
    """The numbers in `values`, a number or nested tuples of one length per level."""
    shape = _nested_shape(values, 0)
    _require_numbers(values, dtype)
    return TensorSpec(shape, dtype, device)


def _nested_shape(values: Any, depth: int) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)):
        return ()
    if not values:
        return (0,)
    inner = _nested_shape(values[0], depth + 1)
    for item in values[1:]:
        shape = _nested_shape(item, depth + 1)
        require(shape == inner, "expected sequences of one length at dim {}, got shapes {} and {}", depth + 1, inner, shape, error=ValueError)
    return (len(values), *inner)


def _require_numbers(values: Any, dtype: DType) -> None:
    if isinstance(values, (tuple, list)):
        for item in values:
            _require_numbers(item, dtype)
    else:
        require_number(values, dtype)
