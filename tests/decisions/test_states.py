"""Programs in which two paths reach one line in states that look alike: what they do next is as in eager mode."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import sys
import warnings
from dataclasses import dataclass

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of
from decisions.random_programs import flat

COUNTS = {"calls": 0}


def methods_of_classes(x):
    n, m = int(x[0] * 3 + 4), int(x[1] * 2 + 4)
    return dict.fromkeys(range(n)), int.from_bytes(bytes(range(m)), "big"), list(map(float.fromhex, ["0x1"] * m))


def one_list_or_two(x):
    a = [x]
    b = a if x[0] > 0 else list(a)
    if x[1] > 0:
        b.append(x * 2)
    return a, b


def one_cell_or_two(x):
    n = 0

    def count():
        nonlocal n
        n += 1
        return n

    other = count if x[0] > 0 else (lambda: 10)
    if x[1] > 0:
        other()
    return x * count(), n


def other_closures(x):
    make = lambda k: lambda: k  # noqa: E731
    f = make(1) if x[0] > 0 else make(2)
    y = x * 2 if x[1] > 0 else x
    return y * f()


def default_list(x):
    def keep(value, kept=[]):  # noqa: B006
        kept.append(value)
        return kept

    keep(1)
    if x[0] > 0:
        keep(2)
    if x[1] > 0:
        keep(3)
    return x * len(keep(4))


def outside_list(x, seen):
    seen.append(1)
    if x[0] > 0:
        seen.append(2)
    if x[1] > 0:
        seen.pop()
    return x + len(seen), seen[-1]


def outside_dict(x, table):
    for key in list(table):
        if x[0] > table[key]:
            table[key] = x.sum() * 0 + table[key]
    if x[1] > 0:
        table["new"] = x
    return len(table), sum(map(len, table))


def global_write(x):
    global COUNTS
    before = COUNTS
    if x[0] > 0:
        COUNTS = {"calls": 1}
    y = x * 2 if x[1] > 0 else x
    result = y * (1 + COUNTS["calls"])
    COUNTS = before
    return result


def loops_in_loops(x):
    total = x * 0
    for i, row in enumerate([x, x + 1, x - 1]):
        for j in range(3):
            if row[j] > 1:
                continue
            if row[j] < -1:
                break
            total = total + row * j
        else:
            total = total + 100
        if total.max() > 150:
            return total, i
    return total, -1


def paired(x):
    y = x * 0
    for a, (name, scale) in zip(x, {"p": 2, "q": 3, "r": 4}.items()):
        y = y + (a * scale if a > 0 else len(name))
    return y


def handled(x):
    y = x
    for i in range(3):
        try:
            if x[i] > 0:
                raise ValueError(i)
            y = y + 1
        except ValueError as error:
            y = y * (2 if x[0] > 1 else error.args[0] + 3)
        finally:
            y = y - 0.5
    return y


@dataclass
class Pair:
    first: object
    second: object


class Slotted:
    __slots__ = ("value",)


Point = collections.namedtuple("Point", "a b")


def containers(x):
    slotted = Slotted()
    slotted.value = x * 2 if x[0] > 0 else x * 3
    pair = Pair(slotted.value, collections.deque([1]))
    if x[1] > 0:
        pair.second.append(2)
        pair = Pair(pair.second, pair.first)
    point = Point(pair, {1, 2} if x[2] > 0 else {3})
    if x.sum() > 0:
        point = point._replace(b=point.b | {5})
    return slotted.value, len(point.b), sorted(point.b), type(point.a.first) is collections.deque


def comparing(x):
    return x * 2 if [x[0], x[1]] == [x[1], x[2]] else x


def filtered(xs):
    kept = [row for row in xs if row > 0]
    return sum(kept) + (any(row > 1 for row in xs)) + 10 * all(row > 0 for row in xs)


def recursive(x, depth=0):
    if depth == 3 or x.sum() > 4:
        return x + depth
    return recursive(x * 2, depth + 1) if x[0] > 0 else recursive(x + 1, depth + 1)


class Wrapped:
    def __init__(self, x):
        self.x = x

    def __bool__(self):
        return bool(self.x.sum() > 0)

    @property
    def scaled(self):
        return self.x * 2 if self.x[0] > 0 else self.x


def wrapped(x):
    w = Wrapped(x)
    return w.scaled if w else w.scaled - 1


def matched(x):
    match (x[:2] > 0).sum().item():
        case 0:
            return x
        case 1:
            return x * 2
        case other:
            return x * other * 10


def managed(x):
    @contextlib.contextmanager
    def shifted(value):
        yield value + 1 if value[0] > 0 else value - 1

    with shifted(x) as y:
        if y[1] > 0:
            y = y * 3
    return y


def modes(x):
    torch.set_grad_enabled(False)
    y = x * 2 if x[0] > 0 else x
    torch.set_grad_enabled(True)
    z = y * 3 if x[1] > 0 else y
    return z


def walrus(x):
    n = 0
    while (y := x * (n + 1)).sum() < 5 and n < 4:
        n += 1
    return y, n


def views(x):
    y = x * 1
    part = y[1:] if x[0] > 0 else y[:2]
    part.add_(1)
    z = part if x[1] > 0 else part.clone()
    z.mul_(2)
    return y, part, z


def swapped(x):
    a, b = x + 1, x + 2
    if x[0] > 0:
        a, b = b, a
    if x[1] > 0:
        a = b
    a.add_(1)
    return a, b


def counted(x):
    total = x.sum().item()
    if total > 2:
        return x, total * 2
    return x * total, -total


PROGRAMS = [
    *(one_list_or_two, one_cell_or_two, other_closures, default_list, global_write, loops_in_loops, paired, handled, containers, comparing),
    *(filtered, recursive, wrapped, matched, managed, modes, walrus, views, swapped, counted),
]
INPUTS = [torch.tensor(signs) * scale for scale in (1.0, 2.0) for signs in itertools.product([1.0, -1.0], repeat=3)]


def methods_of_lists(x):
    a, b = [x], [x]
    chosen = a if x[0] > 0 else b
    chosen.append(1 if x[1] > 0 else 2)
    a.extend([len(b), (x * 9).long()[0].item()])
    a.append(x[a[-1] % 2].item() > 0)
    return a, b


@pytest.mark.parametrize("program", PROGRAMS)
def test_states_that_look_alike(program):
    fn = compiled(program)
    for x in (*INPUTS[:8:3], *INPUTS[::2], INPUTS[1], INPUTS[9]):
        agrees(fn, program, x)


def test_methods_of_lists_that_wait_for_their_arguments():
    fn = compiled(methods_of_lists)
    warnings.filterwarnings("error", ".*runs? eagerly")
    for x in (*INPUTS[:8:3], *INPUTS[::2], INPUTS[1]):
        agrees(fn, methods_of_lists, x)


def test_methods_of_classes_that_wait_for_their_arguments():
    fn = compiled(methods_of_classes)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*runs? eagerly")
        for values in ([1.0, 1.0], [1.0, 2.0], [0.0, 2.0], [2.0, 1.0], [2.0, 2.0], [0.0, 2.0]):
            assert fn(torch.tensor(values)) == methods_of_classes(torch.tensor(values))


@pytest.mark.parametrize("program", [outside_list, outside_dict])
def test_what_is_outside_changes_once(program):
    fn = compiled(program)
    for x in (*INPUTS[:8:3], *INPUTS[::2], INPUTS[1]):
        agrees(fn, program, x, [7, 8] if program is outside_list else {"a": 0.5, "b": -3.0})


@pytest.mark.parametrize("program", [swapped, views, handled, loops_in_loops, recursive])
def test_gradients_of_states_that_look_alike(program):
    fn = compiled(program)
    for x in (*INPUTS[:8:2], *INPUTS[:8:2]):
        grads = []
        for call in (program, fn):
            leaf = x.clone().requires_grad_()
            warnings.filterwarnings("error", ".*report it as a bug")
            parts = [part for part in flat(call(leaf)) if isinstance(part, torch.Tensor) and part.requires_grad]
            sum((part * (i + 1)).sum() for i, part in enumerate(parts)).backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(grads[1], grads[0])


def steps_of_objects(x):
    class Scale:
        """A class that the program creates anew in each run."""

        factor = 2

        def __init__(self, start):
            self.value = start

        def apply(self, y):
            return y * (self.value * self.factor)

    scale = Scale(3)
    states = {id(scale): 1, id(x): 2}
    y = scale.apply(x)
    if y.sum() > 0:
        y = y + states[id(scale)]
    if y[0] > 1:
        y = y - states[id(x)]
    return y


def test_classes_and_identities_of_objects_that_each_run_creates_anew():
    fn = compiled(steps_of_objects)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for values in ([1.0, 1], [-1.0, 1], [1.0, -3], [-1.0, -1], [0.0, 1], [1.0, 1]):
            agrees(fn, steps_of_objects, torch.tensor(values))
    graph = graph_of(fn)
    assert graph.eager_calls == 0 and len(graph.decisions) <= 3 and all(decision.key is not None for decision in graph.decisions)


def test_generators_that_a_run_leaves_behind_are_closed_in_silence(monkeypatch):
    def program(x):
        @contextlib.contextmanager
        def scope(log):
            try:
                yield
            finally:
                log.append("out")

        log = []
        with scope(log):
            if x.sum() > 0:
                with scope(log):
                    x = x + 1
        return x, log

    ignored, fn = [], compiled(program)
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    for value in (1.0, -1.0, 2.0):
        x = torch.full((2,), value)
        assert fn(x)[1] == program(x)[1]
    gc.collect()
    assert not ignored


def test_an_iterator_with_a_place_for_one_that_has_ended_is_alive_at_a_decision():
    def program(x, y):
        parts = []
        for a, b, c in itertools.zip_longest([x, y, x + y], (x,), y.unbind(), fillvalue=y * 2):
            parts.append(a * b + c if (a * b).sum() > 0 else a - b)
        return sum(part.sum() for part in parts)

    fn = compiled(program)
    for seed in range(6):
        torch.manual_seed(seed)
        agrees(fn, program, torch.randn(2), torch.randn(2))


class Counted:
    """Counts in `n`, which is its length, too."""

    def __init__(self):
        self.n, self.w = 1, 0.5

    def __len__(self):
        return self.n

    def __index__(self):
        return self.n


FIXES = {  # ways to need the value of a number from outside, which is read again behind the next decision
    "length": lambda o: len(o),
    "truth": lambda o: bool(o),
    "index": lambda o: list(range(9))[o],
    "item": lambda o: list(range(99))[o.n],
    "key": lambda o: {o.n: 1}[o.n],
    "range": lambda o: list(range(o.n)),
    "text": lambda o: len(f"{o.n}"),
    "name": lambda o: getattr(o, f"n{o.n}", 0),
    "shape": lambda o: torch.zeros(o.n).shape[0],
    "sequence": lambda o: len([0] * o.n),
    "float as a key": lambda o: {o.w: 1}[o.w],
    "computed": lambda o: len("a" * (o.n * 2 + 1)),
}


@pytest.mark.parametrize("name", FIXES)
def test_a_number_whose_value_was_needed_is_read_again_behind_a_decision(name):
    def program(x, o):
        FIXES[name](o)
        if x.sum() > 0:
            o.n += 1
            o.w *= 2
        return o.n, o.w, x * o.n

    eager, traced, fn = Counted(), Counted(), compiled(program)
    for value in (3.0, 2.0, -3.0, 3.0, -1.0, 2.0, 1.0):
        x = torch.full((2,), value)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*outcomes; calls with others run eagerly")
            torch.testing.assert_close(fn(x, traced), program(x, eager))


def test_lists_of_parameters_grow_on_a_condition():
    def program(x, items):
        for item in items:
            x = x * item
        if x.sum() > 0:
            items.append(torch.nn.Parameter(torch.ones(1)))
        else:
            items[-1] = torch.nn.Parameter(-torch.ones(1))
        return len(items), x

    eager, traced, fn = torch.nn.ParameterList([torch.ones(1)]), torch.nn.ParameterList([torch.ones(1)]), compiled(program)
    for value in (3.0, 2.0, -3.0, 3.0, -1.0, -2.0, 3.0):
        x = torch.full((2,), value)
        torch.testing.assert_close(fn(x, traced), program(x, eager))


class Kind:
    """Has no subclasses, which the program asks for at each call."""


def scaled_by_kinds(x):
    kinds = Kind.__subclasses__()
    for _ in range(3):
        if x.sum() > 0:
            x = x * (1 + len(kinds)) - 1
    return x


def test_what_a_run_asks_the_world_outside_is_the_same_question_in_the_next():
    fn = compiled(scaled_by_kinds)
    for value in (3.0, 0.5, -1.0, 1.5):
        agrees(fn, scaled_by_kinds, torch.full((2,), value))
    assert graph_of(fn).eager_calls == 0
