"""Functions in C in Python: those of the library are interpreted in their place, so that every comparison is seen."""

from __future__ import annotations

import bisect
import builtins
import functools
import heapq
import importlib.util
import types
from collections.abc import Collection
from typing import Any


def _python_of(module: types.ModuleType) -> dict[str, Any]:
    """Return the functions that a module of the library defines in Python before it imports those in C."""

    def without_c(name: str, *args: Any) -> Any:
        if name == f"_{module.__name__}":
            raise ImportError(name)
        return __import__(name, *args)

    spec = importlib.util.find_spec(module.__name__)
    code = spec.loader.get_code(module.__name__) if hasattr(spec.loader, "get_code") else None
    if code is None:
        return {}
    scope: dict[str, Any] = {"__name__": module.__name__, "__builtins__": {**vars(builtins), "__import__": without_c}}
    exec(code, scope)
    return scope


def _twins(module: types.ModuleType, names: Collection[str] = ()) -> dict[Any, Any]:
    """Return the functions in C of a module, or those of them with these names, and each as it is in Python."""
    scope = _python_of(module)
    return {
        function: scope[name]
        for name, function in vars(module).items()
        if (not names or name in names) and type(function) is types.BuiltinFunctionType and type(scope.get(name)) is types.FunctionType
    }


TWINS: dict[Any, Any] = {**_twins(heapq), **_twins(bisect), **_twins(functools, {"cmp_to_key"})}


def print_into(*values: Any, sep: str | None = None, end: str | None = None, file: Any, flush: bool = False) -> None:
    """Print to a file of the program, as `print` does."""
    for i, value in enumerate(values):
        if i:
            file.write(" " if sep is None else sep)
        file.write(str(value))
    file.write("\n" if end is None else end)
    if flush:
        file.flush()


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
