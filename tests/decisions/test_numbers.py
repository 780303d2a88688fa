"""Loops over ranges of traced numbers close; numbers are rounded, asked for NaN, and used as ranges without a state for each value."""

from __future__ import annotations

import array
import datetime
import decimal
import fractions
import math
import os
import random
import runpy
import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from decisions.helpers import agrees, compiled, graph_of

import dovetail


def positive(x):
    return (x > 0).sum().item()


def upwards(x):
    y = x
    for i in range(positive(x)):
        y = y * 0.9 + i
    return y


def downwards(x):
    n = positive(x)
    for i in range(n, 0, -1):
        x = x + i
        if x.sum() > 40:
            break
    else:
        x = x - 100
    return x, i, n


def nested(x):
    for i in range(int((x > 0).sum())):
        for j in range(i):
            x = x + 0.1 * j
    return x


def inputs(count):
    return [torch.cat([torch.full((n,), 0.5 + n), torch.full((9 - n,), -1.0)]) for n in range(1, count + 1)]


@pytest.mark.parametrize("program", [upwards, downwards, nested])
def test_a_loop_over_a_range_of_a_number_closes(program):
    fn = compiled(program)
    for x in inputs(9):
        agrees(fn, program, x)
    graph = graph_of(fn)
    assert len(graph.decisions) <= 5 and graph.eager_calls == 0 and fn.cache_info().misses <= 4


def indexed(x):
    y = x * 0
    for i in range(positive(x)):
        y = y + x[i]
    return y


def listed(x):
    kept = []
    for i in range(positive(x)):
        kept.append(x * i)
    return kept


@pytest.mark.parametrize("program", [indexed, listed, lambda x: list(range(positive(x)))])
def test_a_range_whose_loop_cannot_close_has_an_outcome_for_each_number(program):
    fn = compiled(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (*inputs(9)[::-2], *inputs(9)[::-2]):
            agrees(fn, program, x)
    (decision,) = graph_of(fn).decisions
    assert decision.what == "a number" and graph_of(fn).eager_calls <= 1


def test_gradients_through_a_range_of_a_number():
    fn = compiled(upwards)
    for x in inputs(5):
        a, b = (x.clone().requires_grad_() for _ in range(2))
        upwards(a).sum().backward()
        fn(b).sum().backward()
        torch.testing.assert_close(b.grad, a.grad)


def test_whether_a_number_is_finite_has_two_outcomes():
    def checked(x):
        loss = x.sum()
        if not math.isfinite(loss.item()):
            return torch.zeros(2)
        return x * (2 if math.isnan(loss.item()) else 3)

    fn = compiled(checked)
    for value in (1.0, 2.0, 3.0, math.inf, math.nan, 4.0):
        agrees(fn, checked, torch.full((2,), value))
    assert [len(each.edges) for each in graph_of(fn).decisions] == [2, 1] and graph_of(fn).eager_calls == 0


def test_numbers_are_rounded_by_the_program():
    def rounded(x):
        total = x.sum().item()
        return math.floor(total), math.ceil(total), round(total), math.trunc(total), int(x.sum()), int(total) + 1

    fn = compiled(rounded)
    for value in (0.4, -0.4, 2.5, 1.25, -3.75, 1e20):
        agrees(fn, rounded, torch.full((2,), value))
    assert (fn.cache_info().decisions, fn.cache_info().misses) == (0, 1)
    with pytest.raises(OverflowError):
        fn(torch.full((2,), math.inf))


def test_a_tensor_stands_for_a_number_that_an_operation_takes():
    ends = torch.tensor([0.5, 2.0])

    def drawn(x):
        crop = torch.empty(1).uniform_(ends[0], ends[1]).item()
        return x * crop, torch.empty(2).normal_(ends[0], ends[1]), torch.clamp(x, ends[0], ends[1])

    fn = compiled(drawn)
    for seed in range(4):
        x = torch.randn(3)
        torch.manual_seed(seed)
        ours = fn(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(ours, drawn(x))
    assert fn.cache_info() == (3, 1, 1) and graph_of(fn).eager_calls == 0


SEVERAL = {  # operations that take several integers, each of them a tensor
    "pad": lambda x, a, b: F.pad(x, [a, b, b, 1]),
    "pools": lambda x, a, b: F.adaptive_avg_pool2d(x, (a, b)),
    "interpolation": lambda x, a, b: F.interpolate(x, size=[a, b]),
    "evenly spaced": lambda x, a, b: torch.linspace(a, 9, b) + x.sum(),
    "range": lambda x, a, b: torch.arange(a, a + b, b - 1),
    "factory": lambda x, a, b: torch.zeros(a, b) + x.sum(),
    "windows": lambda x, a, b: x.unfold(2, a, b).contiguous(),
    "rolled": lambda x, a, b: x.roll((a, b), (2, 3)),
    "sizes of parts": lambda x, a, b: torch.split(x, [a, b, 8 - a - b], 2)[1].contiguous(),
}


@pytest.mark.parametrize("shape", [(), (1,)], ids=["no dimensions", "one dimension"])
@pytest.mark.parametrize("name", SEVERAL)
def test_an_operation_takes_several_integers_of_the_program(name, shape):
    def program(x, numbers):
        return SEVERAL[name](x, *numbers.reshape(2, *shape))

    if shape and name in ("evenly spaced", "range", "windows"):
        pytest.skip("takes no tensors with a dimension for numbers")
    fn, x = compiled(program), torch.rand(1, 1, 8, 8)
    for a, b in [(2, 3), (3, 3), (2, 4), (4, 3), (3, 2), (4, 4)]:
        agrees(fn, program, x, torch.tensor([a, b]))


def test_masks_that_are_assigned_and_classes_that_are_counted():
    def scattered(x):
        picked = x > 0
        y = x * 0
        y[picked] = x[picked] * 2
        x[~picked] = 7
        classes = torch.nn.functional.one_hot(picked.long().cumsum(0))
        return y, classes, x.repeat_interleave(picked.long() + 1), torch.repeat_interleave(picked.long())

    fn = compiled(scattered)
    for x in (*inputs(3), *inputs(3)):
        agrees(fn, scattered, x)
    assert graph_of(fn).eager_calls == 0


def test_gradients_through_an_assigned_mask():
    def assigned(x, w):
        y = x * 1
        y[x > 0] = w[x > 0] * x[x > 0]
        return y.sum()

    fn = compiled(assigned)
    for x in inputs(3):
        grads = []
        for call in (assigned, fn):
            leaves = [x.clone().requires_grad_(), torch.full((9,), 3.0).requires_grad_()]
            call(*leaves).backward()
            grads.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(grads[1], grads[0])


def test_what_else_lies_in_the_module_of_a_function_is_no_part_of_its_state():
    namespace = {"math": math, "torch": torch}
    exec("def f(x):\n    for i in range(int((x > 0).sum())):\n        x = x * 0.5\n    return x", namespace)
    namespace["compiled"] = fn = compiled(namespace["f"])
    for x in inputs(4):
        agrees(fn, namespace["f"], x)
    assert [each.problem for each in graph_of(fn).decisions] == [None, None]


def extrema(x):
    n, m = x.sum().item(), positive(x)
    return max(n, 1.0), min(m, 3), max(0, min(m, 4)), max([n, -n, 2.0]), min(n, math.nan), min(math.nan, n), x * max(m, 2)


@pytest.mark.parametrize("branches", [False, True])
def test_the_smaller_and_the_larger_number_are_no_decisions(branches):
    program = (lambda x: extrema(x) if x[0] > 0 else extrema(-x)) if branches else extrema
    fn = compiled(program)
    for value in (1.0, -3.0, 5.0, 0.0, math.nan, math.inf):
        x = torch.tensor([1.0, value, 2.0])
        for mine, other in zip(agrees(fn, program, x), program(x), strict=True):
            assert type(mine) is type(other)
    assert fn.cache_info().misses == 1 and fn.cache_info().decisions == branches


def test_the_larger_of_two_kinds_of_numbers_is_a_decision():
    def program(x):
        return max(x.sum().item(), 1), min(True, positive(x)), max(x.sum().item(), 2.0, key=abs)

    fn = compiled(program)
    for value in (1.0, -3.0, 5.0):
        x = torch.full((3,), value)
        assert [(type(n), n) for n in fn(x)] == [(type(n), n) for n in program(x)]


def rounded(x):
    if x.sum() > 100:
        return None
    return math.ceil(x[0]), math.floor(x[1]), math.floor(x[:1]), math.ceil((x > 0).sum()), math.floor(x[0] > 0), x * math.floor(x[1])


def test_tensors_are_rounded_without_an_outcome_for_each_number():
    fn = compiled(rounded)
    for values in ([0.5, 1.5], [-2.5, 3.0], [7.25, -8.75], [1e10, -1e10]):
        mine, other = agrees(fn, rounded, torch.tensor(values)), rounded(torch.tensor(values))
        assert list(map(type, mine)) == list(map(type, other))
    assert fn.cache_info().decisions == 1 and graph_of(fn).eager_calls == 0


def rooted(x):
    try:
        math.sqrt(x.sum().item())
    except ValueError:
        return x - 1
    return x + 1


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_an_error_of_arithmetic_after_calls_without_one(first, tmp_path):
    fn = compiled(rooted)
    for value in (*[first] * 6, -first, first, -first):  # the first calls make the driver
        agrees(fn, rooted, torch.full((2,), value))
    assert graph_of(fn).eager_calls == 0
    path = tmp_path / "rooted.py"
    dovetail.last_driver(fn).save(path)
    saved = runpy.run_path(str(path))["rooted"]
    for value in (1.0, -1.0):
        torch.testing.assert_close(saved(torch.full((2,), value)), rooted(torch.full((2,), value)))


def cropped(x):
    size = random.randint(2, 6)
    start = random.randint(0, len(x) - size)
    return x[start : start + size]


def test_bounds_of_draws_that_are_drawn_themselves():
    fn = compiled(cropped)
    for seed in range(8):
        random.seed(seed)
        expected, state = cropped(torch.arange(8.0)), random.getstate()
        random.seed(seed)
        torch.testing.assert_close(fn(torch.arange(8.0)), expected)
        assert random.getstate() == state


CONSTRUCTED = {
    "a timedelta": lambda x: datetime.timedelta(days=positive(x)).total_seconds(),
    "a timedelta by position": lambda x: datetime.timedelta(positive(x), 2).days,
    "a date": lambda x: datetime.date(2024, 1, day=positive(x)).isoformat(),
    "a Decimal": lambda x: decimal.Decimal(positive(x)) / 4,
    "a Fraction": lambda x: fractions.Fraction(positive(x), 12),
    "bytes": lambda x: (bytes(positive(x)), positive(x).to_bytes(length=2, byteorder="big")),
    "a keyword of a function in C": lambda x: (round(2.34567, ndigits=positive(x)), pow(3, exp=positive(x)), sum([1, 2], start=positive(x))),
    "an array": lambda x: array.array("i", [positive(x), 3]).tolist(),
}


@pytest.mark.parametrize("construct", CONSTRUCTED)
def test_classes_in_c_take_numbers(construct):
    program = CONSTRUCTED[construct]
    fn = compiled(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (*inputs(4), *inputs(4)):
            assert fn(x) == program(x)
    assert graph_of(fn).eager_calls == 0


class Counted:
    """Its methods, which C code calls, return numbers of the program."""

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n % 3

    def __eq__(self, other):
        return self.n == other.n

    def __index__(self):
        return self.n

    __int__ = __len__ = __length_hint__ = __index__

    def __float__(self):
        return self.n / 2

    def __fspath__(self):
        return f"p{self.n}"


CALLS_OF_C = {
    "hash": lambda c: hash(c),
    "a key": lambda c: {c: 1}[Counted(c.n)],
    "a set": lambda c: len({c, Counted(2), Counted(5)}),
    "int": lambda c: int(c),
    "float": lambda c: float(c),
    "len": lambda c: len(c),
    "range": lambda c: list(range(c)),
    "an index": lambda c: [0, 1, 2, 3, 4, 5, 6][c],
    "sqrt": lambda c: math.sqrt(c),
    "fspath": lambda c: os.fspath(c),
    "hex": lambda c: hex(c),
}


@pytest.mark.parametrize("call", CALLS_OF_C)
@pytest.mark.parametrize("read", [lambda x: int(x.sum()), lambda x: x.sum().long().item()], ids=["int", "item"])
def test_methods_that_c_code_calls_return_numbers_of_the_program(call, read):
    def f(x):
        return CALLS_OF_C[call](Counted(read(x)))

    fn = compiled(f)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*report it as a bug")
        for size in (2, 5, 5, 3, 2):
            assert fn(torch.ones(size)) == f(torch.ones(size))


NAMED = {  # attributes whose names have a number of the program in them
    "setattr": lambda o, name: setattr(o, name, 1),
    "object.__setattr__": lambda o, name: object.__setattr__(o, name, 1),
    "getattr": lambda o, name: getattr(o, name, 0),
    "hasattr": lambda o, name: hasattr(o, name),
    "delattr": lambda o, name: (setattr(o, name, 1), delattr(o, name)),
    "__dict__": lambda o, name: o.__dict__.update({name: 1}),
    "parameter": lambda o, name: o.module.register_parameter(name, torch.nn.Parameter(torch.ones(1))),
    "buffer": lambda o, name: o.module.register_buffer(name, torch.ones(1)),
    "module": lambda o, name: o.module.add_module(name, torch.nn.Tanh()),
    "parameter dict": lambda o, name: o.parameters.__setitem__(name, torch.nn.Parameter(torch.ones(1))),
}


@pytest.mark.parametrize("name", NAMED)
def test_names_of_attributes_have_numbers_in_them(name):
    def program(x, o):
        if x.sum() > 0:
            NAMED[name](o, f"n{int(x.sum())}")
        return x + 1

    def created():
        return types.SimpleNamespace(module=torch.nn.Module(), parameters=torch.nn.ParameterDict())

    eager, traced, fn = created(), created(), compiled(program)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*report it as a bug")
        warnings.filterwarnings("ignore", ".*outcomes; calls with others run eagerly")
        for value in (1.0, 2.0, -1.0, 2.0, 3.0):
            x = torch.full((2,), value)
            assert torch.equal(fn(x, traced), program(x, eager))
            assert repr(traced) == repr(eager) and list(traced.module.state_dict()) == list(eager.module.state_dict())
