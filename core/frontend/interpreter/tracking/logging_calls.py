"""Calls of loggers: handlers get a record when the computation has run, so that the program must not read what they keep of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from dovetail.errors import EagerCall
from dovetail.frontend.class_lookup import address_of
from dovetail.frontend.interpreter.tracking.output import copied, is_stream

LOGGING_CALLS = frozenset({getattr(logging.Logger, name) for name in ("debug", "info", "warning", "error", "exception", "critical", "log")})
DEPTH = 4  # how far below a handler is looked: itself, its attributes, what is in these, and in those
_NO_STATE = (type, ModuleType, BuiltinFunctionType, str, bytes, int, float, type(None))


def log(tracker: Any, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Log when the computation has run, what is logged as it is now."""
    if args and isinstance(args[0], logging.Logger):
        for logger in _loggers(args[0]):
            tracker.len(tracker.load_attr(logger, "handlers"))  # a handler that is added later may be one that the program reads
            tracker.loggers[address_of(logger)] = logger
        args = [args[0], *[copied(tracker, value, ()) for value in args[1:]]]
    tracker.effects.call(function, args, kwargs)


def check_handlers(tracker: Any) -> None:
    """Let a call run in eager mode that has logged, and has read an object that a handler may write to: a list of records, a stream of text."""
    if not tracker.loggers:
        return
    handlers = [handler for logger in tracker.loggers.values() for handler in (*logger.handlers, *logger.filters)]
    for value in _state([*handlers, logging.getLogRecordFactory()]):
        if tracker.source(value) is not None and address_of(value) not in tracker.loggers:
            raise EagerCall(f"it logs, and reads what a handler or a filter of the logger may change, a {type(value).__name__}")


def _loggers(logger: logging.Logger) -> Iterator[logging.Logger]:
    """Yield a logger, and those above it that get its records."""
    at: logging.Logger | None = logger
    while at is not None:
        yield at
        at = at.parent if at.propagate else None


def _state(handlers: list[Any]) -> Iterator[Any]:
    """Yield what handlers and filters hold, and the code of their classes names, down to `DEPTH`, and may be written to."""
    level, seen = handlers, set[int]()
    for _ in range(DEPTH):
        below = list[Any]()
        for value in level:
            if isinstance(value, _NO_STATE) or is_stream(value) or id(value) in seen:
                continue
            seen.add(id(value))
            below += _parts(value)
            if not isinstance(value, (tuple, frozenset, FunctionType, MethodType)):
                yield value
        level = below


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, FunctionType):
        return _read_by(value)
    code = [part for cls in type(value).__mro__ if cls.__module__.partition(".")[0] != "logging" for part in vars(cls).values()]
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
