"""Functions that prologues call: they run at every call of a compiled function."""

from __future__ import annotations

import decimal
from collections import deque
from types import CellType, MemberDescriptorType
from typing import Any

from dovetail.frontend.class_lookup import NULL, lookup


def decimal_context() -> str:
    """Return precision, rounding, bounds and traps of the context in which `decimal` computes."""
    context = decimal.getcontext()
    return f"{context.prec} {context.rounding} {context.Emin} {context.Emax} {context.capitals} {context.clamp} {list(context.traps.values())}"


def has_class_flag(cls: type, flag: int) -> bool:
    """Return whether a class has a flag of CPython's."""
    return bool(cls.__flags__ & flag)


def has_keys(container: Any, keys: tuple[Any, ...]) -> bool:
    """Return whether a dict or set holds these very keys in this order; no code of their classes runs."""
    try:
        return tuple(map(id, container)) == tuple(map(id, keys))
    except KeyError:  # an OrderedDict with a key whose hash has changed cannot be iterated
        return False


def has_slot(value: Any, name: str) -> bool:
    """Return whether a slot of an object, or a cell, holds a value; no code of its class runs."""
    raw = lookup(type(value), name)
    if type(raw) is not MemberDescriptorType and type(value) is not CellType:
        return raw is not NULL
    try:
        raw.__get__(value)
    except (AttributeError, ValueError):
        return False
    return True


def static_attribute(cls: type, name: str) -> Any:
    """Return the attribute `name` of a class or of a base of it, unbound.

    Raises:
        AttributeError: where there is none.
    """
    value = lookup(cls, name)
    if value is NULL:
        raise AttributeError(name)
    return value


def contents_of(value: Any, base: type) -> Any:
    """Return what is in a container of a class derived from `base`, as a plain one; no code of its class runs."""
    if issubclass(base, dict):
        return dict(zip(base.__iter__(value), [dict.get(value, key) for key in base.__iter__(value)], strict=True))
    return (set if issubclass(base, frozenset) else list if base is deque else base)(base.__iter__(value))
