"""The json module: its encoder and scanner in C call hooks, which are interpreted where they are written in Python."""

from __future__ import annotations

from json.encoder import _make_iterencode
from json.scanner import c_make_scanner, py_make_scanner
from math import isfinite
from types import FunctionType
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.interpreter.frame import Frame

_HOOKS = ("object_hook", "object_pairs_hook", "parse_float", "parse_int", "parse_constant")


def encoder_of(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return the encoder in Python, which calls `default` and the methods of subclasses where they can be interpreted."""
    markers, default, encoder, indent, key_separator, item_separator, sort_keys, skipkeys, allow_nan = args

    def float_text(value: float) -> str:
        if tracker.truth(tracker.call(isfinite, [value], {}, frame)):
            return tracker.call(float.__repr__, [value], {}, frame)
        value = tracker.spelled(value)
        if not allow_nan:
            raise ValueError(f"Out of range float values are not JSON compliant: {value!r}")
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"

    inside = [markers, default, encoder, indent, float_text, key_separator, item_separator, sort_keys, skipkeys, False]
    return tracker.call(_make_iterencode, inside, {}, frame)


def scanner_of(tracker: Any, context: Any) -> Any:
    """Return the scanner of a decoder: in Python where it has hooks in Python, else in C."""
    in_python = any([_is_hook(tracker.load_attr(context, name)) for name in _HOOKS])
    return tracker.call(py_make_scanner, [context], {}, None) if in_python else c_make_scanner(context)


def scan(tracker: Any, scanner: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call a scanner in C; one from outside never changes.  Raises Unsupported where it has hooks in Python."""
    if tracker.source(scanner) is not None:
        tracker.pin(scanner)
        if any([_is_hook(getattr(scanner, name)) for name in _HOOKS]):
            raise Unsupported("a JSONDecoder with hooks that was created outside of the program is not traced; create it inside")
    return scanner(*[tracker.read_by_c(x) for x in args], **kwargs)


def _is_hook(hook: Any) -> bool:
    return type(hook) is FunctionType and not hook.__module__.startswith("json")
