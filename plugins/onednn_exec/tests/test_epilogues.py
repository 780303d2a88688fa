"""Functions behind linear layers become a part of them, where nobody needs what is between and oneDNN is faster at both."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from onednn_against_eager import assert_same, compiled, ran

import dovetail
from dovetail.extend import FusionExecutor
from dovetail_onednn_exec import choices
from dovetail_onednn_exec.executor import onednn_executor
from dovetail_onednn_exec.matching import fuse_epilogues
from dovetail_onednn_exec.measure import Row

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
    ours = compiled(lambda x, w, b: fn(x, w, b))
    assert_same(ours(X, W, B), fn(X, W, B))
    assert ran(ours) == ["onednn.linear_epilogue"]


@pytest.mark.parametrize("name", APART)
def test_apart(name):
    fn = APART[name]
    ours = compiled(lambda x, w, b: fn(x, w, b))
    torch.testing.assert_close(ours(X, W, B), fn(X, W, B))
    assert "onednn.linear_epilogue" not in ran(ours)


def test_a_chain_is_cut_in_pairs():
    def block(x, w, b):
        return x + F.linear(F.gelu(F.linear(x, w, b)), w, b)

    ours = compiled(block)
    assert_same(ours(X, W, B), block(X, W, B))
    assert ran(ours) == ["onednn.linear_epilogue"] * 2


def test_what_onednn_would_refuse_stays_apart():
    ours = compiled(JOINED["gelu"], onednn_executor(choose="never"))
    assert torch.equal(ours(X, W, B), JOINED["gelu"](X, W, B))
    assert [trace.made_by for trace in dovetail.last_traces(ours)].count("prepare onednn") == 0
    assert [row.operation for row in dovetail.explain(ours).rows] == ["torch.nn.functional.linear", "torch.nn.functional.gelu"]


def test_the_pass_is_seen_and_every_line_is_accounted_for():
    ours = compiled(JOINED["gelu"])
    ours(X, W, B)
    assert [trace.made_by for trace in dovetail.last_traces(ours)][-4:] == ["prepare onednn", "dispatch", "schedule", "release"]
    (row,) = dovetail.explain(ours).rows
    assert (row.operation, row.actual) == ("onednn.linear_epilogue", "onednn")


RELU_TIMES = {"torch": 30.0, "onednn": 10.0, "beside torch": 25.0}


@pytest.mark.parametrize("beside, together", [(12.0, True), (9.0, False)])
@pytest.mark.parametrize("fuses", [True, False])
def test_beside_a_fusion_executor_it_has_to_be_faster_than_the_product_and_a_pass(measured_as, beside, together, fuses):
    measured_as(Row(RELU_TIMES | {"beside onednn": beside}, {"onednn": 1.0}))
    executors = [onednn_executor(), *([Nothing("nothing")] if fuses else []), "torch"]
    ours = dovetail.jit(lambda x, w, b: F.relu(F.linear(x, w, b)), executors=executors)
    assert_same(ours(X, W, B), F.relu(F.linear(X, W, B)))
    assert ran(ours) == (["onednn.linear_epilogue"] if together or not fuses else ["torch.nn.functional.linear"])


class Nothing(FusionExecutor):
    """It fuses, but nothing of what these programs hold."""

    def can_fuse(self, line):
        return "fuses nothing"


def test_explain_shows_both_times_of_what_it_takes(measured_as):
    measured_as(Row(RELU_TIMES, {"onednn": 1.0}))
    ours = compiled(JOINED["relu"], onednn_executor())
    ours(X, W, B)
    message = "onednn runs it: f32 [5, 8] @ [8, 8] + bias, relu is of a class that takes 10 us with oneDNN and 30 us without"
    assert message in str(dovetail.explain(ours))


@pytest.fixture
def measured_as(monkeypatch):
    """Gives every class a row, as if it had been measured."""

    def becomes(row):
        monkeypatch.setattr(choices, "CHOICES", choices.Choices())
        monkeypatch.setattr("dovetail_onednn_exec.states.CHOICES", choices.CHOICES)
        monkeypatch.setattr(choices, "race", lambda ways: row)

    return becomes


def test_a_backward_is_right_where_its_forward_was_joined():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.GELU())
    ours = compiled(model)
    ours(X).square().sum().backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(X).square().sum().backward()
    for mine, theirs in zip(got, model.parameters(), strict=True):
        assert_same(mine, theirs.grad)
    forward = [str(line.symbol) for line in dovetail.last_traces(ours)[-1].lines if line.implementation]
    assert forward.count("onednn.linear_epilogue") == 1  # the backward of gelu reads what is between
    with torch.no_grad():
        assert_same(ours(X), model(X))
    assert ran(ours) == ["onednn.linear_epilogue"] * 2


def test_the_pass_leaves_a_valid_trace():
    before = dovetail.make_trace(JOINED["gelu"])(X, W, B)
    after = fuse_epilogues(before, lambda line: True)
    assert [str(line.symbol) for line in after.lines] == ["onednn.linear_epilogue"]
    assert [str(inner.symbol) for inner in after.lines[0].body] == ["torch.nn.functional.linear", "torch.nn.functional.gelu"]
    assert after.outputs is before.outputs and after.inputs is before.inputs
    assert after.lines[0].out is before.lines[1].out
    assert len(before.lines) == 2
    assert fuse_epilogues(before, lambda line: False) is before
