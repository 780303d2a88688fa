"""Tensors as keys of dicts and sets from outside: looked up by identity, those of each call, and none that the program creates."""

from __future__ import annotations

import operator
import re
from collections import defaultdict

import pytest
import torch

import dovetail

USES = {
    "get": lambda x, d, s: d.get(x),
    "get of a created one": lambda x, d, s: d.get(x * 1, 7),
    "in": lambda x, d, s: (x in d, x in s),
    "a created one in": lambda x, d, s: (x * 1 in d, x * 1 in s),
    "a missing key": lambda x, d, s: d[x * 1],
    "in a tuple": lambda x, d, s: ((x, 1) in d, d.get((x, 1)), (x * 1, 1) in d),
    "store": lambda x, d, s: (d.__setitem__(x, 5), d[x], len(d)),
    "store a created one": lambda x, d, s: (d.__setitem__(x * 1, 5), len(d)),
    "store in a tuple": lambda x, d, s: (d.__setitem__((x, 2), 5), (x, 2) in d, len(d)),
    "setdefault": lambda x, d, s: (d.setdefault(x * 1, 5), d.setdefault(x, 6), len(d)),
    "pop": lambda x, d, s: (d.pop(x * 1, 5), d.pop(x, 6), len(d)),
    "update": lambda x, d, s: (d.update({x * 1: 2, x: 3}), d[x], len(d)),
    "add": lambda x, d, s: (s.add(x), s.add(x * 1), x in s, len(s)),
    "discard": lambda x, d, s: (s.discard(x), s.discard(x * 1), x in s, len(s)),
    "update by keyword and pairs": lambda x, d, s: (d.update([(x, 3), ((x, 2), 4)], z=1), d[x], d[x, 2], len(d)),
    "update of a set": lambda x, d, s: (s.update({x}, [x * 1]), x in s, len(s)),
    "join": lambda x, d, s: (d.__ior__({x: 3}) is d, d[x], len(d)),
    "join of sets": lambda x, d, s: (s.__ior__({x, x * 1}) is s, x in s, len(s)),
    "difference": lambda x, d, s: (s.__isub__({x}) is s, x in s, len(s)),
    "intersection": lambda x, d, s: (s.__iand__({x, x * 1}) is s, x in s, len(s)),
    "symmetric difference": lambda x, d, s: (s.symmetric_difference_update({x}), x in s, len(s)),
    "new sets": lambda x, d, s: (len(s | {x}), len({x} | s), len(s & {x}), len({x} - s), len(s ^ {x}), x in s | {x * 1}),
    "new dict": lambda x, d, s: (len({**d, x: 5}), {**d, x: 5}[x], (d | {x: 5})[x], len({x: 1} | d), dict(d) == d),
    "equal": lambda x, d, s: (s == {x}, {x} == s, s == {x * 1}, s <= {x}, {x} <= s, s.isdisjoint({x}), d == {x: "a"}),
    "write and compare": lambda x, d, s: (s.add(x), s == {x}, {x} < s, len(s | {x}), d.update({x: 1}), len({**d, x: 5})),
    "keys of a view": lambda x, d, s: (operator.contains(d.keys(), x), operator.contains(d.keys(), x * 1), len({*d.keys(), x})),
    "clear": lambda x, d, s: (d.clear(), d.setdefault(x, 2), s.clear(), s.add(x), x in s),
    "delete": lambda x, d, s: (d.__delitem__(x), x in d, len(d)),
    "remove": lambda x, d, s: (s.remove(x), x in s, len(s)),
    "keys": lambda x, d, s: sum(key.sum() for key in d if torch.is_tensor(key)),
    "items": lambda x, d, s: [(key * 2, item) for key, item in d.items() if torch.is_tensor(key)],
    "items of a set": lambda x, d, s: sum([key.sum() for key in s]),
    "list": lambda x, d, s: any(key is x for key in list(d)),
    "write what is a key": lambda x, d, s: [key.add_(1) for key in d if torch.is_tensor(key)][:1],
}


def calls(f):
    """Yield what each of some calls returns and leaves behind."""
    first, second = torch.ones(3), torch.arange(3.0)
    d, s = {first: "a", (second, 1): "b"}, {first}
    for i, x in enumerate((first, second, torch.zeros(3), first, first, second)):
        if i == 4:
            d[second] = "c"
            s.add(second)
        try:
            result = f(x, d, s)
        except KeyError as error:
            result = type(error)
        yield result, [first, second], len(d), len(s), [d.get(first), d.get(second)], [first in s, second in s]


@pytest.mark.parametrize("executors", [["torch"], None])
@pytest.mark.parametrize("use", USES)
def test_a_key_is_found_as_in_eager_mode(use, executors):
    compiled = dovetail.jit(USES[use], executors=executors)
    for expected, seen in zip(calls(USES[use]), calls(compiled), strict=True):
        assert repr(seen) == repr(expected)


class Lists(dict):
    """A dict that keeps a new list for each missing key."""

    def __missing__(self, key):
        kept = self[key] = []
        return kept


STATES = {"a default factory": lambda: defaultdict(list), "__missing__": Lists}
KEEPING = {
    "one after the other": lambda tensors, state: [state[p].append(2) for p in tensors],
    "and read": lambda tensors, state: [(len(state[p]), state[p].append(2), len(state[p]), p in state, len(state.get(p))) for p in tensors],
    "in tuples": lambda tensors, state: [(state[p, 1].append(1), (p, 1) in state, len(state)) for p in tensors],
    "some again": lambda tensors, state: [(state[p].append(1), state.pop(p), state[p].append(2)) for p in (*tensors, *tensors)],
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("keep", KEEPING)
def test_what_is_kept_under_missing_keys_stays_there(keep, state):
    """As an optimizer's state of its parameters."""

    def program(x):
        first = KEEPING[keep](tensors, kept)
        return first, [[len(each) for each in (kept[p], kept[p, 1])] for p in tensors], len(kept), x.sum()

    seen = []
    for f in (program, dovetail.jit(program)):
        tensors, kept = [torch.nn.Parameter(torch.ones(2) * i) for i in range(3)], STATES[state]()
        seen.append([repr((f(torch.ones(2)), [len(each) for each in kept.values()])) for _ in range(3)])
    assert seen[0] == seen[1]


class Named:
    """An object that is its own key, and holds a tensor."""

    def __init__(self, t):
        self.t = t

    def __repr__(self):
        return f"Named({self.t})"


RETURNED = {
    "created": lambda x: {x * 2: 1},
    "created, and its item": lambda x: (lambda y: {y: y})(x * 2),
    "a view": lambda x: {x[0]: x, x[1]: 2},
    "in a tuple": lambda x: {(x * 2, (x, 1)): 1},
    "in an object": lambda x: {Named(x * 2): 1},
    "inside a list": lambda x: [{x * 2: "a"}, {x * 2}, x],
    "an argument": lambda x: {x: 1},
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("key", RETURNED)
def test_a_returned_dict_has_tensors_as_keys(key, grad):
    compiled = dovetail.jit(RETURNED[key], executors=["torch"])
    for value in (1.0, 2.0):
        x = torch.full((2,), value, requires_grad=grad)
        assert re.sub("grad_fn=<.*?>", "", repr(compiled(x))) == re.sub("grad_fn=<.*?>", "", repr(RETURNED[key](x)))
