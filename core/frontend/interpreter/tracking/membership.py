"""isinstance, issubclass and `match`: what is registered with an abstract class, and what an object has that a protocol wants, may change."""

from __future__ import annotations

from _abc import _abc_register
from types import FunctionType, UnionType
from typing import TYPE_CHECKING, Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import IMMUTABLE, lookup

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_LIBRARY = ("abc", "typing")  # modules with metaclasses that compare classes by C code


def is_instance(tracker: Tracker, value: Any, kinds: Any) -> bool:
    """Return isinstance(value, kinds)."""
    tracker.outside(value)
    return any([_is_instance(tracker, value, kind) for kind in _each(tracker, kinds)])


def is_subclass(tracker: Tracker, cls: Any, kinds: Any) -> bool:
    """Return issubclass(cls, kinds)."""
    return any([_is_subclass(tracker, cls, kind) for kind in _each(tracker, kinds)])


def _each(tracker: Tracker, kinds: Any) -> list[Any]:
    """Return the classes of a nest of tuples and unions, up to the first that is neither: C code raises the error of that one."""
    if isinstance(kinds, tuple):
        return [kind for part in tracker.raw_iter(kinds) for kind in _each(tracker, part)]
    return [kind for part in kinds.__args__ for kind in _each(tracker, part)] if isinstance(kinds, UnionType) else [kinds]


def _is_instance(tracker: Tracker, value: Any, kind: Any) -> bool:
    recorder = tracker.recorder
    check = tracker.method(kind, "__instancecheck__") if isinstance(kind, type) else None
    if recorder.is_tensor(value) and (check is None or check.__module__.startswith("torch")):
        mark = recorder.marks.get(kind)
        return recorder.is_instance(value, kind) or (mark is not None and tracker.truth(tracker.optional(value, mark)))
    cls = recorder.class_of(value)
    if check is None or cls is kind:
        if cls is not kind:
            tracker.guard_bases(cls)
        return isinstance(value, kind)
    if check.__module__ not in _LIBRARY:
        return tracker.truth(tracker.call_function(check, [kind, value], {}))
    if not getattr(kind, "_is_protocol", False):
        return _is_registered(tracker, cls, kind)
    return _fits(tracker, value, cls, kind)


def _fits(tracker: Tracker, value: Any, cls: type, protocol: Any) -> bool:
    """Return isinstance(value, protocol), for a typing.Protocol."""
    result, source = isinstance(value, protocol), tracker.source(value)
    if source is not None and not tracker.recorder.is_tensor(value):
        tracker.guard("instance" if result else "no instance", source, protocol)
    elif not cls.__flags__ & IMMUTABLE and not tracker.is_fresh(cls):
        for name in _wanted(protocol):  # the trace knows what the object itself has
            tracker.guard_class(cls, name) if type(lookup(cls, name)) is not FunctionType else tracker.from_class(cls, name)
    return result


def _wanted(protocol: type) -> set[str]:
    """Return the attributes that a protocol and its bases list."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    return {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ())) if not name.startswith(("_abc_", "_is_"))}


def _is_subclass(tracker: Tracker, cls: Any, kind: Any) -> bool:
    check = tracker.method(kind, "__subclasscheck__") if isinstance(kind, type) else None
    if check is None or not isinstance(cls, type):
        if isinstance(cls, type):
            tracker.guard_bases(cls)
        return issubclass(cls, kind)
    if check.__module__ not in _LIBRARY:
        return tracker.truth(tracker.call_function(check, [kind, cls], {}))
    return _is_registered(tracker, cls, kind)


def _is_registered(tracker: Tracker, cls: type, kind: Any) -> bool:
    """Return whether a class counts as derived from an abstract one.

    That is guarded but for a class that is derived: others are registered at any time, and `_abc_caches_clear` makes the hooks run again.
    """
    result = issubclass(cls, kind)
    if not tracker.is_fresh(cls) and not tracker.is_fresh(kind) and kind not in cls.__mro__:
        tracker.guard("subclass" if result else "no subclass", tracker.sources.const(cls), kind)
    elif not tracker.is_fresh(cls):
        tracker.guard_bases(cls)
    return result


def register(tracker: Tracker, kind: Any, cls: Any) -> Any:
    """Register a class with an abstract one, of which the trace created one: nothing outside of it changes then."""
    if not tracker.is_fresh(cls) and not tracker.is_fresh(kind):
        raise Unsupported(
            f"{kind.__name__}.register({cls.__name__}) would happen while tracing and never again; register the class outside the compiled function"
        )
    return _abc_register(kind, cls)


def has_flag(tracker: Tracker, value: Any, flag: int) -> bool:
    """Return whether the class of a value has a flag, such as the one that makes it a sequence for `match`, which registering it may set."""
    tracker.outside(value)
    return tracker.guard_flag(tracker.recorder.class_of(value), flag)
