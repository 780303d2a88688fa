"""Calls of functions behind functools.lru_cache: what the cache holds is what they return."""

from __future__ import annotations

from functools import partial
from typing import Any

from dovetail.frontend.class_lookup import lookup
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracking.fresh import looked_up


def cached_call(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call a function behind functools.lru_cache.

    With arguments from outside it is called as it is, again at each call of the compiled function. Where the program has pending effects, which the
    function may read, or where it or an argument is created by the program, the function behind the cache is traced, once per trace.
    """
    key = _key(tracker, function, args, kwargs)
    if key is None:
        return tracker.call(tracker.load_attr(function, "__wrapped__"), args, kwargs, frame)
    if key in tracker.cached:
        return tracker.cached[key][0]
    if tracker.effects.log or not _from_outside(tracker, function, *args, *kwargs.values()):
        result = tracker.call(tracker.load_attr(function, "__wrapped__"), args, kwargs, frame)
    else:
        result = looked_up(tracker, partial(function, *args, **kwargs))
    tracker.cached[key] = result, function, args, kwargs
    return result


def _key(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple | None:
    """Return what tells calls of this trace apart; None where a hash of the program's own decides."""
    parts = []
    for value in (*args, *kwargs.values()):
        if type(value) in tracker.atoms:
            parts.append((type(value), value))
        elif lookup(type(value), "__hash__") is object.__hash__:
            parts.append((type(value), id(value)))
        else:
            return None
    return id(function), len(args), tuple(kwargs), *parts


def _from_outside(tracker: Any, *values: Any) -> bool:
    """Return whether all values are plain or outside objects; the identity of these is then guarded."""
    objects = [value for value in values if type(value) not in tracker.atoms]
    if any([tracker.source(value) is None or tracker.recorder.is_tensor(value) for value in objects]):
        return False
    for value in objects:
        tracker.guard("is", tracker.outside(value), value)
    return True
