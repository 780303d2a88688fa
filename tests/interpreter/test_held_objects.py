"""Objects of classes in C write out and compare what they hold by methods that the interpreter does not see: eager's result, or a refusal."""

from __future__ import annotations

import collections
import contextvars
import functools
import operator
import re
import types

import pytest
import torch

import dovetail
from dovetail.errors import DovetailError


class Part:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Part({self.n})"

    def __eq__(self, other):
        return isinstance(other, Part) and self.n == other.n

    def __hash__(self):
        return 1

    def method(self):
        return self.n


class Sub(functools.partial):
    pass


HOLDERS = {
    "partial": lambda p: functools.partial(max, p),
    "partial with a keyword": lambda p: functools.partial(max, key=p),
    "subclass of partial": lambda p: Sub(max, p),
    "method": lambda p: p.method,
    "slice": lambda p: slice(p, None),
    "staticmethod": lambda p: staticmethod(p),
    "itemgetter": lambda p: operator.itemgetter(p),
    "methodcaller": lambda p: operator.methodcaller("a", p),
    "keys": lambda p: {p: 1}.keys(),
    "values": lambda p: {1: p}.values(),
    "items": lambda p: {1: p}.items(),
    "mapping proxy": lambda p: types.MappingProxyType({1: p}),
    "namespace": lambda p: types.SimpleNamespace(a=p),
    "alias": lambda p: types.GenericAlias(list, (p,)),
    "context variable": lambda p: contextvars.ContextVar("c", default=p),
    "exception": lambda p: ValueError(p, 1),
    "exception with a file": lambda p: OSError(1, "text", p),
    "group of exceptions": lambda p: ExceptionGroup("text", [ValueError(p)]),
    "set": lambda p: {p},
    "frozen set": lambda p: frozenset([p]),
    "chain of mappings": lambda p: collections.ChainMap({1: p}),
    "list": lambda p: [functools.partial(max, p)],
    "deque": lambda p: collections.deque([slice(p, 1)]),
}
OPERATIONS = {
    "repr": lambda value, other: repr(value),
    "percent": lambda value, other: "%s" % (value,),  # noqa: UP031
    "map": lambda value, other: list(map(repr, [[value]])),
    "equal": lambda value, other: [value] == [other],
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_change_of_what_it_holds_is_seen_or_refused(holder, operation):
    make, apply = HOLDERS[holder], OPERATIONS[operation]
    for inside in (False, True):
        part = Part(3)
        value, other = make(part), make(Part(3))

        def fn(x):
            return x, apply(make(part) if inside else value, other)  # noqa: B023

        compiled, x = dovetail.jit(fn), torch.ones(1)
        for n in (3, 5):
            part.n = n
            try:
                got = compiled(x)[1]
            except DovetailError:
                break
            assert re.sub("0x[0-9a-f]+", "", str(got)) == re.sub("0x[0-9a-f]+", "", str(fn(x)[1]))


def test_the_refusal_says_what_to_write_out_instead():
    value = operator.itemgetter(Part(1))
    with pytest.raises(DovetailError, match=r"a itemgetter that holds a Part, .* write out or compare what the itemgetter holds"):
        dovetail.jit(lambda: str(value))()


def test_what_holds_no_code_of_the_program_is_written_out():
    values = [functools.partial(max, 1), slice(1, "a"), ValueError("text", 2), {1, 2}, types.MappingProxyType({1: [2]}), {1: 2}.items()]
    assert dovetail.jit(lambda: str(values))() == str(values)
