"""Compiled functions of NumPy arrays compared with NumPy itself: values, dtypes, shapes, aliasing, guards and refusals."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.errors import TracedValueError, Unsupported

_SPEC = importlib.util.spec_from_file_location("numpy_cases", Path(__file__).parent / "numpy_cases.py")
cases = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cases)

TOLERANCE = {"f2": 2e-3, "f4": 2e-5, "c8": 2e-5}
LAYOUTS = {
    "rows": lambda x: x,
    "columns": np.asfortranarray,
    "strided": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "read-only": lambda x: _locked(x.copy()),
}


def _locked(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def drawn(dtype: str, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind in "iub":
        return random.integers(0, 5, (3, 4)).astype(dtype)
    x = random.normal(size=(3, 4)) * 1.5
    return (x + 1j * random.normal(size=(3, 4)) if kind == "c" else x).astype(dtype)


def same(got, want, where: str = "result") -> None:
    """Equal classes, dtypes, shapes and values; scalars are no arrays."""
    assert type(got) is type(want), where
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), where
        for i, (one, other) in enumerate(zip(got, want, strict=True)):
            same(one, other, f"{where}[{i}]")
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            same(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, (np.ndarray, np.generic)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), where
        close = TOLERANCE.get(want.dtype.str[1:], 1e-10)
        np.testing.assert_allclose(got, want, rtol=close, atol=close, err_msg=where)
    else:
        assert got == want, where


def run(fn, args):
    """What a call gives, or raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return fn(*args), None
        except Exception as error:
            return None, error


def agrees(fn, count: int, dtype: str, layout=lambda x: x, executors=("torch",)) -> str:
    """Compare two calls of one program with NumPy; a refusal is given as its sentence."""
    compiled = dovetail.jit(fn, executors=list(executors))
    for seed in (0, 7):
        args = [layout(drawn(dtype, seed + i)) for i in range(count)]
        mine = [layout(drawn(dtype, seed + i)) for i in range(count)]
        want, error = run(fn, args)
        got, refused = run(compiled, mine)
        if error is not None:
            assert refused is not None, f"NumPy raises {error!r}"
            return ""
        if isinstance(refused, NotImplementedError):
            same(mine, [layout(drawn(dtype, seed + i)) for i in range(count)], "arguments after a refusal")
            return str(refused)
        assert refused is None, repr(refused)
        same(got, want)
        same(mine, args, "arguments")
    assert compiled.cache_info().programs == 1, dovetail.cache_misses(compiled)
    return ""


DTYPES = ("f8", "i8", "f4", "u1")
MORE_DTYPES = ("f2", "i4", "i1", "?", "c16", "c8", "u2", "u4", "u8")
TABLES = {**{name: (fn, 1) for name, fn in cases.ONE.items()}, **{name: (fn, 2) for name, fn in {**cases.TWO, **cases.WRITES}.items()}}


class Space:
    """Describes observations, as a space of gymnasium does."""

    dtype = np.dtype("u1")


OF_DTYPES = {
    "equal": lambda x: x / 255 if Space.dtype == np.uint8 else x,
    "unequal": lambda x: x if Space.dtype != "uint8" else x / 255,
    "among classes": lambda x: x * (3 if Space.dtype in (np.int8, np.uint8) else 4),
    "kind": lambda x: x * (3 if np.issubdtype(Space.dtype, np.integer) else 4),
    "key": lambda x: x * {np.dtype("u1"): 2, np.dtype("f4"): 3}[Space.dtype],
}


@pytest.mark.parametrize("name", OF_DTYPES)
def test_a_dtype_from_outside_is_compared_and_guarded(name: str, monkeypatch) -> None:
    fn, x = OF_DTYPES[name], torch.arange(4.0)
    compiled = dovetail.jit(fn)
    for dtype in ("u1", "f4", "u1"):
        monkeypatch.setattr(Space, "dtype", np.dtype(dtype))
        torch.testing.assert_close(compiled(x), fn(x))
    assert compiled.cache_info().misses == 2


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_limits_of_dtypes_that_numpy_has_not_looked_up_yet_are_its_own(monkeypatch, dtype: str) -> None:
    def limits(x):
        floating, whole = np.finfo(x.dtype), np.iinfo(np.int16)
        return x * floating.eps + whole.max, floating.tiny, floating.maxexp, np.finfo(x.dtype) is floating

    monkeypatch.setattr(np.finfo, "_finfo_cache", {})
    x, compiled = np.linspace(-1, 1, 5).astype(dtype), dovetail.jit(limits)
    for _ in range(2):
        np.testing.assert_equal(compiled(x), limits(x))


@pytest.mark.parametrize("name", TABLES)
def test_a_compiled_function_gives_what_numpy_gives(name: str) -> None:
    for dtype in DTYPES:
        assert agrees(*TABLES[name], dtype) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_compiled_function_gives_what_numpy_gives_or_a_refusal(name: str) -> None:
    """Complex numbers have no order here, booleans no products in Einstein's notation, and PyTorch lacks most kernels for wide unsigned integers."""
    for dtype in MORE_DTYPES:
        refusal = agrees(*TABLES[name], dtype)
        assert not refusal or np.dtype(dtype).kind == "c" or dtype in ("u2", "u4", "u8"), f"{dtype}: {refusal}"


def arrays_in(tree) -> list[np.ndarray]:
    """The arrays in a result that has dimensions."""
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, (tuple, list)):
        return [x for item in tree for x in arrays_in(item)]
    return [tree] if isinstance(tree, np.ndarray) and tree.ndim else []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", cases.ONE)
def test_views_are_views_and_copies_are_copies(name: str, order: str) -> None:
    """A write into the argument shows in the results that NumPy makes views, and a write into those shows in the argument; else it is refused."""
    fn = cases.ONE[name]

    def write_argument(x):
        result = fn(x)
        x[...] = 7
        return result

    def write_results(x):
        for view in arrays_in(fn(x)):
            view[...] = 9
        return x

    for program in (write_argument, write_results):
        mine, numpys = (np.array(np.arange(12.0).reshape(3, 4) / 4, order=order) for _ in range(2))
        want, error = run(program, (numpys,))
        got, refused = run(dovetail.jit(program, executors=["torch"]), (mine,))
        if error is None and not isinstance(refused, NotImplementedError):
            assert refused is None, repr(refused)
            same(got, want)
            same(mine, numpys, "the argument")


LAID_OUT = (
    "exp",
    "sum(axis=0)",
    "cumsum",
    "shapes",
    "slices",
    "operators",
    "joining",
    "products",
    "where",
    "in_place",
    "through_a_view",
    "views_follow",
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", LAID_OUT)
def test_layouts(name: str, layout: str) -> None:
    fn, count = TABLES[name]
    refusal = agrees(fn, count, "f8", LAYOUTS[layout])
    aliased = name in ("shapes", "slices", "in_place", "through_a_view", "views_follow")
    assert bool(refusal) == (layout in ("reversed", "read-only") and aliased and not (layout == "read-only" and name not in ("shapes", "slices"))), (
        refusal
    )


@given(
    left=st.sampled_from(["?", "i1", "i2", "i4", "i8", "u1", "f2", "f4", "f8", "c8", "c16"]),
    right=st.sampled_from(["?", "i1", "i2", "i4", "i8", "u1", "f2", "f4", "f8", "c8", "c16", "bool", "int", "float", "complex"]),
    scalar=st.booleans(),
    ufunc=st.sampled_from([np.add, np.subtract, np.multiply, np.divide, np.power, np.equal, np.arctan2, np.logical_or, np.floor_divide]),
)
@settings(deadline=None, max_examples=80)
def test_promotion_is_numpys(left: str, right: str, scalar: bool, ufunc: np.ufunc) -> None:
    number = {"bool": True, "int": 3, "float": 2.5, "complex": 1 + 2j}.get(right)
    other = number if number is not None else np.dtype(right).type(2) if scalar else np.ones(3, right)
    x = np.ones(3, left)

    def fn(x, other):
        return ufunc(x, other), ufunc(other, x)

    want, error = run(fn, (x, other))
    got, mine = run(dovetail.jit(fn, executors=["torch"]), (x, other))
    if error is not None:
        assert mine is not None
    else:
        assert mine is None, repr(mine)
        same(got, want)


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple),
    name=st.sampled_from(["sum", "mean", "max", "any", "var", "prod", "argmin"]),
    data=st.data(),
)
@settings(deadline=None, max_examples=80)
def test_axes_are_numpys(shape: tuple, name: str, data) -> None:
    one = st.integers(-len(shape), len(shape) - 1)
    several = st.lists(st.integers(0, len(shape) - 1), unique=True, max_size=len(shape)).map(tuple)
    axis = data.draw(st.one_of(st.none(), one) if name == "argmin" else st.one_of(st.none(), one, several))
    keepdims = data.draw(st.booleans())
    x = np.random.default_rng(0).normal(size=shape)

    def fn(x):
        return getattr(np, name)(x, axis=axis, keepdims=keepdims)

    want, error = run(fn, (x,))
    got, mine = run(dovetail.jit(fn, executors=["torch"]), (x,))
    assert (error is None) == (mine is None), (error, mine)
    if error is None:
        same(got, want)
    else:
        assert isinstance(mine, ValueError)


def black_scholes(price, strike, years, rate=0.02, volatility=0.3):
    scale = volatility * np.sqrt(years)
    up = (np.log(price / strike) + (rate + volatility**2 / 2) * years) / scale
    probability = 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
    return np.maximum(price * probability - strike * np.exp(-rate * years) * probability, 0), up.mean()


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_real_sizes_with_the_installed_executors(dtype: str) -> None:
    random = np.random.default_rng(0)
    compiled, rows = dovetail.jit(black_scholes), dovetail.jit(softmax)
    for _ in range(3):
        args = [random.uniform(0.5, 2, 1_000_003).astype(dtype) for _ in range(3)]
        got, want = compiled(*args), black_scholes(*args)
        assert [x.dtype for x in got] == [x.dtype for x in want]
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4 if dtype == "f4" else 1e-10, atol=1e-5 if dtype == "f4" else 1e-12)
        x = random.normal(size=(1000, 1024)).astype(dtype)
        np.testing.assert_allclose(rows(x), softmax(x), rtol=1e-4 if dtype == "f4" else 1e-10)
    assert compiled.cache_info().programs == rows.cache_info().programs == 1


def test_memory_is_shared_both_ways() -> None:
    x = np.zeros((4, 4))
    view = dovetail.jit(lambda x: x[1:])(x)
    view[0, 0] = 7
    assert x[1, 0] == 7 and np.shares_memory(x, view)
    assert dovetail.jit(lambda x: x)(x) is x

    def add(x):
        x += 1
        return x

    assert dovetail.jit(add)(x) is x and x[0, 0] == 1


TABLE = np.arange(4.0)


class Layer:
    def __init__(self):
        self.weight = np.ones(4)


def test_arrays_the_function_reaches_are_inputs() -> None:
    layer, held = Layer(), np.full(4, 2.0)
    compiled = dovetail.jit(lambda x: x * TABLE + layer.weight + held)
    x = np.ones(4)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x), x * TABLE + layer.weight + held)
        TABLE[0] += 1
        layer.weight *= 2
        layer.weight = layer.weight.copy()
        held[1] -= 1
    assert compiled.cache_info().programs == 1


def test_an_array_whose_values_python_needs_is_guarded_by_content() -> None:
    def fn(x, places):
        return x * [10, 20, 30][places[0]]

    compiled = dovetail.jit(fn)
    x = np.ones(100_000)
    for place in (0, 1, 0):
        np.testing.assert_array_equal(compiled(x * place, np.array([place])), fn(x * place, np.array([place])))
    assert compiled.cache_info().programs == 2

    def branches(x):
        return x + 1 if x.sum() > 0 else x - 1

    small = dovetail.jit(branches)
    for value in (1.0, -1.0):
        np.testing.assert_array_equal(small(np.full(3, value)), branches(np.full(3, value)))
    with pytest.raises(TracedValueError, match=r"is needed at .*test_numpy_jit.py.*np\.where"):
        dovetail.jit(branches, decisions="error")(x)


def test_a_result_that_was_computed_while_tracing_is_new_at_every_call() -> None:
    compiled = dovetail.jit(lambda x: (x + 1, np.arange(3)))
    first = compiled(np.ones(2))[1]
    first[0] = 9
    assert compiled(np.ones(2))[1].tolist() == [0, 1, 2]


def test_guards_notice_what_changes() -> None:
    compiled = dovetail.jit(lambda x: x * 2)
    x = np.ones((3, 4))
    for other in (x, x.astype("f4"), x[:2], np.asfortranarray(x), x[::-1], np.ones((3, 8))[:, ::2]):
        np.testing.assert_array_equal(compiled(other), other * 2)
    assert compiled.cache_info().programs == 6
    assert any("no longer an array" in why for why in dovetail.cache_misses(compiled)[1:])
    np.testing.assert_array_equal(compiled(_locked(x.copy())), x * 2)
    np.testing.assert_array_equal(compiled(np.broadcast_to(np.ones(4), (3, 4))), x * 2)


def test_a_program_that_writes_is_not_run_on_arrays_that_overlap_or_are_locked() -> None:
    def fn(x, y):
        x += 1
        return y * 2

    compiled, base = dovetail.jit(fn), np.zeros(10)
    compiled(np.zeros(5), np.zeros(5))
    with pytest.raises(Unsupported, match="shares memory"):
        compiled(base[:5], base[3:8])
    assert not base.any()
    np.testing.assert_array_equal(compiled(base[:5], base[5:]), np.zeros(5))
    assert base.sum() == 5
    with pytest.raises(ValueError, match="read-only"):
        compiled(_locked(np.zeros(5)), np.zeros(5))
    with pytest.raises(Unsupported, match=r"negative stride.*pass a copy"):
        compiled(np.zeros(5)[::-1], np.zeros(5))


REFUSED = {
    "svd": (Unsupported, lambda x: np.linalg.svd(x), r"numpy\.svd is not traced|linalg"),
    "an unknown ufunc": (Unsupported, lambda x: np.spacing(x), r"numpy\.spacing is not traced"),
    "a method of a ufunc": (Unsupported, lambda x: np.add.outer(x, x), r"numpy\.add\.outer is not traced"),
    "an attribute": (Unsupported, lambda x: x.flags, r"numpy\.ndarray\.flags is not traced"),
    "no attribute": (AttributeError, lambda x: x.sizes, "sizes"),
    "a keyword": (TypeError, lambda x: np.sum(x, axes=0), "axes"),
    "an option": (Unsupported, lambda x: np.sum(x, where=x > 0), "numpy.sum with where= is not traced"),
    "None": (Unsupported, lambda x: x == None, "compares an array with a NoneType"),  # noqa: E711
    "shapes": (ValueError, lambda x: x + np.ones(7), "could not be broadcast together"),
    "a write to a scalar": (TypeError, lambda x: x[0, 0].__setitem__(0, 1), "does not support item assignment"),
    "a reversed view that is written": (Unsupported, lambda x: x[::-1].__iadd__(1), "is not traced: it returns a view"),
    "a traced value in an array made while tracing": (Unsupported, lambda x: np.arange(4.0).__setitem__(0, x[0, 0]), "np.zeros"),
    "an order": (Unsupported, lambda x: x.reshape(-1, order="F"), "row-major"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    error, fn, message = REFUSED[name]
    x = np.ones((100, 100))
    with pytest.raises(error, match=message):
        dovetail.jit(fn)(x)
    assert (x == 1).all()


def test_arrays_that_no_tensor_can_stand_for() -> None:
    for x in (np.ma.masked_array([1.0, 2.0], [0, 1]), np.matrix([[1.0]])):
        with pytest.raises(Unsupported, match=r"is a (MaskedArray|matrix), which is not supported .* np\.asarray"):
            dovetail.jit(lambda x: x * 2)(x)
    with pytest.raises(Unsupported, match="holds Python objects"):
        dovetail.jit(lambda x, y: y)(np.array([1, "a"], dtype=object), np.ones(2))
    for x in (np.arange(3.0).astype(">f8"), np.array(["a", "b"])):
        compiled = dovetail.jit(lambda x, y: y * len(x))
        for changed in (x, x[::-1].copy()):
            np.testing.assert_array_equal(compiled(changed, np.ones(2)), np.full(2, float(len(x))))


def test_integers_are_numpys() -> None:
    x = np.array([7, -7, -128, 0], "i1")
    for fn in (lambda x: x // 0, lambda x: x % 0, lambda x: x // -1, lambda x: 5 // x, lambda x: x + 127, lambda x: x < 300, lambda x: x > 300):
        want, _ = run(fn, (x,))
        same(dovetail.jit(fn, executors=["torch"])(x), want)
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        dovetail.jit(lambda x: x + 300)(x)


def test_errors_of_the_floating_point_state_are_left_alone() -> None:
    def fn(x):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(x > 0, 1 / x, 0)

    x = np.array([0.0, 2.0])
    np.testing.assert_array_equal(dovetail.jit(fn)(x), [0, 0.5])


def test_tensors_beside_arrays_make_it_a_program_of_tensors() -> None:
    bias = torch.ones(3)
    compiled = dovetail.jit(lambda x, table: x * float(table[0]))
    for value in (2.0, 3.0):
        torch.testing.assert_close(compiled(bias, np.array([value])), bias * value)

    def mixed(table):
        return bias * float(table.sum())

    compiled = dovetail.jit(mixed)
    for value in (2.0, 3.0):
        torch.testing.assert_close(compiled(np.full(2, value)), mixed(np.full(2, value)))


def test_explain_and_verify() -> None:
    compiled = dovetail.jit(softmax)
    compiled(np.random.default_rng(0).normal(size=(8, 16)))
    assert "numpy.exp" in str(dovetail.explain(compiled))
    assert dovetail.verify(compiled, np.ones((4, 4)))


def test_native_tracing_guards_arrays_by_content_and_refuses_functions_of_arrays() -> None:
    def scaled(x, table):
        return x * float(table[0])

    compiled, table = dovetail.jit(scaled, interpretation="native"), np.ones(2)
    for value in (2.0, 3.0):
        table[0] = value
        torch.testing.assert_close(compiled(torch.ones(3), table), torch.ones(3) * value)
    with pytest.raises(Unsupported, match="not traced natively"):
        dovetail.jit(lambda x: x + 1, interpretation="native")(np.ones(3))


@dovetail.opaque
def twice(x):
    return x * 2


GENERATOR = np.random.default_rng(0)
FOR_TENSORS = {
    "an opaque function": (lambda x: twice(x), "takes tensors"),
    "a gradient": (lambda x: dovetail.grad(lambda x: (x * x).sum())(x), "not differentiated"),
    "a vjp": (lambda x: dovetail.vjp(lambda x: x * x, x)[0], "not differentiated"),
}


@pytest.mark.parametrize("name", FOR_TENSORS)
def test_what_takes_tensors_is_refused(name: str) -> None:
    fn, message = FOR_TENSORS[name]
    with pytest.raises(Unsupported, match=message):
        dovetail.jit(fn)(np.arange(3.0))


def test_a_gradient_of_arrays_is_refused() -> None:
    with pytest.raises(Unsupported, match="not differentiated"):
        dovetail.grad(lambda x: (x * x).sum())(np.arange(3.0))


def test_drawn_numbers_have_the_dtype_that_numpy_gives_them() -> None:
    x = np.ones(2, "f4")
    for fn in (lambda x: x + GENERATOR.integers(3), lambda x: x + GENERATOR.random(), lambda x: x + np.random.randint(3)):
        assert dovetail.jit(fn)(x).dtype == fn(x).dtype
    compiled = dovetail.jit(lambda x: x * GENERATOR.integers(1 << 40))
    assert len({compiled(x)[0] for _ in range(4)}) == 4


def test_copies() -> None:
    x = np.arange(3.0)
    for fn in (copy.copy, copy.deepcopy, lambda x: copy.deepcopy([x, x])[0]):
        got = dovetail.jit(fn)(x)
        np.testing.assert_array_equal(got, x)
        assert not np.shares_memory(got, x)


def test_parts_of_complex_numbers_are_refused_where_a_write_could_tell() -> None:
    def write(x):
        part = x.real
        part[0] = 5
        return x

    with pytest.raises(Unsupported, match=r"numpy\.real is not traced: it returns a view"):
        dovetail.jit(write)(np.ones(3, "c16"))


def test_what_needs_values_and_writes_is_refused_without_decisions() -> None:
    def write(x):
        x[x > 1] += 10
        return x

    x = np.arange(3.0)
    with pytest.raises(TracedValueError, match="is needed at"):
        dovetail.jit(write, decisions="error")(x)
    assert x.tolist() == [0, 1, 2]
    assert dovetail.jit(write)(x).tolist() == x.tolist() == [0, 1, 12]


def test_two_arrays_are_written() -> None:
    def write(x, y):
        x[x > 0.5] = 0
        y[1:3] += x.sum()

    fast = dovetail.jit(write)
    for seed in range(3):
        ours, theirs = ([np.random.RandomState(seed).randn(6), np.random.RandomState(seed + 9).randn(6)] for _ in range(2))
        fast(*ours)
        write(*theirs)
        np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: np.where(a > 0, a, b),
        lambda a, b: np.concatenate([a, b]),
        lambda a, b: a @ b,
        lambda a, b: a.reshape(5),
        lambda a, b: np.einsum("ij,j->i", a, b),
        lambda a, b: np.clip(a, b, 1),
        lambda a, b: a.__setitem__(0, b),
        lambda a, b: a.__iadd__(b),
    ],
)
def test_shapes_that_do_not_fit_raise_numpys_error(fn, inside: bool) -> None:
    args = np.ones((2, 3)), np.ones(4)
    with pytest.raises(ValueError):
        fn(*args)
    with pytest.raises(ValueError):
        dovetail.jit(lambda x, *args: (x + 1, fn(*args)))(torch.ones(2) if inside else np.ones(2), *args)


def _divided_strictly(a: np.ndarray) -> np.ndarray:
    with np.errstate(divide="raise"):
        return a / (a * 0)


@pytest.mark.parametrize("inside", [False, True])
def test_errors_that_numpy_raises_are_raised(inside: bool) -> None:
    fast = dovetail.jit(_divided_strictly if inside else lambda a: a / (a - a))
    for around in ("ignore", "raise", "ignore"):
        with np.errstate(all=around):
            if inside or around == "raise":
                with pytest.raises(FloatingPointError, match="divide by zero"):
                    fast(np.ones(3))
            else:
                assert np.isinf(fast(np.ones(3))).all()


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3,)), ((3, 3), (3,)), ((3,), (3, 3)), ((2, 3), (3, 1)), ((2, 3), (3, 2)), ((2, 3, 3), (3, 3)), ((3, 3), (2, 3, 3))]
)
def test_a_product_in_place_is_not_broadcast(a, b):
    def multiply(x, y, t):
        x @= y
        return x, t + 1

    def outcome(function):
        try:
            return function(np.full(a, 2.0), np.full(b, 3.0), torch.ones(1))[0].tolist()
        except ValueError:
            return ValueError

    assert outcome(dovetail.jit(multiply, unsupported="eager")) == outcome(multiply)


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
@pytest.mark.parametrize("out", [(2, 1), (2, 3), (4, 2, 1), (1,), ()])
def test_a_product_into_an_array_is_broadcast_to_more_matrices_alone(out):
    def multiply(x, y, o, t):
        return np.matmul(x, y, out=o), t + 1

    def outcome(function):
        try:
            return function(np.full((2, 3), 2.0), np.full((3, 1), 3.0), np.zeros(out), torch.ones(1))[0].tolist()
        except ValueError:
            return ValueError

    assert outcome(dovetail.jit(multiply, unsupported="eager")) == outcome(multiply)


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_what_only_c_code_makes_an_array_of_runs_in_eager_mode():
    def divide(a, b):
        a /= b
        return a

    for _ in range(2):
        got, want = (function(np.full(3, 3.0), torch.full((3,), 2.0)) for function in (dovetail.jit(divide, unsupported="eager"), divide))
        assert type(got) is type(want) and got.tolist() == want.tolist()
