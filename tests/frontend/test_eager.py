"""Symbols called on real tensors run, so that prims can be tried at the prompt."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail import devices, dtypes, prims
from dovetail.extend.advanced import make_symbol


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


def test_a_symbol_of_ones_own_may_decompose_to_functions_of_torch():
    def program(x, weight, bias=None):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias)) + x.mean()

    symbol = make_symbol("test_eager.gelu_linear", program=program, replace=True)
    x, weight = torch.randn(3, 4), torch.randn(5, 4)
    torch.testing.assert_close(symbol(x, weight), program(x, weight))
    torch.testing.assert_close(symbol(x, weight, torch.ones(5)), program(x, weight, torch.ones(5)))
