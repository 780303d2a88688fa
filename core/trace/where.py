"""Where in the user's code we are."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

OURS = str(Path(__file__).parents[1])


@cache
def _is_inside(file: str) -> bool:
    """Whether `file` belongs to this package or to torch."""
    return file.startswith(OURS) or "-packages/torch/" in file


def user_line() -> str:
    """file:line of the innermost frame that is neither this package's nor torch's."""
    frame = sys._getframe(1)
    while _is_inside(frame.f_code.co_filename) and frame.f_back:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
