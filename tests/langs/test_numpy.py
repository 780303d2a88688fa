"""The NumPy language: the same values, dtypes and shapes as NumPy, on real arrays and on torch tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import dovetail
from dovetail.errors import TracedValueError, Unsupported
from dovetail.executors import dispatch, resolve_executors
from dovetail.trace import Trace, functionalize, to_callable


def trace(fn, *args) -> Trace:
    return dovetail.make_trace(fn, language="numpy")(*args)


def on_arrays(program: Trace, args: tuple):
    """The printed program, run on NumPy's arrays."""
    scope = program.python_globals()
    exec(str(program), scope)
    return scope["computation"](*args)


def on_tensors(program: Trace, args: tuple):
    """The program as executors run it, on torch's tensors."""
    pure, epilogue = functionalize(program)
    inputs = [torch.from_numpy(np.array(x)) for x in args]
    results = to_callable(dispatch(pure, resolve_executors()))(*inputs)
    outputs = to_callable(dispatch(epilogue, resolve_executors()))(*inputs, *results)
    return [x.numpy() for x in (outputs if isinstance(outputs, (tuple, list)) else [outputs])], [x.numpy() for x in inputs]


def same(fn, *args) -> None:
    program = trace(fn, *args)
    given = [a.copy() for a in args]
    want = fn(*given)
    want = list(want) if isinstance(want, (tuple, list)) else [want]
    fresh = [a.copy() for a in args]
    by_text = on_arrays(program, tuple(fresh))
    by_tensors, written = on_tensors(program, args)
    for got, mutated in ((by_text if isinstance(by_text, (tuple, list)) else [by_text], fresh), (by_tensors, written)):
        for a, b in zip([*got, *mutated], [*want, *given], strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-3 if b.dtype == np.float16 else 1e-5, atol=1e-6)


def f(*shape: int, dtype="f4") -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def ints(*shape: int, dtype="i8") -> np.ndarray:
    return np.random.default_rng(0).integers(1, 9, size=shape).astype(dtype)


def test_scenario_30_one_function_means_two_things() -> None:
    def fn(x):
        return x.size, x.shape, x.sum(axis=0)

    x = np.ones((2, 3, 4), dtype="f4")
    as_numpy, as_torch = trace(fn, x), dovetail.make_trace(fn)(torch.from_numpy(x))

    assert as_numpy.outputs[0] == 24 and as_numpy.outputs[1] == (2, 3, 4)
    assert as_torch.lines[0].symbol.path == "torch.sum" and as_numpy.lines[0].symbol.path == "numpy.sum"
    asked = []
    dovetail.make_trace(lambda x: asked.append(x.size()) or x)(torch.from_numpy(x))
    assert asked == [torch.Size([2, 3, 4])]

    def variance(x):
        return x.var(), x.T

    matrix = f(3, 5)
    assert "numpy.var" in str(trace(variance, matrix))
    same(lambda x: x.var(), matrix)  # over n, where torch's is over n - 1
    assert trace(lambda x: x.T, x).outputs.spec.shape == (4, 3, 2)


def test_what_an_array_is_asked() -> None:
    def fn(x):
        return x.ndim, x.size, x.nbytes, x.itemsize, x.strides, str(x.dtype), len(x), isinstance(x, np.ndarray), np.shape(x), np.ndim(x)

    x = f(2, 3)
    assert trace(fn, x).outputs == fn(x)


UNARY = (
    *("exp", "log", "sqrt", "square", "sin", "arctan", "tanh", "negative", "absolute", "sign", "floor", "ceil", "rint", "isnan", "isfinite"),
    *("logical_not", "log1p", "expm1", "reciprocal", "deg2rad"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "minimum", "fmax", "hypot", "logaddexp"),
    *("arctan2", "less", "equal", "logical_and", "copysign"),
)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_each_element(name: str) -> None:
    same(lambda x: getattr(np, name)(x), np.abs(f(3, 4)) + 0.5)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "f2", "f8", "?"])
def test_integers_become_the_float_that_numpy_chooses(dtype: str) -> None:
    same(lambda x: np.exp(x), np.ones(3, dtype=dtype))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name: str) -> None:
    same(lambda x, y: getattr(np, name)(x, y), np.abs(f(3, 4)) + 0.5, np.abs(f(4)) + 0.5)


@pytest.mark.parametrize("left", ["i1", "i4", "u1", "f2", "f4", "f8", "?", "c8"])
@pytest.mark.parametrize("right", ["i2", "i8", "u1", "f4", "?", "c16"])
def test_promotion_is_numpys(left: str, right: str) -> None:
    same(lambda x, y: x + y, np.ones(2, dtype=left), np.ones(2, dtype=right))


@pytest.mark.parametrize("dtype", ["i2", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("number", [2, 2.5, 1j, True])
def test_python_numbers_are_weak(dtype: str, number) -> None:
    same(lambda x: (x * number, number + x), np.ones(2, dtype=dtype))


def test_numpys_own_numbers_are_not() -> None:
    same(lambda x: x + np.float64(1.5), np.ones(2, dtype="f4"))
    same(lambda x: np.float64(1.5) * x, np.ones(2, dtype="f4"))


def test_operators() -> None:
    same(lambda x, y: (x + y, x - y, x * y, x / y, x // y, x % y, x**2, -x, +x, abs(x), 1 - x, 2 / x), ints(3), ints(3) + 1)
    same(lambda x, y: (x & y, x | y, x ^ y, ~x, x << 1, x >> 1, x < y, x == y, x != 2), ints(3), ints(3) + 1)
    same(lambda x, y: (x @ y, y @ x), f(3, 3), f(3, 3))


REDUCTIONS = ("sum", "mean", "max", "min", "prod", "std", "var", "any", "all", "argmax", "argmin")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u1", "?"])
def test_reductions(name: str, dtype: str) -> None:
    def fn(x):
        return getattr(x, name)(), getattr(np, name)(x, axis=1), getattr(x, name)(axis=0, keepdims=True)

    same(fn, ints(3, 4).astype(dtype))


def test_more_reductions() -> None:
    same(lambda x: (x.sum(axis=(0, 2)), x.sum(axis=()), x.sum(dtype="f8"), x.var(ddof=1), np.std(x, axis=-1, ddof=1)), f(2, 3, 4))
    same(lambda x: (x.cumsum(), np.cumsum(x, axis=1), np.cumprod(x, axis=0), np.ptp(x), np.count_nonzero(x)), ints(3, 4))
    same(lambda x: (np.add.reduce(x), np.maximum.reduce(x, axis=1), np.average(x, weights=x)), np.abs(f(3, 4)))


SHAPES = {
    "T": lambda x: x.T,
    "transpose": lambda x: (x.transpose(2, 0, 1), x.transpose((1, 0, 2)), x.transpose(), np.transpose(x, (0, 2, 1))),
    "reshape": lambda x: (x.reshape(-1), x.reshape(4, 6), x.reshape((2, -1)), np.reshape(x, (3, 8))),
    "ravel": lambda x: (x.ravel(), x.T.flatten(), np.ravel(x)),
    "swapaxes": lambda x: (x.swapaxes(0, 2), np.moveaxis(x, 0, -1)),
    "expand_dims": lambda x: (np.expand_dims(x, 0), np.expand_dims(x, (0, -1)), x[None, ..., None].squeeze(), x[None].squeeze(0)),
    "broadcast_to": lambda x: np.broadcast_to(x, (5, 2, 3, 4)),
    "joining": lambda x: (np.concatenate([x, x], axis=1), np.concatenate((x, x), axis=None), np.stack([x, x], -1)),
    "stacking": lambda x: (np.hstack([x, x]), np.vstack([x, x])),
    "split": lambda x: (*np.split(x, 2, axis=2), *np.split(x, [1, 3], axis=2)),
    "repeat": lambda x: (x.repeat(2, axis=1), np.tile(x, (2, 1, 1)), np.flip(x), np.flip(x, 1)),
    "like": lambda x: (np.zeros_like(x), np.ones_like(x, dtype="i4"), np.full_like(x, 2.5)),
    "dot": lambda x: (x.dot(x[0].T), np.dot(x, np.swapaxes(x, 1, 2)), np.outer(x[0], x[1]), np.matmul(x, x.swapaxes(1, 2))),
    "clip": lambda x: (x.clip(-1, 1), np.clip(x, 0, None), np.clip(x, None, 0.5), x.round(1), np.round(x), x.round(-1)),
    "where": lambda x: (np.where(x > 0, x, 0), np.where(x > 0, 1.0, 2.0), np.where(x, x, 1)),
    "astype": lambda x: (x.astype("i4"), x.astype(np.float64), x.astype(bool), x.copy()),
    "complex": lambda x: (np.real(x * 1j), (x * 1j).imag, np.conj(x * 1j)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_arrays(case: str) -> None:
    same(SHAPES[case], f(2, 3, 4))


KEYS = [0, -1, slice(1, None), slice(None, None, 2), slice(None, None, -1), (slice(None), 1), (..., 1), (None, 0)]
KEYS += [(slice(None), [0, 2]), (0, slice(3, None, -2))]
KEYS += [np.array([1, 0]), (np.array([1, 0]), np.array([2, 2])), (..., slice(None, None, -1)), np.int64(1)]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing(key) -> None:
    same(lambda x: x[key], f(2, 3, 4))


def test_writing() -> None:
    def fn(x, y):
        x[0] = 1
        x[1:, 0] = y
        x += 2
        view = x[0]
        view *= 3
        np.add(x, 1, out=x)
        return view

    same(fn, f(3, 4), f(2))


def test_a_write_after_a_reversed_slice_is_refused() -> None:
    def fn(x):
        back = x[::-1]
        back[0] = 5
        return x

    with pytest.raises(Unsupported, match=r"numpy\.flip is not traced: it returns a view"):
        trace(fn, f(3))
    with pytest.raises(Unsupported, match="negative step"):
        trace(lambda x: x.__setitem__(slice(None, None, -1), 0), f(3))


def test_arrays_met_on_the_way_are_constants() -> None:
    table = f(3)
    program = trace(lambda x: x * table + [1, 2, 3], f(3))
    assert len(program.constants) == 2
    (got,), _ = on_tensors(program, (f(3),))
    np.testing.assert_allclose(got, f(3) * table + [1, 2, 3], rtol=1e-6)


ERRORS = {
    "shapes": (ValueError, lambda x: x + np.ones(7), "could not be broadcast together"),
    "axis": (IndexError, lambda x: x.sum(axis=3), "Dimension out of range"),
    "axis of an AxisError": (np.exceptions.AxisError, lambda x: x.sum(axis=3), "Dimension out of range"),
    "axis that is a ValueError": (ValueError, lambda x: np.stack([x, x], axis=-5), "Dimension out of range"),
    "diagonal": (ValueError, lambda x: np.diagonal(x[0]), "Dimension out of range"),
    "trace": (ValueError, lambda x: x[0].trace(), "Dimension out of range"),
    "transpose": (ValueError, lambda x: x.transpose(0, 2), "Dimension out of range"),
    "sort": (np.exceptions.AxisError, lambda x: np.sort(x[0, 0]), "has no axis -1"),
    "tril": (TypeError, lambda x: np.tril(x[0, 0]), "missing 1 required positional argument"),
    "ranks": (ValueError, lambda x: np.concatenate([np.zeros(0), x]), "same number of dimensions"),
    "position": (IndexError, lambda x: x[9], "out of"),
    "keyword": (TypeError, lambda x: np.sum(x, axes=0), "axes"),
    "cast": (TypeError, lambda x: x.astype("i4").__iadd__(0.5), "Cannot cast output"),
    "squeeze": (ValueError, lambda x: x.squeeze(0), "size not equal to one"),
    "bool": (TracedValueError, lambda x: 1 if x.sum() > 0 else 2, "tracing only knows shapes and dtypes"),
    "attribute": (AttributeError, lambda x: x.sizes, "numpy language has no attribute 'sizes'"),
    "function": (Unsupported, lambda x: np.linalg.svd(x), "numpy.linalg.svd is not traced"),
    "ufunc": (Unsupported, lambda x: np.add.outer(x, x), "numpy.add.outer is not traced"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    error, fn, message = ERRORS[case]
    with pytest.raises(error, match=message):
        trace(fn, f(3, 4))


def test_an_unknown_language_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match="unknown language 'fortran'; the languages are torch, numpy"):
        dovetail.make_trace(lambda x: x, language="fortran")


def test_dovetail_does_not_need_numpy() -> None:
    code = """
import sys
sys.modules["numpy"] = None
import dovetail, torch
print(dovetail.make_trace(lambda x: x.size())(torch.ones(3)).outputs)
try:
    dovetail.make_trace(lambda x: x, language="numpy")
except ImportError as error:
    print(error.name)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n")[-2:] == ["numpy", ""], done.stderr


@pytest.mark.parametrize("fn", [np.tril, np.triu, lambda x: np.tril(x, 1), lambda x: np.triu(x, -1)])
def test_triangles_of_a_vector_have_it_in_each_row(fn) -> None:
    x = np.arange(1.0, 5.0)
    np.testing.assert_array_equal(dovetail.jit(fn)(x), fn(x))
