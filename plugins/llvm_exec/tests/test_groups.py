"""Which results share a loop nest."""

from __future__ import annotations

import itertools

import pytest
import torch
from llvm_against_eager import assert_like_eager, assert_same, compiled, program_of
from torch.nn import functional as F

LARGE, SMALL = (160, 128), (8, 16)


def steps(x, y, scale):
    """Two results that have but a number in common."""
    return x * scale + 1, y * scale - 1


def moments(x, y, scale):
    """Results that read one tensor."""
    return x * scale, (x * y) + scale


@pytest.mark.parametrize(("fn", "shape", "nests"), [(steps, LARGE, 2), (steps, SMALL, 1), (moments, LARGE, 1), (moments, SMALL, 1)])
def test_large_results_share_a_loop_nest_where_they_read_a_tensor_together(fn, shape, nests):
    args = torch.randn(shape), torch.randn(shape), torch.tensor(0.5)
    assert program_of(fn, *args).groups == nests
    assert_like_eager(fn, *args)


def test_what_is_computed_from_a_reduction_stays_in_its_loop_nest():
    x, w = torch.randn(LARGE), torch.randn(LARGE[-1])
    assert program_of(lambda x, w: (F.layer_norm(x, LARGE[1:], w), F.softmax(x, -1)), x, w).groups == 1
    assert_like_eager(lambda x, w: (F.layer_norm(x, LARGE[1:], w), F.softmax(x, -1)), x, w, scale=10.0)


def optimiser(parameters, gradients, means, rate):
    """A step in place: as many results as inputs, and a number that all of them read."""
    rate.mul_(0.9)
    for p, g, m in zip(parameters, gradients, means):
        m.mul_(0.9).add_(g, alpha=0.1)
        p.sub_(m * rate)


def test_a_step_over_many_tensors_writes_each_of_them_in_place():
    def drawn(generator):
        return [torch.randn(shape, generator=generator) for shape in (LARGE, (16,), LARGE, (5, 7), LARGE) for _ in range(2)]

    sides = []
    for fn in (compiled(optimiser), optimiser):
        state = [drawn(torch.Generator().manual_seed(i)) for i in range(3)] + [torch.tensor(0.1)]
        where = [x.data_ptr() for x in state[0]]
        for _ in range(3):
            fn(*state)
        assert [x.data_ptr() for x in state[0]] == where
        sides.append(state)
    assert_same(*sides, scale=2.0)


def filtered(x, dim):
    """A recurrence along `dim`, each step of which is a slice of the result."""
    out, state = torch.zeros_like(x), torch.zeros_like(x.select(dim, 0))
    for i in range(x.shape[dim]):
        state = torch.tanh(state * 0.9 + x.select(dim, i) * 0.1)
        out.select(dim, i).copy_(state)
    return out


@pytest.mark.parametrize("shape", [(4, 64), (12, 64), (30, 257)])
@pytest.mark.parametrize("dim", [0, 1])
def test_what_becomes_a_slice_is_computed_once_and_not_for_each_element_of_the_whole(shape, dim):
    x = torch.randn(shape if dim == 0 else shape[::-1])
    assert program_of(lambda x: filtered(x, dim), x).groups >= 2  # the steps, and the result
    assert_like_eager(lambda x: filtered(x, dim), x)


def test_a_slice_that_costs_little_is_computed_where_it_is_read():
    def doubled(x):
        out = torch.zeros(8, 64)
        out[3] = x * 2
        return out

    assert program_of(doubled, torch.randn(64)).groups == 1
    assert_like_eager(doubled, torch.randn(64))


def test_a_slice_of_no_elements_is_stored_nowhere():
    def shifted(x):
        y = x * 0.5
        y[:, 1:].add_((y[:, :-1] * 2 - 1).tanh() + 1)
        return y, y.roll(1, 0)

    assert_like_eager(shifted, torch.randn(3, 1))


PIECES = [  # of a matrix: whole blocks, and parts that have one element for a row or a column of such a block
    lambda x: x[:2],
    lambda x: x[:, :2],
    lambda x: x[0, :2],
    lambda x: x[:2, 0],
    lambda x: x[1::2].T,
    lambda x: x[0],
]


@pytest.mark.parametrize("pieces", list(itertools.permutations(range(len(PIECES)), 3)), ids=str)
def test_what_there_is_once_for_a_row_is_stored_once(pieces):
    assert_like_eager(lambda x: [PIECES[i](x) + 1 for i in pieces], torch.randn(4, 4))
