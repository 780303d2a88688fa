"""Opcodes of `try`, `raise`, `except*` and `with`."""

from __future__ import annotations

import sys

from dovetail.frontend.interpreter.engine import reraise
from dovetail.frontend.interpreter.frame import EXC_CHANGED


class Exceptions:
    def PUSH_EXC_INFO(frame, arg):
        error = frame.stack.pop()
        frame.stack += [frame.handled, error]
        frame.handled = error
        return EXC_CHANGED

    def POP_EXCEPT(frame, arg):
        frame.handled = frame.stack.pop()
        return EXC_CHANGED

    def CHECK_EXC_MATCH(frame, arg):
        kinds = frame.stack.pop()
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            if not is_exception_class(kind):
                raise TypeError("catching classes that do not inherit from BaseException is not allowed")
        frame.stack.append(frame.world.matches(frame.stack[-1], kinds))

    def CHECK_EG_MATCH(frame, arg):
        kinds, error = frame.stack.pop(), frame.stack.pop()
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            if not is_exception_class(kind):
                raise TypeError("catching classes that do not inherit from BaseException is not allowed")
            if issubclass(kind, BaseExceptionGroup):
                raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
        match, rest = split_group(frame, error, kinds)
        frame.stack += [rest, match]
        if match is None:
            return None
        frame.handled = match
        return EXC_CHANGED

    def RERAISE(frame, arg):
        error = frame.stack.pop()
        frame.reraised = True
        reraise(error)

    def RAISE_VARARGS(frame, n):
        if n == 0:
            error = frame.world.call(sys.exception, [], {}, frame)
            if not frame.world.call(isinstance, [error, BaseException], {}, frame):
                raise RuntimeError("No active exception to reraise")
            frame.reraised = True
            reraise(error)
        values = frame.pop(n)
        error = to_exception(frame, values[0], "exceptions must derive from BaseException")
        if n == 1:
            raise error
        cause = None if values[1] is None else to_exception(frame, values[1], "exception causes must derive from BaseException")
        raise error from cause

    def BEFORE_WITH(frame, arg):
        enter(frame, "__enter__", "__exit__", "context manager")

    def BEFORE_ASYNC_WITH(frame, arg):
        enter(frame, "__aenter__", "__aexit__", "asynchronous context manager")

    def WITH_EXCEPT_START(frame, arg):
        error = frame.stack[-1]
        frame.stack.append(frame.world.call(frame.stack[-4], [type(error), error, error.__traceback__], {}, frame))


def is_exception_class(kind):
    return isinstance(kind, type) and issubclass(kind, BaseException)


def to_exception(frame, value, otherwise):
    """Return an exception, calling `value` where it is an exception class."""
    if is_exception_class(value):
        error = frame.world.call(value, [], {}, frame)
        if not isinstance(error, BaseException):
            raise TypeError(f"calling {value} should have returned an instance of BaseException, not {type(error)}")
        return error
    if not isinstance(value, BaseException):
        raise TypeError(otherwise)
    return value


def split_group(frame, error, kinds):
    """Return the part of `error` that an `except*` of these kinds catches, and the rest."""
    if error is None:
        return None, None
    if frame.world.matches(error, kinds):
        return (error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])), None
    if not isinstance(error, BaseExceptionGroup):
        return None, error
    parts = frame.world.call(frame.world.load_attr(error, "split"), [kinds], {}, frame)
    if not isinstance(parts, tuple):
        raise TypeError(f"{type(error).__name__}.split must return a tuple, not {type(parts).__name__}")
    if len(parts) < 2:
        raise TypeError(f"{type(error).__name__}.split must return a 2-tuple, got tuple of size {len(parts)}")
    return parts[0], parts[1]


def enter(frame, start, end, what):
    """Call `start` of the context manager on the stack, and put its `end` below what comes back."""
    manager = frame.stack.pop()
    world, kind = frame.world, type(manager).__name__
    begin = world.special(manager, start)
    if begin is None:
        raise TypeError(f"'{kind}' object does not support the {what} protocol")
    leave = world.special(manager, end)
    if leave is None:
        raise TypeError(f"'{kind}' object does not support the {what} protocol (missed {end} method)")
    frame.stack.append(leave)
    frame.stack.append(world.call(begin, [], {}, frame))
