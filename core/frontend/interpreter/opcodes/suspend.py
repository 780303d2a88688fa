"""Opcodes of generators, coroutines and what they await."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType

from dovetail.frontend.interpreter.drivers import Wrapped, driven
from dovetail.frontend.interpreter.engine import NOTHING, awaited, reraise
from dovetail.frontend.interpreter.frame import YIELD

_ITERABLE_COROUTINE = 0x100


class Suspend:
    NOT_AWAITABLE = "object {} can't be used in 'await' expression"

    def RETURN_GENERATOR(frame, arg):
        return YIELD  # `start` creates the generator; its first step sends None

    def YIELD_VALUE(frame, arg):
        frame.result = frame.stack.pop()
        return YIELD

    def SEND(frame, target):
        value = frame.stack.pop()
        try:
            frame.stack.append(frame.world.send(frame.stack[-1], value, frame))
            return None
        except StopIteration as e:
            result = e.value
        return frame.world.opcodes.sent(frame, result, target)

    def GET_YIELD_FROM_ITER(frame, arg):
        source = frame.stack[-1]
        if type(source) is CoroutineType:
            if not frame.decoded.flags & (0x80 | _ITERABLE_COROUTINE):
                raise TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator")
        elif type(source) is not GeneratorType:
            frame.stack[-1] = frame.world.iter(source)

    def GET_AWAITABLE(frame, where):
        value = frame.stack[-1]
        iterator = awaitable(frame, value)
        if iterator is None:
            method = {1: "__aenter__", 2: "__aexit__"}.get(where)
            name = type(value).__name__
            if method:
                raise TypeError(f"'async with' received an object from {method} that does not implement __await__: {name}")
            raise TypeError(frame.world.opcodes.NOT_AWAITABLE.format(name))
        if type(iterator) is CoroutineType:
            inner = driven(iterator)
            if inner is not None and awaited(inner) is not NOTHING:
                raise RuntimeError("coroutine is being awaited already")
        frame.stack[-1] = iterator

    def GET_AITER(frame, arg):
        value = frame.stack[-1]
        start = frame.world.special(value, "__aiter__")
        if start is None:
            raise TypeError(f"'async for' requires an object with __aiter__ method, got {type(value).__name__}")
        iterator = frame.world.call(start, [], {}, frame)
        if not hasattr(type(iterator), "__anext__"):
            raise TypeError(f"'async for' received an object from __aiter__ that does not implement __anext__: {type(iterator).__name__}")
        frame.stack[-1] = iterator

    def GET_ANEXT(frame, arg):
        iterator = frame.stack[-1]
        step = frame.world.special(iterator, "__anext__")
        if step is None:
            raise TypeError(f"'async for' requires an iterator with __anext__ method, got {type(iterator).__name__}")
        value = frame.world.call(step, [], {}, frame)
        if type(iterator) is AsyncGeneratorType:
            frame.stack.append(value)
            return
        try:
            iterable, why = awaitable(frame, value), None
        except Exception as e:
            iterable, why = None, e
        if iterable is None:
            raise TypeError(f"'async for' received an invalid object from __anext__: {type(value).__name__}") from why
        frame.stack.append(iterable)

    def END_ASYNC_FOR(frame, arg):
        error, _ = frame.stack.pop(), frame.stack.pop()
        if not isinstance(error, StopAsyncIteration):
            frame.reraised = True
            reraise(error)

    def ASYNC_GEN_WRAP(frame, arg):
        frame.stack[-1] = Wrapped(frame.stack[-1])


def awaitable(frame, value):
    """Return the iterator that awaiting `value` drives; None when it cannot be awaited."""
    if is_coroutine(value):
        return value
    start = frame.world.special(value, "__await__")
    if start is None:
        return None
    iterator = frame.world.call(start, [], {}, frame)
    if is_coroutine(iterator):
        raise TypeError("__await__() returned a coroutine")
    if not hasattr(type(iterator), "__next__"):
        raise TypeError(f"__await__() returned non-iterator of type '{type(iterator).__name__}'")
    return iterator


def is_coroutine(value):
    """Return whether `value` is a coroutine, or a generator that `types.coroutine` has marked as one."""
    return type(value) is CoroutineType or (type(value) is GeneratorType and bool(value.gi_code.co_flags & _ITERABLE_COROUTINE))
