"""NumPy inside functions of tensors: `x.numpy()`, `torch.from_numpy(a)`, and what both compute, beside eager mode on changing data."""

from __future__ import annotations

import collections
import warnings

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves as leaves

import dovetail
from dovetail.errors import Unsupported
from dovetail.frontend import bytecode


def tensor():
    return torch.arange(4.0) + 1


def array():
    return np.arange(4, dtype=np.float32)


def filled(x):
    result = np.zeros(4, np.float32)
    result[1:3] = x.numpy()[:2]
    result[0] = 7
    return torch.from_numpy(result)


def written(x):
    view = x.numpy()
    view[1:] += 5
    return x * 2, view


def written_behind(x):
    view = x.numpy()
    x.mul_(2)
    return view * 1, view


def copies(x):
    view, copy = np.asarray(x), np.array(x)
    view[0] = 100
    return x, view, copy


def into_argument(x, a):
    torch.from_numpy(a).add_(1)
    a[0] = x.numpy().sum()
    return x * 2, a


def masked(x):
    result = x.numpy().copy()
    result[result > 2] = 0
    return result


def seen(x):
    a = x.numpy()
    return a.shape, a.dtype, len(a), type(a) is np.ndarray, isinstance(a.sum(), np.float32)


PROGRAMS = {
    "an array of a computed tensor": lambda x: (x * 2).numpy(),
    "there and back": lambda x: torch.from_numpy(np.sin(x.numpy()) * 2) + x,
    "a scalar": lambda x: x * x.numpy().sum() + x.numpy().max().item(),
    "a ufunc of a tensor": lambda x: (np.exp(x), np.isnan(x)),
    "an array of a tensor": lambda x: (np.asarray(x, dtype="f8"), np.concatenate([x, x + 1]), np.linalg.norm(x)),
    "a tensor of an array": lambda x: torch.tensor(x.numpy() * 2) + torch.tensor(x.numpy().mean()),
    "both results": lambda x: (lambda y: (y, y.numpy()))(x + 1),
    "an index": lambda x: x[np.argsort(x.numpy())[:2]] + x[np.array([0, 2])],
    "a constant array": lambda x: x * torch.from_numpy(np.arange(4.0)),
    "a number of NumPy's": lambda x: np.float64(2) * x + np.float32(1),
    "zeros that are filled": filled,
    "an array that is written": written,
    "a tensor that is written": written_behind,
    "a view and a copy": copies,
    "a mask": masked,
    "what Python sees": seen,
}
WITH_ARRAYS = {
    "arithmetic": lambda x, a: (x + a, x * a.astype("f8"), x @ a),
    "sharing": lambda x, a: x * torch.as_tensor(a[::2], dtype=torch.float64).sum() + torch.asarray(a, copy=True),
    "writing": into_argument,
    "computing": lambda x, a: (np.stack([x, a]), np.where(x > 1, x, a), x + torch.tensor(np.sqrt(a) * 2)),
    "unknown to the language": lambda x, a: x + torch.from_numpy(np.fft.fft(a).real.astype("f4")),
    "needing a value": lambda x, a: x[int(a[0]) :] + torch.from_numpy(a)[-1],
}


def same(a, b):
    if isinstance(a, tuple):
        return type(b) is tuple and all(map(same, a, b))
    if not isinstance(a, (torch.Tensor, np.ndarray, np.generic)):
        return a == b
    alike = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
    return alike and np.allclose(np.asarray(a), np.asarray(b), rtol=1e-5, equal_nan=True)


def agrees(fn, *makers, **options):
    ours, theirs, compiled = [make() for make in makers], [make() for make in makers], dovetail.jit(fn, **options)
    for _ in range(2):
        assert same(compiled(*ours), fn(*theirs))
        assert all(map(same, ours, theirs))
        for x in (*ours, *theirs):
            x += 1
    return compiled


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_of_tensors_computes_with_arrays(name):
    assert agrees(PROGRAMS[name], tensor).cache_info().programs == 1


@pytest.mark.parametrize("name", WITH_ARRAYS)
def test_a_function_of_tensors_and_arrays(name):
    programs = agrees(WITH_ARRAYS[name], tensor, array).cache_info().programs
    assert programs == (2 if name in ("unknown to the language", "needing a value") else 1)


def test_a_result_shares_the_memory_that_it_shares_in_eager_mode():
    x, held = tensor(), array()
    view, both, same_array = dovetail.jit(lambda x, a: (x.numpy()[1:], torch.from_numpy(a), a))(x, held)
    view[0], both[0] = 50, 60
    assert x[1] == 50 and held[0] == 60 and same_array is held
    y, of_y = dovetail.jit(lambda x: (lambda y: (y, y.numpy()))(x + 1))(x)
    y[0] = 70
    assert of_y[0] == 70


def test_gradients_flow_around_arrays_and_not_through_them():
    def fn(x):
        scale = x.detach().numpy().mean()
        return (x * scale + torch.from_numpy(np.cos(x.detach().numpy()))).sum()

    ours, theirs = tensor().requires_grad_(), tensor().requires_grad_()
    dovetail.jit(fn)(ours).backward()
    fn(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    for convert in (lambda x: x.numpy(), np.exp):
        with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
            dovetail.jit(convert)(ours)


def test_a_large_array_is_an_input():
    held = np.ones(1 << 16, np.float32)
    compiled = dovetail.jit(lambda x: x + torch.from_numpy(held)[:4] + torch.tensor(held[0]))
    for _ in range(2):
        assert same(compiled(tensor()), tensor() + 2 * held[0])
        held += 1
    assert compiled.cache_info().programs == 1


TABLE = np.arange(12.0).reshape(6, 2)  # small, so that its content is guarded


class Buffer:
    def __init__(self):
        self.rows = np.arange(20.0).reshape(10, 2)


BUFFER = Buffer()
PICKED = {  # items of arrays that are constants, at places that the program computes or draws
    "drawn rows": lambda x: torch.from_numpy(TABLE[np.random.randint(0, 6, size=3)]) + x[0, 0],
    "drawn items": lambda x: torch.from_numpy(TABLE[np.random.randint(0, 6, size=3), np.random.randint(0, 2, size=3)]) + x[0, 0],
    "drawn rows beside a slice": lambda x: torch.as_tensor(TABLE[np.random.permutation(6)[:2], :1]) * x[0, 0],
    "rows of an attribute": lambda x: torch.as_tensor(BUFFER.rows[np.random.choice(10, 3, replace=False)]) * x[0, 0],
    "rows of an array made inside": lambda x: torch.as_tensor(np.arange(20)[np.random.randint(0, 20, size=3)]) + x[0, 0],
    "computed rows": lambda x: torch.as_tensor(TABLE[x.argmax(1).numpy()]) + x[0, 0],
    "a result": lambda x: (TABLE[np.random.randint(0, 6, size=3)], x + 1),
}


@pytest.mark.parametrize("name", PICKED)
def test_items_of_an_array_at_drawn_places(name):
    program = PICKED[name]
    compiled = dovetail.jit(program)
    for seed in range(4):
        x, results = torch.randn(3, 6, generator=torch.Generator().manual_seed(seed)), []
        if seed == 2:
            BUFFER.rows[:] *= 2
        for call in (compiled, program):
            np.random.seed(seed)
            results.append((call(x), np.random.rand()))
        torch.testing.assert_close(*results)


def test_values_are_asked_for_between_pieces():
    def fn(x):
        return x * float(x.numpy().sum()) if x.numpy().sum() > 0 else -x

    compiled = dovetail.jit(fn, decisions="graph")
    for x in (tensor(), tensor() + 1, -tensor()):
        assert same(compiled(x), fn(x))


NUMBERS = {
    "np.linspace": lambda n: np.linspace(0, n - 1, 5).round()[::-1].copy(),
    "np.linspace of whole numbers": lambda n: np.linspace(1, n, 4, dtype=np.int64),
    "np.linspace of nothing between": lambda n: np.linspace(n, n, 3, endpoint=False),
    "np.array": lambda n: np.array([[n, 2.0], [1, n]]),
    "np.asarray": lambda n: np.asarray(n)[None],
    "np.round": lambda n: np.round(n / 3),
    "np.sqrt": lambda n: np.sqrt(n),
    "np.log": lambda n: np.log(np.maximum(n, 1e-10)),
    "np.full": lambda n: np.full(3, n),
    "np.interp": lambda n: np.interp(n, [0.0, 5.0], [1.0, 2.0]),
    "an operator": lambda n: np.arange(3.0) * n,
    "an operator on the left": lambda n: n - np.arange(3, dtype=np.float32),
    "an operator of whole numbers": lambda n: np.arange(3, dtype=np.int32) + n,
    "a comparison": lambda n: np.arange(9.0) < n,
}


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize("name", NUMBERS)
def test_numpy_computes_with_numbers_of_the_program(name, kind):
    def fn(t):
        return torch.as_tensor(NUMBERS[name](t.max().item() if kind == "int" else float(t.float().mean())))

    compiled = dovetail.jit(fn)
    for length in (4, 4, 4, 9):
        x = torch.randint(1, 9, (length,))
        assert same(compiled(x), fn(x))
    assert compiled.cache_info() == (2, 2, 2)  # nothing depends on the numbers


def into(write):
    """Return a function that writes into an array that it makes."""

    def fn(x):
        held = np.zeros(4)
        write(held, x.numpy())
        return torch.from_numpy(held)

    return fn


WRITES = {
    "np.copyto": into(lambda held, x: np.copyto(held, x.sum())),
    "np.full": lambda x: torch.from_numpy(np.full(3, x.numpy().max())),
    "out=": into(lambda held, x: np.add(x.sum(), 1, out=held)),
    "fill": into(lambda held, x: held.fill(x.max())),
    "an item": into(lambda held, x: held.__setitem__(0, x.max())),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_value_is_written_into_an_array_that_is_made_inside(name):
    compiled = dovetail.jit(WRITES[name])
    for x in (tensor(), tensor() + 1, -tensor()):
        assert same(compiled(x), WRITES[name](x))


@pytest.mark.parametrize(("new", "attempts"), [(np.zeros, 2), (np.ones, 2), (lambda n: np.full(n, 2.0), 2), (np.arange, 1)])
def test_a_call_is_traced_again_only_where_new_arrays_could_be_traced(new, attempts, monkeypatch):
    counted, interpret = [], bytecode._interpret

    def fn(x):
        return new(2) + x.numpy().sum()

    monkeypatch.setattr(bytecode, "_interpret", lambda *args: counted.append(args) or interpret(*args))
    compiled = dovetail.jit(lambda x: x * 2 if fn(x)[0] > 3 else x)
    for x in (tensor(), -tensor()):
        assert same(compiled(x), x * 2 if fn(x)[0] > 3 else x)
    assert len(counted) == attempts


def test_a_value_that_is_written_into_a_constant_array_is_refused():
    with pytest.raises(Unsupported, match="a write of a traced value into a ndarray is not traced: it is computed while tracing"):
        dovetail.jit(into(lambda held, x: np.copyto(np.arange(4.0), x.sum())))(tensor())


def shared_constant(x):
    held = np.arange(4.0)
    result = torch.from_numpy(held)
    held[0] = 5
    return x * result


REFUSED = {
    "passing torch.from_numpy": lambda x: torch.relu(x.numpy()),
    "an operator of an array and a tensor": lambda x: x.numpy() < x,
    "writes to one of them": shared_constant,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_as_in_eager_mode_is_refused(name):
    with pytest.raises(Unsupported, match=name.replace("passing", "pass")):
        dovetail.jit(REFUSED[name])(tensor())


def test_an_array_and_a_tensor_that_overlap_are_refused_where_one_is_written():
    held = np.arange(8, dtype=np.float32)
    compiled = dovetail.jit(lambda a, b, x: (torch.from_numpy(a).add_(1), torch.from_numpy(b) * x)[1])
    assert same(compiled(held[:4], held[4:], tensor()), torch.from_numpy(held[4:]) * tensor())
    with pytest.raises(Unsupported, match="shares memory"):
        compiled(held[:4], held[2:6], tensor())


class Items:
    """A sequence, and by `protocol` what NumPy asks for."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Array(Items):
    def __array__(self, dtype=None, copy=None):
        return np.array(self.items)


class Taking(Items):
    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return ufunc.__name__, method, self.items[0]

    def __array_function__(self, function, types, args, kwargs):
        return function.__name__, types, self.items[0]


READING = {
    "a list": lambda x, ns, a: (np.sum(ns), np.abs(ns), np.array([ns, ns]), np.float64(2) + ns, a + ns, a == ns),
    "a sequence": lambda x, ns, a: (np.sum(Items(ns)), np.add(Items(ns), 1), np.asarray(collections.deque(ns)), a + collections.UserList(ns)),
    "__array__": lambda x, ns, a: (np.sum(Array(ns)), np.float32(2) * Array(ns), np.array([1.0, 2.0]) - Array(ns), a.dot(Array(ns))),
    "an override": lambda x, ns, a: (np.add(1, Taking(ns)), np.multiply.reduce(Taking(ns)), np.concatenate([Taking(ns), ns])),
    "methods": lambda x, ns, a: (a.tolist()[0], a.max(), a.reshape(-1, 1), a.sum()),
    "both": lambda x, ns, a: (divmod(a, ns), np.maximum(a, Items(ns)), x * int(np.asarray(Array(ns))[0])),
}


@pytest.mark.parametrize("name", READING)
def test_what_numpy_reads_by_itself_is_seen(name):
    fn, ns, a, x = READING[name], [1, 2], np.array([3, 4]), torch.ones(2)
    compiled = dovetail.jit(fn)
    for n in (1, 4, 7):  # the second time it is a symbol
        ns[0] = n
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = compiled(x, ns, a)
        for mine, theirs in zip(got, fn(x, ns, a), strict=True):
            assert same(mine, theirs), (n, mine, theirs)


def test_memory_that_an_object_lends_to_numpy_is_refused():
    class Lending:
        __array_interface__ = property(lambda self: np.ones(2).__array_interface__)

    with pytest.raises(Unsupported, match=r"reads the memory of a .*Lending by its __array_interface__"):
        dovetail.jit(lambda x, o: x * np.sum(o))(torch.ones(2), Lending())


BETWEEN = {  # functions that run as NumPy's own between two pieces of the program
    "percentile": lambda a, n: np.percentile(a, [25, 75], axis=0),
    "quantile by a method": lambda a, n: np.quantile(a, 0.3, method="lower"),
    "nanmedian": lambda a, n: np.nanmedian(a, axis=1),
    "partition": lambda a, n: (np.partition(a, 2, axis=1)[:, 2], np.argpartition(a, 1).shape),
    "unique": lambda a, n: np.unique(n, return_counts=True),
    "bins": lambda a, n: (np.bincount(n.ravel()), np.histogram(a, bins=4)[0], np.digitize(a, np.array([-1.0, 0.0]))),
    "searchsorted": lambda a, n: np.searchsorted(np.array([-1.0, 0.0, 1.0]), a),
    "pad by a mode": lambda a, n: (np.pad(a, 1, mode="reflect"), np.pad(a, 1)),
    "nonzero": lambda a, n: (*np.nonzero(n), np.argwhere(n > 1)),
    "a mask": lambda a, n: (a[a > 0], n[n > 1] * 2),
    "statistics": lambda a, n: (np.cov(a), np.average(a, axis=0, weights=np.arange(4.0) + 1), np.convolve(a[0], a[1])),
    "linear algebra": lambda a, n: (np.linalg.inv(a + 9 * np.eye(4)), np.linalg.svd(a).S, np.linalg.slogdet(a), np.linalg.eigvalsh(a @ a.T)),
    "transforms": lambda a, n: (np.fft.rfft(a), np.abs(np.fft.fft2(a))),
    "sets": lambda a, n: (np.intersect1d(n, [1, 2]), np.union1d(n, [9]), np.isin(n, [1])),
    "choices": lambda a, n: (np.select([a > 0, a < -1], [a, -a], 0.0), np.choose(n % 2, [n, n + 10])),
    "lists": lambda a, n: (n.tolist(), a.item(0) == a[0, 0], n.item((1, 2)), np.float64(a[0, 0])),
    "several in a row": lambda a, n: np.sort(np.delete(np.cbrt(a), 1, axis=0)[np.unique(n)[:1] % 3], axis=1) * 2,
}


def assert_equal_arrays(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            assert_equal_arrays(ours, theirs)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    else:
        assert actual == expected


@pytest.mark.parametrize("function", BETWEEN.values(), ids=BETWEEN)
def test_functions_without_a_meaning_run_between_two_pieces(function):
    program = lambda x, y: function(x.numpy() + 0, y.numpy() + 0)  # noqa: E731
    compiled = dovetail.jit(program)
    for seed in (0, 1, 0):
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(4, 4, generator=generator), torch.randint(0, 5, (4, 4), generator=generator)
        assert_equal_arrays(compiled(x, y), program(x, y))


ON_SETS = {
    "isin": lambda x, y: np.isin(x, y),
    "isin of an array": lambda x, y: np.isin(x.numpy(), y, invert=True),
    "unique": lambda x, y: np.unique(x % 3, return_counts=True),
    "union1d": lambda x, y: np.union1d(x, y),
    "setdiff1d": lambda x, y: np.setdiff1d(x, y),
    "intersect1d": lambda x, y: np.intersect1d(x, y.numpy()),
}


@pytest.mark.parametrize("function", ON_SETS.values(), ids=ON_SETS)
def test_functions_on_sets_take_tensors(function, recwarn):
    compiled = dovetail.jit(function)
    for start in (0, 1, 4):
        x, y = torch.arange(start, start + 5), torch.tensor([2, 4])
        assert_equal_arrays(compiled(x, y), function(x, y))
    assert not recwarn.list


def test_functions_on_sets_refuse_tensors_that_require_grad_as_in_eager_mode():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        dovetail.jit(np.unique)(x)


def test_an_error_of_numpy_is_its_own():
    program = dovetail.jit(lambda x: np.percentile(x.numpy(), 200))

    with pytest.raises(ValueError, match=r"Percentiles must be in the range \[0, 100\]"):
        program(torch.ones(3))


def test_a_function_that_calls_back_is_refused():
    with pytest.raises((Unsupported, TypeError), match=r"not traced|is needed"):
        dovetail.jit(lambda x: np.vectorize(lambda value: value * 2)(x.numpy()))(torch.ones(3))


RATES = np.cos(np.linspace(0, 1, 30))
AT_SYMBOLS = {  # what is done with an int that has become a symbol -> beside arrays
    "an element": lambda x, a, i: (x * a[i], a[i] * x, a[i], x.clone().mul_(a[i])),
    "an element from the end": lambda x, a, i: x * a[-i],
    "an element of a table outside": lambda x, a, i: x * RATES[i],
    "a row": lambda x, a, i: torch.from_numpy(a.reshape(-1, 2)[i]) + x.sum(),
    "an operand": lambda x, a, i: (torch.from_numpy(a * i), torch.from_numpy(i - a), x * (a[i] * i + i / 2)),
    "an operand of narrow arrays": lambda x, a, i: torch.from_numpy((a * 9).astype(np.int32) * i + a.astype(np.float32) / i),
}


@pytest.mark.parametrize("name", AT_SYMBOLS)
def test_ints_that_change_index_and_scale_arrays(name):
    function = AT_SYMBOLS[name]
    compiled, x = dovetail.jit(function), torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in (2, 3, 7, 5, 4, 9):
            ours, theirs = compiled(x, RATES, i), function(x, RATES, i)
            assert [type(one) for one in leaves(ours)] == [type(one) for one in leaves(theirs)]
            torch.testing.assert_close([torch.as_tensor(one) for one in leaves(ours)], [torch.as_tensor(one) for one in leaves(theirs)])
    assert compiled.cache_info().programs == 2
