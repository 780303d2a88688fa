"""Calls of functions behind functools.lru_cache: what the cache holds is what they return."""

from __future__ import annotations

import functools
import gc
from functools import partial
from typing import Any

from dovetail.errors import EagerCall
from dovetail.frontend.class_lookup import lookup
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracking.fresh import looked_up


def cached_call(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call a function behind functools.lru_cache.

    With arguments from outside it is called as it is, again at each call of the compiled function. Where it or an argument is created by the program,
    the function behind the cache is traced, once per trace.

    Raises EagerCall where the function would read what the program has written outside, or write there itself: writes wait until the call ends.
    """
    key = _key(tracker, function, args, kwargs)
    if key is None:
        return tracker.call(tracker.load_attr(function, "__wrapped__"), args, kwargs, frame)
    if key in tracker.cached:
        return tracker.cached[key][0]
    if not _from_outside(tracker, function, *args, *kwargs.values()):
        result = tracker.call(tracker.load_attr(function, "__wrapped__"), args, kwargs, frame)
    else:
        look = function
        if tracker.effects.log:
            if _is_held(function, args, kwargs):
                look = partial(_held, function)
            else:
                _check_apart(tracker, function, args, kwargs, frame)
        result = looked_up(tracker, partial(look, *args, **kwargs))
    tracker.cached[key] = result, function, args, kwargs
    return result


def _is_held(function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether the cache in front of a function holds the result of a call without keywords; False where that cannot be told."""
    if kwargs or type(function) is not functools._lru_cache_wrapper:
        return False
    parts = gc.get_referents(function)
    place = next((i for i, part in enumerate(parts) if part is getattr(function, "__wrapped__", None)), 0)
    held = parts[place - 1]  # C has the table beside the function
    if not place or type(held) is not dict or function.cache_parameters()["typed"]:
        return False
    return (args[0] if len(args) == 1 and type(args[0]) in (int, str) else tuple(args)) in held


def _held(function: Any, *args: Any) -> Any:
    """Return what the cache in front of a function holds; raises LookupError where that has gone, since the function itself would run too early."""
    if not _is_held(function, list(args), {}):
        raise LookupError("the cache has been cleared")
    return function(*args)


def _check_apart(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> None:
    """Trace the function behind a cache to see that it has nothing to do with the writes that wait."""
    effects = tracker.effects
    before = effects.reads, len(effects.log), tracker.recorder.has_effects()
    tracker.call(tracker.load_attr(function, "__wrapped__"), args, kwargs, frame)
    if (effects.reads, len(effects.log), tracker.recorder.has_effects()) != before:
        raise EagerCall(f"{getattr(function, '__name__', 'a function')}() is behind a cache, and depends on what the program writes before it")


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
