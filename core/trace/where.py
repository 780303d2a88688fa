"""Where in the user's code we are."""

from __future__ import annotations

import sys
from pathlib import Path

OURS = str(Path(__file__).parents[1])


def user_line() -> str:
    """file:line of the innermost frame that is neither this package's nor torch's."""
    frame = sys._getframe(1)
    while frame.f_back and ((file := frame.f_code.co_filename).startswith(OURS) or "-packages/torch/" in file):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
