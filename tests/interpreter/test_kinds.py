"""Kinds of programs that were stale or refused: ints that C code reads, results of derived classes, draws that Python branches on, and others."""

from __future__ import annotations

import collections
import copy
import datetime
import functools
import operator
import random

import numpy
import pytest
import torch
from agreement import same

import dovetail
from dovetail.errors import TracedValueError

X = torch.arange(6.0)

READ_BY_C = {
    "slice": (lambda n: slice(0, 2 + n), lambda x, s: (x[s], s.stop)),
    "partial": (lambda n: functools.partial(max, 2 + 50 * n), lambda x, p: (len(repr(p)), p(1))),
    "exception": (lambda n: ValueError(2 + 50 * n), lambda x, e: str(e)),
    "timedelta": (lambda n: datetime.timedelta(2 + n), lambda x, d: (d.days, d.total_seconds())),
}


@pytest.mark.parametrize("name", READ_BY_C)
def test_ints_that_c_code_reads_are_guarded_where_ints_become_symbols(name):
    make, program = READ_BY_C[name]
    compiled = dovetail.jit(program)
    for n in range(3):
        same(compiled(X, make(n)), program(X, make(n)))


class Odd(tuple):
    def __new__(cls, *items):
        return super().__new__(cls, items)

    def __iter__(self):
        return iter([7])


class Grown(list):
    def __iter__(self):
        return (item + 1 for item in super().__iter__())

    def append(self, item):
        super().append(item + 1)


class Doubled(collections.deque):
    def append(self, item):
        super().append(item * 2)


def derived(x):
    grown, doubled = Grown([1]), Doubled(maxlen=2)
    grown.append(5)
    for item in range(3):
        doubled.append(item)
    return Odd(1, 2), grown, doubled


def moved(x):
    result = collections.OrderedDict(a=1, b=2)
    result.move_to_end("a")
    return copy.copy(result), result, copy.deepcopy(result)


def with_factory(x):
    items = []
    result = collections.defaultdict(lambda: items)
    result["a"].append(len(items))
    return result


@pytest.mark.parametrize("program", [derived, moved, with_factory])
def test_results_hold_what_they_hold_whatever_their_methods_do(program):
    for got, want in zip(dovetail.jit(program)(X), program(X), strict=True):
        assert type(got) is type(want)
        assert repr(got) == repr(want)


GENERATOR = numpy.random.default_rng(0)
NET = torch.nn.ModuleList([torch.nn.Linear(6, 6) for _ in range(2)])


def dropped(x):
    for layer in NET:
        if random.random() < 0.4:
            continue
        x = layer(x)
    return x


def mixed(x):
    if random.random() < 0.5:
        x = x + random.uniform(1, 2)
    x = x * random.choice([1.0, 2.0]) + numpy.random.rand()
    return x - random.random() if numpy.random.rand() < 0.5 else x


def shuffled(x):
    items = [1.0, 2.0]
    random.shuffle(items)
    return x * items[0] + random.sample([3.0, 4.0], 1)[0] + random.choices([5.0, 6.0], k=1)[0]


def raises(x):
    if random.choice([True, False]):
        raise ValueError("stop")
    return x * random.random()


def arrays(x):
    """Mask spans of a row, as speech models do in training."""
    offset = numpy.random.rand(1).item()
    count = int(1.5 + offset)
    starts = numpy.random.choice(numpy.arange(5), count, replace=False)
    starts = numpy.concatenate([starts, numpy.ones(2 - count, dtype=numpy.int32) * starts[0]])
    starts = (numpy.broadcast_to(starts[:, None], (2, count)) + numpy.broadcast_to(numpy.arange(count), (2, count))).reshape(-1)
    mask = numpy.zeros((1, 6), dtype=bool)
    numpy.put_along_axis(mask, starts[None], 1, -1)
    noise = numpy.random.normal(size=(2, 6))
    noise[0] += 1
    weight = numpy.random.beta(0.4, 0.4)
    return weight * x.masked_fill(torch.tensor(mask[0]), 0.0) + torch.from_numpy(noise), numpy.random.permutation(3)


@pytest.mark.parametrize("program", [dropped, mixed, shuffled, raises, arrays])
def test_draws_that_python_branches_on_are_drawn_at_every_call(program):
    compiled = dovetail.jit(program)

    def run(function, seed):
        random.seed(seed), numpy.random.seed(seed)
        try:
            result = function(X)
        except ValueError as error:
            result = str(error)
        return result, random.random(), float(numpy.random.rand())

    for seed in range(5):
        same(run(compiled, seed), run(program, seed))


def test_a_generator_of_the_caller_is_drawn_from():
    def program(x, generator):
        return x + 1 if generator.random() < 0.5 else x - 1

    compiled = dovetail.jit(program)
    for seed in range(3):
        same(compiled(X, numpy.random.default_rng(seed)), program(X, numpy.random.default_rng(seed)))


def test_a_choice_without_decisions_is_refused():
    with pytest.raises(TracedValueError, match=r"random.choice\(\) draws is needed"):
        dovetail.jit(lambda x: x * random.choice([1.0, 2.0]), decisions="error")(X)


INTEGERS = {
    "k": lambda x, n: torch.topk(x, n).values,
    "shift": lambda x, n: torch.roll(x, n),
    "shifts": lambda x, n: torch.roll(x, (n,), (0,)),
    "size of a slice": lambda x, n: x.narrow(0, 0, n),
    "padding": lambda x, n: torch.nn.functional.pad(x, (n, 1)),
    "dimension": lambda x, n: x.reshape(1, 2, 3).sum(n - 1),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_a_tensor_stands_for_an_integer(name):
    compiled = dovetail.jit(INTEGERS[name])
    for n in (2, 3):
        same(compiled(X, torch.tensor(n)), INTEGERS[name](X, torch.tensor(n)))


@pytest.mark.parametrize("program", [lambda x: numpy.clip(x, 1, 3), lambda x: numpy.argmax(x), lambda x: numpy.reshape(x, (2, 3))])
def test_functions_of_numpy_get_tensors(program):
    same(dovetail.jit(program)(X), program(X))


def test_a_module_is_returned_with_its_result():
    def program(x):
        torch.manual_seed(0)
        module = torch.nn.Linear(6, 1)
        return module(x), module

    result, module = dovetail.jit(program)(X)
    result.sum().backward()
    torch.testing.assert_close(module.weight.grad, X[None])


def test_numbers_of_numpy_that_compare_oddly():
    compiled = dovetail.jit(operator.truediv)
    for number in (numpy.float64(0.0), numpy.float64(-0.0), numpy.float64("nan"), numpy.float64("nan")):
        torch.testing.assert_close(compiled(X, number), X / number, equal_nan=True)
    assert compiled.cache_info().programs == 3


NAMES = ["args", "kwargs", "tree", "state", "kept", "_", "torch", "prims", "dtypes", *[f"{letter}{i}" for letter in "tvn" for i in range(12)]]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_program_do_not_hide_those_that_guards_refer_to(name):
    chosen, other = type(name, (), {}), type("other", (), {})
    holder = [chosen]

    def program(x):
        return x + 1 if holder[0] is chosen else x - 1

    compiled = dovetail.jit(program)
    same(compiled(X), program(X))
    holder[0] = other
    same(compiled(X), program(X))


def test_attributes_of_exceptions_are_read_through_their_class():
    class Stop(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

    def program(x, n):
        try:
            raise Stop(n)
        except Stop as error:
            return x * error.value + error.args[0]

    compiled = dovetail.jit(program)
    for n in (2, 2, 5):
        same(compiled(X, n), program(X, n))


def identical(x):
    return x


def nested_partial(held):
    return functools.partial(identical, functools.partial(identical, held))


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "reduce": lambda value: value.__reduce__(),
    "call of a copy": lambda value: copy.copy(value)(),
    "is shared": lambda value: copy.copy(value).args[0] is value.args[0],
}


@pytest.mark.parametrize("make", [functools.partial(functools.partial, identical), nested_partial], ids=["partial", "nested"])
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_partials_hold_what_they_hold_now(make, name):
    def program(x, value):
        return x + 1, repr(COPIES[name](value))

    held = {"k": collections.OrderedDict(a=1)}
    value = make(held)
    compiled = dovetail.jit(program)
    same(compiled(X, value), program(X, value))
    held["k"]["b"] = 2
    same(compiled(X, value), program(X, value))


class Stateful:
    def __init__(self):
        self.items = [1]


@pytest.mark.parametrize("name", ["__getstate__", "__dir__", "__reduce__"])
def test_methods_in_c_that_read_an_object_are_called_again(name):
    def program(x, value):
        content = getattr(value, name)()
        return x * len([n for n in content if not str(n).startswith("_")]) + len(repr(content))

    value = ValueError([1]) if name == "__reduce__" else Stateful()
    compiled = dovetail.jit(program)
    same(compiled(X, value), program(X, value))
    (value.args[0] if name == "__reduce__" else value.items).append(300)
    value.more = 2
    same(compiled(X, value), program(X, value))


HOLDERS = {
    "partial": lambda held: functools.partial(identical, held),
    "nested partial": lambda held: functools.partial(identical, k=functools.partial(identical, held)),
    "exception": lambda held: ValueError(held),
    "exception with two": lambda held: KeyError(held, 1),
    "list": lambda held: [held],
    "deque": lambda held: collections.deque([held]),
    "values": lambda held: {"k": held}.values(),
    "items": lambda held: {"k": held}.items(),
    "group": lambda held: ExceptionGroup("g", [ValueError(held)]),
    "named tuple": lambda held: collections.namedtuple("Named", "k")(held),
    "slice": lambda held: slice(held),
    "namespace": lambda held: __import__("types").SimpleNamespace(k=held),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_holders_that_a_program_creates_are_written_out_with_what_they_hold_now(name):
    def program(x, held):
        holder = HOLDERS[name](held)
        return x, repr(holder), str(holder), f"{holder}", "%r" % (holder,)  # noqa: UP031

    held = {"k": [1]}
    compiled = dovetail.jit(program)
    same(compiled(X, held), program(X, held))
    held["k"].append(2)
    same(compiled(X, held), program(X, held))


@pytest.mark.parametrize("values", [[numpy.str_("a"), numpy.str_("ab")], [numpy.bytes_(b"a"), numpy.bytes_(b"abc")]], ids=["text", "bytes"])
def test_element_types_are_guarded_by_their_names(values):
    def program(x, value):
        return x, str(value.dtype)

    compiled = dovetail.jit(program)
    for value in (values[0], values[0], values[1]):
        same(compiled(X, value), program(X, value))


def test_callables_in_c_without_a_name():
    def program(x):
        return x, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))

    same(dovetail.jit(program)(X), program(X))


class Congruent:
    """A key that has the hash and the equality of its number modulo 3."""

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n % 3

    def __eq__(self, other):
        return isinstance(other, Congruent) and self.n % 3 == other.n % 3


@pytest.mark.parametrize("swallows", [False, True])
def test_hashes_of_outside_keys_are_computed_of_ints_that_are_symbols(swallows):
    keys = {Congruent(1): 1, Congruent(2): 5}

    def program(x, n):
        seen = []
        for i in range(3):
            try:
                seen.append((Congruent(n) in keys, keys.get(Congruent(n + i))))
            finally:
                if swallows:
                    continue  # noqa: B012
        return seen, x + 1

    compiled = dovetail.jit(program)
    for n in (5, 3, 4, 2):
        same(compiled(torch.ones(n), n), program(torch.ones(n), n))
