"""Attributes of classes as they stand there, read without running code of the class."""

from __future__ import annotations

from typing import Any

HEAP, IMMUTABLE = 1 << 9, 1 << 8  # flags: allocated at run time, so that instances can get another class; no attribute of it can be set
NULL: Any = object()  # an empty place on the interpreter's stack or in a slot, or no such attribute, as the NULL pointer is in CPython
_mro, _dict = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__  # which no metaclass can change


def lookup(cls: type, name: str) -> Any:
    """Return the attribute `name` of `cls` or of the first base that has it, unbound; NULL where there is none."""
    for base in _mro(cls) or ():  # None for a class in C that nothing has looked at, as that of positions in code
        value = _dict(base).get(name, NULL)
        if value is not NULL:
            return value
    return NULL


def bound(raw: Any, instance: Any, cls: type) -> Any:
    """Return what an attribute of a class is for an instance, or for the class where there is none: its `__get__` decides."""
    get = getattr(type(raw), "__get__", None)
    return raw if get is None else get(raw, instance, cls)
