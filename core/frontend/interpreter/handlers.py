"""Whether the program that is interpreted handles an error, where it is."""

from __future__ import annotations

import sys

from dovetail.frontend.interpreter import engine
from dovetail.frontend.interpreter.frame import Frame

_OF_ARITHMETIC = (ZeroDivisionError, OverflowError, ValueError)  # which lines with numbers raise


def is_handled() -> bool:
    """Return whether the program may handle an error that is raised where it is."""
    real = sys._getframe(1)
    while real is not None:
        if real.f_code is engine.loop.__code__ and _handlers(real.f_locals["frame"], real.f_locals["pc"]):
            return True
        real = real.f_back
    return False


def _handlers(frame: Frame, pc: int) -> bool:
    """Return whether an instruction of a frame is inside of a `try` that may handle errors of arithmetic; `finally` and `with` raise them again."""
    return any([_catches(frame, guarded.target) for guarded in frame.decoded.table if guarded.start <= pc < guarded.end])


def _catches(frame: Frame, at: int) -> bool:
    """Return whether a clause of the handler at an instruction may take errors of arithmetic."""
    names, arguments = frame.decoded.names, frame.decoded.arguments
    if names[at] != "PUSH_EXC_INFO":
        return False
    at += 1
    while True:
        if names[at] == "POP_TOP":  # `except:`
            return True
        end = next((i for i in range(at, len(names)) if names[i] in ("CHECK_EXC_MATCH", "RERAISE")), None)
        if end is None or names[end] == "RERAISE":
            return False
        loads = [i for i in range(at, end) if names[i] == "LOAD_GLOBAL"]
        classes = [frame.globals.get(name, frame.builtins.get(name)) for _, name in (arguments[i] for i in loads)]
        plain = len(loads) + (names[end - 1] == "BUILD_TUPLE") == end - at and all([isinstance(kind, type) for kind in classes])
        if not plain or any([issubclass(error, kind) for error in _OF_ARITHMETIC for kind in classes]) or "IF_FALSE" not in names[end + 1]:
            return True
        at = arguments[end + 1]
