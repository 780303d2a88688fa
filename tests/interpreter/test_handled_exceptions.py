"""What a compiled function sees of the exception that is handled: its own, or that of the caller, which differs from call to call."""

from __future__ import annotations

import collections
import contextlib
import sys

import pytest
import torch

import dovetail

X = torch.ones(1)


def reads_it(x):
    return x + (sys.exception() is None)


def reads_the_three(x):
    return x * 2 if sys.exc_info()[0] is KeyError else x


def raises_it_again(x):
    try:
        raise
    except RuntimeError as error:
        return x + len(str(error))
    except KeyError:
        return x * 3


def stacks(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(ZeroDivisionError))
        x = x + 1
        1 / 0  # noqa: B018
    return x * 2


def handles_its_own(x):
    try:
        {}["a"]
    except KeyError:
        name = type(sys.exception()).__name__ + sys.exc_info()[0].__name__
    return x + len(name)


@pytest.mark.parametrize("fn", [reads_it, reads_the_three, raises_it_again, stacks, handles_its_own], ids=lambda fn: fn.__name__)
def test_the_exception_that_a_caller_handles_may_change_from_call_to_call(fn):
    compiled = dovetail.jit(fn)
    for kind in (None, KeyError, None, KeyError, RuntimeError):
        try:
            if kind is not None:
                raise kind("handled by the caller")
        except (KeyError, RuntimeError):
            assert compiled(X).tolist() == fn(X).tolist()
        else:
            assert compiled(X).tolist() == fn(X).tolist()


def test_what_the_program_handles_costs_no_guard():
    compiled = dovetail.jit(handles_its_own)
    compiled(X)
    try:
        raise KeyError
    except KeyError:
        compiled(X)
    assert compiled.cache_info().misses == 1


class Unequal:
    def __eq__(self, other):
        return False

    def __repr__(self):
        return "unequal"


MESSAGES = {  # errors of methods in C, whose words count items or write them out
    "a pair of an iterator": lambda x: {}.update(iter([(1, 2), (3, 4, 5)])),
    "no pair of a generator": lambda x: {}.update(pair for pair in [(1, 2), (2, 3), 5]),
    "pairs of a new dict": lambda x: dict(iter([(1, 2), "abc"])),
    "pairs of a defaultdict": lambda x: collections.defaultdict(int).update(zip([1, 2], [2, 3], [3, 4])),
    "pairs of an ordered dict": lambda x: collections.OrderedDict().update(iter([(1, 2), (3,)])),
    "no item of a list": lambda x: [1].remove(5),
    "no item of a deque": lambda x: collections.deque([1]).remove(5),
    "no object": lambda x: [Unequal()].index(Unequal()),
    "no size": lambda x: collections.deque([x.shape[0]]).index(x.shape[0] + 1),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_errors_of_containers_have_the_words_of_python(name):
    fn = MESSAGES[name]
    compiled = dovetail.jit(fn)
    for length in (3, 4):
        with pytest.raises((ValueError, TypeError)) as want:
            fn(torch.ones(length))
        with pytest.raises((ValueError, TypeError)) as got:
            compiled(torch.ones(length))
        assert isinstance(got.value, type(want.value))
        assert str(got.value).startswith(str(want.value))
