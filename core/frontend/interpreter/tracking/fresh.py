"""Calls that read the world outside or a random state: they are run at every call of the compiled function, before its computation."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter.tracking.rules import ARRAY, BOOL, FLOAT, INT, NEW_GENERATOR, Fresh, Refused, is_state, name_of

_NUMBERS = {float: FLOAT, int: INT, bool: BOOL}


def outside_call(tracker: Any, rule: Any, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function with the rule `Fresh` or `Refused`, without running it where its result is a number."""
    name = name_of(function)
    if isinstance(rule, Refused):
        raise Unsupported(f"{name}() is not supported in compiled functions: {rule.way_out}")
    known = tracker.spelled  # numbers of the program as they are in this call
    args, kwargs = [known(x) for x in args], {key: known(x) for key, x in kwargs.items()}
    if rule.kind == "value":
        args = [tracker.path(x) for x in args]
    owner, place = _owner(tracker, function, args)
    arguments = args if owner is None or owner is getattr(function, "__self__", None) else args[1:]
    if _is_numpy(owner):
        arguments, kwargs = [_constant(tracker, x) for x in arguments], {key: _constant(tracker, x) for key, x in kwargs.items()}
    elif not all([_is_atom(tracker, x) for x in (*arguments, *kwargs.values())]):
        raise Unsupported(f"{name}() is run at every call, and takes numbers and text alone there; call it outside, and pass its result")
    if rule.kind == "value":
        return looked_up(tracker, partial(function, *args, **kwargs))
    if rule.kind == "unique":
        return tracker.recorder.draw(partial(function, *args, **kwargs), "unique", f"{name}()", _mark(name, owner, args, kwargs), owner)
    if owner is not None and place is None:  # the program creates it
        if isinstance(owner, random.Random) and _is_known(tracker, owner, function, arguments, kwargs):
            return function(*args, **kwargs)
        raise Unsupported(NEW_GENERATOR.format(f"{name}()"))
    if _is_numpy(owner) and rule.kind != "effect" and (rule is ARRAY or not _is_one_number(name, arguments, kwargs)):
        return _drawn(tracker, function, owner, place, arguments, kwargs)
    return _run_again(tracker, rule, function, owner, place, arguments, kwargs)


class Raised(NamedTuple):
    """An exception that a read of the outside world raised."""

    kind: type
    args: tuple


def _outcome(look: Callable[[], Any]) -> Any:
    """Return what `look` returns, or a Raised; the guards of a later call run it, too."""
    try:
        return look()
    except Exception as error:
        return Raised(type(error), tuple(map(str, error.args)))


def looked_up(tracker: Any, look: partial) -> Any:
    """Return look(), guarded: it is called again at every call of the compiled function."""
    result, later = _outcome(look), partial(_outcome, look)
    written = [repr(x) if type(x) in tracker.atoms else object.__repr__(x) for x in (*look.args, *look.keywords.values())]
    later.__name__ = f"{getattr(look.func, '__name__', 'call')}({', '.join(written)})"
    source = tracker.sources.call(tracker.sources.const(later))
    if not isinstance(result, Raised):
        tracker.guard("type", source, type(result))  # which tells it from an error, where the program reads no more of it
        return tracker.reach(result, source)
    tracker.guard("type", source, Raised)
    for i, part in enumerate(result):
        tracker.plain(tracker.reach(part, tracker.sources.item(source, i)))
    return look()  # raises


def _owner(tracker: Any, function: Any, args: list[Any]) -> tuple[Any, Source | None]:
    """Return the generator that a call draws from, and where it is read; None where it draws from none."""
    owner = getattr(function, "__self__", None)
    owner = owner if is_state(owner) else args[0] if args and is_state(args[0]) else None
    if owner is None:
        return None, None
    source = tracker.source(owner)
    if source is not None:
        tracker.outside(owner)
        return owner, source
    if getattr(function, "__self__", None) is owner and tracker.source(function) is not None:  # as random.random, of the generator of its module
        return owner, tracker.sources.const(owner)
    return owner, None


def _is_known(tracker: Any, owner: random.Random, function: Any, arguments: list[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call of a generator that the program creates does the same at every call: it sets a seed, or draws after a known one."""
    if function.__name__ != "seed":
        return owner in tracker.seeded
    values = [*arguments, *kwargs.values()]
    (tracker.seeded.discard if None in values or not values else tracker.seeded.add)(owner)
    return True


def _is_numpy(owner: Any) -> bool:
    return type(owner).__module__.startswith("numpy")


def _is_atom(tracker: Any, x: Any) -> bool:
    return type(x) in tracker.atoms or isinstance(x, IntEnum)


def _constant(tracker: Any, x: Any) -> Any:
    """Return an argument of a generator of NumPy's as a constant: a number, text, a dtype, or an array or a list of numbers, which is copied."""
    plain = int(x) if tracker.recorder.is_symbolic(x) and not isinstance(x, tuple) else tracker.plain(x)
    numpy = sys.modules["numpy"]
    if isinstance(plain, (list, tuple)):
        return type(plain)([_constant(tracker, part) for part in plain])
    if isinstance(plain, numpy.ndarray) and not tracker.recorder.is_tensor(plain) and not plain.dtype.hasobject:
        return plain.copy()
    if _is_atom(tracker, plain) or isinstance(plain, (type, numpy.dtype)) or type(plain) in tracker.recorder.atoms:
        return plain
    raise Unsupported("a random generator of NumPy's takes numbers, text and arrays with known values; draw with torch, or outside")


def _is_one_number(name: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether NumPy returns a number: `rand` and `randn` take sizes alone, the others take one at the end."""
    most = {"rand": 0, "randn": 0, "random": 0, "random_sample": 0, "standard_normal": 0, "exponential": 1, "poisson": 1, "geometric": 1}
    return not kwargs and len(args) <= most.get(name.rpartition(".")[2], 2) and all([type(x) in (int, float) for x in args])


def _drawn(tracker: Any, function: Any, owner: Any, place: Source | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a generator of NumPy's draws at every call: a number of the program, an array, or a scalar of NumPy's."""
    rule = _kind_drawn(function, owner, args, kwargs)
    drawn = _run_again(tracker, rule, function, owner, place, args, kwargs)
    return tracker.recorder.array(tracker, drawn, _sample(function, owner, args, kwargs)) if rule is ARRAY else drawn


def _sample(function: Any, owner: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a copy of a generator draws."""
    return getattr(copy.deepcopy(owner), function.__name__)(*args, **kwargs)


def _kind_drawn(function: Any, owner: Any, args: list[Any], kwargs: dict[str, Any]) -> Fresh:
    """Return the rule for what a call draws."""
    sample = _sample(function, owner, args, kwargs)
    if type(sample) in _NUMBERS:
        return _NUMBERS[type(sample)]
    if getattr(sample, "dtype", sys.modules["numpy"].dtype(object)).kind not in "biufc":
        raise Unsupported(f"{name_of(function)}() draws a {type(sample).__name__}, which no tensor can hold; draw outside, and pass the result")
    return ARRAY


def _mark(name: str, owner: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple:
    """Return what is equal for equal calls of two runs of the program."""
    return name, id(owner), repr((args, kwargs))


def _run_again(tracker: Any, rule: Fresh, function: Any, owner: Any, place: Source | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
    name = function.__name__

    def call(owner_now: Any) -> Any:
        return function(*args, **kwargs) if owner is None else getattr(owner_now, name)(*args, **kwargs)

    now = tracker.recorder.draw(lambda: call(owner), rule.kind, f"{name_of(function)}()", _mark(name, owner, args, kwargs), owner)
    if now is not NULL:
        return now
    called = call if rule.kind == "effect" else tracker.recorder.boxed(call, rule.kind)
    source = tracker.sources.fresh(place, len(tracker.calls), called)
    tracker.calls.append(source)
    if rule.kind == "array":
        return source
    return None if rule.kind == "effect" else tracker.recorder.number(tracker, source, rule.kind)
