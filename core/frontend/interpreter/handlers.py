"""Whether the program that is interpreted handles an error, where it is."""

from __future__ import annotations

import sys
from contextlib import suppress
from dis import get_instructions
from functools import cache
from types import CodeType, GeneratorType, MethodType

from dovetail.frontend.class_lookup import lookup
from dovetail.frontend.interpreter import engine
from dovetail.frontend.interpreter.frame import Frame

Errors = tuple[type[Exception], ...]
_OF_ARITHMETIC: Errors = (ZeroDivisionError, OverflowError, ValueError)  # which lines with numbers raise
_HARMLESS = frozenset({"torch", "dovetail"})  # packages whose context managers raise errors again


def is_handled(errors: Errors = _OF_ARITHMETIC) -> bool:
    """Return whether the program may handle one of these errors where it is; by default those of arithmetic."""
    real, loop, module = sys._getframe(1), engine.loop.__code__, vars(engine)
    while real is not None:
        if real.f_globals is module and real.f_code is loop and _handlers(real.f_locals["frame"], real.f_locals["pc"], errors):
            return True
        real = real.f_back
    return False


def _handlers(frame: Frame, pc: int, errors: Errors) -> bool:
    """Return whether an instruction of a frame is inside of a `try` or a `with` that may handle an error."""
    at, rows = pc, list(reversed(frame.decoded.table))
    while rows:
        guarded = next((row for row in rows if row.start <= at < row.end), None)
        if guarded is None:
            return False
        if _catches(frame, guarded.target, guarded.depth, errors):
            return True
        at, rows = guarded.target, [row for row in rows if row is not guarded]  # what is around the handler
    return False


def _catches(frame: Frame, at: int, depth: int, errors: Errors) -> bool:
    """Return whether a clause of the handler at an instruction, with `depth` values left on the stack, may take an error."""
    names, arguments = frame.decoded.names, frame.decoded.arguments
    if names[at] != "PUSH_EXC_INFO":
        return False
    at += 1
    if names[at] == "WITH_EXCEPT_START":
        return _suppresses(frame.stack[max(depth - 2, 0) : depth])
    while True:
        if names[at] == "POP_TOP":  # `except:`
            return True
        end = next((i for i in range(at, len(names)) if names[i] in ("CHECK_EXC_MATCH", "RERAISE")), None)
        if end is None or names[end] == "RERAISE":
            return "POP_EXCEPT" in names[at:end]  # a `finally` that returns, or goes on with a loop
        loads = [i for i in range(at, end) if names[i] == "LOAD_GLOBAL"]
        classes = [frame.globals.get(name, frame.builtins.get(name)) for _, name in (arguments[i] for i in loads)]
        plain = len(loads) + (names[end - 1] == "BUILD_TUPLE") == end - at and all([isinstance(kind, type) for kind in classes])
        related = plain and any([issubclass(error, kind) or issubclass(kind, error) for error in errors for kind in classes])
        if not plain or related or "IF_FALSE" not in names[end + 1]:
            return True
        at = arguments[end + 1]


def _suppresses(stack: list) -> bool:
    """Return whether a context manager may handle an error; `stack` ends with its `__exit__`, from Python 3.14 on with the manager behind that."""
    exits = [x for x in stack if type(x) is MethodType and x.__name__ == "__exit__"]
    manager = exits[-1].__self__ if exits else stack[-1]
    if isinstance(manager, suppress):
        return True
    generator = getattr(manager, "gen", None)
    if isinstance(generator, GeneratorType) and generator.gi_frame is not None:  # of contextlib.contextmanager
        frame = generator.gi_frame.f_locals.get("frame")
        return "PUSH_EXC_INFO" in (frame.decoded.names if type(frame) is Frame else [each.opname for each in get_instructions(generator.gi_code)])
    code = getattr(lookup(type(manager), "__exit__"), "__code__", None)
    return code is not None and type(manager).__module__.partition(".")[0] not in _HARMLESS and not _returns_nothing(code)


@cache
def _returns_nothing(code: CodeType) -> bool:
    """Return whether all that a function returns is None or False."""
    lines = list(get_instructions(code))
    pairs = zip([None, *lines], lines)
    constants = [before if line.opname == "RETURN_VALUE" else line for before, line in pairs if line.opname.startswith("RETURN_")]
    return all([x is not None and x.opname in ("LOAD_CONST", "RETURN_CONST") and not x.argval for x in constants])
