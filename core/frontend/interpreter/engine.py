"""The loop: run a frame to its next return or yield, and resume it with a value or an exception."""

from __future__ import annotations

from typing import Any

from dovetail.frontend.interpreter.frame import EXC_CHANGED, YIELD, Frame


class Abandon(BaseException):
    """Leaves an interpreted program at once: no handler of the program sees it, and no `finally` runs."""


def loop(frame: Frame) -> int:
    """Run `frame` until it returns, yields, or changes the exception that it handles; return which."""
    instructions, pc = frame.decoded.instructions, frame.pc
    while True:
        try:
            while True:
                handler, arg = instructions[pc]
                target = handler(frame, arg)
                if target is None:
                    pc += 1
                elif target >= 0:
                    pc = target
                else:
                    frame.pc = pc + 1
                    return target
        except BaseException as error:
            frame.pc = pc
            target = frame.unwind(error, pc)
            if target is None:
                raise
            pc = target


def run(frame: Frame) -> int:
    """Run `frame` to its next return or yield; `sys.exception()` is what the interpreted code would see."""
    world = frame.world
    world.depth += 1
    try:
        if world.depth > world.limit:
            raise RecursionError("maximum recursion depth exceeded")
        while True:
            handled = frame.handled
            how = loop(frame) if handled is None else _handling(frame, handled)
            if how != EXC_CHANGED:
                return how
    finally:
        world.depth -= 1


def _handling(frame: Frame, handled: BaseException) -> int:
    """Run `loop` inside a real `except` block, so that bare `raise`, implicit context and `sys.exc_info` come out right in native code too."""
    traceback, context = handled.__traceback__, handled.__context__
    try:
        raise handled
    except BaseException:
        handled.__traceback__, handled.__context__ = traceback, context
        del handled, traceback, context  # what the program lets go of may not live on here
        return loop(frame)


def reraise(error: BaseException) -> None:
    """Raise `error`, leaving its context as it is."""
    context = error.__context__
    try:
        raise error
    except BaseException:
        error.__context__ = context
        raise


def resume(frame: Frame, value: Any) -> int:
    """Continue a suspended frame with the value that was sent, or with the exception that was thrown, into it."""
    error, frame.thrown = frame.thrown, None
    if error is None:
        frame.stack.append(value)
        return run(frame)
    inner = awaited(frame)
    if inner is not NOTHING:
        how, value = throw_into(frame, inner, error)
        if how == "yielded":
            frame.result = value
            return YIELD
        if how == "returned":
            send = frame.decoded.arguments[frame.pc + 1]  # behind RESUME stands the jump back to SEND
            frame.pc = frame.world.opcodes.sent(frame, value, frame.decoded.arguments[send])
            return run(frame)
        error = value
        del value
    if frame.handled is not None and error.__context__ is None and error is not frame.handled:
        error.__context__ = frame.handled
    frame.stack.append(None)  # what the yield would have returned; handlers count on its place
    target = frame.unwind(error, frame.pc - 1)
    if target is None:
        reraise(error)
    del error
    frame.pc = target
    return run(frame)


NOTHING = object()


def awaited(frame: Frame) -> Any:
    """Return the object that a suspended frame awaits or yields from, NOTHING at a plain yield."""
    at_resume = frame.pc < len(frame.decoded.names) and frame.decoded.names[frame.pc] == "RESUME"
    return frame.stack[-1] if at_resume and frame.decoded.arguments[frame.pc] & 3 >= 2 else NOTHING


def throw_into(frame: Frame, inner: Any, error: BaseException) -> tuple[str, Any]:
    """Pass an exception to the iterator of a `yield from` first; return how that ended, and the value."""
    world = frame.world
    try:
        if isinstance(error, GeneratorExit):
            close = world.optional(inner, "close")
            if close is not None:
                world.call(close, [], {}, frame)
            return "raised", error
        throw = world.optional(inner, "throw")
        return ("raised", error) if throw is None else ("yielded", world.call(throw, [error], {}, frame))
    except StopIteration as e:
        return ("raised", e) if isinstance(error, GeneratorExit) else ("returned", e.value)
    except BaseException as e:
        return "raised", e
