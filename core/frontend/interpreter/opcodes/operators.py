"""Opcodes of operators, attributes and items."""

from __future__ import annotations

import operator

from dovetail.frontend.interpreter.opcodes.control import truth

BINARY = (
    operator.add,
    operator.and_,
    operator.floordiv,
    operator.lshift,
    operator.matmul,
    operator.mul,
    operator.mod,
    operator.or_,
    operator.pow,
    operator.rshift,
    operator.sub,
    operator.truediv,
    operator.xor,
)
INPLACE = (
    operator.iadd,
    operator.iand,
    operator.ifloordiv,
    operator.ilshift,
    operator.imatmul,
    operator.imul,
    operator.imod,
    operator.ior,
    operator.ipow,
    operator.irshift,
    operator.isub,
    operator.itruediv,
    operator.ixor,
)
COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)


class Operators:
    def UNARY_NEGATIVE(frame, arg):
        frame.stack[-1] = frame.world.unary(operator.neg, frame.stack[-1])

    def UNARY_POSITIVE(frame, arg):
        frame.stack[-1] = frame.world.unary(operator.pos, frame.stack[-1])

    def UNARY_INVERT(frame, arg):
        frame.stack[-1] = frame.world.unary(operator.invert, frame.stack[-1])

    def UNARY_NOT(frame, arg):
        frame.stack[-1] = not truth(frame, frame.stack[-1])

    def BINARY_OP(frame, n):
        y = frame.stack.pop()
        if n < len(BINARY):
            frame.stack[-1] = frame.world.binary(BINARY[n], frame.stack[-1], y)
        else:
            frame.stack[-1] = frame.world.inplace(INPLACE[n - len(BINARY)], frame.stack[-1], y)

    def COMPARE_OP(frame, compare):
        y = frame.stack.pop()
        frame.stack[-1] = frame.world.compare(compare, frame.stack[-1], y)

    @classmethod
    def comparison(cls, arg):
        """Return the operator that the argument of COMPARE_OP stands for."""
        return COMPARISONS[arg >> cls.COMPARE_SHIFT]

    def IS_OP(frame, invert):
        y = frame.stack.pop()
        frame.stack[-1] = frame.world.is_(frame.stack[-1], y) is not bool(invert)

    def CONTAINS_OP(frame, invert):
        container = frame.stack.pop()
        frame.stack[-1] = frame.world.contains(container, frame.stack[-1]) is not bool(invert)

    def STORE_ATTR(frame, name):
        owner = frame.stack.pop()
        frame.world.store_attr(owner, name, frame.stack.pop())

    def DELETE_ATTR(frame, name):
        frame.world.delete_attr(frame.stack.pop(), name)

    def BINARY_SUBSCR(frame, arg):
        key = frame.stack.pop()
        frame.stack[-1] = frame.world.get_item(frame.stack[-1], key)

    def STORE_SUBSCR(frame, arg):
        value, owner, key = frame.pop(3)
        frame.world.set_item(owner, key, value)

    def DELETE_SUBSCR(frame, arg):
        owner, key = frame.pop(2)
        frame.world.delete_item(owner, key)
