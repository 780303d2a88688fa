"""What is added to a product is added by the kernel that reads the result."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import EX, assert_like_eager, assert_same, compiled
from torch.nn import functional as F

import dovetail
from dovetail.extend import OperatorExecutor
from dovetail_llvm_exec.region.biases import split_bias

X, W, B = torch.randn(6, 32), torch.randn(16, 32), torch.randn(16)
M = torch.randn(6, 16)

TAKEN_APART = {
    "linear": lambda x, w, b, m: F.gelu(F.linear(x, w, b)),
    "of a keyword": lambda x, w, b, m: F.linear(x, w, bias=b) + m,
    "through a view": lambda x, w, b, m: F.linear(x, w, b).unflatten(1, (2, 8)).transpose(0, 1).exp(),
    "copied": lambda x, w, b, m: F.linear(x, w, b).t().contiguous(),
    "addmm": lambda x, w, b, m: torch.addmm(b, x, w.t()).tanh(),
    "addmm of a matrix, scaled": lambda x, w, b, m: torch.addmm(m, x, w.t(), beta=0.5, alpha=2).sum(1),
    "returned as well": lambda x, w, b, m: ((y := F.linear(x, w, b)), y.sigmoid()),
    "multiplied as well": lambda x, w, b, m: (torch.mm(y := F.linear(x, w, b), w), y.amax(0)),
}
WHOLE = {
    "returned": lambda x, w, b, m: (F.linear(x, w, b), m * 2),
    "viewed": lambda x, w, b, m: (F.linear(x, w, b).t(), m * 2),
    "multiplied": lambda x, w, b, m: F.linear(x, w, b) @ w + 1,
}
WITH_SUMS = {"torch.nn.functional.linear", "torch.addmm"}


def products(fn) -> list[str]:
    """The operations that others run, of the program that ran last."""
    lines = dovetail.last_traces(fn)[-1].lines
    return [str(line.symbol) for line in lines if line.implementation is not None and line.implementation.executor != "llvm"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TAKEN_APART)
def test_a_sum_that_a_kernel_reads_is_made_by_the_kernel(name, dtype):
    ours = assert_like_eager(TAKEN_APART[name], *(t.to(dtype) for t in (X, W, B, M)), scale=40.0)
    assert {"prims.linear", "prims.matmul"}.intersection(products(ours)) and not WITH_SUMS.intersection(products(ours))


@pytest.mark.parametrize("name", WHOLE)
def test_a_sum_that_no_kernel_reads_stays_in_the_product(name):
    ours = assert_like_eager(WHOLE[name], X, W, B, M, scale=40.0)
    assert "torch.nn.functional.linear" in products(ours)


def test_a_product_of_halves_is_rounded_once():
    args = [t.bfloat16() for t in (X, W, B, M)]
    ours = assert_like_eager(TAKEN_APART["linear"], *args, scale=2.0)
    assert products(ours) == ["torch.nn.functional.linear"]


def test_an_executor_that_runs_both_as_one_keeps_them():
    mine = OperatorExecutor("mine")
    mine.implements(F.linear, lambda input, weight, bias=None: F.linear(input, weight, bias))
    ours = dovetail.jit(TAKEN_APART["linear"], executors=[EX, mine, "torch"])
    assert_same(ours(X, W, B, M), TAKEN_APART["linear"](X, W, B, M), scale=40.0)
    assert products(ours) == ["torch.nn.functional.linear"]


def test_a_training_step_is_right():
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32), torch.nn.LayerNorm(32))
    ours = compiled(model)
    ours(X).square().sum().backward()
    mine = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(X).square().sum().backward()
    assert_same(mine, [p.grad for p in model.parameters()], scale=100.0)
    assert products(ours) == ["prims.linear"] * 2


def test_the_pass_leaves_the_program_that_it_was_given():
    before = dovetail.make_trace(TAKEN_APART["linear"])(X, W, B, M)
    after = split_bias(before, lambda line: True, lambda line: False)
    assert [str(line.symbol) for line in before.lines] == ["torch.nn.functional.linear", "torch.nn.functional.gelu"]
    names = ["prims.linear", "prims.broadcast_in_dim", "prims.add", "torch.nn.functional.gelu"]
    assert [str(line.symbol) for line in after.lines] == names
    assert after.lines[2].out is before.lines[0].out and after.outputs is before.outputs
    assert split_bias(before, lambda line: False, lambda line: False) is before
    assert split_bias(before, lambda line: True, lambda line: True) is before
