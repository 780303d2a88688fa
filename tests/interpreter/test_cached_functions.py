"""Functions behind functools.lru_cache: a compiled function gets what the cache holds, as in eager mode."""

import functools
import warnings
from dataclasses import dataclass

import pytest
import torch

import dovetail
from dovetail.errors import Unsupported

X = torch.arange(1.0, 5.0)


def outcomes(jit, program):
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in program(jit)]


def number_whose_origin_changes(jit):
    scale = [2.0]

    @functools.cache
    def scaled(n):
        return n * scale[0]

    compiled = jit(lambda x, n: x * scaled(n))
    yield compiled(X, 1)
    scale[0] = 5.0
    yield compiled(X, 1)
    yield compiled(X, 2)
    scaled.cache_clear()
    yield compiled(X, 1)
    yield scaled.cache_info().currsize


def tensor_that_is_written_outside(jit):
    calls = []

    @functools.cache
    def mask(n):
        calls.append(n)
        return torch.full((n,), 2.0)

    compiled = jit(lambda x: x * mask(4) + mask(4))
    yield compiled(X)
    mask(4).mul_(3)
    yield compiled(X)
    mask.cache_clear()
    yield compiled(X)
    yield len(calls)


def list_that_the_program_appends_to(jit):
    @functools.cache
    def table():
        return []

    def program(x):
        table().append(1)
        return x * len(table())

    compiled = jit(program)
    yield compiled(X)
    yield compiled(X)
    yield table()


def method_of_an_object(jit):
    class Scale:
        factor = 2.0

        def of(self, n):
            return self.factor * n

        of = functools.cache(of)

    scale = Scale()
    compiled = jit(lambda x, scale: x * scale.of(3))
    yield compiled(X, scale)
    scale.factor = 5.0
    yield compiled(X, scale)
    yield compiled(X, Scale())


def error_that_is_not_cached(jit):
    known = {}

    @functools.cache
    def look(key):
        return known[key]

    def program(x):
        try:
            return x * look("a")
        except KeyError:
            return -x

    compiled = jit(program)
    yield compiled(X)
    known["a"] = 3
    yield compiled(X)
    known.clear()
    yield compiled(X)


def function_created_inside(jit):
    def program(x):
        @functools.cache
        def pair(n):
            return [n]

        pair(1).append(2)
        return x * len(pair(1))

    yield jit(program)(X)


def value_that_the_program_writes_before(jit):
    scale, calls = {"factor": 1.0}, []

    @functools.cache
    def scaled(n):
        calls.append(n)
        return n * scale["factor"]

    def program(x):
        scale["factor"] += 1
        return x * scaled(3)

    compiled = jit(program)
    yield compiled(X)
    yield compiled(X)
    yield calls


def list_that_grows_before(jit):
    steps = []

    @functools.cache
    def count(n):
        return len(steps) + n

    def program(x):
        steps.append(1)
        return x * count(3)

    compiled = jit(program)
    yield compiled(X)
    yield compiled(X)


def value_that_is_held_before_the_program_writes(jit):
    scale = {"factor": 1.0}

    @functools.cache
    def scaled(n):
        return n * scale["factor"]

    def program(x):
        scale["factor"] += 1
        return x * scaled(3)

    compiled = jit(program)
    scaled(3)
    yield compiled(X)
    yield compiled(X)
    scaled.cache_clear()
    yield compiled(X)
    yield compiled(X)


def write_that_a_cached_function_does_not_read(jit):
    steps, factor = [], [2.0]

    @functools.cache
    def scaled(n):
        return n * factor[0]

    def program(x):
        steps.append(1)
        return x * scaled(3)

    compiled = jit(program)
    yield compiled(X)
    factor[0] = 5.0
    yield compiled(X)
    scaled.cache_clear()
    yield compiled(X)
    yield len(steps)


@pytest.mark.parametrize(
    "program",
    [
        number_whose_origin_changes,
        tensor_that_is_written_outside,
        list_that_the_program_appends_to,
        method_of_an_object,
        error_that_is_not_cached,
        function_created_inside,
        value_that_the_program_writes_before,
        list_that_grows_before,
        value_that_is_held_before_the_program_writes,
        write_that_a_cached_function_does_not_read,
    ],
)
def test_as_in_eager_mode(program):
    torch.testing.assert_close(outcomes(dovetail.jit, program), outcomes(lambda function: function, program))


def test_clearing_a_cache_inside_is_refused():
    def program(x):
        double = functools.cache(lambda n: 2 * n)
        double.cache_clear()
        return x * double(1)

    with pytest.raises(Unsupported, match=r"cache_clear\(\) is not supported.*call it outside the compiled function"):
        dovetail.jit(program)(X)


@pytest.mark.parametrize("arguments", [(3,), (), ("a",), (2.0,), (1, 2)])
@pytest.mark.parametrize("maxsize", [None, 4])
def test_what_a_cache_holds_is_compiled_behind_a_write(maxsize, arguments):
    steps = []
    look = functools.lru_cache(maxsize)(lambda *n: len(steps))

    def program(x):
        steps.append(1)
        return x + look(*arguments)

    look(*arguments)
    compiled = dovetail.jit(program)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X)
    assert (compiled.cache_info().programs, len(steps)) == (1, 3)


def test_results_of_one_cache_have_sizes_of_their_own():
    grid = functools.lru_cache(maxsize=128)(lambda n, device: torch.arange(n, device=device))

    def program(x):
        return [x * grid(n, x.device).sum() + grid(n, x.device).shape[0] for n in (4, 2, 3)]

    compiled = dovetail.jit(program)
    for size in (2, 3, 4, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.testing.assert_close(compiled(torch.ones(size)), program(torch.ones(size)))


@dataclass(frozen=True)
class Table:
    rows: int


ARGUMENTS = {
    "a size": lambda x: x.shape[0],
    "a sum of sizes": lambda x: 2 * x.shape[0] + 1,
    "a size as a float": lambda x: x.shape[0] / 2,
    "a shape": lambda x: x.shape,
    "a tuple": lambda x: (x.ndim, 3),
    "a tuple of sizes": lambda x: (x.shape[0], 3),
    "a frozenset": lambda x: frozenset((1, 2)),
    "a frozen dataclass": lambda x: Table(3),
    "a dtype": lambda x: x.dtype,
}
USES = {
    "writes into it": (lambda _: torch.zeros(()), lambda held, x: x + held.add_(1)),
    "writes into a view of it": (lambda _: torch.zeros(2, 2), lambda held, x: x + held[0].add_(1).sum() + held.sum()),
    "grows it": (lambda _: [], lambda held, x: (held.append(1), x + len(held))[1]),
    "sets an item of it": (lambda _: {"n": [0]}, lambda held, x: (held["n"].append(len(held["n"])), x * sum(held["n"]))[1]),
    "gets random numbers": (lambda _: torch.rand(()), lambda held, x: x * held),
    "writes after it needs a value": (lambda _: torch.zeros(()), lambda held, x: x + held.add_(1) if x.sum() > 0 else x),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_result_stays_what_the_program_makes_of_it(argument, use):
    compute, change = USES[use]

    def results(jit):
        torch.manual_seed(0)
        held = functools.cache(lambda key: compute(key))
        compiled = jit(lambda x: change(held(ARGUMENTS[argument](x)), x))
        return [compiled(torch.ones(size)) for size in (2, 3, 4, 2, 3, 3, 4)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(results(dovetail.jit), results(lambda function: function))


def test_a_function_that_only_computes_has_one_program_for_all_sizes():
    @functools.cache
    def mask(n):
        rows = torch.zeros(n, n)
        rows[0] = 1
        return rows.tril_()

    compiled = dovetail.jit(lambda x: x @ mask(x.shape[0]))
    for size in range(2, 8):
        torch.testing.assert_close(compiled(torch.ones(size)), torch.ones(size) @ mask(size))
    assert compiled.cache_info().programs == 2


def test_a_cache_outside_gets_no_symbols():
    @functools.cache
    def split(shape, factors):
        return [n // k for n, k in zip(shape, factors)], list(factors)

    compiled = dovetail.jit(lambda x: x.reshape(*split(x.shape, (2, 1))[0], -1))
    for size in (2, 4, 6, 8, 4):
        assert compiled(torch.ones(size, 3)).shape == (size // 2, 3, 2)
    for size in range(2, 12, 2):
        assert [type(n) for n in split((size, 3), (2, 1))[0]] == [int, int]


def test_a_result_may_hold_itself():
    @functools.cache
    def ring(n):
        items = [n]
        items.append(items)
        return items

    compiled = dovetail.jit(lambda x: x * ring(x.shape[0])[1][1][0])
    for size in (2, 3, 4, 3):
        torch.testing.assert_close(compiled(torch.ones(size)), torch.full((size,), float(size)))
