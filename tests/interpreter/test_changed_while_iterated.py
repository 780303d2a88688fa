"""Containers from outside, of plain and derived classes, that a program changes while it goes through them."""

from __future__ import annotations

import collections

import pytest
import torch

import dovetail


class Counting(list):
    def append(self, item):
        super().append(item)
        self.total = getattr(self, "total", 0) + 1


class Queue(collections.deque):
    pass


class Chosen(set):
    pass


class Table(dict):
    pass


def grow(x, s):
    total = 0
    for item in s:
        total += item
        if len(s) < 5:
            s.append(9)
    return total


def grow_on_a_condition(x, s):
    total = 0
    for item in s:
        total += item
        if x.sum() > 0:
            s.append(9)
        if len(s) > 5:
            break
    return total


def remove(x, s):
    for item in s:
        if item > 1:
            s.remove(item)
    return len(s), sorted(s)


def in_part(x, s):
    iterator = iter(s)
    next(iterator)
    s.append(5)
    return list(iterator), list(s), next(iter(s))


def again(x, s):
    s.append(3)
    before = list(s)
    s[0] = 7
    return before, list(s), s


def pop(x, s):
    for _ in s:
        if len(s) > 1:
            s.pop()
    return len(s)


def add(x, s):
    for item in s:
        if len(s) < 5:
            s.add(item + 10)
    return len(s)


def store(x, s):
    for key in s:
        if len(s) < 5:
            s[key + 10] = 1
    return len(s)


SEQUENCES = {
    "list": lambda: [1, 2, 3],
    "derived list": lambda: Counting([1, 2, 3]),
    "deque": lambda: collections.deque([1, 2, 3]),
    "derived deque": lambda: Queue([1, 2, 3]),
    "deque with a limit": lambda: Queue([1, 2, 3], maxlen=4),
}
SETS = {"set": lambda: {1, 2}, "derived set": lambda: Chosen({1, 2})}
DICTS = {
    "dict": lambda: {1: 2},
    "derived dict": lambda: Table({1: 2}),
    "ordered dict": lambda: collections.OrderedDict({1: 2}),
    "counter": lambda: collections.Counter([1]),
}
CASES = [
    *((kind, create, loop) for kind, create in SEQUENCES.items() for loop in (grow, grow_on_a_condition, remove, in_part, again, pop)),
    *((kind, create, add) for kind, create in SETS.items()),
    *((kind, create, store) for kind, create in DICTS.items()),
]


@pytest.mark.parametrize("kind, create, loop", CASES, ids=[f"{kind}-{loop.__name__}" for kind, _, loop in CASES])
def test_a_loop_sees_what_it_changes(kind, create, loop):
    eager, traced, compiled = create(), create(), dovetail.jit(loop, executors=["torch"])
    for value in (-1.0, 0.0, 1.0, 2.0):
        results = []
        for function, container in ((loop, eager), (compiled, traced)):
            try:
                results.append(function(torch.full((2,), value), container))
            except (RuntimeError, StopIteration) as error:
                results.append(type(error))
        assert repr(results[1]) == repr(results[0])
        assert repr(traced) == repr(eager) and vars_of(traced) == vars_of(eager)


def vars_of(x):
    """Return the attributes of an object, if it has any."""
    return getattr(x, "__dict__", None)
