"""Opcodes that call and make functions."""

from __future__ import annotations

from types import FunctionType

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.opcodes.build import is_iterable


class Call:
    def KW_NAMES(frame, names):
        frame.keyword_names = names

    def CALL(frame, n):
        args, names = frame.pop(n), frame.keyword_names
        first, function = frame.stack.pop(), frame.stack.pop()
        if function is NULL:
            function = first
        else:
            args.insert(0, first)
        if names:
            frame.keyword_names, kwargs = (), split_keywords(args, names)
        else:
            kwargs = {}
        frame.stack.append(frame.world.call(function, args, kwargs, frame))

    def CALL_FUNCTION_EX(frame, flags):
        kwargs = frame.stack.pop() if flags & 1 else {}
        args, function = frame.stack.pop(), frame.stack.pop()
        frame.stack[-1] = call_spread(frame, function, args, kwargs)  # in place of the NULL

    def DICT_MERGE(frame, n):
        value, into = frame.stack.pop(), frame.stack[-n]
        if frame.world.optional(value, "keys") is None:
            name = described(frame.stack[-frame.world.opcodes.CALLEE])
            raise TypeError(f"{name} argument after ** must be a mapping, not {type(value).__name__}")
        for key, item in frame.world.pairs(value):
            if key in into:
                name = described(frame.stack[-frame.world.opcodes.CALLEE])
                raise TypeError(f"{name} got multiple values for keyword argument '{key}'")
            into[key] = item

    def MAKE_FUNCTION(frame, flags):
        code = frame.stack.pop()
        closure = frame.stack.pop() if flags & 8 else None
        annotations = frame.stack.pop() if flags & 4 else None
        kwdefaults = frame.stack.pop() if flags & 2 else None
        defaults = frame.stack.pop() if flags & 1 else None
        function = FunctionType(code, frame.globals, None, defaults, closure)
        function.__kwdefaults__ = kwdefaults
        if annotations is not None:
            function.__annotations__ = dict(zip(annotations[::2], annotations[1::2], strict=True))
        frame.stack.append(frame.world.register_function(function))

    def LOAD_BUILD_CLASS(frame, arg):
        try:
            frame.stack.append(frame.builtins["__build_class__"])
            return
        except KeyError:
            pass
        raise NameError("__build_class__ not found")


def split_keywords(args, names):
    """Return the last arguments by these names, taken off `args`."""
    cut = len(args) - len(names)
    kwargs = dict(zip(names, args[cut:], strict=True))
    del args[cut:]
    return kwargs


def call_spread(frame, function, args, kwargs):
    """Return function(*args, **kwargs)."""
    if type(args) is tuple:
        args = frame.world.tuple_items(args)
    elif is_iterable(args):
        args = frame.world.spread(args)
    else:
        raise TypeError(f"{described(function)} argument after * must be an iterable, not {type(args).__name__}")
    for key in kwargs:
        if not isinstance(key, str):
            raise TypeError("keywords must be strings")
    return frame.world.call(function, list(args), dict(kwargs), frame)


def described(function):
    """Return a callable as CPython names it in the errors of a call."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        return str(function)
    module = getattr(function, "__module__", None)
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"
