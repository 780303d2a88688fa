"""Memory that a tensor shares with an array, a buffer or a storage: what is written through one is never stale in the other."""

from __future__ import annotations

import array
import ctypes

import numpy
import pytest
import torch

import dovetail
from dovetail.errors import DovetailError
from dovetail.frontend.guards.overlap import memory_overlap

X = torch.ones(4)


def of_array(view):
    """Return memory, a tensor of it, and what else shows that memory."""

    def make():
        held = numpy.arange(8, dtype=numpy.float32)
        return torch.from_numpy(held), view(held)

    return make


def of_bytes():
    held = bytearray(range(8))
    return torch.frombuffer(held, dtype=torch.uint8), held


def of_python_array():
    held = array.array("f", range(8))
    return torch.frombuffer(held, dtype=torch.float32), held


def of_storage():
    tensor = torch.arange(8, dtype=torch.uint8)
    return tensor, tensor.untyped_storage()


VIEWS = {
    "an array": of_array(lambda a: a),
    "a part of an array": of_array(lambda a: a[::2]),
    "an array without dimensions": lambda: (lambda t: (t, t.numpy()))(torch.tensor(1.0)),
    "a memoryview": of_array(lambda a: memoryview(a)[::2]),
    "an iterator of NumPy's": of_array(lambda a: a.flat),
    "an array of ctypes": of_array(lambda a: (ctypes.c_float * 8).from_buffer(a)),
    "a number of ctypes": of_array(ctypes.c_float.from_buffer),
    "a bytearray": of_bytes,
    "an array of Python's": of_python_array,
    "a storage": of_storage,
}


def first(view):
    if isinstance(view, ctypes.c_float):
        return view.value
    return float(view if getattr(view, "ndim", 1) == 0 else view[0])


def write_first(view):
    if isinstance(view, ctypes.c_float):
        view.value = 7
    else:
        view[() if getattr(view, "ndim", 1) == 0 else 0] = 7


@pytest.mark.parametrize("name", VIEWS)
def test_what_a_tensor_shares_is_not_stale_where_the_tensor_is_written(name):
    tensor, view = VIEWS[name]()

    def f(x):
        tensor.add_(1)
        return x * first(view)

    with pytest.raises(DovetailError):
        dovetail.jit(f)(X)
    assert f(X)[0] == tensor.flatten()[0]  # nothing was written


@pytest.mark.parametrize("name", VIEWS)
def test_what_a_tensor_shares_is_written_as_eager_writes_it_or_refused(name):
    tensor, view = VIEWS[name]()

    def f(x):
        write_first(view)
        return x * tensor.flatten()[0]

    try:
        result = dovetail.jit(f)(X)
    except DovetailError:
        assert tensor.flatten()[0] != 7
    else:
        torch.testing.assert_close(result, X * 7)


def written(kind):
    """Return a program that writes a tensor, and an array of its memory."""
    if kind == "running mean":
        norm = torch.nn.BatchNorm1d(2)
        return lambda x: norm(x.view(2, 2)), norm.running_mean.numpy()
    parameter = torch.nn.Parameter(torch.ones(4))
    if kind == "gradient":
        parameter.grad = torch.ones(4)
        return lambda x: (parameter * x).sum().backward(), parameter.grad.numpy()
    if kind == "out=":
        return lambda x: torch.add(x, 1, out=parameter.data), parameter.detach().numpy()
    parameter.grad, optimizer = torch.ones(4), torch.optim.SGD([parameter], lr=0.5)
    return lambda x: optimizer.step(), parameter.detach().numpy()


@pytest.mark.parametrize("kind", ["running mean", "gradient", "out=", "optimizer"])
def test_writes_of_modules_optimizers_and_backwards_count(kind):
    write, view = written(kind)

    def f(x):
        write(x)
        return x * float(view[0])

    before = view.copy()
    with pytest.raises(DovetailError, match="shares memory"):
        dovetail.jit(f)(X)
    assert (view == before).all()


def test_disjoint_memory_is_traced_and_compared_at_every_call():
    held = numpy.arange(8, dtype=numpy.float32)
    tensor, sizes = torch.from_numpy(held[:4]), held[4:]

    def f(t, x):
        t.add_(x)
        return t * float(sizes[0])

    compiled = dovetail.jit(f)
    for _ in range(2):
        torch.testing.assert_close(compiled(tensor, X), tensor * 4)
    with pytest.raises(DovetailError, match="shares memory"):
        compiled(torch.from_numpy(held[3:7]), X)


def test_a_function_compiled_piece_by_piece_reads_what_it_has_written():
    def make():
        held = numpy.arange(4, dtype=numpy.float32)
        tensor = torch.from_numpy(held)

        def f(x):
            tensor.add_(x)
            return tensor * float(held[0]) if tensor.sum() > 0 else tensor

        return f

    eager, compiled = make(), dovetail.jit(make(), decisions="graph")
    for _ in range(2):
        torch.testing.assert_close(compiled(X), eager(X))


def test_overlap_with_buffers_is_exact():
    held = numpy.arange(8, dtype=numpy.float32)
    even = torch.from_numpy(held)[::2]
    assert not memory_overlap((even,), (), (held[1::2], bytearray(3)))
    assert memory_overlap((even,), (), (held[3:5],))
