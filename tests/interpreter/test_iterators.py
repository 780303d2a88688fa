"""Iterators from outside: those with methods in Python are advanced as in eager mode; those in C, with a place that no guard sees, are refused."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
import random
from collections import OrderedDict, deque

import pytest
import torch

import dovetail
from dovetail.errors import Unsupported


class Counter:
    """An iterator that keeps its place in an attribute."""

    def __init__(self, n):
        self.n, self.at = n, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.n:
            raise StopIteration
        self.at += 1
        return self.at


class Batches:
    """An iterator over tensors that starts again with each loop."""

    def __init__(self, n):
        self.n, self.at, self.data = n, 0, [torch.full((2,), float(i)) for i in range(6)]

    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        if self.at == self.n:
            raise StopIteration
        self.at += 1
        return self.data[self.at - 1]


class Held:
    """An iterator that holds an iterator in C, created as the loop begins."""

    def __init__(self, n):
        self.items = list(range(1, n + 1))

    def __iter__(self):
        self.inner = iter(self.items)
        return self

    def __next__(self):
        return next(self.inner)


def two_of(items):
    out = []
    for item in items:
        out.append(item)
        if len(out) == 2:
            break
    return out


WHOLE = {
    "for": lambda items: [item * 2 for item in items],
    "list": list,
    "unpacked": lambda items: (lambda first, *rest: (first, rest))(*items),
    "map": lambda items: list(map(operator.neg, items)),
    "enumerate": lambda items: list(enumerate(items)),
    "zip": lambda items: list(zip(items, range(9), strict=False)),
    "chain": lambda items: list(itertools.chain(items, [1])),
    "reduce": lambda items: functools.reduce(operator.add, items, 0),
    "sum": sum,
    "deque": lambda items: list(deque(items, maxlen=2)),
}
IN_PART = {
    "next": lambda items: next(iter(items)),
    "two": two_of,
    "islice": lambda items: list(itertools.islice(items, 1)),
    "zip": lambda items: [item for item, _ in zip(items, range(1), strict=False)],
    "next and for": lambda items: (next(iter(items)), [item / 2 for item in items]),
}
CASES = [(WHOLE, kind) for kind in (Counter, Batches, Held)] + [(IN_PART, kind) for kind in (Counter, Batches)]


@pytest.mark.parametrize(("program", "create"), [(program, kind) for programs, kind in CASES for program in programs.values()])
def test_an_iterator_with_methods_in_python_is_advanced_as_in_eager_mode(program, create):
    compiled = dovetail.jit(program)
    for n in (3, 5, 3, 2):
        ours, eager = create(n), create(n)
        for _ in range(2):  # the second time some begin again and some have ended
            outcomes = []
            for run, items in ((compiled, ours), (program, eager)):
                try:
                    outcomes.append(run(items))
                except (StopIteration, TypeError) as error:  # next() of one that has ended, unpacked into a name
                    outcomes.append(type(error).__name__)
            if isinstance(outcomes[1], str):
                assert outcomes[0] == outcomes[1]
            else:
                torch.testing.assert_close(*outcomes)
            assert getattr(ours, "at", 0) == getattr(eager, "at", 0)


IN_C = {
    "list": iter,
    "zip": zip,
    "generator": lambda items: (item for item in items),
    "islice": lambda items: itertools.islice(items, 5),
    "count": lambda items: itertools.count(len(items)),
    "map": lambda items: map(float, items),
}
ADVANCING = {
    **{"for": lambda items: [item * 2 for item in items], "next": next, "in": lambda items: 2 in items, "star": lambda items: [*items]},
    **{
        "yield from": lambda items: list(passed_on(items)),
        "iter": lambda items: next(iter(items)),
        "unpack": lambda items: (lambda a, *b: a)(*items),
    },
    **{"islice": lambda items: list(itertools.islice(items, 2)), "pairwise": lambda items: next(itertools.pairwise(items))},
    **{"chain": lambda items: next(itertools.chain([], items)), "takewhile": lambda items: list(itertools.takewhile(lambda item: False, items))},
    **{"zip_longest": lambda items: next(itertools.zip_longest([1], items)), "tee": lambda items: next(itertools.tee(items)[0])},
    **{"cycle": lambda items: next(itertools.cycle(items)), "product": lambda items: next(itertools.product([1], items))},
    **{"combinations": lambda items: next(itertools.combinations(items, 2)), "compress": lambda items: next(itertools.compress([1, 2], items))},
    **{"zip": lambda items: next(zip([1], items)), "enumerate": lambda items: next(enumerate(items)), "map": lambda items: next(map(str, items))},
    **{"deque": lambda items: deque(items, 1), "extend": lambda items: [].extend(items), "fromkeys": dict.fromkeys, "set": set, "sorted": sorted},
    **{"ordered fromkeys": OrderedDict.fromkeys, "reduce": lambda items: functools.reduce(operator.add, items), "fsum": math.fsum},
    **{"sum": sum, "any": any, "max": max, "join": lambda items: "".join(items), "update": lambda items: set().update(items)},
    **{"countOf": lambda items: operator.countOf(items, 1), "nlargest": lambda items: heapq.nlargest(1, items), "list": list},
}


def passed_on(items):
    yield from items


@pytest.mark.parametrize("advance", ADVANCING.values(), ids=ADVANCING)
@pytest.mark.parametrize("create", IN_C.values(), ids=IN_C)
def test_an_iterator_in_c_from_outside_is_refused_and_stays_where_it_is(create, advance):
    items = create([1, 2, 3])
    with pytest.raises(Unsupported, match="that was created outside of it"):
        dovetail.jit(lambda x, items: (advance(items), x)[1])(torch.ones(2), items)
    assert next(items) == next(create([1, 2, 3]))


def test_an_iterator_that_has_ended_or_never_changes_may_leave_the_program():
    def program(x):
        ended, letters, numbers = iter([x]), iter("abc"), iter(range(4))
        list(ended), next(letters), next(numbers)
        return ended, letters, numbers, iter(b"")

    compiled = dovetail.jit(program)
    for _ in range(2):
        result = compiled(torch.ones(2))
        assert [list(items) for items in result] == [[], ["b", "c"], [1, 2, 3], []]


def test_an_iterator_that_is_left_in_the_middle_of_a_list_is_refused():
    with pytest.raises(Unsupported, match="a list_iterator leaves the program"):
        dovetail.jit(two_of)(Held(3))


class One:
    """An iterable that is an argument which C code stores."""

    def __init__(self, value):
        self.value = value

    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    "program",
    [
        lambda x: list(itertools.zip_longest([x], (), [x, x * 3], fillvalue=x * 2)),
        lambda x: list(itertools.zip_longest([1, 2], (), fillvalue=One(x * 3)))[1][1].value,
        lambda x: functools.reduce(operator.add, [1, 2], x),
        lambda x: list(itertools.islice(itertools.count(x.sum(), x.sum()), 3)),
        lambda x: next(itertools.count(start=x.sum(), step=2)),
        lambda x: math.prod([2, 3], start=x),
        lambda x: list(itertools.accumulate([1, 2], initial=x)),
        lambda x: (max([], default=x), min((), default=One(x)).value, next(iter(()), x), sum([1, 2], x)),
        lambda x: list(itertools.compress(data=x, selectors=[1, 0, 1])),
        lambda x: list(enumerate(iterable=x, start=1)),
    ],
)
def test_arguments_that_c_code_stores_are_not_iterated(program):
    x = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(dovetail.jit(program)(x), program(x))


def test_items_of_a_set_of_constants_have_the_order_of_eager_mode():
    r = random.Random(0)
    for _ in range(30):
        items = ", ".join(repr(f"item {r.randrange(1 << 30)}") for _ in range(12))
        fn = eval(f"lambda x: (x + 1, list({{{items}}}))")
        assert dovetail.jit(fn)(torch.ones(2))[1] == fn(torch.ones(2))[1]
