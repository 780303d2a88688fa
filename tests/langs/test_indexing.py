"""x[key], x[key] = value and their likes: what PyTorch's own samples leave out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness import agrees

import dovetail
from dovetail.errors import Unsupported

X = torch.arange(60.0).view(3, 4, 5)
ROWS, J, ONE = torch.tensor([2, -1]), torch.tensor([[0], [3]]), torch.tensor(-2)


KEYS = {
    "an int": lambda i, j: -1,
    "ints": lambda i, j: (0, -1),
    "slices": lambda i, j: (slice(1, None), slice(None, -1, 2)),
    "None and an ellipsis": lambda i, j: (None, ..., 0, None),
    "a tensor": lambda i, j: i,
    "a tensor of two dimensions": lambda i, j: (slice(None), j),
    "tensors side by side": lambda i, j: (i, j),
    "tensors apart": lambda i, j: (i, slice(None), j),
    "tensors apart by None": lambda i, j: (i, None, j),
    "a tensor behind a slice": lambda i, j: (slice(1, None), i, 0),
    "an int between": lambda i, j: (i, 0, j),
    "a list": lambda i, j: [0, -1],
    "a tuple of lists": lambda i, j: ([0, 1], [1, -1]),
    "a range": lambda i, j: range(2),
    "an empty list": lambda i, j: [],
    "a list of bools": lambda i, j: [True, False, True],
    "an array": lambda i, j: np.array([[0, 2], [1, 1]]),
    "an array of bools": lambda i, j: (slice(None), np.array([True, False, True, True])),
    "True": lambda i, j: True,
    "False": lambda i, j: (0, False),
    "int32": lambda i, j: i.int(),
}


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_list_of_lists_is_what_this_pytorch_takes_it_for():
    agrees(lambda x: x[[[0, 1], [1, 0]]], X)


@pytest.mark.parametrize("name", KEYS)
def test_read(name):
    agrees(lambda x, i, j: x[KEYS[name](i, j)], X, ROWS, J)
    agrees(lambda x, i, j: x[KEYS[name](i, j)], X.permute(2, 1, 0).contiguous().permute(2, 1, 0), ROWS, J)


@pytest.mark.parametrize("name", KEYS)
def test_write_of_a_number_and_of_a_tensor(name):
    def number(x, i, j):
        x[KEYS[name](i, j)] = -3

    def tensor(x, i, j):
        x[KEYS[name](i, j)] = x[KEYS[name](i, j)] * 2

    agrees(number, X, ROWS, J)
    agrees(tensor, X, ROWS, J)
    agrees(number, X.bfloat16(), ROWS, J)


MASKED = {
    "a number": (lambda m: m, 5),
    "a tensor of no dimensions": (lambda m: m, torch.tensor(5.0)),
    "rows": (lambda m: m[:, :, 0], torch.arange(5.0)),
    "the first dimension": (lambda m: m[:, 0, 0], torch.arange(20.0).view(4, 5)),
    "behind a slice": (lambda m: (slice(1, None), m[0, :, 0]), 2.5),
    "behind an int": (lambda m: (0, m[0]), -1),
    "before a slice": (lambda m: (m[:, :, 0], slice(0, 2)), torch.tensor([[1.0, 2.0]])),
}


@pytest.mark.parametrize("name", MASKED)
def test_write_through_a_mask(name):
    key, value = MASKED[name]

    def write(x, m):
        x[key(m)] = value

    agrees(write, X, X % 3 == 0)


def test_mask_from_the_tensor_itself():
    def clamp(x):
        x[x > 30] = 30
        return x

    agrees(clamp, X)


def test_a_write_to_what_a_key_views_reaches_the_input():
    def write(x, i):
        x[0, 1:].add_(100)
        x[1][2][3] = -1
        x[..., 0].t()[0] *= 2
        x[i] += 1
        x[:, i] -= 1

    agrees(write, X, ROWS)


def test_a_traced_position_counts_as_an_int():
    def read(x, i):
        y, copied = x * 2, x[i, [0, 1]]
        copied += x[i, 0, 0]
        return y[i], x[:, i, 0] * 2, copied, x[i, [0, 1]], x[..., i, None].clone()

    def write(x, i):
        x[i] = 0
        x[:, i] += 2
        x[i, i] -= x[0, i]
        return x[i] * 1

    agrees(read, X, ONE, strides=False)
    agrees(write, X, ONE)


@pytest.mark.parametrize("late", [lambda x, y: x.zero_(), lambda x, y: y.add_(1)])
def test_rows_at_a_traced_position_are_refused_where_eager_would_alias(late):
    def read(x, i):
        y = x[i]
        late(x, y)
        return x, y

    with pytest.raises(Unsupported, match="is a view of x in eager PyTorch and a copy here"):
        dovetail.jit(read, decisions="error")(X.clone(), ONE)


def test_writes_to_what_eager_views_are_not_lost():
    def write_row(x, i):
        x[i].mul_(2)

    def read_late(x, _):
        y = x.conj()
        x.mul_(2)
        return y + 0

    def write_conjugate(x, _):
        x.mH.mul_(2)

    i = torch.tensor(1)
    for fn in (write_row, read_late, write_conjugate):
        with pytest.raises(Unsupported, match="is a view of x in eager PyTorch and a copy here"):
            dovetail.jit(fn, decisions="error")(torch.ones(3, 3, dtype=torch.complex64), i)
    x = torch.randn(3, 3, dtype=torch.complex64)
    assert torch.equal(dovetail.jit(lambda x: x.conj() @ x.mH)(x), x.conj() @ x.mH)


def test_a_copy_with_a_part_replaced_has_no_gaps():
    x, part = torch.arange(24.0).view(4, 6)[:, ::2], torch.zeros(4, 1)
    for executors in (None, ["torch"]):
        program = dovetail.jit(lambda x, part: torch.slice_scatter(x, part, 1, 1, 2) * 2 + x, executors=executors)
        with dovetail.use(check=True):
            assert torch.equal(program(x, part), torch.slice_scatter(x, part, 1, 1, 2) * 2 + x)


def test_values_are_converted_and_cut_off():
    def write(n, x):
        n[0] = 2.7
        n[1] = x[0, 0, :3]
        n[2, 0] = x[1, 1, 1]
        n[n == 2] = True
        return n

    agrees(write, torch.zeros(3, 3, dtype=torch.int64), X)


def test_swap_through_clones_and_lists():
    def swap(x):
        x[0], x[1] = x[1].clone(), x[0].clone()
        x[[0, 2]] = x[[2, 0]]

    agrees(swap, X)


def test_index_functions_in_place():
    def write(x, i):
        rows = torch.ones(2, 4, 5)
        x.index_add_(0, i % 3, rows, alpha=2)
        x.index_copy_(0, i % 3, rows)
        x.index_fill_(1, i % 3, 9)
        x.scatter_(0, torch.zeros(1, 4, 5, dtype=torch.int64), value=1.0)
        x.scatter_add_(0, torch.zeros(2, 4, 5, dtype=torch.int64), rows)
        x.index_put_((i, i), torch.tensor(2.0), accumulate=True)
        x.put_(i, torch.ones(2))
        return x.take(i), x.gather(2, torch.zeros(3, 4, 1, dtype=torch.int64))

    agrees(write, X, ROWS)


@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_scatter_with_reduce(reduce):
    index = torch.tensor([[0, 0, 1]])
    compiled = dovetail.jit(lambda x: x.scatter(1, index, 3.0, reduce=reduce))
    assert torch.equal(compiled(X[0]), X[0].scatter(1, index, 3.0, reduce=reduce))


def test_the_trace_prints_as_operator_getitem():
    def both(x, i):
        x[0] = 1
        return x[0, 1:], x[i]

    text = str(dovetail.make_trace(both)(X, ROWS))
    assert "operator.setitem(t0, 0, 1)" in text
    assert "= operator.getitem(t0, (0, slice(1, None, None)))" in text
    assert "= operator.getitem(t0, t1)" in text


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: x[9],
        lambda x: x[0, 0, 0, 0],
        lambda x: x[0, 0, 0][0],
        lambda x: x[::-1],
        lambda x: x[1.5],
        lambda x: x[[7]],
        lambda x: x[torch.tensor([1.0])],
        lambda x: x[[0, 1], [0, 1, 2]],
        lambda x: x[[True, False]],
        lambda x: x.__setitem__(0, [1, 2]),
        lambda x: x.__setitem__(0, None),
        lambda x: x.__setitem__(0, torch.ones(7)),
        lambda x: x.__setitem__(torch.tensor([0]), torch.ones(7)),
        lambda x: x.__setitem__(torch.tensor([0]), torch.ones(5).long()),
        lambda x: x.__setitem__(0, 1j),
        lambda x: x.gather(0, torch.zeros(1, dtype=torch.int64)),
        lambda x: x.scatter(0, torch.zeros(1, 1, 1, dtype=torch.int64), torch.ones(1, 1, 1).double()),
        lambda x: x.index_select(0, torch.tensor([0.0])),
        lambda x: x.index_select(0, torch.zeros(1, 1, dtype=torch.int64)),
        lambda x: x.index_add(0, torch.tensor([0]), torch.ones(2, 4, 5)),
        lambda x: x.take(torch.tensor([0.0])),
        lambda x: x.scatter_reduce(0, torch.zeros(1, 1, 1, dtype=torch.int64), x, "most"),
    ],
)
def test_errors_are_of_eagers_type(bad):
    with pytest.raises(Exception) as want:
        bad(X.clone())
    with pytest.raises(want.type):
        dovetail.jit(bad)(X.clone())


@pytest.mark.parametrize("executors", [None, ["torch"]])
@pytest.mark.parametrize("position", [-4, -(2**40), 3, 100])
@pytest.mark.parametrize(
    "bad",
    [
        lambda x, i: x[i, torch.tensor([0, 1])],
        lambda x, i: x.__setitem__((i, torch.tensor([0, 1])), 1.0),
        lambda x, i: x.index_put((i, torch.tensor([0, 1])), torch.ones(2), accumulate=True),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.gather(0, i[None]),
        lambda x, i: x.scatter_add(0, i[None], torch.ones(1, 2)),
        lambda x, i: x.index_add(0, i, torch.ones(2, 5)),
        lambda x, i: F.embedding(i, x),
        lambda x, i: F.cross_entropy(x[:2, :3], i),
    ],
)
def test_a_position_out_of_bounds_raises_what_eager_raises(bad, position, executors):
    x, at = torch.randn(3, 5), torch.tensor([position, 0])
    with pytest.raises(Exception) as want:
        bad(x.clone(), at)
    with pytest.raises(want.type):
        dovetail.jit(bad, executors=executors)(x.clone(), at)


@pytest.mark.parametrize(
    ("refused", "way_out"),
    [
        (lambda x: x[x > 3], r"torch\.where"),
        (lambda x: x.__setitem__(x > 3, x[x > 3] + 1), r"torch\.where"),
        (lambda x: x.masked_select(x > 3), r"torch\.where"),
        (lambda x: x.__setitem__(x > 3, torch.ones(56)), "masked_scatter_"),
        (lambda x: x.__setitem__((x[:, 0, 0] > 3, torch.tensor([0])), 1), r"torch\.where"),
    ],
)
def test_what_depends_on_values_names_a_way_out(refused, way_out):
    with pytest.raises(Unsupported, match=way_out):
        dovetail.jit(refused, decisions="error")(X.clone())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: torch.gather(x, 1, i),
        lambda x, i: torch.take_along_dim(x, i, 1),
        lambda x, i: torch.gather(x[:, :0], 1, i),
        lambda x, i: torch.gather(x.sum(), 0, i[0]),
    ],
)
def test_nothing_gathered_has_a_gradient_of_zeros(fn):
    i = torch.zeros(3, 0, dtype=torch.int64)
    x, mine = (torch.ones(3, 4, requires_grad=True) for _ in range(2))
    want, got = fn(x, i), dovetail.jit(fn)(mine, i)
    assert (got.shape, got.stride(), got.requires_grad) == (want.shape, want.stride(), want.requires_grad)
    want.sum().backward(), got.sum().backward()
    assert torch.equal(mine.grad, x.grad)


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_a_sparse_gradient_of_gather_runs_in_eager_mode_where_one_is_needed():
    def first(x):
        return torch.gather(x, 0, torch.zeros(1, 4, 5, dtype=torch.int64), sparse_grad=True)

    agrees(first, X)
    x = X.clone().requires_grad_()
    with torch.no_grad():
        agrees(first, x)
    (grad,) = torch.autograd.grad(dovetail.jit(first)(x).sum(), x)
    assert grad.is_sparse


def test_tensors_of_one_int_in_a_list_are_positions():
    i, j = torch.tensor(2), torch.tensor(-1)
    agrees(lambda x, i, j: x[[i, 1, j]] * 2, X, i, j)
    agrees(lambda x, i, j: x[:, [[i, 1], [0, j]]], X, i, j)
    agrees(lambda x, i, j: x[[i, 1], [0, j]], X, i, j)

    def written(x, i, j):
        x[[i, 1]] = 0.0
        x[:, [j]] += 1
        return x

    agrees(written, X.clone(), i, j)
    with pytest.raises(IndexError, match="a list of ints, or of tensors that hold one"):
        dovetail.jit(lambda x, i: x[:, [i.float(), 1]])(X, i)


@pytest.mark.parametrize(
    "fn", [lambda x, i: torch.tril(x, i), lambda x, i: x.triu(diagonal=i), lambda x, i: torch.tensordot(x[0], x[0, :2, :4], dims=i.clamp(0, 0))]
)
def test_a_tensor_of_one_int_may_be_a_number(fn):
    compiled = dovetail.jit(fn)
    for value in (1, -1, 1):
        torch.testing.assert_close(compiled(X, torch.tensor(value)), fn(X, torch.tensor(value)))
