"""What tracing refuses reaches the caller: no handler, `finally` or context manager of the program turns it into another result."""

from __future__ import annotations

import abc
import array
import contextvars
import ctypes
import datetime
import gc
import io
import itertools
import math
import mmap
import operator
import pickle
import queue
import random
import sqlite3
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress

import numpy
import pytest
import torch

import dovetail
from dovetail.errors import TracedValueError, Unsupported


def branch(x):
    return x * 2 if x.sum() > 0 else x * 3


def by_except(x):
    try:
        return branch(x)
    except Exception:
        return x * 100


def by_its_own_type(x):
    try:
        return branch(x)
    except TypeError:
        return x * 100


def by_everything(x):
    try:
        return branch(x)
    except:  # noqa: E722
        return x * 100


def by_finally(x):
    try:
        branch(x)
    finally:
        return x * 100  # noqa: B012


def by_suppress(x):
    with suppress(Exception):
        return branch(x)
    return x * 100


@contextmanager
def quiet():
    try:
        yield
    except Exception as error:
        str(error)


def by_a_generator(x):
    with quiet():
        return branch(x)
    return x * 100


class Quiet:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def by_exit(x):
    with Quiet():
        return branch(x)
    return x * 100


def by_delegation(x):
    def inner():
        try:
            yield branch(x)
        except Exception:
            yield x * 100

    def outer():
        yield from inner()

    return next(outer())


def by_a_callback(x):
    try:
        return sorted([1, 2], key=lambda _: branch(x))[0] * x
    except Exception:
        return x * 100


PROGRAMS = [by_except, by_its_own_type, by_everything, by_finally, by_suppress, by_a_generator, by_exit, by_delegation, by_a_callback]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_no_handler_sees_a_refusal(program):
    with pytest.raises(TracedValueError, match="the value of t"):
        dovetail.jit(program, decisions="error")(torch.ones(3))


def test_no_handler_sees_what_is_unsupported():
    def program(x):
        try:
            return contextvars.copy_context().run(x.sin)
        except NotImplementedError:
            return x * 100

    with pytest.raises(Unsupported, match="copies all context variables"):
        dovetail.jit(program)(torch.ones(3))


def test_a_handler_sees_the_errors_of_the_program():
    def program(x, y):
        try:
            return x @ y
        except RuntimeError:
            return x.sum() + y.sum()

    x, y = torch.ones(2, 3), torch.ones(2, 3)

    torch.testing.assert_close(dovetail.jit(program)(x, y), program(x, y))


def test_a_refusal_leaves_torch_and_the_function_usable():
    compiled = dovetail.jit(lambda x, flag: by_except(x) if flag else x + 1, decisions="error")

    with pytest.raises(TracedValueError):
        compiled(torch.ones(3), True)

    torch.testing.assert_close(compiled(torch.ones(3), False), torch.full((3,), 2.0))
    assert torch.is_grad_enabled()


CHANGING = {  # objects of classes in C that change unseen: how one is created, and what the program reads of it
    "queue": (queue.SimpleQueue, lambda held: held.qsize()),
    "lock": (threading.Lock, lambda held: held.locked()),
    "buffer": (lambda: mmap.mmap(-1, 8), lambda held: held[0]),
    "array of C": (lambda: (ctypes.c_int * 2)(1, 2), lambda held: held[1]),
    "iterator": (lambda: iter([1, 2]), lambda held: operator.length_hint(held)),
    "counter": (itertools.count, lambda held: len(repr(held))),
    "generator": (lambda: (i for i in (1, 2)), lambda held: held.send(None)),
    "pickle": (lambda: Held(), lambda held: len(pickle.dumps(held))),
    "database": (lambda: sqlite3.connect(":memory:"), lambda held: held.total_changes + len(held.execute("select 1").fetchall())),
    "text": (lambda: io.StringIO("1"), lambda held: len(held.getvalue())),
}


class Held:
    """An object with an attribute that pickle reads."""

    n = 1


@pytest.mark.parametrize("name", CHANGING)
def test_c_code_gets_no_object_from_outside_that_may_change(name):
    create, read = CHANGING[name]
    held = create()
    with pytest.raises(Unsupported, match="outside"):
        dovetail.jit(lambda x: x * read(held))(torch.ones(2))
    with pytest.raises(Unsupported, match="outside"):
        dovetail.jit(lambda x, held: x * read(held))(torch.ones(2), held)


def test_a_generator_that_a_refused_run_has_begun_ends_without_a_sound():
    def numbers():
        try:
            yield 1
        finally:
            ended.append(1)

    def f(x):
        kept = numbers()
        return branch(x * next(kept))

    ended: list[int] = []
    with pytest.raises(TracedValueError) as caught:
        dovetail.jit(f, decisions="error")(torch.ones(2))
    del caught
    gc.collect()


def test_a_write_to_an_outside_array_is_refused_and_undone():
    held = array.array("i", [1])
    with pytest.raises(Unsupported, match="writes to the array"):
        dovetail.jit(lambda x: (held.append(7), x * len(held))[1])(torch.ones(2))
    assert held.tolist() == [1]


def test_a_class_with_hooks_is_not_created_inside():
    class Base:
        def __init_subclass__(cls):
            cls.scale = SCALE

    def f(x):
        class Made(Base):
            pass

        return x * Made.scale

    with pytest.raises(Unsupported, match="__init_subclass__ is in Python"):
        dovetail.jit(f)(torch.ones(2))


SCALE = 2.0


def test_a_nan_as_key_is_refused():
    key = float("nan")
    with pytest.raises(Unsupported, match="is no key of a dict"):
        dovetail.jit(lambda x, table, key: x * table[key])(torch.ones(2), {key: 2.0}, key)


def test_hooks_on_saved_tensors_run_in_eager_mode():
    packed = []

    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            return x.sin()

    dovetail.jit(f)(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(packed) == 1


def test_slices_of_one_array_that_overlap_later_are_seen():
    def f(x, y):
        x.add_(1)
        return x * y

    compiled, held = dovetail.jit(f), numpy.arange(6.0)
    compiled(torch.from_numpy(held[:3]), torch.from_numpy(held[3:]))
    with pytest.raises(Unsupported, match="shares memory"):
        compiled(torch.from_numpy(held[:3]), torch.from_numpy(held[2:5]))


def seeds(x):
    torch.manual_seed(3)
    raise ValueError("stop")


def switches(x):
    torch.set_grad_enabled(False)
    raise ValueError("stop")


def draws(x):
    random.random()
    raise ValueError("stop")


def differentiates(x):
    (x * 2).sum().backward()
    raise ValueError("stop")


@pytest.mark.parametrize("program", [seeds, switches, draws, differentiates], ids=lambda program: program.__name__)
def test_what_happens_before_an_exception_has_happened(program):
    states = []
    for function in (program, dovetail.jit(program)):
        torch.manual_seed(0)
        random.seed(0)
        x = torch.ones(2, requires_grad=True)
        with torch.enable_grad():
            with pytest.raises(ValueError, match="stop"):
                function(x)
            states.append((torch.rand(1).item(), random.random(), torch.is_grad_enabled(), x.grad is None))
    assert states[0] == states[1]


class Round:
    """A class that a program registers."""


Shape = abc.ABCMeta("Shape", (), {})


def test_registering_a_class_is_refused_unless_it_was_created_inside():
    def outside(x):
        Shape.register(Round)
        return x

    def inside(x):
        class Square:
            pass

        Shape.register(Square)
        return x + isinstance(Square(), Shape)

    with pytest.raises(Unsupported, match=r"Shape.register\(Round\) would happen while tracing"):
        dovetail.jit(outside)(torch.ones(1))
    assert not issubclass(Round, Shape)
    assert dovetail.jit(inside)(torch.ones(1)).item() == 2


class Counted(OrderedDict):
    """A mapping with a constructor in Python."""

    def __init__(self, *args):
        super().__init__(*args)


class Day(datetime.date):
    """A date with a constructor in Python."""

    def __new__(cls, *args):
        return super().__new__(cls, *args)


CREATING = {
    "copy": lambda: Counted().copy(),
    "__or__": lambda: Counted() | {},
    "fromkeys": lambda: Counted.fromkeys("ab"),
    "__add__": lambda: Day(2020, 1, 1) + datetime.timedelta(1),
    "fromordinal": lambda: Day.fromordinal(700_000),
}


@pytest.mark.parametrize("name", CREATING)
def test_c_code_that_calls_a_constructor_in_python_is_refused(name):
    with pytest.raises(Unsupported, match=rf"{name}\(\) of \w+ is C code that calls"):
        dovetail.jit(lambda x: x + len(str(CREATING[name]())))(torch.ones(1))


class Each(map):
    pass


class Named(str):
    def __hash__(self):
        return 1


UNSEEN = {
    "functions of an iterator": ("derives from an iterator in C", lambda x: x + sum(Each(abs, [1, 2]))),
    "the hash of a name": ("hashes or compares in its own way", lambda x: x + getattr(math, Named("pi"), 0)),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_c_code_that_would_call_methods_unseen_is_refused(name):
    message, program = UNSEEN[name]

    with pytest.raises(Unsupported, match=message):
        dovetail.jit(program)(torch.zeros(1))


def test_a_class_of_torchs_c_code_is_not_called_with_a_traced_tensor():
    """It takes what it gets for a tensor with memory, without a check: the process would crash when it ends."""
    with pytest.raises(Unsupported, match="_WeakTensorRef is C code"):
        dovetail.jit(lambda x: torch._C._WeakTensorRef(x + 1).expired())(torch.ones(2))
