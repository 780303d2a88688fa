"""Arguments that a call of a builtin gives by name, in their places: what interprets them need not know the names."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from functools import lru_cache
from types import BuiltinFunctionType
from typing import Any

_MODULES = frozenset({"builtins", "itertools"})
_WITHOUT_SIGNATURE: dict[Any, tuple[str, ...]] = {itertools.repeat: ("object", "times"), int: ("", "base")}


def in_place(function: Callable, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call with those by name in their places, up to the first that the call leaves out; other functions keep theirs."""
    if not isinstance(function, (type, BuiltinFunctionType)) or function.__module__ not in _MODULES:
        return args, kwargs
    args, kwargs = list(args), dict(kwargs)
    for name in _names(function)[len(args) :]:
        if name not in kwargs:
            break
        args.append(kwargs.pop(name))
    return args, kwargs


@lru_cache(maxsize=256)
def _names(function: Callable) -> tuple[str, ...]:
    """Return the name of each parameter that has a place, "" for one that has no name for callers."""
    if function in _WITHOUT_SIGNATURE:
        return _WITHOUT_SIGNATURE[function]
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return ()
    placed = [x for x in parameters if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    return tuple(["" if x.kind is x.POSITIONAL_ONLY else x.name for x in placed])
