"""Opcodes that jump, iterate and return."""

from __future__ import annotations

from dovetail.frontend.interpreter.frame import RETURN


def truth(frame, value):
    """Return whether `value` is true, by the world only where it is not a bool."""
    return value if value is True or value is False else frame.world.truth(value)


def _jump_if_true(frame, target):
    if truth(frame, frame.stack.pop()):
        return target


def _jump_if_false(frame, target):
    if not truth(frame, frame.stack.pop()):
        return target


def _jump_if_none(frame, target):
    if frame.world.is_(frame.stack.pop(), None):
        return target


def _jump_if_not_none(frame, target):
    if not frame.world.is_(frame.stack.pop(), None):
        return target


class Control:
    AFTER_LOOP = 0  # how many instructions behind its target a finished FOR_ITER goes on

    def JUMP_FORWARD(frame, target):
        return target

    JUMP_BACKWARD = JUMP_BACKWARD_NO_INTERRUPT = JUMP_FORWARD
    POP_JUMP_FORWARD_IF_TRUE = POP_JUMP_BACKWARD_IF_TRUE = POP_JUMP_IF_TRUE = _jump_if_true
    POP_JUMP_FORWARD_IF_FALSE = POP_JUMP_BACKWARD_IF_FALSE = POP_JUMP_IF_FALSE = _jump_if_false
    POP_JUMP_FORWARD_IF_NONE = POP_JUMP_BACKWARD_IF_NONE = POP_JUMP_IF_NONE = _jump_if_none
    POP_JUMP_FORWARD_IF_NOT_NONE = POP_JUMP_BACKWARD_IF_NOT_NONE = POP_JUMP_IF_NOT_NONE = _jump_if_not_none

    def GET_ITER(frame, arg):
        frame.stack[-1] = frame.world.iter(frame.stack[-1])

    def FOR_ITER(frame, target):
        try:
            frame.stack.append(frame.world.next(frame.stack[-1]))
            return None
        except StopIteration:
            frame.stack.pop()
        return target + frame.world.opcodes.AFTER_LOOP

    def RETURN_VALUE(frame, arg):
        frame.result = frame.stack.pop()
        return RETURN
