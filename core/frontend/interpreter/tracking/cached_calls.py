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
    So it does where the function draws random numbers, once: the computation draws at every call.
    """
    key = _key(tracker, function, args, kwargs)
    if key is None:
        return _computed(tracker, function, args, kwargs, frame)
    if key in tracker.cached:
        return tracker.cached[key][0]
    if not _from_outside(tracker, function, *args, *kwargs.values()):
        result = _computed(tracker, function, args, kwargs, frame)
    else:
        look = function
        if tracker.effects.log:
            if _is_held(function, args, kwargs):
                look = partial(_held, function)
            else:
                _check_apart(tracker, function, args, kwargs, frame)
        state = tracker.recorder.state_of_generator()
        result = looked_up(tracker, partial(look, *args, **kwargs))
        if tracker.recorder.state_of_generator() != state:
            raise EagerCall(f"{_name(function)}() is behind a cache, and has drawn random numbers: the next call gets its result from there")
    tracker.cached[key] = result, function, args, kwargs
    return result


def _computed(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Trace the function behind a cache.

    In eager mode a later call with equal arguments gets the result of this one: so the function may only compute, and `check_held_results` looks
    whether the program leaves its result as it is.
    """
    before, start = _effects(tracker), tracker.recorder.recorded()
    result = tracker.call(tracker.load_attr(function, "__wrapped__"), args, kwargs, frame)
    if tracker.source(function) is None or any([_is_new(tracker, x) for x in (*args, *kwargs.values())]):
        return result  # no later call finds it
    if _effects(tracker) != before or not tracker.recorder.only_computes(start):
        raise EagerCall(f"{_name(function)}() is behind a cache, and does more than compute its result")
    tracker.held_results.append((function, result, _contents(result), tracker.recorder.recorded()))
    return result


def check_held_results(tracker: Any) -> None:
    """Raise EagerCall where the program has written into what a cache outside would hold."""
    for function, result, contents, start in tracker.held_results:
        if tracker.recorder.writes_into(result, start) or not _same_contents(_contents(result), contents):
            raise EagerCall(f"the program writes into a result of {_name(function)}(), which is behind a cache")


def _effects(tracker: Any) -> tuple[int, int]:
    """Count the writes to what is outside, and the calls that are repeated at every call."""
    return len(tracker.effects.log), len(tracker.calls)


def _is_new(tracker: Any, value: Any) -> bool:
    """Return whether a value is hashed by its identity, and each call has another one."""
    by_identity = tracker.recorder.has_identity(value) or lookup(tracker.recorder.class_of(value), "__hash__") is object.__hash__
    return by_identity and tracker.source(value) is None and type(value) not in tracker.atoms


def _contents(value: Any) -> list[Any]:
    """Return what is in the containers of a result; one may hold itself."""
    parts, waiting, seen = list[Any](), [value], set[int]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, (dict, list, tuple, set, frozenset)) and id(each) not in seen:
            seen.add(id(each))
            inside = [*each, *each.values()] if isinstance(each, dict) else list(each)
            parts += inside
            waiting += inside
    return parts


def _same_contents(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all([x is y for x, y in zip(a, b, strict=True)])


def _name(function: Any) -> str:
    return getattr(function, "__name__", "a function")


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
    before = effects.reads, _effects(tracker), tracker.recorder.has_effects()
    tracker.call(tracker.load_attr(function, "__wrapped__"), args, kwargs, frame)
    if (effects.reads, _effects(tracker), tracker.recorder.has_effects()) != before:
        raise EagerCall(f"{_name(function)}() is behind a cache, and depends on what the program writes before it")


def _key(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple | None:
    """Return what tells calls of this trace apart; None where a hash of the program's own decides."""
    parts = [_part(tracker, value) for value in (*args, *kwargs.values())]
    return None if None in parts else (id(function), len(args), tuple(kwargs), *parts)


def _part(tracker: Any, value: Any) -> tuple | None:
    """Return what tells an argument apart; None where a hash of the program's own does."""
    if _is_atom(tracker, value):
        return type(value), value
    if _is_plain(tracker, value):
        return type(value), *[_part(tracker, each) for each in value]
    if lookup(type(value), "__hash__") is object.__hash__:
        return type(value), id(value)
    return None


def _is_atom(tracker: Any, value: Any) -> bool:
    return type(value) in tracker.atoms and not tracker.recorder.is_symbolic(value)


def _is_plain(tracker: Any, value: Any) -> bool:
    """Return whether a value is plain, or a tuple or a frozenset of such values."""
    return _is_atom(tracker, value) or (type(value) in (tuple, frozenset) and all([_is_plain(tracker, each) for each in value]))


def _from_outside(tracker: Any, *values: Any) -> bool:
    """Return whether all values are plain or outside objects; the identity of these is then guarded."""
    objects = [value for value in values if not _is_plain(tracker, value)]
    if any([tracker.source(value) is None or tracker.recorder.is_tensor(value) for value in objects]):
        return False
    for value in objects:
        tracker.guard("is", tracker.outside(value), value)
    return True
