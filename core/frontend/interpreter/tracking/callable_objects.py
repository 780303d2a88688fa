"""Calls of objects in C that hold a function or keys: partial functions, weak references, cached functions and getters of `operator`."""

from __future__ import annotations

import gc
import operator
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cmp_to_key, lru_cache, partial, reduce
from json.scanner import c_make_scanner
from types import GenericAlias
from typing import Any

from dovetail.frontend.class_lookup import lookup
from dovetail.frontend.interpreter.binding import partial_arguments
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracking.cached_calls import cached_call
from dovetail.frontend.interpreter.tracking.json_calls import scan
from dovetail.frontend.interpreter.tracking.twins import TWINS


def _partial(tracker: Any, function: partial, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    inner, first, named = (_field(tracker, function, name) for name in ("func", "args", "keywords"))
    return tracker.call(inner, partial_arguments(list(tracker.spread(first)), args), {**dict(tracker.pairs(named)), **kwargs}, frame)


def _field(tracker: Any, function: partial, name: str) -> Any:
    """Return a field of a partial function as C code calls it, whatever a derived class makes of the name."""
    value, source = lookup(partial, name).__get__(function), tracker.outside(function)
    if source is None:
        return value
    seen = lookup(type(function), name) is lookup(partial, name)
    return tracker.reach(value, tracker.sources.attr(source, name) if seen else tracker.sources.const(value))


def _looked_up(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Look up a weak reference: its object is outside, as the reference is."""
    source = tracker.outside(function)
    return function() if source is None else tracker.reach(function(), tracker.sources.call(source))


def _cached(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if getattr(function, "__name__", "").endswith("_once"):  # as `logger.warning_once`: cached so that it logs once
        tracker.effects.call(function, args, kwargs)
        return None
    return cached_call(tracker, function, args, kwargs, frame)


def _reduced(tracker: Any, function: Any) -> Any:
    """Return function.__reduce__(), guarded, of an object that holds keys or arguments."""
    reduced, source = function.__reduce__(), tracker.outside(function)
    if source is None:
        return reduced
    return tracker.plain(tracker.reach(reduced, tracker.sources.call(tracker.sources.attr(source, "__reduce__"))))


def _getters(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return operator.itemgetter or operator.attrgetter."""
    keys = _reduced(tracker, function)[1]
    if type(function) is operator.itemgetter:
        values = [tracker.get_item(args[0], key) for key in keys]
    else:
        values = [reduce(tracker.load_attr, key.split("."), args[0]) for key in keys]
    return values[0] if len(values) == 1 else tuple(values)


def _method_caller(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    maker, arguments = _reduced(tracker, function)
    named = maker.keywords if isinstance(maker, partial) else {}
    name, *first = (*maker.args, *arguments) if isinstance(maker, partial) else arguments
    return tracker.call(tracker.load_attr(args[0], name), list(first), dict(named), frame)


def _sort_key(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call what functools.cmp_to_key returned outside: it keeps its comparison, so that its identity tells which one that is."""
    tracker.pin(function)
    (comparison,) = [held for held in gc.get_referents(function) if held is not type(function)]
    key = tracker.call(TWINS[cmp_to_key], [tracker.reach(comparison, tracker.sources.const(comparison))], {}, frame)
    return tracker.call(key, args, kwargs, frame)


def _generic(tracker: Any, function: GenericAlias, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call the class of an alias as `Box[int]`, which compares equal as long as that is the same class."""
    result = tracker.call(function.__origin__, args, kwargs, frame)
    with suppress(AttributeError, TypeError):
        tracker.store_attr(result, "__orig_class__", function)
    return result


BY_TYPE: dict[type, Callable] = {
    GenericAlias: _generic,
    partial: _partial,
    **dict.fromkeys((weakref.ref, weakref.KeyedRef), _looked_up),
    type(lru_cache(len)): _cached,
    operator.itemgetter: _getters,
    operator.attrgetter: _getters,
    operator.methodcaller: _method_caller,
    c_make_scanner: scan,
    type(cmp_to_key(operator.sub)): _sort_key,
}


def called_by_rule(function: Any) -> Callable | None:
    """Return the rule that calls an object in C, or one of a class derived from that of partial functions or weak references."""
    kind = type(function)
    if (rule := BY_TYPE.get(kind)) is not None or not issubclass(kind, (partial, weakref.ref)):
        return rule
    base = partial if issubclass(kind, partial) else weakref.ref
    return BY_TYPE[base] if lookup(kind, "__call__") is lookup(base, "__call__") else None
