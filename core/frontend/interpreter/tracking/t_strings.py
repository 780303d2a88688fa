"""Template strings of Python 3.14 (t-strings): objects of C that hold values of the program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

T_STRINGS: tuple[type, ...] = ()  # the classes of a template and of one of its interpolations
if sys.version_info >= (3, 14):
    from string.templatelib import Interpolation
    from string.templatelib import Template as TString

    T_STRINGS = (TString, Interpolation)


def arguments_of(value: Any) -> tuple[Any, ...]:
    """Return the arguments with which the class of a template or interpolation makes an equal one."""
    if type(value) is Interpolation:
        return value.value, value.expression, value.conversion, value.format_spec
    return tuple(value)


def guard_parts(tracker: Tracker, value: Any, source: Source) -> None:
    """Guard all of an outside template but the objects in it, which are reached: C code iterates and concatenates it unseen."""
    tracker.guard("type", source, type(value))
    names = ("value", "expression", "conversion", "format_spec") if type(value) is Interpolation else ("strings", "interpolations")
    for name in names:
        tracker.reach_whole(getattr(value, name), tracker.sources.attr(source, name))
