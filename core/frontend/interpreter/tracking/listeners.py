"""What gets to know of logging calls and warnings: handlers of loggers, and functions that show warnings.

They are called when the computation has run, so that the program must not read what they keep.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from dovetail.errors import EagerCall
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.handlers import is_handled
from dovetail.frontend.interpreter.tracking.output import copied, is_stream

LOGGING_CALLS = frozenset({getattr(logging.Logger, name) for name in ("debug", "info", "warning", "error", "exception", "critical", "log")})
DEPTH = 4  # how far below a listener is looked: itself, its attributes, what is in these, and in those
_SHOWING = ("showwarning", "_showwarnmsg_impl")  # what the warnings module calls
_MODULES = ("logging", "logging.handlers", "warnings", "_py_warnings")  # their own code keeps nothing for the program
_NO_STATE = (type, ModuleType, logging.Logger, logging.Manager, str, bytes, int, float, type(None))


def log(tracker: Any, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Log when the computation has run, what is logged as it is now."""
    if args and isinstance(args[0], logging.Logger):
        for logger in _loggers(args[0]):
            tracker.len(tracker.load_attr(logger, "handlers"))  # a handler that is added later may be one that the program reads
            listen(tracker, *logger.handlers, *logger.filters, logging.getLogRecordFactory())
        args = [args[0], *[copied(tracker, value, ()) for value in args[1:]]]
    tracker.effects.call(function, args, kwargs)


def _warn(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> None:
    """Warn when the computation has run; the call runs in eager mode where the program itself gets to know of the warning."""
    names = [name for name in _SHOWING if tracker.effects.now(vars(warnings), name) not in (NULL, vars(warnings)[name])]
    filters = tracker.effects.now(vars(warnings), "filters")
    raises = any([each[0] == "error" for each in (warnings.filters if filters is NULL else filters)])
    if names or (raises and is_handled((Warning,))):
        raise EagerCall("it warns, and records or handles the warning itself")
    listen(tracker, *[getattr(warnings, name, None) for name in _SHOWING])
    tracker.effects.call(builtin, args, kwargs)


def listen(tracker: Any, *listeners: Any) -> None:
    """Remember what is called when the computation has run."""
    tracker.listeners.update({id(listener): listener for listener in listeners})


def check_listeners(tracker: Any) -> None:
    """Let a call run in eager mode that has read an object which a listener may write to: a list of records, a stream of text."""
    for value in _state([*tracker.listeners.values()]):
        if tracker.source(value) is not None:
            raise EagerCall(f"it logs or warns, and reads what then may change, a {type(value).__name__}")


def _loggers(logger: logging.Logger) -> Iterator[logging.Logger]:
    """Yield a logger, and those above it that get its records."""
    at: logging.Logger | None = logger
    while at is not None:
        yield at
        at = at.parent if at.propagate else None


def _state(listeners: list[Any]) -> Iterator[Any]:
    """Yield what listeners hold, and the code of their classes names, down to `DEPTH`, and may be written to."""
    level, seen = listeners, set[int]()
    for _ in range(DEPTH):
        below = list[Any]()
        for value in level:
            if isinstance(value, _NO_STATE) or is_stream(value) or id(value) in seen:
                continue
            seen.add(id(value))
            below += _parts(value)
            if not isinstance(value, (tuple, frozenset, FunctionType, MethodType, BuiltinFunctionType)):
                yield value
        level = below


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, BuiltinFunctionType):
        return [value.__self__]
    if isinstance(value, FunctionType):
        return [] if value.__module__ in _MODULES else _read_by(value)
    code = [part for cls in type(value).__mro__ if cls.__module__ not in _MODULES for part in vars(cls).values()]
    return [*getattr(value, "__dict__", {}).values(), *[part for part in code if isinstance(part, FunctionType)]]


def _read_by(function: FunctionType) -> list[Any]:
    """Return the globals and variables of a closure that a function in Python names."""
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not set yet
            continue
    return [*[function.__globals__[name] for name in names], *cells]


LOOKASIDES: dict[Any, Callable] = {warnings.warn: _warn}
