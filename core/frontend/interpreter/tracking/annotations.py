"""Annotations, which CPython 3.14 evaluates when they are first read: the tracker interprets those of functions and classes that the trace created.

C code would call `__annotate__` natively, and what that reads of outside objects would not be guarded.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from dovetail.frontend.class_lookup import NULL, address_of

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

ANNOTATIONS = "__annotations__"
REPLACING = frozenset({ANNOTATIONS, "__annotate__"})  # attributes which, when set, replace the evaluated annotations of a function
OF_CLASSES = type.__dict__[ANNOTATIONS]  # the descriptor by which annotationlib reads the annotations of a class
_VALUE = 1  # annotationlib.Format.VALUE
_CACHE = "__annotations_cache__"  # where a class keeps its evaluated annotations
_WRAPPERS = (MethodType, staticmethod, classmethod)


def annotations_of(tracker: Tracker, owner: Any) -> Any:
    """Return the annotations of a function or class that the trace created; NULL where no `__annotate__` is left to run."""
    while isinstance(owner, _WRAPPERS):
        owner = owner.__func__
    if address_of(owner) not in tracker.fresh:
        return NULL
    if id(owner) in tracker.annotations:
        return tracker.annotations[id(owner)]
    annotate = getattr(owner, "__annotate__", None)
    is_class = isinstance(owner, type)
    if type(annotate) is not FunctionType or (is_class and not vars(owner).keys().isdisjoint((_CACHE, ANNOTATIONS))):
        return NULL
    annotations = tracker.call(annotate, [_VALUE], {}, None)
    if not isinstance(annotations, dict):
        raise TypeError(f"__annotate__() must return a dict, not {type(annotations).__name__}")
    if is_class:
        type.__setattr__(owner, _CACHE, annotations)
    else:
        tracker.annotations[id(owner)] = annotations
    return annotations


def annotations_of_class(tracker: Tracker, cls: type, kind: Any = None) -> Any:
    """Return what `OF_CLASSES.__get__(cls)` is."""
    return tracker.native_bound(OF_CLASSES, cls, type(cls), ANNOTATIONS)
