"""Where in the user's code we are."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Generic, TypeVar

from dovetail.prims import recorder

T = TypeVar("T")


class CodeMap(Generic[T]):
    """Values by code object, looked up by its place and identity: the hash of a code object, which a dict would take each time, reads all of it."""

    def __init__(self, values: Iterable[tuple[CodeType, T]] = ()):
        self.by_place: dict[tuple[str, int], list[tuple[CodeType, T]]] = {}
        for code, value in values:
            self[code] = value

    def __setitem__(self, code: CodeType, value: T) -> None:
        self.by_place.setdefault((code.co_filename, code.co_firstlineno), []).append((code, value))

    def get(self, code: CodeType) -> T | None:
        """Return the value of a code object; None where it has none."""
        for each, value in self.by_place.get((code.co_filename, code.co_firstlineno), ()):
            if each is code:
                return value
        return None

    def __contains__(self, code: CodeType) -> bool:
        return self.get(code) is not None


OURS = f"{Path(__file__).parents[1]}{os.sep}"  # what the files of this package begin with, and of no package whose name is longer
INTERPRETERS = CodeMap[Callable[[FrameType], tuple[str, int]]]()  # the registry: code that runs other code -> file and line of that
_INTERPRETING: set[str] = set()  # the modules of that code
_PACKAGES = ("dovetail.", "torch.")


def register_interpreter(function: Callable, place: Callable[[FrameType], tuple[str, int]]) -> None:
    """Let `place` say, of a frame of `function`, which file and line of other code it runs."""
    INTERPRETERS[function.__code__] = place
    _INTERPRETING.add(function.__module__)
    _may_run_users_code.cache_clear()


@cache
def _may_run_users_code(module: str) -> bool:
    """Whether a frame of a module can be the user's, or run the user's code."""
    return module in _INTERPRETING or not module.startswith(_PACKAGES)


@cache
def _is_inside(file: str) -> bool:
    """Whether `file` belongs to this package or to torch, or is Python's contextlib, which calls context managers of ours."""
    return file.startswith(OURS) or "-packages/torch/" in file or file == contextlib.__file__


def user_operation() -> str | None:
    """Return the name of the operation of the user's program that is being recorded, or None."""
    return getattr(recorder.get(), "operation", None)


def user_line() -> str:
    """Return file:line of the innermost frame that is neither this package's nor torch's, whether CPython or an interpreter of ours runs it."""
    frame = sys._getframe(1)
    while frame.f_back:
        if _may_run_users_code(frame.f_globals.get("__name__", "")):  # the code of a frame is slower to read: CPython tells audit hooks of that
            code = frame.f_code
            if (run := INTERPRETERS.get(code)) is not None:
                file, line = run(frame)
                if not _is_inside(file):
                    return f"{file}:{line}"
            elif not _is_inside(code.co_filename):
                break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_caller(message: str) -> None:
    """Warn at the innermost running line that is neither this package's nor torch's."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and _is_inside(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
