"""What C code reads of an object that is copied: `object.__reduce_ex__`, with the methods that it calls interpreted."""

from __future__ import annotations

import copyreg
from typing import Any

from dovetail.frontend.class_lookup import NULL, lookup


def reduced(tracker: Any, value: Any, protocol: Any = 0) -> Any:
    """Return value.__reduce_ex__(protocol): how `copy` makes an object with the same content."""
    method = tracker.method(value, "__reduce__")
    if method is not None:
        return tracker.call_function(method, [value], {})
    if protocol < 2 or lookup(type(value), "__reduce__") is not object.__reduce__:
        outside = tracker.source(value) is not None and lookup(type(value), "__reduce__") is not object.__reduce__
        return _read(tracker, value, "__reduce__") if outside else value.__reduce_ex__(protocol)
    tracker.outside(value)
    args: tuple = ()
    if (method := tracker.method(value, "__getnewargs__")) is not None:
        args = tracker.call_function(method, [value], {})
    elif lookup(type(value), "__getnewargs__") is not NULL:
        args = value.__getnewargs__()
    items = tracker.raw_iter(value) if isinstance(value, list) else None
    pairs = iter(tracker.raw_pairs(value)) if isinstance(value, dict) else None
    if (method := tracker.method(value, "__getnewargs_ex__")) is not None:
        args, kwargs = tracker.call_function(method, [value], {})
        return copyreg.__newobj_ex__, (type(value), args, kwargs), _state(tracker, value), items, pairs
    return copyreg.__newobj__, (type(value), *args), _state(tracker, value), items, pairs


def _state(tracker: Any, value: Any) -> Any:
    method = tracker.method(value, "__getstate__")
    if method is not None:
        return tracker.call_function(method, [value], {})
    attributes = dict(tracker.pairs(tracker.load_attr(value, "__dict__"))) if hasattr(value, "__dict__") else None
    slots = {name: content for name in copyreg._slotnames(type(value)) if (content := _slot(tracker, value, name)) is not NULL}
    return (attributes or None, slots) if slots else attributes or None


def _slot(tracker: Any, value: Any, name: str) -> Any:
    try:
        return tracker.load_attr(value, name)
    except AttributeError:
        return NULL


def _read(tracker: Any, value: Any, name: str) -> Any:
    """Return what a method in C without arguments reads of an outside object: it is called again at every call of the compiled function."""
    source = tracker.outside(value)
    return tracker.reach(getattr(value, name)(), tracker.sources.call(tracker.sources.attr(source, name)))


STATES = {
    "__reduce__": lambda tracker, value: _read(tracker, value, "__reduce__"),
    "__getstate__": _state,
    "__dir__": lambda tracker, value: _read(tracker, value, "__dir__"),
}
