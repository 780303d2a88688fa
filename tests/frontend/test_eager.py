"""Symbols called on real tensors run, so that prims can be tried at the prompt."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail import devices, dtypes, prims


def test_a_prim_runs_on_real_tensors():
    x = torch.randn(2, 3)
    torch.testing.assert_close(prims.sin(x), torch.sin(x))
    var, mean = prims.var_mean(x, dims=(1,), correction=0)
    torch.testing.assert_close((var, mean), torch.var_mean(x, dim=1, correction=0))
    torch.testing.assert_close(prims.cat([x, x], dim=0), torch.cat([x, x]))


def test_a_prim_that_makes_a_tensor_runs():
    made = prims.full(shape=(2,), value=3.0, dtype=dtypes.float32, device=devices.cpu)
    assert made.tolist() == [3, 3]


def test_a_prim_is_as_strict_as_while_tracing():
    with pytest.raises(RuntimeError, match=r"prims.add"):
        prims.add(torch.ones(2), torch.ones(3))


def test_a_prim_without_tensors_says_what_it_wants():
    with pytest.raises(dovetail.errors.NotTracing, match="expected a tensor among its arguments"):
        prims.sin("x")
