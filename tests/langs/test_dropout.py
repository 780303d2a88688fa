"""Dropout: seeds, modes and writing in place."""

from __future__ import annotations

import math

import harness
import pytest
import torch
import torch.nn.functional as F
from harness import agrees, gradients_agree, raises_as_eager
from torch import nn

import dovetail

X = torch.randn(4, 3, 5, 6)
DROPS = {
    "dropout": F.dropout,
    "dropout1d": lambda x, *rest: F.dropout1d(x[0], *rest),
    "dropout2d": F.dropout2d,
    "dropout3d": lambda x, *rest: F.dropout3d(x[None], *rest),
    "alpha_dropout": F.alpha_dropout,
    "feature_alpha_dropout": F.feature_alpha_dropout,
}


def seeded(run, x):
    torch.manual_seed(7)
    return run(x)


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_a_seed_gives_eagers_numbers_whole_and_decomposed(drop, p):
    def fn(x):
        return DROPS[drop](x, p, True)

    want = seeded(fn, X)
    for way in harness.ways().values():
        got = seeded(lambda x: harness.ours(fn, (x,), {}, way).leaves[0], X)  # noqa: B023
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("drop", DROPS)
def test_gradients(drop):
    gradients_agree(lambda x: DROPS[drop](x, 0.3, True), X)


@pytest.mark.parametrize("drop", DROPS)
def test_nothing_is_recorded_where_eager_returns_its_input(drop):
    traced = dovetail.make_trace(lambda x: F.dropout(x, 0.3, training=False))(X)
    assert not traced.lines and traced.outputs is traced.inputs[0]
    agrees(lambda x: DROPS[drop](x, 0.3, False), X)


@pytest.mark.parametrize("drop", [F.dropout, F.dropout2d, F.alpha_dropout, F.feature_alpha_dropout])
@pytest.mark.parametrize("training", [True, False])
def test_in_place(drop, training):
    def fn(x):
        return drop(x, 0.3, training, inplace=True)

    mine, eagers = X.clone(), X.clone()
    seeded(fn, eagers)
    assert seeded(dovetail.jit(fn), mine) is mine
    assert torch.equal(mine, eagers)


def test_a_module_follows_its_mode():
    module = nn.Sequential(nn.Dropout(0.4), nn.Dropout2d(0.4), nn.AlphaDropout(0.4))
    compiled = dovetail.jit(module)
    for training in (True, False, True):
        module.train(training)
        assert torch.equal(seeded(compiled, X), seeded(module, X))


def test_two_draws_differ():
    a, b = dovetail.jit(lambda x: (F.dropout(x), F.dropout(x)))(X)
    assert not torch.equal(a, b)


def test_a_narrow_dtype_does_not_round_the_probability():
    fn = dovetail.jit(lambda x: F.dropout(x, 0.003), executors=[harness.prims_only()])
    dropped = (fn(torch.ones(200_000, dtype=torch.bfloat16)) == 0).float().mean().item()
    assert 0.002 < dropped < 0.004


def test_errors_are_eagers():
    raises_as_eager(lambda x: F.dropout(x, 1.5), X)
    raises_as_eager(lambda x: torch.dropout(x, -0.1, True), X)
    raises_as_eager(lambda x: F.dropout(x.long()), X)
    raises_as_eager(lambda x: torch.feature_dropout(x[0, 0, 0], 0.5, True), X)


@pytest.mark.parametrize("probability", [-0.1, 1.5, math.nan])
def test_a_probability_that_is_none_raises_the_error_of_eager_mode(probability):
    raises_as_eager(lambda x: F.dropout(x, probability), X)
