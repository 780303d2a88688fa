"""Immutable values of classes in C that are no atoms: guarded by all that C code could read of them."""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import product
from types import BuiltinFunctionType, GenericAlias, ModuleType, UnionType
from typing import TYPE_CHECKING, Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import lookup, per_class
from dovetail.frontend.interpreter.tracking.holders import held_in
from dovetail.frontend.interpreter.tracking.mirrors import ORDER, TEXT

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

# class -> attributes, and methods without arguments, that together determine the value; a class stands before its bases
_CONTENT: dict[type, tuple[str, ...]] = {
    str: ("__getnewargs__()",),
    bytes: ("__getnewargs__()",),
    int: ("__getnewargs__()",),
    float: ("hex()",),
    complex: ("__getnewargs__()",),
    Decimal: ("__str__()",),
    timedelta: ("days", "seconds", "microseconds"),
    datetime: ("isoformat()", "fold", "tzinfo"),
    date: ("isoformat()",),
    time: ("isoformat()", "fold", "tzinfo"),
    re.Pattern: ("pattern", "flags"),
    re.Match: ("string", "re", "span()", "groups()", "regs"),
    struct.Struct: ("format",),
    bytearray: ("hex()",),
    array: ("typecode", "tobytes()"),
    memoryview: ("format", "shape", "readonly", "hex()"),
}
BY_VALUE = (GenericAlias, UnionType)  # classes in C that compare all that an instance holds


def _put_back(buffer: memoryview, before: bytes) -> None:
    """Write the elements of a view, which may lie apart in memory, back into it."""
    old = memoryview(before).cast(buffer.format, buffer.shape) if buffer.ndim else memoryview(before).cast(buffer.format)
    for at in product(*map(range, buffer.shape)):
        buffer[at] = old[at] if buffer.ndim else old[0]


_LARGE = 1 << 16  # bytes of a buffer that are compared at each call
_BUFFERS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {  # that C code may write to: how to read all, and how to put it back
    bytearray: (bytes, lambda buffer, before: buffer.__setitem__(slice(None), before)),
    array: (array.tobytes, lambda buffer, before: (buffer.__delitem__(slice(None)), buffer.frombytes(before))[2:]),
    memoryview: (memoryview.tobytes, _put_back),
}
CONTENT_CLASSES = tuple(_CONTENT)


@per_class
def _base_of(kind: type) -> type | None:
    return next((cls for cls in CONTENT_CLASSES if issubclass(kind, cls)), None)


def is_member(value: Any) -> bool:
    """Return whether a value is a member of an enumeration: there is one object for each, so its identity is its value."""
    return isinstance(value, Enum)


def is_constant(value: Any) -> bool:
    """Return whether a value that was read from outside is guarded as a whole, and its class compares and hashes it in C."""
    kind = type(value)
    if isinstance(value, (type, ModuleType, BuiltinFunctionType, Enum)):
        return True
    if kind in BY_VALUE:
        return held_in(value, (*ORDER, *TEXT)) is None
    base = _base_of(kind)
    return base is not None and all([lookup(kind, name) is lookup(base, name) for name in ("__eq__", "__hash__", "__lt__", "__str__", "__repr__")])


def reads_content(value: Any, name: str) -> bool:
    """Return whether a method is that of an immutable class in C, and reads no more of an instance of a subclass than the guarded content.

    Methods that write it out call others of the instance.
    """
    base = _base_of(type(value))
    return base is not None and name not in TEXT and lookup(type(value), name) is lookup(base, name)


@per_class
def is_foreign_memory(kind: type) -> bool:
    """Return whether the attributes of instances of a class lie in memory that others may share, as those of ctypes do."""
    return any([cls.__module__ == "_ctypes" for cls in kind.__mro__])


def guard_content(tracker: Tracker, value: Any, source: Source) -> None:
    """Guard an outside value by class and content where it is an instance of an immutable class in C, or of a subclass of one.

    C code reads such a value without a call that the interpreter sees: "%s" % value, {value: 1}, value == 2.
    Raises Unsupported where a subclass replaces the methods that determine the content.
    """
    base = _base_of(type(value))
    if base is None:
        if type(value) in BY_VALUE:
            tracker.guard("equal", source, value)
        return
    if base is Decimal:
        tracker.guard_decimals()
    tracker.guard("type", source, type(value))
    if base in _BUFFERS:
        if memoryview(value).nbytes > _LARGE:
            raise Unsupported(f"a {type(value).__name__} of {memoryview(value).nbytes} bytes is read from outside at {source}; make it a tensor")
        read, restore = _BUFFERS[base]
        tracker.snapshot(value, source, partial(read, value), partial(restore, value))
    for name in _CONTENT[base]:
        name, call, _ = name.partition("()")
        if lookup(type(value), name) is not lookup(base, name):
            raise Unsupported(
                f"{source} is a {type(value).__name__}, a subclass of {base.__name__} with a {name} of its own, so its value cannot be guarded; "
                f"pass {base.__name__}(...) of it"
            )
        part, content = tracker.sources.attr(source, name), getattr(value, name)
        if call:
            tracker.guard("equal", tracker.sources.call(part), content())
        else:
            tracker.reach_whole(content, part)
