"""Python that `jit` interprets: scenarios 3 and 4, and what other tracers of Python leave out."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import operator
import re
import types
from collections import namedtuple

import pytest
import torch
from agreement import X, agrees

import dovetail
from dovetail.errors import Unsupported
from dovetail.frontend.interpreter import World

SCALE = 2.0
Pair = namedtuple("Pair", "left right")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Callable:
    by = 2

    def __call__(self, x):
        return x * self.by


def scenario_3_generators(x):
    def some(n):
        for i in range(n):
            got = yield x * i
            assert got is None

    def all_of():
        yield from some(3)
        return

    return sum(all_of()) + torch.stack(list(some(2))).sum(0)


def scenario_3_match_and_walrus(x):
    match {"kind": "scaled", "by": [2, 3]}:
        case {"kind": "scaled", "by": [first, *rest]} if (n := len(rest)) == 1:
            return x * first + n
    return x


def scenario_3_try_and_with(x):
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append(f"in {name}")
        try:
            yield name
        finally:
            log.append("out")

    try:
        with noted("a") as name:
            raise KeyError(name)
    except KeyError as error:
        x = x + len(str(error))
    else:
        x = x * 100
    finally:
        x = x - 1
    return x * len(log), log


def scenario_3_classes_inside(x):
    class Base:
        by = 2

        def __init__(self, y):
            self.y = y

        def value(self):
            return self.y * self.by

    class Derived(Base):
        by = 3

        def value(self):
            return super().value() + 1

        @property
        def twice(self):
            return self.value() * 2

    return Derived(x).twice


def scenario_3_nonlocal_and_formatted_keys(x):
    n = 0

    def count():
        nonlocal n
        n += 1
        return n

    held = {f"{name}_{count()}": x * n for name in ("a", "b")}
    return held["a_1"] + held["b_2"], (lambda *a, k=SCALE, **kw: a[0] * k + kw["z"])(x, z=1)


class Root:
    @functools.lru_cache
    def __new__(cls, root):
        return super().__new__(cls)

    def __init__(self, root):
        self.root = root


def test_a_class_whose_new_is_behind_a_cache():
    agrees(lambda x: x * Root(3).root, X)


def test_a_cached_function_that_reads_a_file_is_read_at_each_call(tmp_path):
    file = tmp_path / "scale"

    @functools.lru_cache
    def scale(name):
        with open(file) as lines:
            return int(lines.read())

    def scaled(x):
        return x * scale("a")

    file.write_text("3")
    compiled = dovetail.jit(scaled)
    assert torch.equal(compiled(X), X * 3)
    file.write_text("4")
    assert torch.equal(compiled(X), X * 3)  # as in eager mode, where the cache answers
    scale.cache_clear()
    assert torch.equal(compiled(X), X * 4)


@functools.lru_cache
def cached(n):
    return n * 3


cached_sum = functools.lru_cache(functools.partial(operator.add, 2))  # which has no name


def scenario_4_builtins(x, *rest, factor, offset=1.0, **more):
    total = x * factor + offset + cached(2) + cached_sum(5)
    for i, (a, b) in enumerate(zip(rest, reversed(rest), strict=True)):
        total = total + a * i - b
    total = total + sum(map(torch.neg, more.values()))
    pair = Pair(left=total, right=sorted(more, key=lambda name: -len(name)))
    return pair, Colour.RED is Colour(1), {c.name: c.value for c in Colour}, functools.reduce(lambda a, b: a + b, rest)


PYTHON = [
    scenario_3_generators,
    scenario_3_match_and_walrus,
    scenario_3_try_and_with,
    scenario_3_classes_inside,
    scenario_3_nonlocal_and_formatted_keys,
]


@pytest.mark.parametrize("fn", PYTHON, ids=lambda fn: fn.__name__)
def test_scenario_3_python_runs(fn):
    agrees(fn, X)


def test_scenario_4_keyword_only_defaults_varargs_and_the_library():
    agrees(scenario_4_builtins, X, X + 1, X + 2, factor=2, a=X, bb=X * 2)
    agrees(functools.partial(scenario_4_builtins, factor=3), X, X + 1, offset=2.0)


# What other tracers of Python leave out.


def throws_into_a_generator(x):
    def takes():
        while True:
            try:
                yield x
            except ValueError as error:
                yield x * len(str(error))

    generator = takes()
    next(generator)
    return generator.throw(ValueError("four"))


def catches_a_group(x):
    try:
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
    except* ValueError as caught:
        x = x + len(caught.exceptions)
    except* KeyError:
        x = x * 3
    return x


def uses_collections(x):
    queue = collections.deque([x, x * 2], maxlen=3)
    queue.append(x * 3)
    queue.rotate(1)
    held = collections.defaultdict(list)
    for i, y in enumerate(itertools.chain(queue, [x])):
        held[i % 2].append(y)
    return [list(itertools.accumulate(ys)) for ys in held.values()], collections.Counter("abca")["a"]


def test_a_default_factory_of_an_outside_dict_fills_what_is_missing():
    def grouped(x, groups):
        groups["a"].append(1)
        groups["b"].append(2)
        groups["a"].append(3)
        return x + len(groups)

    compiled, groups = dovetail.jit(grouped), collections.defaultdict(list)
    for _ in range(2):
        compiled(torch.ones(1), groups)
    assert groups == {"a": [1, 3, 1, 3], "b": [2, 2]}


def uses_lists(x):
    ys = [x]
    ys.insert(0, x * 2)
    ys.extend(y + 1 for y in list(ys))
    ys *= 2
    ys.pop(1), ys.reverse()
    del ys[0]
    found = torch.stack(ys).sum(0)
    ys.clear()
    return found, len(ys)


def makes_a_class(x):
    made = type("Made", (Callable,), {"by": 7, "doubled": lambda self, y: self(y) * 2})
    point = dataclasses.make_dataclass("Point", ["x", ("y", int, 2)])(x)
    return made().doubled(x) + point.x * point.y


def a_context_with_state(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(contextlib.suppress(ZeroDivisionError))
        x = x * (1 if torch.is_grad_enabled() else 2)
        1 / 0  # noqa: B018
    return x


def sorts_and_reduces(x):
    rows = sorted([x[0], x[1]], key=lambda row: -row.ndim)
    return functools.reduce(torch.add, rows), max([1, 3, 2], key=lambda n: -n), x.max(0).values, x.min(0).indices


class Code(int):
    """An int with a name, as the constants of `re` are."""

    def __repr__(self):
        return "named"


CODES = [Code(3), Code(4)]


def compares_named_numbers(x):
    return x * (CODES[0] != CODES[1]) + (CODES[0] == 3) + len({CODES[0]: 1})


def compiles_patterns(x):
    return x * len(re.findall(r"[a-c\w.-]+(q|[^d-f])", "abq cdq")) + len(re.compile("a+|[^a]", re.IGNORECASE).split("bAAab"))


Four = collections.namedtuple("Four", "one two three four")


def finds_items_from_a_position(x):
    four, lists = Four(1, 2, 3, 2), [[1], [2], [3], [2]]
    return x * four.index(2, 2) + lists.index([2], 2) * 10 + lists.index([2], -9, 2) * 100 + tuple(lists).index([3], -2)


def reads_descriptors_and_sequences(x):
    count = torch.tensor(range(3)) + torch.as_tensor(collections.deque([4, 5, 6])) + torch.tensor(collections.UserList([1, 1, 1]))
    return x * torch.Tensor.shape.__get__(x)[0] + count.sum() + (torch.Tensor.dtype.__get__(x) is torch.float32)


OTHERS = [
    *(finds_items_from_a_position, reads_descriptors_and_sequences),
    *(throws_into_a_generator, catches_a_group, uses_collections, uses_lists, makes_a_class),
    *(a_context_with_state, sorts_and_reduces, compares_named_numbers, compiles_patterns),
]


@pytest.mark.parametrize("fn", OTHERS, ids=lambda fn: fn.__name__)
def test_all_that_is_python_runs(fn):
    agrees(fn, X)


def test_native_tracing_works_where_the_interpreter_does_not_know_the_bytecode(monkeypatch):
    monkeypatch.setattr(World, "opcodes", None)
    with pytest.raises(Unsupported, match=r"the bytecode interpreter supports Python 3\.11 to 3\.14"):
        dovetail.jit(lambda x: x * 2)(X)
    torch.testing.assert_close(dovetail.jit(lambda x: x * 2, interpretation="native")(X), X * 2)


class Both(tuple):
    def __new__(cls, left, right):
        return super().__new__(cls, (left, right))


@pytest.mark.parametrize("kind", [Pair, Both], ids=["named tuple", "tuple with a __new__"])
def test_arguments_of_a_tuple_class_are_no_items_to_go_through(kind):
    compiled = dovetail.jit(lambda x: kind(x * 2, x.sum()))
    result = compiled(X)
    assert type(result) is kind
    torch.testing.assert_close(tuple(result), (X * 2, X.sum()))
    assert {line.symbol.name for line in dovetail.last_traces(compiled)[0].lines} == {"mul", "sum"}  # no line for items of x * 2


def test_what_init_of_a_tuple_refuses_is_refused():
    class Refusing(tuple):
        def __init__(self, items):
            super().__init__(items)

    def fn(x):
        try:
            return x * len(Refusing((1, 2)))
        except TypeError as error:
            return x, str(error)

    assert dovetail.jit(fn)(X)[1] == fn(X)[1]


class Lengths:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __format__(self, spec):
        return self.length


def _raised(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "program",
    [
        lambda: [_raised(sum, ["a"], start) for start in ("", b"", bytearray())],
        lambda: [_raised(len, Lengths(n)) for n in (-1, 1 << 70, 3)],
        lambda: (_raised(format, Lengths(3), ""), _raised(lambda: f"{Lengths(3)}")),
        lambda: [(kind(items) is items) for kind, items in ((tuple, (1, 2)), (frozenset, frozenset({1})), (list, [1]))],
        lambda: [_raised(operator.setitem, items, 0, 1) for items in ((1, 2), {1}, frozenset({1}))],
    ],
)
def test_builtins_check_what_they_get_as_in_eager_mode(program):
    assert dovetail.jit(program)() == program()


def test_a_container_in_itself_is_written_out():
    def program():
        items, table = [1], {}
        items.append(items)
        table[0] = [table, items]
        return repr(items), str(table), f"{items}"

    assert dovetail.jit(program)() == program()


@pytest.mark.parametrize("change", ["setattr(box, 'b', x)", "del box.a", "vars(box)['c'] = x", "vars(box).update((k, len(vars(box))) for k in 'pq')"])
def test_the_attributes_of_an_object_are_counted_with_what_the_program_sets(change):
    names = {}
    exec(f"def program(box, x):\n    {change}\n    return len(vars(box)), bool(vars(box)), list(box.__dict__)", names)
    eager, ours = types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)
    assert dovetail.jit(names["program"])(ours, X) == names["program"](eager, X)
    assert list(vars(ours)) == list(vars(eager))


class Compared:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n if isinstance(other, Compared) else NotImplemented

    __hash__ = None


def test_an_object_that_declines_is_compared_with_none():
    one, two = Compared(1), Compared(2)

    def program(x):
        return x, one == None, one == None, one != None, None in (one, two), one in [None, two], [None].count(one), one == 3, one == two  # noqa: E711

    assert dovetail.jit(program)(X)[1:] == program(X)[1:]
