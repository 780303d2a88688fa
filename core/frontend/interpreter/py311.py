"""What only CPython 3.11 does."""

from __future__ import annotations

import sys

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.native import native
from dovetail.frontend.interpreter.opcodes import Opcodes
from dovetail.frontend.interpreter.opcodes.control import truth
from dovetail.frontend.interpreter.opcodes.names import from_namespace


class Py311(Opcodes):
    def JUMP_IF_TRUE_OR_POP(frame, target):
        if truth(frame, frame.stack[-1]):
            return target
        frame.stack.pop()

    def JUMP_IF_FALSE_OR_POP(frame, target):
        if not truth(frame, frame.stack[-1]):
            return target
        frame.stack.pop()

    def LOAD_ATTR(frame, name):
        frame.stack[-1] = frame.world.load_attr(frame.stack[-1], name)

    def LOAD_METHOD(frame, name):
        frame.stack.append(frame.world.load_attr(frame.stack[-1], name))
        frame.stack[-2] = NULL

    def LOAD_CLASSDEREF(frame, slot):
        value = from_namespace(frame, frame.names, frame.decoded.slot_names[slot])
        if value is NULL:
            Opcodes.LOAD_DEREF(frame, slot)
        else:
            frame.stack.append(value)

    def PREP_RERAISE_STAR(frame, arg):
        errors, original = frame.stack.pop(), frame.stack.pop()
        frame.stack.append(native((("PREP_RERAISE_STAR", 0),), 2, frame.globals)(original, errors))

    def PRINT_EXPR(frame, arg):
        frame.world.call(sys.displayhook, [frame.stack.pop()], {}, frame)

    @staticmethod
    def sent(frame, value, target):
        """Leave a `yield from` with its result; return where to go on."""
        frame.stack[-1] = value
        return target
