"""Attributes of classes and objects as they stand there, read without running code of the class."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import lru_cache, partial, partialmethod, wraps
from types import FunctionType, MethodType
from typing import Any

HEAP, IMMUTABLE = 1 << 9, 1 << 8  # flags: allocated at run time, so that instances can get another class; no attribute of it can be set
_WRAPPERS = {  # a class of what wraps a function, and the name of the function there
    **dict.fromkeys((staticmethod, classmethod, MethodType), "__func__"),
    **dict.fromkeys((partial, partialmethod), "func"),
    property: "fget",
    type(lru_cache(len)): "__wrapped__",
}
NULL: Any = object()  # an empty place on the interpreter's stack or in a slot, or no such attribute, as the NULL pointer is in CPython
address_of = object.__hash__  # as id, which an audit hook is told of: filelock has one in Python, and here that took up to 1 % of a first call
_mro, _dict = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__  # which no metaclass can change


def lookup(cls: type, name: str) -> Any:
    """Return the attribute `name` of `cls` or of the first base that has it, unbound; NULL where there is none."""
    for base in _mro(cls) or ():  # None for a class in C that nothing has looked at, as that of positions in code
        value = _dict(base).get(name, NULL)
        if value is not NULL:
            return value
    return NULL


def per_class(function: Callable) -> Callable:
    """Cache a function of a class, and of hashable arguments after it; the cache keeps no class alive."""
    results: dict[int, tuple[weakref.ref, dict[tuple, Any]]] = {}

    @wraps(function)
    def cached(kind: type, *args: Any) -> Any:
        key = address_of(kind)
        known = results.get(key)
        if known is None:
            known = results[key] = weakref.ref(kind, lambda _: results.pop(key, None)), {}
        if args not in known[1]:
            known[1][args] = function(kind, *args)
        return known[1][args]

    return cached


def is_in_python(raw: Any) -> bool:
    """Return whether a call of what a class has under a name runs Python code: that of a function, or of what wraps one."""
    kind = type(raw)
    if kind is FunctionType:
        return True
    if (inner := _WRAPPERS.get(kind)) is not None:
        return is_in_python(getattr(raw, inner))
    if isinstance(raw, type):
        return bool(raw.__flags__ & HEAP) and (is_in_python(lookup(raw, "__new__")) or is_in_python(lookup(raw, "__init__")))
    return type(lookup(kind, "__get__")) is FunctionType or type(lookup(kind, "__call__")) is FunctionType


def bound(raw: Any, instance: Any, cls: type) -> Any:
    """Return what an attribute of a class is for an instance, or for the class where there is none: its `__get__` decides."""
    get = getattr(type(raw), "__get__", None)
    return raw if get is None else get(raw, instance, cls)


def slots_of(cls: type) -> list[str]:
    """Return the names of the slots that a class adds, but for those of the dict of attributes and of weak references."""
    slots = cls.__dict__.get("__slots__", ())
    return [name for name in ((slots,) if isinstance(slots, str) else slots) if name not in ("__dict__", "__weakref__")]


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object keeps itself, in its dict and in slots."""
    attributes = dict(getattr(value, "__dict__", None) or {})
    for cls in type(value).__mro__:
        attributes |= {name: getattr(value, name) for name in slots_of(cls) if hasattr(value, name)}
    return attributes
