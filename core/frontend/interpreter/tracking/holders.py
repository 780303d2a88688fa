"""Objects of classes in C that hold others: when C code writes one out or compares it, it calls methods of what it holds, unseen.

`repr(partial(f, x))` calls `repr(x)`, and `slice(x, None) == s` compares x.  Where such a method is in Python, nothing would guard what it reads.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from enum import Enum
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from types import BuiltinFunctionType, FunctionType, GenericAlias, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import is_in_python, lookup

_EXCEPTIONS = ("args", "filename", "filename2", "exceptions", "object")  # what exceptions of C write out
_OPAQUE = (type, FunctionType, BuiltinFunctionType, ModuleType, Enum)  # written out by name, and compared by identity
VIEWS = {type({}.keys()): dict.keys, type({}.values()): dict.values, type({}.items()): dict.items}
_PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    partial: lambda value: (value.func, value.args, value.keywords),
    slice: lambda value: (value.start, value.stop, value.step),
    MethodType: lambda value: (value.__self__,),
    SimpleNamespace: lambda value: vars(value).values(),
    **dict.fromkeys((staticmethod, classmethod), lambda value: (value.__func__,)),
    **dict.fromkeys((attrgetter, itemgetter, methodcaller), lambda value: value.__reduce__()[:2]),
    GenericAlias: lambda value: value.__args__,
    BaseException: lambda value: [getattr(value, name) for name in _EXCEPTIONS if hasattr(value, name)],
    **dict.fromkeys((ContextVar, MappingProxyType), gc.get_referents),
    **dict.fromkeys(VIEWS, list),
    dict: lambda value: (*dict.keys(value), *dict.values(value)),
    **{kind: kind.__iter__ for kind in (list, tuple, set, frozenset, deque)},
}
_KINDS = tuple(_PARTS)
HOLDERS = (
    partial,
    slice,
    SimpleNamespace,
    BaseException,
    MappingProxyType,
    *VIEWS,
)  # those that are no containers, and are written out with their parts


def check_held(value: Any, methods: Collection[str]) -> None:
    """Refuse an object of a class in C that holds, to the bottom, one with any of these methods in Python."""
    if (held := held_in(value, methods)) is not None:
        raise Unsupported(
            f"C code writes out or compares a {type(value).__name__} that holds a {type(held).__name__}, and would call methods of it that Dovetail "
            f"does not see; write out or compare what the {type(value).__name__} holds"
        )


def held_in(value: Any, methods: Collection[str]) -> Any:
    """Return an object that `value` holds, to the bottom, with any of these methods in Python; None where there is none."""
    return _first(value, methods, {id(value)}) if isinstance(value, _KINDS) else None


def parts_of(value: Any) -> Iterable[Any]:
    """Return what an object of a class in C holds and C code reads; nothing for other objects."""
    parts = next((parts for kind, parts in _PARTS.items() if isinstance(value, kind)), None)
    return () if parts is None else parts(value)


def _first(value: Any, methods: Collection[str], seen: set[int]) -> Any:
    """Return the first object in `value` with one of the methods in Python, None where there is none."""
    for part in parts_of(value):
        if isinstance(part, _OPAQUE) or id(part) in seen:
            continue
        seen.add(id(part))
        if any([is_in_python(lookup(type(part), name)) for name in methods]):
            return part
        if isinstance(part, _KINDS) and (held := _first(part, methods, seen)) is not None:
            return held
    return None
