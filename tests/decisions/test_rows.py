"""x[i] with a tensor i: a view, as in eager mode, where the program writes to it or returns it."""

from __future__ import annotations

import copy

import pytest
import torch
from decisions.helpers import compiled

import dovetail


def written(x, i):
    x[i].add_(1)
    return x.sum()


def written_then_read(x, i):
    row = x[i]
    row.mul_(3)
    x[i, 1] = 7
    return row * 1


def source_written(x, i):
    row = x[i]
    x.mul_(2)
    return row + 0


def sliced(x, i):
    x[i : i + 2].neg_()
    x[:, i % 3].add_(1)
    return x.sum()


def each_of_several(x, i):
    for at in torch.stack([i, (i * 2) % 6]):
        x[at].sub_(at)
    return x.sum()


def exchanged(x, i):
    x[i], x[5 - i] = x[5 - i], x[i]
    return x.sum()


def of_a_result(x, i):
    y = x * 2
    y[i].mul_(5)
    return y


def behind_a_branch(x, i):
    row = x[i]
    if row.sum() > 0:
        row.zero_()
    return x.sum()


RETURNED = {
    "a row": lambda x, i: x[i],
    "an element": lambda x, i: x[i, 1],
    "a column": lambda x, i: {"column": x[:, i % 3]},
    "two rows of one result": lambda x, i: (lambda y: [y[i], y[i]])(x * 2),
    "a row beside its source": lambda x, i: (lambda y: [y, y[-i]])(x * 2),
}
PROGRAMS = (written, written_then_read, source_written, sliced, each_of_several, exchanged, of_a_result, behind_a_branch)


@pytest.mark.parametrize("index", [torch.int64, torch.int8])
@pytest.mark.parametrize("fn", [*PROGRAMS, *RETURNED.values()], ids=[*[fn.__name__ for fn in PROGRAMS], *RETURNED])
def test_writes_reach_the_source_of_a_row(fn, index):
    fast = compiled(fn)
    for i in (0, 1, 4, 2, 5, 3):
        x = torch.randn(6, 3)
        ours, theirs = x.clone(), x.clone()
        results = fast(ours, torch.tensor(i, dtype=index)), fn(theirs, torch.tensor(i, dtype=index))
        for result in results:
            first = next(iter(result.values())) if isinstance(result, dict) else result[0] if isinstance(result, list) else result
            first.add_(1)
        torch.testing.assert_close(*results)
        assert torch.equal(ours, theirs)


def test_gradients_of_written_and_returned_rows():
    def fn(x, i):
        y = x * 2
        y[i].mul_(3)
        return y, x[i]

    fast = compiled(fn)
    for i in range(4):
        x = torch.randn(4, 3, requires_grad=True)
        other = copy.deepcopy(x)
        for each, call in ((x, fast), (other, fn)):
            y, row = call(each, torch.tensor(i))
            (y.sum() + row.square().sum()).backward()
        torch.testing.assert_close(x.grad, other.grad)


def test_what_is_read_or_known_is_no_decision():
    def read(x, i):
        y = x * 2
        return y[i], x[i] + 1, x[i, [0, 1]]

    def known(x, i):
        row = x[torch.tensor(1)]
        row.add_(1)
        return row

    x, i = torch.randn(4, 3), torch.tensor(2)
    for fn in (read, known):
        fast, eager = dovetail.jit(fn, decisions="error"), copy.deepcopy(x)
        torch.testing.assert_close(fast(x, i), fn(eager, i))
        assert torch.equal(x, eager)
