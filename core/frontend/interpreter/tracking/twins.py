"""Functions in C in Python: those of the library are interpreted in their place, so that every comparison is seen."""

from __future__ import annotations

import bisect
import heapq
import importlib.util
import types
from typing import Any


def _python_of(module: types.ModuleType) -> dict[str, Any]:
    """Return the functions that a module of the library defines in Python before it imports those in C."""
    spec = importlib.util.find_spec(module.__name__)
    source = spec.loader.get_source(module.__name__) if hasattr(spec.loader, "get_source") else None
    if not source:
        return {}
    scope: dict[str, Any] = {"__name__": module.__name__, "__builtins__": {**vars(__import__("builtins")), "__import__": _without_c}}
    exec(compile(source, spec.origin or module.__name__, "exec", dont_inherit=True), scope)
    return scope


def _without_c(name: str, *args: Any) -> Any:
    if name.startswith("_") and name != "__future__":
        raise ImportError(name)
    return __import__(name, *args)


def _twins(module: types.ModuleType) -> dict[Any, Any]:
    scope = _python_of(module)
    return {
        function: scope[name]
        for name, function in vars(module).items()
        if type(function) is types.BuiltinFunctionType and type(scope.get(name)) is types.FunctionType
    }


TWINS: dict[Any, Any] = {**_twins(heapq), **_twins(bisect)}


def translated(tracker: Any, text: str, table: Any) -> str:
    """Return text.translate(table), with what looks a character up in the table interpreted."""
    parts = []
    for character in text:
        try:
            replacement = tracker.get_item(table, ord(character))
        except LookupError:
            replacement = character
        parts.append("" if replacement is None else chr(replacement) if isinstance(replacement, int) else replacement)
    return "".join(parts)
