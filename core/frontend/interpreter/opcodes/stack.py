"""Opcodes that move values about the stack, and those that do nothing here."""

from __future__ import annotations

from dovetail.frontend.class_lookup import NULL


def nothing(frame, arg):
    """Ignore an opcode that guides CPython's own machinery."""


class Stack:
    NOP = CACHE = RESUME = PRECALL = EXTENDED_ARG = nothing

    def POP_TOP(frame, arg):
        frame.stack.pop()

    def PUSH_NULL(frame, arg):
        frame.stack.append(NULL)

    def COPY(frame, n):
        frame.stack.append(frame.stack[-n])

    def SWAP(frame, n):
        stack = frame.stack
        stack[-1], stack[-n] = stack[-n], stack[-1]

    def LOAD_CONST(frame, value):
        frame.stack.append(value)

    def LOAD_ASSERTION_ERROR(frame, arg):
        frame.stack.append(AssertionError)
