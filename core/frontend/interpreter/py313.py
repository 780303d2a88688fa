"""What CPython 3.13 does differently from 3.12."""

from __future__ import annotations

from types import CellType, FunctionType

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.opcodes import Opcodes
from dovetail.frontend.interpreter.opcodes.call import call_spread, split_keywords
from dovetail.frontend.interpreter.opcodes.control import truth
from dovetail.frontend.interpreter.opcodes.operators import COMPARISONS
from dovetail.frontend.interpreter.py312 import Py312, super_attribute

_TO_BOOL = 16  # flag of COMPARE_OP


class Py313(Py312):
    AFTER_LOOP = 2  # END_FOR and POP_TOP
    CALLEE = 4

    def LOAD_ATTR(frame, arg):
        method, name = arg
        frame.stack[-1] = frame.world.load_attr(frame.stack[-1], name)
        if method:
            frame.stack.append(NULL)

    def LOAD_GLOBAL(frame, arg):
        null, name = arg
        frame.stack.append(frame.world.load_global(frame, name))
        if null:
            frame.stack.append(NULL)

    def LOAD_SUPER_ATTR(frame, arg):
        value = super_attribute(frame, arg)
        frame.stack += [value, NULL] if arg[0] & 1 else [value]

    def CALL(frame, n):
        args = frame.pop(n)
        first, function = frame.stack.pop(), frame.stack.pop()
        if first is not NULL:
            args.insert(0, first)
        frame.stack.append(frame.world.call(function, args, {}, frame))

    def CALL_KW(frame, n):
        names = frame.stack.pop()
        args = frame.pop(n)
        first, function = frame.stack.pop(), frame.stack.pop()
        kwargs = split_keywords(args, names)
        if first is not NULL:
            args.insert(0, first)
        frame.stack.append(frame.world.call(function, args, kwargs, frame))

    def CALL_FUNCTION_EX(frame, flags):
        kwargs = frame.stack.pop() if flags & 1 else {}
        function, _, args = frame.pop(3)
        frame.stack.append(call_spread(frame, function, args, kwargs))

    @classmethod
    def comparison(cls, arg):
        return COMPARISONS[arg >> 5], arg & _TO_BOOL

    def COMPARE_OP(frame, arg):
        compare, to_bool = arg
        y = frame.stack.pop()
        result = frame.world.compare(compare, frame.stack[-1], y)
        frame.stack[-1] = truth(frame, result) if to_bool else result

    def LOAD_FAST_LOAD_FAST(frame, slots):
        Opcodes.LOAD_FAST(frame, slots >> 4)
        Opcodes.LOAD_FAST(frame, slots & 15)

    def STORE_FAST_STORE_FAST(frame, slots):
        Opcodes.STORE_FAST(frame, slots >> 4)
        Opcodes.STORE_FAST(frame, slots & 15)

    def STORE_FAST_LOAD_FAST(frame, slots):
        Opcodes.STORE_FAST(frame, slots >> 4)
        Opcodes.LOAD_FAST(frame, slots & 15)

    def TO_BOOL(frame, arg):
        frame.stack[-1] = truth(frame, frame.stack[-1])

    def CONVERT_VALUE(frame, conversion):
        frame.stack[-1] = frame.world.format(frame.stack[-1], conversion, None)

    def FORMAT_SIMPLE(frame, arg):
        frame.stack[-1] = frame.world.format(frame.stack[-1], 0, "")

    def FORMAT_WITH_SPEC(frame, arg):
        spec = frame.stack.pop()
        frame.stack[-1] = frame.world.format(frame.stack[-1], 0, spec)

    def MAKE_FUNCTION(frame, arg):
        code = frame.stack.pop()  # defaults, annotations and the real cells follow
        cells = tuple([CellType() for _ in code.co_freevars])
        frame.stack.append(frame.world.register_function(FunctionType(code, frame.globals, None, None, cells)))

    def SET_FUNCTION_ATTRIBUTE(frame, flag):
        function, value = frame.stack.pop(), frame.stack.pop()
        if flag == 8:  # the closure of a function cannot be set; it comes before all other attributes
            function = frame.world.register_function(FunctionType(function.__code__, function.__globals__, None, None, value))
        elif flag == 4:
            function.__annotations__ = dict(zip(value[::2], value[1::2], strict=True))
        elif flag == 2:
            function.__kwdefaults__ = value
        else:
            function.__defaults__ = value
        frame.stack.append(function)

    def END_FOR(frame, arg):
        frame.stack.pop()

    EXIT_INIT_CHECK = ENTER_EXECUTOR = Opcodes.NOP
