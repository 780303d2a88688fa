"""x[key], x[key] = value, and index_put."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import ValueDependent, require
from dovetail.langs import core
from dovetail.langs.core.indexing import Selection, complete_key, consumed, fitting, picked, resolve_key, with_masked, with_picked
from dovetail.langs.torch.binding.overlap import check_overlap
from dovetail.langs.torch.binding.symbol import LANGUAGE, Tensor, TorchSymbol, operators, torchsymbol
from dovetail.prims.op import register
from dovetail.prims.sizes import Size
from dovetail.trace import NumberProxy, TensorProxy

_MASKED = "x[mask] is not traced: its shape depends on values; use torch.where(mask, x, other) or x.masked_fill(mask, value), which keep the shape"


def _symbol(name: str, meta: Any, id: str | None = None) -> TorchSymbol:
    """Return a symbol that prints and runs as the function `name` of Python's `operator`."""
    path = f"operator.{name}"
    return register(TorchSymbol(name, meta, id=id or path, path=path, callable=getattr(operator, name)))


def _torch_key(key: Any) -> Any:
    """Convert a list that contains anything but numbers to a tuple, as PyTorch does."""
    if isinstance(key, list) and any([isinstance(k, (list, tuple, slice, TensorProxy)) or k is None or k is Ellipsis for k in key]):
        return tuple(key)
    return key


def _getitem(x: Tensor, key: Any) -> Tensor:
    """x[key]: a view where the key is made of slices, ints and None, a copy where tensors or lists pick."""
    chosen = resolve_key(x, _torch_key(key))
    if chosen.masks:
        raise ValueDependent(_MASKED, (torch.Tensor.__getitem__, (x, key), {}))
    return picked(chosen) if chosen.picks else chosen.view


def _getitem_at(x: Tensor, key: Any) -> Tensor:
    """x[key] with int64 tensors of no dimensions in the key, which count as ints: a view in eager, a copy here.

    `check_copied_views` refuses programs in which the difference would show.
    """
    at, rest = 0, []
    for item in complete_key(x, key):
        if is_position(item):
            x, item = getitem(x, (*(slice(None),) * at, LANGUAGE["reshape"](item, (1,)))), 0
        at += consumed(item)
        rest.append(list(item) if isinstance(item, tuple) else item)
    return getitem(x, tuple(rest))


getitem = _symbol("getitem", _getitem)
getitem_at = _symbol("getitem", _getitem_at, id="operator.getitem.at")


def is_position(item: Any) -> bool:
    """Return whether an item of a key is a traced tensor that counts as an int."""
    return isinstance(item, TensorProxy) and not item.spec.shape and item.spec.dtype.kind == "int" and item.spec.dtype is not dtypes.uint8


def _read(x: Tensor, key: Any) -> Tensor:
    key = _torch_key(key)
    at = any([is_position(item) for item in (key if isinstance(key, tuple) else (key,))])
    return getitem_at(x, key) if at else getitem(x, key)


def _setitem(x: Tensor, key: Any, value: Any):
    """x[key] = value, with value broadcast."""
    chosen = resolve_key(x, _torch_key(key))
    whole = isinstance(value, TensorProxy) and value.spec.shape
    if whole and (chosen.picks or chosen.masks) and not all([n == 1 for n in value.spec.shape]):
        _require_dtype(x, value)
    if chosen.picks or (chosen.masks and whole):
        check_overlap("index_put", chosen.view, (value, key))
    elif whole and value.spec.rank >= chosen.view.spec.rank:  # any other is repeated first, and PyTorch looks no further
        check_overlap("copy", chosen.view, value)
    put(chosen, _value(value, chosen.view))


setitem = _symbol("setitem", _setitem)


def _require_dtype(x: Tensor, value: Tensor) -> None:
    message = "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source; convert the source"
    require(value.spec.dtype is x.spec.dtype, message, x.spec.dtype.short, value.spec.dtype.short)


def _value(value: Any, place: Tensor) -> Any:
    """Convert an assigned value to a number of the kind, or a tensor of the dtype, of `place`."""
    spec = place.spec
    if isinstance(value, TensorProxy):
        if value.spec.device is not spec.device and not value.spec.shape:
            value = prims.device_put(value, device=spec.device)
        return core.convert(value, spec.dtype)
    if isinstance(value, (NumberProxy, Size)):
        return as_number(value, spec.dtype, spec.device)
    assignable = isinstance(value, (bool, int, float, complex))
    require(assignable, "can't assign a {} to a {} tensor; make a tensor of it first", type(value).__name__, spec.dtype.short, error=TypeError)
    if spec.dtype.kind == "float" and isinstance(value, (int, float)):
        return float(value)  # beyond the dtype it is infinite, where `fill_` refuses
    return as_number(value, spec.dtype)


_WIDE = {"float": dtypes.float64, "complex": dtypes.complex128}


def as_number(value: Any, dtype: DType, device: Any = None) -> Any:
    """Convert a Python number to `dtype`'s kind, truncating as a cast does; a traced number becomes a 0-d tensor."""
    if isinstance(value, NumberProxy):
        wide = _WIDE.get(value.spec.kind) or core.number_dtype(value)  # as wide as the number: it is rounded once
        return core.convert(prims.full(shape=(), value=value, dtype=wide, device=device), dtype)
    if type(value) is Size:
        return value if dtype.kind != "bool" else bool(value)
    return core.stored(value, dtype)


def put(chosen: Selection, value: Any, *, accumulate: bool = False) -> None:
    """Write `value`, a number or a tensor of the view's dtype, to the selected elements."""
    view = chosen.view
    if chosen.masks:
        new = _with_mask(chosen, value, accumulate)
    else:
        if not isinstance(value, TensorProxy):
            shape = () if chosen.picks else view.spec.shape
            value = prims.full(shape=shape, value=value, dtype=view.spec.dtype, device=view.spec.device)
        new = with_picked(chosen, value, accumulate=accumulate) if chosen.picks else fitting(value, view.spec.shape)
    prims.copy_(view, new)


def _with_mask(chosen: Selection, value: Any, accumulate: bool) -> Tensor:
    if chosen.picks or len(chosen.masks) > 1:
        raise ValueDependent(
            "a mask beside other tensors in one index is not traced: the positions depend on its values; use the mask alone with torch.where"
        )
    return with_masked(chosen, value, _refuse_spread, combine=core.add if accumulate else None)


def _refuse_spread() -> None:
    raise ValueDependent(
        "x[mask] = values with one value for each selected element is not traced: it depends on the values of the mask; "
        "assign a value that broadcasts against x and write x.copy_(torch.where(mask, values, x)), or use x.masked_scatter_(mask, values)"
    )


operators(getitem=_read, setitem=setitem)


@torchsymbol("torch.index_put", methods=("index_put",), in_place=False)
def index_put(input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False):
    """input with values at the places that the tensors `indices` pick (None: all of a dimension), or added to them."""
    copy = core.clone(input)
    _index_put(copy, indices, values, accumulate, (torch.index_put, (input, indices, values, accumulate), {}))
    return copy


@torchsymbol("torch.index_put_", methods=("index_put_",), in_place=False)
def index_put_(input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False):
    """`index_put`, written into the first argument."""
    _index_put(input, indices, values, accumulate, (torch.Tensor.index_put_, (input, indices, values, accumulate), {}))
    return input


def _index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool, call: tuple) -> None:
    """Write to x; `call` does the same outside of the program, where that depends on values."""
    key = tuple([slice(None) if i is None else i for i in indices])
    chosen = resolve_key(x, key, ints_pick=True)
    _require_dtype(x, values)
    check_overlap("index_put", x, (values, key))
    try:
        put(chosen, values, accumulate=accumulate)
    except ValueDependent as error:
        raise ValueDependent(str(error), call) from error
