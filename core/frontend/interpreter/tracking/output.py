"""What a program prints and writes to the standard streams: shown when the computation has run, as it was when the program got there."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.frontend.class_lookup import is_in_python, lookup
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracking.twins import print_into

_UNCHANGED = (type, FunctionType, BuiltinFunctionType, ModuleType, Enum)  # classes of objects with the same text whatever happens to them
_STREAMS = ("stdout", "stderr")
_METHODS = ("write", "writelines", "flush", "isatty")


def is_stream(value: Any) -> bool:
    """Return whether an object is where Python prints to, or writes errors to."""
    return value is sys.stdout or value is sys.stderr


def is_stream_call(function: Any, args: list[Any]) -> bool:
    """Return whether a call writes to a standard stream, or reads whether it is a terminal; a method in Python gets the stream as first argument."""
    if type(function) is BuiltinFunctionType:
        return is_stream(function.__self__) and function.__name__ in _METHODS
    if type(function) is not FunctionType or not args or not is_stream(args[0]):
        return False
    return any([lookup(type(args[0]), name) is function for name in _METHODS])


def call_of_stream(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Do what `sys.stdout.write(text)`, or another method of a standard stream, does; return how many characters it is."""
    stream, args = (function.__self__, args) if type(function) is BuiltinFunctionType else (args[0], args[1:])
    name = function.__name__
    if name == "flush":
        tracker.effects.call(print, [], {"end": "", "file": stream, "flush": True})
        return None
    if name == "isatty":
        answer = stream.isatty()
        tracker.guard("equal", tracker.sources.call(tracker.sources.attr(tracker.sources.const(stream), name)), answer)
        return answer
    if len(args) != 1 or kwargs:
        return getattr(stream, name)(*args, **kwargs)  # raises
    if name == "writelines":
        for text in list(tracker.spread(args[0])):
            _write(tracker, stream, text, frame)
        return None
    _write(tracker, stream, args[0], frame)
    return tracker.call(len, args, {}, frame)


def _write(tracker: Any, stream: Any, text: Any, frame: Frame | None) -> None:
    if not isinstance(text, str) and not tracker.recorder.is_text(text):
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")
    tracker.effects.call(print, [_as_it_is(tracker, text, frame)], {"end": "", "file": stream})


def check_redirected(tracker: Any, module: ModuleType, name: str, value: Any) -> None:
    """Let a call run in eager mode that sends what is printed to a file of its own, which it may read."""
    if module is sys and name in _STREAMS and value is not None and tracker.source(value) is None:
        raise EagerCall(f"it redirects sys.{name} to a {type(value).__name__}")


def _print(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> None:
    """Print to a file that the program has created at once, to any other when the computation has run.

    Where the file is another object in Python, which the program may read afterwards, the call runs in eager mode.
    """
    file = kwargs.get("file")
    if file is not None and tracker.source(file) is None:
        tracker.call(print_into, args, kwargs, frame)
        return
    if file is not None and is_in_python(lookup(type(file), "write")) and not is_stream(file):
        raise EagerCall(f"it prints to a {type(file).__name__}, which it may read")
    tracker.effects.call(builtin, [_as_it_is(tracker, x, frame) for x in args], kwargs)


def _as_it_is(tracker: Any, value: Any, frame: Frame | None) -> Any:
    """Return what prints as a value does now: the program may write to it before it is printed."""
    if type(value) in tracker.atoms:
        return value
    if _is_known(tracker, value, ()):
        return tracker.call(str, [value], {}, frame)
    if not _has_objects(tracker, value, ()):
        return copied(tracker, value, ())
    try:
        return tracker.call(str, [value], {}, frame)
    except (TracedValueError, Unsupported) as error:
        raise EagerCall(f"it prints a {type(value).__name__}, which it may change before the computation has run: {error}") from error


def _is_known(tracker: Any, value: Any, above: tuple[int, ...]) -> bool:
    """Return whether the program has created an object, of which the text follows from what tracing knows."""
    kind = type(value)
    if kind in tracker.atoms:
        return True
    if id(value) in above or tracker.recorder.is_tensor(value) or tracker.recorder.is_number(value) or tracker.source(value) is not None:
        return False
    above = (*above, id(value))
    if kind in (list, tuple, set, frozenset):
        return all([_is_known(tracker, item, above) for item in value])
    if kind is dict:
        return all([_is_known(tracker, item, above) for pair in value.items() for item in pair])
    in_python = tracker.first_method(value, ("__str__", "__repr__")) is not None
    return in_python and all([_is_known(tracker, item, above) for item in getattr(value, "__dict__", {}).values()])


def _has_objects(tracker: Any, value: Any, above: tuple[int, ...]) -> bool:
    """Return whether a value is, or has in it, an object that the program has created, and may change."""
    recorder, kind = tracker.recorder, type(value)
    if recorder.is_tensor(value) or recorder.is_number(value) or recorder.is_text(value) or tracker.source(value) is not None or id(value) in above:
        return False
    if kind in _COPIES or hasattr(kind, "_make"):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return any([_has_objects(tracker, item, (*above, id(value))) for item in items])
    return not isinstance(value, _UNCHANGED) and (hasattr(value, "__dict__") or isinstance(value, (list, dict, set)))


def copied(tracker: Any, value: Any, above: tuple[int, ...]) -> Any:
    """Return a container that the program has created, or a tensor, as it is now."""
    kind = type(value)
    if tracker.recorder.is_tensor(value):
        return tracker.recorder.as_it_is(value)
    if (kind not in _COPIES and not hasattr(kind, "_make")) or id(value) in above or tracker.source(value) is not None:
        return value
    above = (*above, id(value))
    if isinstance(value, dict):
        items = [(key, copied(tracker, item, above)) for key, item in value.items()]
        return kind(value.default_factory, items) if kind is defaultdict else kind(items)
    items = [copied(tracker, item, above) for item in value]
    return _COPIES[kind](items, value) if kind in _COPIES else kind._make(items)


_COPIES: dict[type, Callable[[list, Any], Any]] = {  # classes of containers -> a container that looks alike with these items
    **{kind: lambda items, value: type(value)(items) for kind in (list, tuple, set, dict, OrderedDict, defaultdict)},
    deque: lambda items, value: deque(items, value.maxlen),
    type({}.values()): lambda items, value: dict(enumerate(items)).values(),
    type({}.items()): lambda items, value: dict(items).items(),
}


LOOKASIDES: dict[Any, Callable] = {print: _print}
