"""Methods in C that create an object of the class that they are called for: they would call its `__new__` and `__init__` in Python unseen."""

from __future__ import annotations

import datetime
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.class_lookup import HEAP, lookup
from dovetail.frontend.interpreter.tracking.lacking import is_library

_COPIES = {"copy", "__copy__", "__or__", "__ror__"}
_MOVED = {"replace", "__replace__", "__add__", "__radd__", "__sub__", "astimezone"}
_OF_OBJECTS: dict[type, set[str]] = {
    OrderedDict: _COPIES,
    defaultdict: _COPIES,
    deque: {"copy", "__copy__", "__add__", "__mul__", "__rmul__"},
    datetime.date: _MOVED,
    datetime.time: {"replace", "__replace__"},
}
_OF_CLASSES = {"fromkeys", "from_bytes", "fromhex", "from_float", "from_number", "combine", "strptime", "now", "utcnow", "today"}
_OF_CLASSES |= {"fromordinal", "fromisoformat", "fromisocalendar", "fromtimestamp", "utcfromtimestamp"}


def check_created(owner: Any, name: str) -> None:
    """Refuse a method in C that creates an object of a class with a constructor in Python, where `owner` is that class, or an object of it."""
    cls = owner if isinstance(owner, type) else type(owner)
    if not cls.__flags__ & HEAP:
        return
    creates = name in _OF_CLASSES if cls is owner else any([isinstance(owner, kind) and name in names for kind, names in _OF_OBJECTS.items()])
    if creates and _has_python_constructor(cls):
        raise Unsupported(
            f"{name}() of {cls.__name__} is C code that calls {cls.__name__}, whose constructor in Python would run unseen; call the class yourself"
        )


def _has_python_constructor(cls: type) -> bool:
    """Return whether Python code runs where an object of a class is created."""
    new = lookup(cls, "__new__")
    return FunctionType in (type(new), type(getattr(new, "__func__", None)), type(lookup(cls, "__init__")), type(lookup(type(cls), "__call__")))


def check_lifetime(maker: Any, args: Sequence[Any]) -> None:
    """Run the call in eager mode where it creates an object with a `__del__` in Python, which CPython calls by itself, once for each call."""
    kind = maker if isinstance(maker, type) else args[0] if args and getattr(maker, "__name__", None) == "__new__" else None
    if isinstance(kind, type) and type(lookup(kind, "__del__")) is FunctionType and not is_library(kind):
        raise EagerCall(f"the function creates a {kind.__name__}, whose __del__ runs when CPython drops it")
