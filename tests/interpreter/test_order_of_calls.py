"""C code that calls code of the program does so in eager mode's order, and that code sees what C code has done so far.

A program extends a container by an iterator that looks at it, as `y.extend(layer(y[-1]) for layer in layers)` does.  Others go through an
iterator, and call a function or a method of its items in between.  Each logs what happens, and the logs are compared.
"""

from __future__ import annotations

import array
from collections import ChainMap, Counter, OrderedDict, UserList, defaultdict, deque

import pytest
import torch

import dovetail
from dovetail.errors import Unsupported


class Items(list):
    pass


class Table(dict):
    pass


class Group(set):
    pass


class Logged:
    """A number that logs which of its methods are called."""

    def __init__(self, n, log):
        self.n, self.log = n, log

    def _called(self, name, result):
        self.log.append((name, self.n))
        return result

    def __repr__(self):
        return f"Logged({self.n})"

    def __str__(self):
        return self._called("str", f"<{self.n}>")

    def __eq__(self, other):
        return self._called("eq", self.n == getattr(other, "n", other))

    def __lt__(self, other):
        return self._called("lt", self.n < getattr(other, "n", other))

    def __gt__(self, other):
        return self._called("gt", self.n > getattr(other, "n", other))

    def __add__(self, other):
        return self._called("add", Logged(self.n + getattr(other, "n", other), self.log))

    def __radd__(self, other):
        return self._called("radd", Logged(self.n + other, self.log))

    def __mul__(self, other):
        return self._called("mul", Logged(self.n * getattr(other, "n", other), self.log))

    __rmul__ = __mul__
    __hash__ = None

    def __bool__(self):
        return self._called("bool", self.n != 2)

    def __index__(self):
        return self._called("index", self.n)

    def __iter__(self):
        return self._called("iter", iter((self.n, self.n + 1)))


class Keyed:
    """A mapping that looks at a container whenever an item of it is read."""

    def __init__(self, look):
        self.look = look

    def keys(self):
        return iter("ab")

    def __getitem__(self, key):
        self.look(key)
        return key * 2


def pairs(items):
    return ((item, item * 2) for item in items)


BOXES = {
    "list": lambda: [9],
    "list subclass": lambda: Items([9]),
    "user list": lambda: UserList([9]),
    "deque": lambda: deque([9], 3),
    "array": lambda: array.array("i", [9]),
    "set": lambda: {9},
    "set subclass": lambda: Group({9}),
    "counter": lambda: Counter([9]),
    "dict": lambda: {9: 9},
    "dict subclass": lambda: Table({9: 9}),
    "ordered dict": lambda: OrderedDict({9: 9}),
    "default dict": lambda: defaultdict(int, {9: 9}),
    "chain map": lambda: ChainMap({9: 9}),
}
SEQUENCES, SETS = ("list", "list subclass", "user list", "deque", "array"), ("set", "set subclass")
DICTS = ("dict", "dict subclass", "ordered dict", "default dict")
ADDING = {  # what goes through `items`, by the kinds of containers that it is done to
    SEQUENCES: ("box.extend(items)", "box += items", "box.__iadd__(items)", "box = operator.iadd(box, items)", "box.extend(map(str, items))"),
    ("list", "list subclass", "user list", "array"): ("box[1:] = items", "box[:] = items"),
    ("list", "list subclass"): ("list.extend(box, items)", "box.extend(filter(None, items))", "list.__init__(box, items)"),
    ("list", "list subclass", "deque", *SETS): ("box.__init__(items)",),
    ("deque",): ("box.extendleft(items)",),
    SETS: (
        "box.update(items)",
        "box.update([1], items, (9,))",
        "box.difference_update(items)",
        "box.intersection_update(items)",
        "box.symmetric_difference_update(items)",
        "box = box.union(items)",
        "box = box.difference(items)",
        "box = box.issuperset(items)",
        "box = box.isdisjoint(items)",
    ),
    ("counter",): ("box.update(items)", "box.subtract(items)"),
    (*DICTS, "chain map"): ("box.update(pairs(items))", "box.update(pairs(items), z=3)", "box.update(Keyed(look))"),
    DICTS: ("box |= pairs(items)", "box.__ior__(pairs(items))"),
    ("dict", "dict subclass"): ("dict.__ior__(box, pairs(items))",),
    ("dict", "dict subclass", "ordered dict"): ("box.__init__(pairs(items))",),
    ("default dict",): ("box.__init__(int, pairs(items))",),
}
CONSUMING = (
    "list(items), tuple(items)",
    "sum(items)",
    "min(items)",
    "max(items)",
    "min(items, key=call)",
    "max(items, key=call, default=3)",
    "sorted(items)",
    "sorted(items, reverse=True)",
    "sorted(items, key=call)",
    "any(items), all(items)",
    "2 in items",
    "operator.countOf(items, 2)",
    "operator.indexOf(items, 2)",
    "list(map(call, items))",
    "list(map(call, items, items))",
    "list(filter(call, items))",
    "list(filter(None, items))",
    "list(itertools.filterfalse(call, items))",
    "list(zip(items, items)), next(items, None)",
    "list(zip(items, range(2))), next(items)",
    "list(itertools.zip_longest(items, range(6)))",
    "list(enumerate(items))",
    "functools.reduce(call, items)",
    "functools.reduce(operator.add, items)",
    "list(itertools.accumulate(items))",
    "list(itertools.accumulate(items, call))",
    "list(itertools.takewhile(call, items)), next(items)",
    "list(itertools.dropwhile(call, items))",
    "list(itertools.compress(items, items))",
    "list(itertools.islice(items, 1, 3)), next(items)",
    "list(itertools.chain(items, items))",
    "[list(group) for _, group in itertools.groupby(items, call)]",
    "list(itertools.pairwise(items))",
    "list(itertools.islice(itertools.cycle(items), 6))",
    "[list(each) for each in itertools.tee(items)]",
    "list(itertools.starmap(call, zip(items, items)))",
    "heapq.nsmallest(2, items)",
    "heapq.nlargest(2, items, key=call)",
    "list(heapq.merge(items, [2, 7]))",
    "deque(items, maxlen=2)",
    "call(*items)",
    "[*items, *items]",
    "array.array('i', items)",
    "bytes(items)",
    "math.prod(items)",
    "','.join(map(str, items))",
    "'{}{}'.format(*items)",
    "list(items).index(2)",
    "list(items).count(2)",
    "list(items) == list(items)",
    "[1, 2] < list(items)",
    "bisect.bisect(list(items), 2)",
    "max(*items)",
    "(lambda first, *rest: rest)(*items)",
)


def compare(source: str, box) -> None:
    """Run a program with what `box()` makes, compiled and eagerly, twice each: results, logs and what became of the container are the same."""
    names = globals().copy()
    exec(source, names)
    compiled, ours, eager = dovetail.jit(names["program"]), box(), box()
    for _ in range(2):
        expected = outcome(names["program"], eager)
        assert outcome(compiled, ours) == expected
        assert (type(ours), repr(ours)) == (type(eager), repr(eager))


def outcome(program, box):
    log = []
    try:
        result, log = program(torch.ones(2), box)
    except Unsupported:
        raise
    except Exception as error:  # an item that C code does not take
        result = type(error)
    return repr((result, log))


def program(source: str, *, created: bool = False, items: str = "i") -> str:
    return f"""
def program(x, box):
    log = []
    {"box = type(box)(box)" if created else ""}
    look = lambda item: log.append((item, repr(box)))
    def call(*values):
        log.append(("call", *map(repr, values)))
        return values[0]
    def generate():
        for i in range(4):
            look(i)
            yield {items}
    items = generate()
    {source}
    return (box, x * len(log)), log
"""


@pytest.mark.filterwarnings("ignore:.*is compiled for each value")
@pytest.mark.parametrize("created", [False, True], ids=["outside", "created"])
@pytest.mark.parametrize(("kind", "source"), [(kind, source) for kinds, sources in ADDING.items() for source in sources for kind in kinds])
def test_an_iterator_sees_the_items_that_a_container_has_got_from_it(kind, source, created):
    if kind == "array" and not created and source == "box.extend(items)":
        with pytest.raises(Unsupported, match="writes to the array"):
            compare(program(source), BOXES[kind])
        return
    compare(program(source, created=created), BOXES[kind])


@pytest.mark.parametrize("items", ["i", "Logged(i, log)"], ids=["numbers", "objects"])
@pytest.mark.parametrize("source", CONSUMING)
def test_c_code_and_the_program_take_turns(source, items):
    compare(program(f"box = {source}", items=items), list)


@pytest.mark.parametrize("source", ["box.extend(fail(items))", "box += fail(items)", "box.update(fail(pairs(items)))", "box.update(fail(items))"])
@pytest.mark.parametrize("created", [False, True], ids=["outside", "created"])
def test_what_was_added_before_an_error_stays(source, created):
    box = BOXES["list" if "update" not in source else "dict" if "pairs" in source else "set"]
    failing = f"""
    def fail(items):
        yield next(items)
        raise KeyError(0)
    try:
        {source}
    except KeyError:
        look("failed")"""
    compare(program(failing, created=created), box)


class Joined:
    """What joins anything from the right."""

    def __ror__(self, other):
        return ("joined", len(other))


@pytest.mark.parametrize("kind", ["list", "list subclass", "deque", "set", "set subclass", "dict", "dict subclass", "ordered dict", "default dict"])
@pytest.mark.parametrize(
    "source",
    [
        "box += [x.sum().item(), 1]",
        "box *= 2",
        "box |= {1: 2}",
        "box |= {1}",
        "box ^= {1}",
        "box &= {1, 9}",
        "box -= {9}",
        "box |= [(1, 2)]",
        "box |= Joined()",
        "box = operator.iadd(box, [1])",
        "box = operator.imul(box, 2)",
        "box = operator.ior(box, {1: 2})",
        "box = operator.iconcat(box, [1])",
        "operator.setitem(box, 0, 5)",
        "operator.delitem(box, 9)",
        "operator.delitem(box, 0)",
        "box.__init__([(1, 2)])",
        "box.__init__(a=1)",
    ],
)
def test_a_container_from_outside_is_changed_in_place_as_in_eager_mode(source, kind):
    compare(program(source), BOXES[kind])


@pytest.mark.parametrize(
    "source",
    [
        "box.sort(key=lambda item: look(item) or -item)",
        "box.sort(key=lambda item: box.append(item) or item)",
        "box.sort(key=fail)",
        "box = box.index(2, -2), box.index(1, 0, -1), box.index(Last(box))",
    ],
)
@pytest.mark.parametrize("created", [False, True], ids=["outside", "created"])
def test_methods_of_lists_show_what_they_do_with_them(source, created):
    prepared = f"""
    def fail(item):
        raise KeyError(item)
    try:
        {source}
    except (KeyError, ValueError) as error:
        look(type(error))"""
    compare(program(prepared, created=created), lambda: [3, 1, 2])


class Last:
    """What empties a list that it is looked up in."""

    def __init__(self, items):
        self.items = items

    def __eq__(self, other):
        self.items.clear()
        return False

    __hash__ = None


class Named(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Read:
    def keys(self):
        return ["a", "b"]

    def __getitem__(self, key):
        return key * 2


@pytest.mark.parametrize("items", [Read(), (("a", 1), ("b", 2)), {"a": 1}, iter], ids=("mapping", "pairs", "dict", "iterator"))
def test_keywords_of_a_dict_come_behind_its_items(items):
    def named(x):
        source = (pair for pair in (("a", 1), ("q", 2))) if items is iter else items
        return x, list(Named(source, q=3, a=4).items()), list(Named(q=1).items())

    assert dovetail.jit(named)(torch.ones(1))[1:] == named(torch.ones(1))[1:]
