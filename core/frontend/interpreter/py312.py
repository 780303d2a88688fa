"""What CPython 3.12 does differently from 3.11."""

from __future__ import annotations

import operator
import sys

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.drivers import Wrapped
from dovetail.frontend.interpreter.engine import reraise
from dovetail.frontend.interpreter.frame import RETURN
from dovetail.frontend.interpreter.native import native
from dovetail.frontend.interpreter.opcodes import Opcodes
from dovetail.frontend.interpreter.opcodes.names import from_namespace


class Py312(Opcodes):
    FLAGS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}
    COMPARE_SHIFT = 4
    AFTER_LOOP = 1  # END_FOR

    def LOAD_ATTR(frame, arg):
        method, name = arg
        value = frame.world.load_attr(frame.stack[-1], name)
        if method:
            frame.stack[-1] = NULL
            frame.stack.append(value)
        else:
            frame.stack[-1] = value

    def LOAD_SUPER_ATTR(frame, arg):
        value = super_attribute(frame, arg)
        frame.stack += [NULL, value] if arg[0] & 1 else [value]

    def LOAD_FAST_AND_CLEAR(frame, slot):
        frame.stack.append(frame.slots[slot])
        frame.slots[slot] = NULL

    def RETURN_CONST(frame, value):
        frame.result = value
        return RETURN

    def CALL_INTRINSIC_1(frame, n):
        value = frame.stack[-1]
        own = _INTRINSICS.get(n)
        frame.stack[-1] = own(frame, value) if own else native((("CALL_INTRINSIC_1", n),), 1, frame.globals)(value)

    def CALL_INTRINSIC_2(frame, n):
        second = frame.stack.pop()
        frame.stack[-1] = native((("CALL_INTRINSIC_2", n),), 2, frame.globals)(frame.stack[-1], second)

    def BINARY_SLICE(frame, arg):
        owner, start, stop = frame.pop(3)
        frame.stack.append(frame.world.get_item(owner, slice(start, stop)))

    def STORE_SLICE(frame, arg):
        value, owner, start, stop = frame.pop(4)
        frame.world.set_item(owner, slice(start, stop), value)

    def LOAD_LOCALS(frame, arg):
        frame.stack.append(frame.names)

    def LOAD_FROM_DICT_OR_DEREF(frame, slot):
        value = from_namespace(frame, frame.stack.pop(), frame.decoded.slot_names[slot])
        if value is NULL:
            Opcodes.LOAD_DEREF(frame, slot)
        else:
            frame.stack.append(value)

    def LOAD_FROM_DICT_OR_GLOBALS(frame, name):
        value = from_namespace(frame, frame.stack.pop(), name)
        frame.stack.append(frame.world.load_global(frame, name) if value is NULL else value)

    def END_FOR(frame, arg):
        frame.pop(2)

    def END_SEND(frame, arg):
        del frame.stack[-2]

    def CLEANUP_THROW(frame, arg):
        error = frame.stack.pop()
        frame.pop(2)
        if not isinstance(error, StopIteration):
            frame.reraised = True
            reraise(error)
        frame.stack += [None, error.value]

    INTERPRETER_EXIT = RESERVED = Opcodes.NOP

    @staticmethod
    def sent(frame, value, target):
        """Leave a `yield from` with its result; return where to go on."""
        frame.stack.append(value)
        return target


def super_attribute(frame, arg):
    """Return super().name, or super(class, object).name."""
    (flags, name), (super_, cls, self) = arg, frame.pop(3)
    return frame.world.load_attr(frame.world.call(super_, [cls, self] if flags & 2 else [], {}, frame), name)


def _print(frame, value):
    return frame.world.call(sys.displayhook, [value], {}, frame)


def _import_star(frame, module):
    frame.world.import_star(frame, module)


def _stop_iteration_error(frame, error):
    """Turn a StopIteration that leaves a generator into a RuntimeError."""
    flags = frame.decoded.flags
    kind = "async generator" if flags & 0x200 else "coroutine" if flags & 0x80 else "generator"
    if not isinstance(error, (StopIteration, StopAsyncIteration) if flags & 0x200 else StopIteration):
        return error
    replacement = RuntimeError(f"{kind} raised {type(error).__name__}")
    replacement.__cause__ = replacement.__context__ = error
    return replacement


_INTRINSICS = {  # by number, those that are not left to CPython: type parameters and aliases are
    1: _print,
    2: _import_star,
    3: _stop_iteration_error,
    4: lambda frame, value: Wrapped(value),
    5: lambda frame, value: frame.world.unary(operator.pos, value),
    6: lambda frame, value: tuple(value),
}
