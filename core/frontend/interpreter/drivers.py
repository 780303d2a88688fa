"""Generators, coroutines and async generators: native ones that run an interpreted frame, so that native code can iterate and await them."""

from __future__ import annotations

import inspect
import types
from collections.abc import AsyncGenerator, Generator
from typing import Any

from dovetail.frontend.interpreter.engine import resume, run
from dovetail.frontend.interpreter.frame import RETURN, Frame


class Wrapped:
    """A value that an async generator yields to its consumer, as opposed to one that it passes on to the event loop."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def generator(frame: Frame) -> Generator:
    """Return a native generator around an interpreted frame: it can be iterated, sent to, thrown into and closed by native code."""
    value = None
    while True:
        if resume(frame, value) == RETURN:
            return frame.result
        value = None
        try:
            value = yield _yielded(frame)
        except BaseException as e:
            if frame.world.is_over:
                raise
            frame.thrown = e


def _yielded(frame: Frame) -> Any:
    result, frame.result = frame.result, None
    return result


def _flagged(flag: int) -> types.FunctionType:
    """Return `generator` as a function that creates another kind of object."""
    flags = generator.__code__.co_flags & ~annotations.compiler_flag
    if flag != inspect.CO_ITERABLE_COROUTINE:
        flags &= ~inspect.CO_GENERATOR
    return types.FunctionType(generator.__code__.replace(co_flags=flags | flag), globals())


coroutine = _flagged(inspect.CO_COROUTINE)  # a coroutine that passes what the frame yields straight to the event loop
iterable_coroutine = _flagged(inspect.CO_ITERABLE_COROUTINE)


@types.coroutine
def _passed_on(value: Any) -> Generator:
    return (yield value)


async def async_generator(frame: Frame) -> AsyncGenerator:
    """Return a native async generator around an interpreted frame."""
    value = None
    while True:
        if resume(frame, value) == RETURN:
            return
        value = None
        out = _yielded(frame)
        try:
            if type(out) is Wrapped:
                value = yield out.value
            else:
                value = await _passed_on(out)
        except BaseException as e:
            if frame.world.is_over:
                raise
            frame.thrown = e


_DRIVERS = (
    (inspect.CO_ITERABLE_COROUTINE, iterable_coroutine),
    (inspect.CO_COROUTINE, coroutine),
    (inspect.CO_ASYNC_GENERATOR, async_generator),
    (inspect.CO_GENERATOR, generator),
)
_SUSPENDS = inspect.CO_ITERABLE_COROUTINE | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR


def start(frame: Frame) -> Any:
    """Run a fresh frame; return its result, or the generator, coroutine or async generator that its flags demand."""
    run(frame)  # a generator's to its first instruction: RETURN_GENERATOR suspends it
    flags = frame.decoded.flags
    if not flags & _SUSPENDS:
        return frame.result
    driver = next(driver for flag, driver in _DRIVERS if flags & flag)
    result = driver(frame)
    named = frame.function
    result.__name__, result.__qualname__ = (named.__name__, named.__qualname__) if named else (frame.code.co_name, frame.code.co_qualname)
    return result


def driven(value: Any) -> Frame | None:
    """Return the interpreted frame behind a generator, coroutine or async generator; None where there is none, or it has ended."""
    for name in ("gi_frame", "cr_frame", "ag_frame"):
        real = getattr(value, name, None)
        if real is not None and real.f_code in DRIVER_CODES:
            return real.f_locals.get("frame")
    return None


DRIVER_CODES = frozenset(driver.__code__ for _, driver in _DRIVERS)
