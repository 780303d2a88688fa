"""Arguments to slots, as a call of a Python function does it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.frame import VARARGS, VARKEYWORDS, Decoded

_PLACEHOLDER = getattr(functools, "Placeholder", NULL)  # from Python 3.14 on


class Mismatch(Exception):
    """The arguments do not fit.  A call of the native function raises CPython's own TypeError before it runs a line."""


def bind(
    function: FunctionType,
    decoded: Decoded,
    args: list[Any],
    kwargs: dict[str, Any],
    defaults: Sequence[Any] | None,
    kwdefaults: Mapping[str, Any] | None,
) -> list[Any]:
    """Return the slots of a new frame of `function`; reads only those defaults that are used."""
    positional, total, count = decoded.positional, decoded.total, len(args)
    spare = len(decoded.slot_names)
    if count == positional == total and not kwargs and not decoded.flags & (VARARGS | VARKEYWORDS):
        return args + [NULL] * (spare - count)
    if count > positional and not decoded.flags & VARARGS:
        raise Mismatch
    slots = args[:positional] + [NULL] * (spare - min(count, positional))
    extra = _keywords(decoded, slots, kwargs) if kwargs else {}
    if count < positional:
        first = positional - len(defaults or ())
        for i in range(count, positional):
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


def partial_arguments(held: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Return the positional arguments of a call of a functools.partial: those that it holds, its placeholders filled in order, and the rest."""
    open_places = sum([value is _PLACEHOLDER for value in held])
    if len(args) < open_places:
        raise TypeError(f"missing positional arguments in 'partial' call; expected at least {open_places}, got {len(args)}")
    rest = iter(args)
    return [next(rest) if value is _PLACEHOLDER else value for value in held] + list(rest)
