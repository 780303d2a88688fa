"""Results that are only copied into an input are written there, where nobody can tell the difference."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import assert_like_eager, assert_same, compiled

import dovetail


def written_over(fn) -> bool:
    """Whether a region of the program that ran last writes into its inputs."""
    return any("writing" in getattr(line.implementation.fn, "__qualname__", "") for line in dovetail.last_traces(fn)[-1].lines if line.implementation)


def adam(p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def add(x):
    return x.add_(1)


def relu_of_sum(x, y):
    return torch.relu_(x.add_(y)), y


def swapped(x, y):
    z = x + 1
    x.copy_(y * 2)
    y.copy_(z)


def used_later(x, y):
    x.mul_(2)
    return x @ y


def twice(x):
    x.mul_(2)
    x.add_(1)


@pytest.mark.parametrize(
    ("fn", "count"), [(adam, 4), (add, 1), (relu_of_sum, 2), (used_later, 2), (twice, 1)], ids=["adam", "add", "relu", "used_later", "twice"]
)
@pytest.mark.parametrize("shape", [(7, 7), (1200, 1200)])
def test_updates_are_written_where_the_input_lies(fn, count, shape):
    ours, args = compiled(fn), [torch.rand(shape) for _ in range(count)]
    copies, places = [x.clone() for x in args], [x.data_ptr() for x in args]
    for _ in range(2):
        assert_same(ours(*args), fn(*copies))
    assert_same(args, copies)
    assert [x.data_ptr() for x in args] == places
    assert written_over(ours)


def old_value(x):
    y = x * 2
    x.add_(1)
    return y, x


def shifted(x):
    x[:, 1:] = x[:, :-1] * 2


def transposed(x):
    x.copy_(x.t() + 1)


def normalised(x):
    x.copy_(torch.softmax(x, -1))


def centred(x):
    x.sub_(x.mean())


def reader_behind(x):
    y = x.t()
    z = y @ y
    x.add_(1)
    return z + x, y


def result_and_target(x):
    y = x + 1
    x.copy_(y)
    return y


def checked_index(x):
    return x.copy_(torch.nn.functional.embedding((x[0] * 3).long(), x))


@pytest.mark.parametrize(
    "fn", [old_value, shifted, transposed, normalised, centred, reader_behind, result_and_target, checked_index, swapped], ids=lambda fn: fn.__name__
)
def test_what_is_read_elsewhere_is_read_before_it_is_written(fn):
    ours, count = compiled(fn), 2 if fn is swapped else 1
    args = [torch.rand(40, 40) for _ in range(count)]
    copies = [x.clone() for x in args]
    assert_same(ours(*args), fn(*copies))
    assert_same(args, copies)


def test_an_index_out_of_range_leaves_the_input_as_it_is():
    def pick(x, index):
        x.add_(x[index])

    x, before = torch.ones(4), torch.ones(4)
    with pytest.raises(IndexError):
        compiled(pick)(x, torch.tensor([0, 1, 2, 9]))
    assert torch.equal(x, before)


def test_autograd_is_told():
    x = torch.ones(5)
    compiled(add)(x)
    assert x._version == 1
    leaf = torch.ones(5, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        compiled(add)(leaf)
    assert torch.equal(leaf.detach(), torch.ones(5))


def test_a_tensor_that_stands_for_a_negative_is_written_through():
    def double(x):
        x.mul_(2)

    base, same = torch.ones(3, dtype=torch.complex64) * 1j, torch.ones(3, dtype=torch.complex64) * 1j
    ours = compiled(double)
    ours(torch.zeros(3))
    first, second = base.conj().imag, same.conj().imag
    ours(first)
    double(second)
    assert torch.equal(torch.view_as_real(base), torch.view_as_real(same))


@pytest.mark.parametrize(("rows", "executor"), [(8, "llvm"), (4096, "torch")])
def test_a_row_of_a_large_input_is_written_alone(rows, executor):
    ours, x = dovetail.jit(lambda x, row, n: x.__setitem__(n, row * 2)), torch.zeros(rows, 8)
    for n in range(4):
        ours(x, torch.ones(8), n)
    lines = [line.implementation for line in dovetail.last_traces(ours)[-1].lines if line.implementation]
    assert x.sum() == 64 and lines[-1].executor == executor and bool(lines[-1].writes) == (executor == "torch")
    assert ("a region would go over all of an input" in str(dovetail.explain(ours))) == (executor == "torch")


def test_what_a_program_makes_itself_is_changed_by_regions():
    def rows(x):
        out = torch.zeros_like(x)
        for i in range(4):
            out[i] = x[i] * i
        return out

    ours, x = dovetail.jit(rows), torch.randn(4096, 8)
    torch.testing.assert_close(ours(x), rows(x))
    assert [line.implementation.executor for line in dovetail.last_traces(ours)[-1].lines] == ["llvm"]


BY_COLUMNS = {  # updates of a tensor in column order; the result is row-major, except for index_put
    "scatter": lambda y, i, x: y.scatter(1, i[None].expand(50, -1), x[:, :9]),
    "scatter_add": lambda y, i, x: y.scatter_add(1, i[None].expand(50, -1), x[:, :9]),
    "index_add": lambda y, i, x: y.index_add(1, i, x[:, :9]),
    "index_copy": lambda y, i, x: y.index_copy(1, i, x[:, :9]),
    "index_put": lambda y, i, x: y.index_put((i,), x[:9]),
}


@pytest.mark.parametrize("name", BY_COLUMNS)
def test_what_is_updated_in_column_order_has_the_layout_of_eager(name):
    def fn(x, i):
        y = BY_COLUMNS[name](x * 2, i, x)
        return y, y.sin() * 3 + 1

    assert_like_eager(fn, torch.randn(20, 50).t(), torch.randperm(20)[:9])
