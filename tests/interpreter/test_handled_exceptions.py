"""What a compiled function sees of the exception that is handled: its own, or that of the caller, which differs from call to call."""

from __future__ import annotations

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
