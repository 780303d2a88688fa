"""Methods in C that create an object of the class that they are called for: they would call its `__new__` and `__init__` in Python unseen."""

from __future__ import annotations

import datetime
import weakref
from abc import ABCMeta
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from itertools import accumulate, dropwhile, filterfalse, groupby, starmap, takewhile
from types import FunctionType
from typing import TYPE_CHECKING, Any

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.class_lookup import HEAP, lookup
from dovetail.frontend.interpreter.tracking.lacking import is_library

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_CALLING = (map, filter, accumulate, dropwhile, filterfalse, groupby, starmap, takewhile)
_ABSTRACT = 1 << 20  # flag of a class with abstract methods
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


def check_constructor(tracker: Tracker, maker: Any, args: Sequence[Any]) -> None:
    """Guard whether the class that C code creates an object of is abstract.

    Raises EagerCall where it has a `__del__` in Python, or is a weak reference with a callback to what the program creates: CPython calls them by
    itself, once for each call.  Raises Unsupported where it derives from an iterator that calls functions.
    """
    if (referent := _watched(maker, args)) and tracker.source(referent[0]) is None:
        raise EagerCall(f"the function has a callback called when CPython drops a {type(referent[0]).__name__} that it creates")
    kind = maker if isinstance(maker, type) else args[0] if args and getattr(maker, "__name__", None) == "__new__" else None
    if not isinstance(kind, type):
        return
    if type(lookup(kind, "__del__")) is FunctionType:
        raise EagerCall(f"the function creates a {kind.__name__}, whose __del__ runs when CPython drops it")
    if is_library(kind):
        return
    if issubclass(kind, _CALLING):
        raise Unsupported(f"{kind.__name__} derives from an iterator in C that calls functions, which would run unseen; use that iterator itself")
    if isinstance(kind, ABCMeta):
        tracker.guard_flag(kind, _ABSTRACT)


def _watched(maker: Any, args: Sequence[Any]) -> Sequence[Any]:
    """Return the object of a weak reference that is created with a callback, and the callback; nothing where none is created."""
    if maker is weakref.ref.__new__:
        maker, *args = args
    if maker is weakref.proxy or (isinstance(maker, type) and issubclass(maker, weakref.ref)):
        return args[:2] if len(args) > 1 and args[1] is not None else ()
    return ()
