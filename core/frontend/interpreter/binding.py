"""Arguments to slots, as a call of a Python function does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from dovetail.frontend.interpreter.frame import NULL, VARARGS, VARKEYWORDS, Decoded


class Mismatch(Exception):
    """The arguments do not fit.  The native function says why: it raises CPython's own TypeError before it runs a line."""


def bind(
    function: FunctionType,
    decoded: Decoded,
    args: list[Any],
    kwargs: dict[str, Any],
    defaults: Sequence[Any] | None,
    kwdefaults: Mapping[str, Any] | None,
) -> list[Any]:
    """The slots of a new frame of `function`; reads only those defaults that are used."""
    positional, total, given = decoded.positional, decoded.total, len(args)
    spare = len(decoded.slot_names)
    if given == positional == total and not kwargs and not decoded.flags & (VARARGS | VARKEYWORDS):
        return args + [NULL] * (spare - given)
    if given > positional and not decoded.flags & VARARGS:
        raise Mismatch
    slots = args[:positional] + [NULL] * (spare - min(given, positional))
    extra = _keywords(decoded, slots, kwargs) if kwargs else {}
    if given < positional:
        first = positional - len(defaults or ())
        for i in range(given, positional):
            if slots[i] is NULL:
                if i < first:
                    raise Mismatch
                slots[i] = defaults[i - first]
    for i in range(positional, total):
        if slots[i] is NULL:
            name = decoded.slot_names[i]
            if not kwdefaults or name not in kwdefaults:
                raise Mismatch
            slots[i] = kwdefaults[name]
    if decoded.flags & VARARGS:
        slots[total] = tuple(args[positional:])
        total += 1
    if decoded.flags & VARKEYWORDS:
        slots[total] = extra
    return slots


def _keywords(decoded: Decoded, slots: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Put keyword arguments where they belong; those that the function does not name."""
    extra = {}
    for name, value in kwargs.items():
        slot = decoded.keywords.get(name)
        if slot is None:
            extra[name] = value
        elif slots[slot] is NULL:
            slots[slot] = value
        else:
            raise Mismatch
    if extra and not decoded.flags & VARKEYWORDS:
        raise Mismatch
    return extra
