"""What CPython 3.14 does differently from 3.13."""

from __future__ import annotations

from dovetail.frontend.class_lookup import NULL, lookup
from dovetail.frontend.interpreter.native import native
from dovetail.frontend.interpreter.opcodes import Opcodes
from dovetail.frontend.interpreter.opcodes.call import call_spread
from dovetail.frontend.interpreter.py313 import Py313

_SUBSCRIPT = 26  # the operator of BINARY_OP that is x[y]
_ANNOTATE = 16  # the attribute of SET_FUNCTION_ATTRIBUTE that evaluates the annotations
_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)
_SPECIAL = ("__enter__", "__exit__", "__aenter__", "__aexit__")
_PROTOCOLS = (("with", "context manager"), ("async with", "asynchronous context manager"))


class Py314(Py313):
    NOT_AWAITABLE = "'{}' object can't be awaited"

    LOAD_FAST_BORROW = Opcodes.LOAD_FAST
    LOAD_FAST_BORROW_LOAD_FAST_BORROW = Py313.LOAD_FAST_LOAD_FAST
    POP_ITER = Opcodes.POP_TOP
    NOT_TAKEN = Opcodes.NOP

    def LOAD_SMALL_INT(frame, value):
        frame.stack.append(value)

    def LOAD_COMMON_CONSTANT(frame, n):
        frame.stack.append(_CONSTANTS[n])

    def LOAD_SPECIAL(frame, n):
        owner = frame.stack.pop()
        method = frame.world.special(owner, _SPECIAL[n])
        if method is None:
            raise TypeError(unsupported_with(owner, n))
        frame.stack += [method, NULL]

    def WITH_EXCEPT_START(frame, arg):
        error, leave, owner = frame.stack[-1], frame.stack[-5], frame.stack[-4]
        args = [type(error), error, error.__traceback__]
        frame.stack.append(frame.world.call(leave, args if owner is NULL else [owner, *args], {}, frame))

    def BINARY_OP(frame, n):
        if n == _SUBSCRIPT:
            key = frame.stack.pop()
            frame.stack[-1] = frame.world.get_item(frame.stack[-1], key)
        else:
            Opcodes.BINARY_OP(frame, n)

    @staticmethod
    def excess(value, n):
        sized = type(value) in (tuple, list, dict)
        return f"too many values to unpack (expected {n}, got {len(value)})" if sized else Opcodes.excess(value, n)

    def CALL_FUNCTION_EX(frame, arg):
        function, _, args, kwargs = frame.pop(4)
        frame.stack.append(call_spread(frame, function, args, {} if kwargs is NULL else kwargs))

    def SET_FUNCTION_ATTRIBUTE(frame, flag):
        if flag == _ANNOTATE:
            annotate, function = frame.pop(2)  # the opcode may also name `annotate` after the function
            frame.stack.append(native((("SET_FUNCTION_ATTRIBUTE", flag),), 2, frame.globals)(annotate, function))
        else:
            Py313.SET_FUNCTION_ATTRIBUTE(frame, flag)

    def SET_ADD(frame, n):
        if not isinstance(frame.stack[-n - 1], set):  # a program may rebind `__conditional_annotations__`
            raise TypeError(f"'{type(frame.stack[-n - 1]).__name__}' object is not a set")
        Opcodes.SET_ADD(frame, n)

    def BUILD_INTERPOLATION(frame, arg):
        parts = frame.pop(3 if arg & 1 else 2)  # the value, its source text, and its format where it has one
        frame.stack.append(native((("BUILD_INTERPOLATION", arg),), len(parts), frame.globals)(*parts))

    def BUILD_TEMPLATE(frame, arg):
        strings, interpolations = frame.pop(2)
        frame.stack.append(native((("BUILD_TEMPLATE", 0),), 2, frame.globals)(strings, interpolations))


def unsupported_with(owner, n):
    """Return why `owner` cannot be the manager of a `with` statement: it lacks the special method `n`; CPython suggests the other kind of `with`."""
    kind, other = n // 2, 1 - n // 2
    text = f"'{described(type(owner))}' object does not support the {_PROTOCOLS[kind][1]} protocol (missed {_SPECIAL[n]} method)"
    if not all(has_method(owner, name) for name in _SPECIAL[2 * other : 2 * other + 2]):
        return text
    statement, protocol = _PROTOCOLS[other]
    return f"{text} but it supports the {protocol} protocol. Did you mean to use '{statement}'?"


def has_method(owner, name):
    """Return whether the type of `owner` has a method `name`."""
    raw = lookup(type(owner), name)
    return raw is not NULL and hasattr(type(raw), "__get__")


def described(cls):
    """Return the name of a class in CPython's messages: with its module, unless that is builtins."""
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"
