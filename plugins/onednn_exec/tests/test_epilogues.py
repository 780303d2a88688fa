"""Functions behind linear layers become a part of them, where nobody needs what is between."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from onednn_against_eager import assert_same, compiled, ran

import dovetail
from dovetail_onednn_exec.executor import onednn_executor
from dovetail_onednn_exec.matching import Epilogues, joined

X, W, B = torch.randn(5, 8), torch.randn(8, 8), torch.randn(8)
JOINED = {
    "relu": lambda x, w, b: F.relu(F.linear(x, w, b)),
    "method relu": lambda x, w, b: F.linear(x, w, b).relu(),
    "gelu": lambda x, w, b: F.gelu(F.linear(x, w, b)),
    "gelu by tanh": lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
    "silu": lambda x, w, b: F.silu(F.linear(x, w)),
    "sigmoid": lambda x, w, b: torch.sigmoid(F.linear(x, w, b)),
    "tanh": lambda x, w, b: torch.tanh(F.linear(x, w, bias=b)),
    "residual": lambda x, w, b: x + F.linear(x, w, b),
    "residual behind": lambda x, w, b: F.linear(x, w, b) + x,
}
APART = {
    "read twice": lambda x, w, b: (y := F.linear(x, w, b)).relu() * y,
    "returned": lambda x, w, b: ((y := F.linear(x, w, b)), F.relu(y)),
    "twice the same": lambda x, w, b: (y := F.linear(x, w, b)) + y,
    "a number": lambda x, w, b: F.linear(x, w, b) + 1,
    "broadcast": lambda x, w, b: F.linear(x, w) + b,
    "scaled": lambda x, w, b: torch.add(F.linear(x, w, b), x, alpha=2),
    "another function": lambda x, w, b: F.elu(F.linear(x, w, b)),
}


@pytest.mark.parametrize("name", JOINED)
def test_joined(name):
    fn = JOINED[name]
    ours = compiled(lambda x, w, b: fn(x, w, b), passes=[Epilogues()])
    assert_same(ours(X, W, B), fn(X, W, B))
    assert ran(ours) == ["onednn.linear_epilogue"]


@pytest.mark.parametrize("name", APART)
def test_apart(name):
    fn = APART[name]
    ours = compiled(lambda x, w, b: fn(x, w, b), passes=[Epilogues()])
    torch.testing.assert_close(ours(X, W, B), fn(X, W, B))
    assert "onednn.linear_epilogue" not in ran(ours)


def test_a_chain_is_cut_in_pairs():
    def block(x, w, b):
        return x + F.linear(F.gelu(F.linear(x, w, b)), w, b)

    ours = compiled(block, passes=[Epilogues()])
    assert_same(ours(X, W, B), block(X, W, B))
    assert ran(ours) == ["onednn.linear_epilogue"] * 2


def test_what_was_joined_in_vain_runs_as_before():
    ours = compiled(JOINED["gelu"], onednn_executor(choose="never"), passes=[Epilogues()])
    assert torch.equal(ours(X, W, B), JOINED["gelu"](X, W, B))
    assert [str(line.symbol) for line in dovetail.last_traces(ours)[-1].lines if line.implementation] == [
        "torch.nn.functional.linear",
        "torch.nn.functional.gelu",
    ]


def test_programs_that_are_differentiated_stay_as_they_are():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    ours = compiled(model, passes=[Epilogues()])
    ours(X).sum().backward()
    got = model[0].weight.grad.clone()
    model.zero_grad()
    model(X).sum().backward()
    assert_same(got, model[0].weight.grad)
    assert "onednn.linear_epilogue" not in ran(ours)
    with torch.no_grad():
        assert_same(ours(X), model(X))
    assert ran(ours) == ["onednn.linear_epilogue"]


def test_the_pass_leaves_a_valid_trace():
    before = dovetail.trace(JOINED["gelu"])(X, W, B)
    after = joined(before)
    assert [str(line.symbol) for line in after.lines] == ["onednn.linear_epilogue"]
    assert [str(inner.symbol) for inner in after.lines[0].body] == ["torch.nn.functional.linear", "torch.nn.functional.gelu"]
    assert after.outputs is before.outputs and after.inputs is before.inputs
    assert after.lines[0].out is before.lines[1].out
    assert len(before.lines) == 2
