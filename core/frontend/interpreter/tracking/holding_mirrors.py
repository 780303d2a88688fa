"""Objects of classes in C that hold others, created again with mirrors in the place of what they hold: C code that writes them out or compares
them calls methods that are interpreted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from dovetail.frontend.interpreter.tracking.holders import VIEWS, held_in
from dovetail.frontend.interpreter.tracking.mirrors import ORDER, TEXT, original
from dovetail.frontend.interpreter.tracking.remaking import c_base

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_FIELDS = ("filename", "filename2", "exceptions", "object")  # what exceptions hold besides their arguments


def holding_mirrors(tracker: Tracker, value: Any) -> Any:
    """Return an object like `value` that holds mirrors; `value` where it holds nothing with methods in Python, or cannot be created again.

    What an outside object holds has been reached.
    """
    make = next((make for kind, make in _MAKERS.items() if isinstance(value, kind)), None)
    if make is None or held_in(value, (*TEXT, *ORDER)) is None:
        return value
    return make(value, lambda part: tracker.plain(part, mirrored=True))


def _partial(value: partial, mirrored: Callable[[Any], Any]) -> Any:
    return partial.__new__(type(value), mirrored(value.func), *mirrored(value.args), **mirrored(value.keywords))


def _exception(value: BaseException, mirrored: Callable[[Any], Any]) -> Any:
    if held_in([getattr(value, name, None) for name in _FIELDS], TEXT) is not None:
        return value
    args, base = mirrored(value.args), c_base(type(value))
    result = base.__new__(type(value), *args)
    base.__init__(result, *args)
    return result


def _set(value: Any, mirrored: Callable[[Any], Any]) -> Any:
    kind, items = type(value), list(value)
    result = kind([mirrored(item) for item in items]) if kind in (set, frozenset) else value
    same_order = all([original(mirror) is item for mirror, item in zip(result, items, strict=True)])
    return result if same_order else value


_MAKERS: dict[type, Callable[[Any, Callable[[Any], Any]], Any]] = {
    partial: _partial,
    slice: lambda value, mirrored: slice(mirrored(value.start), mirrored(value.stop), mirrored(value.step)),
    MethodType: lambda value, mirrored: MethodType(value.__func__, mirrored(value.__self__)),
    BaseException: _exception,
    set: _set,
    frozenset: _set,
    **{kind: lambda value, mirrored: VIEWS[type(value)](mirrored(dict(value.mapping))) for kind in VIEWS},
}
