"""Where in the user's code we are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

from dovetail.prims import recorder

OURS = f"{Path(__file__).parents[1]}{os.sep}"  # what the files of this package begin with, and of no package whose name is longer
INTERPRETERS: dict[CodeType, Callable[[FrameType], tuple[str, int]]] = {}  # the registry: code that runs other code -> file and line of that


@cache
def _is_inside(file: str) -> bool:
    """Whether `file` belongs to this package or to torch."""
    return file.startswith(OURS) or "-packages/torch/" in file


def user_operation() -> str | None:
    """Return the name of the operation of the user's program that is being recorded, or None."""
    return getattr(recorder.get(), "operation", None)


def user_line() -> str:
    """Return file:line of the innermost frame that is neither this package's nor torch's, whether CPython or an interpreter of ours runs it."""
    frame = sys._getframe(1)
    while _is_inside((code := frame.f_code).co_filename) and frame.f_back:
        if (run := INTERPRETERS.get(code)) is not None:
            file, line = run(frame)
            if not _is_inside(file):
                return f"{file}:{line}"
        frame = frame.f_back
    return f"{code.co_filename}:{frame.f_lineno}"
