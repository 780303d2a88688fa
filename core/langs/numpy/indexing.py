"""What `x[key]` and `x[key] = value` mean: NumPy counts an int beside integer arrays as one of them, and single elements are scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.core.indexing import Selection, consumed, picked, resolve_key
from dovetail.langs.numpy.arrays import flip
from dovetail.langs.numpy.proxy import no_values
from dovetail.langs.numpy.symbol import LANGUAGE, array, mark_scalars, not_traced, numpysymbol, operands, refuse_unsigned, weak
from dovetail.langs.torch import COPIES
from dovetail.langs.torch.indexing import put
from dovetail.prims.sizes import Size
from dovetail.trace import NumberProxy, TensorProxy


def _parts(key: Any) -> tuple:
    return key if isinstance(key, tuple) else (key,)


def _picks(part: Any) -> bool:
    return isinstance(part, (TensorProxy, tuple, list, bool)) and not (isinstance(part, TensorProxy) and part.spec.dtype is dtypes.bool_)


def _selection(a: TensorProxy, key: Any) -> Selection:
    """The key resolved: 0-d integer arrays are positions, and 8-bit ones no masks."""
    parts = [core.convert(p, dtypes.int64) if isinstance(p, TensorProxy) and p.spec.dtype is dtypes.uint8 else p for p in _parts(key)]
    return resolve_key(a, tuple(parts), ints_pick=any(map(_picks, parts)))


@numpysymbol("numpy.ndarray.__getitem__", path="operator.getitem", scalar="never", view=True)
def getitem(a: Any, key: Any):
    """a[key]: a view for slices, ints and None, a copy where arrays pick or where it is one element."""
    chosen = _selection(a, key)
    for part in _parts(key):
        if chosen.masks and isinstance(part, TensorProxy) and part.spec.dtype is dtypes.bool_:
            raise no_values(part)  # the shape depends on it
    if chosen.picks:
        return picked(chosen)
    return prims.clone(chosen.view) if is_element(a, key) else chosen.view


@numpysymbol("numpy.ndarray.__getitem__.at", path="operator.getitem", scalar="never")
def getitem_at(a: Any, key: Any):
    """a[key] with integers that the program computes: NumPy makes a view, this a copy; refused where a write could tell."""
    return picked(_selection(a, key))


COPIES.add(getitem_at)


@numpysymbol("numpy.ndarray.__setitem__", path="operator.setitem")
def setitem(a: Any, key: Any, value: Any):
    """a[key] = value, cast to a's dtype and broadcast."""
    chosen = _selection(a, key)
    if chosen.picks:
        refuse_unsigned("numpy.ndarray.__setitem__", a)
    put(chosen, assigned(value, a))


def assigned(value: Any, a: TensorProxy) -> Any:
    """Convert a value to an array of a's dtype; Python integers have to fit."""
    if isinstance(value, TensorProxy):
        return core.convert(value, a.spec.dtype)
    if isinstance(value, NumberProxy):
        return core.fit(value, (), a.spec.dtype)
    require(isinstance(value, (bool, int, float, complex)), "cannot assign {} to an array of numbers", type(value).__name__, error=TypeError)
    number = np.asarray(value, dtype=weak(a)) if isinstance(value, int) else np.asarray(value).astype(weak(a))
    return number.item()


def is_element(x: TensorProxy, key: Any) -> bool:
    """Return whether a key names one element by integers, without an ellipsis."""
    parts = _parts(key)
    return len(parts) == len(x.spec.shape) and all([_is_position(p) for p in parts])


def _is_position(part: Any) -> bool:
    if isinstance(part, TensorProxy):
        return not part.spec.shape and part.spec.dtype.kind == "int"
    return isinstance(part, (int, Size)) and not isinstance(part, bool)


def _indexed(x: TensorProxy, key: Any) -> TensorProxy:
    key = _key(key)
    traced = [p for p in _parts(key) if isinstance(p, TensorProxy) and _is_position(p)]
    at = traced and not any([_picks(p) and p not in set(traced) for p in _parts(key) if isinstance(p, (TensorProxy, tuple))])
    result = getitem_at(x, key) if at else getitem(*_forwards(x, key))
    return mark_scalars(result) if is_element(x, key) else result


def _assigned(x: TensorProxy, key: Any, value: Any) -> None:
    require(not x.scalar, "'numpy.{}' object does not support item assignment", x.spec.dtype.name, error=TypeError)
    key = _key(key)
    if any_backwards(key):
        raise not_traced("numpy.ndarray.__setitem__", "it writes through a slice with a negative step; reverse the value and use a positive step")
    if isinstance(value, (list, tuple)):
        value = array(value)
    setitem(x, key, value)


def _key(key: Any) -> Any:
    """Lists become arrays, NumPy's integers Python's; masks whose values are known stay lists."""
    if isinstance(key, tuple):
        return tuple(_key(part) for part in key)
    if isinstance(key, slice):
        return slice(*(None if end is None else _end(end) for end in (key.start, key.stop, key.step)))
    if isinstance(key, TensorProxy):  # which says that it is an instance of NumPy's classes
        return key
    if isinstance(key, np.bool_):
        return bool(key)
    if isinstance(key, np.integer):
        return int(key)
    if isinstance(key, list):
        key = np.asarray(key) if key else np.zeros(0, int)
    if isinstance(key, np.ndarray):
        return key.tolist() if key.dtype == bool else operands(key)
    return key


def _end(end: Any) -> int:
    return end.__index__()


def any_backwards(key: Any) -> bool:
    """Return whether a slice in `key` runs from the end to the start."""
    return any(isinstance(part, slice) and part.step is not None and part.step < 0 for part in _parts(key))


def _forwards(x: TensorProxy, key: Any) -> tuple[TensorProxy, Any]:
    """The array flipped where a slice has a negative step, and the key with positive steps alone."""
    if not any_backwards(key):
        return x, key
    parts, out, dim = list(_parts(key)), [], 0
    taken = sum(map(consumed, parts))
    for part in parts:
        if part is Ellipsis:
            dim += len(x.spec.shape) - taken
        elif isinstance(part, slice) and part.step is not None and part.step < 0:
            n = x.spec.shape[dim]
            start, stop, step = part.indices(n)
            x = flip(x, axis=dim)
            part = slice(n - 1 - start, n - 1 - stop, -step)
        dim += consumed(part)
        out.append(part)
    return x, tuple(out)


LANGUAGE.update({"getitem": _indexed, "setitem": _assigned})
