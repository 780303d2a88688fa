"""What an executor does to a program before its operations are offered, and what a claim says."""

from __future__ import annotations

import json

import pytest
import torch
from stand_ins import F, Pointwise

import dovetail
from dovetail import prims
from dovetail.errors import ExecutorError
from dovetail.executors import Priority, rewrite
from dovetail.executors.discovery.plugin_errors import ContractError
from dovetail.extend import BoundSymbol, Claim, OperatorExecutor
from dovetail.extend.advanced import make_symbol, recording, symbol_for
from dovetail.trace import check

RELU, LINEAR = symbol_for(torch.relu), symbol_for(F.linear)
linear_relu = make_symbol("test_prepare.linear_relu", program=lambda input, weight: torch.relu(F.linear(input, weight)))


class Joins(OperatorExecutor):
    """Runs a linear layer and the relu behind it as one, where `takes` says so."""

    def __init__(self, takes=True):
        super().__init__("joins")
        self.implements(linear_relu, lambda input, weight: torch.relu(F.linear(input, weight)), checker=lambda *_: takes)
        self.seen = []

    def prepare(self, trace, executors):
        self.seen.append((trace.name, [ex.name for ex in executors]))
        new = trace.derive("joined")
        for line in trace.lines:
            first = new.lines[-1] if new.lines else None
            if line.symbol is RELU and first is not None and first.symbol is LINEAR and line.args == (first.out,):
                new.lines.pop()
                line = BoundSymbol(linear_relu, first.args[:2], {}, line.out, first.reads, body=(first, line))
            new.lines.append(line)
        return new


class Does(OperatorExecutor):
    """Prepares by `what`."""

    def __init__(self, what, name="does"):
        super().__init__(name)
        self.what = what

    def prepare(self, trace, executors):
        return self.what(trace)


def layer(x, w):
    return torch.relu(F.linear(x, w))


X, W = torch.randn(3, 4), torch.randn(5, 4)


def test_lines_are_joined_in_a_pass_of_its_own():
    ex = Joins()
    ours = dovetail.jit(layer, executors=[ex])
    torch.testing.assert_close(ours(X, W), layer(X, W))
    assert [trace.made_by for trace in dovetail.last_traces(ours)][-4:] == ["prepare joins", "dispatch", "schedule", "release"]
    assert ex.seen == [("computation", ["joins", "torch"])]
    (row,) = dovetail.explain(ours).rows
    assert (row.operation, row.actual) == ("test_prepare.linear_relu", "joins")


def test_what_is_refused_after_all_runs_as_before():
    ours = dovetail.jit(layer, executors=[Joins("has no kernel for that")])
    assert torch.equal(ours(X, W), layer(X, W))
    rows = dovetail.explain(ours).rows
    assert [(row.operation, row.actual) for row in rows] == [
        ("test_prepare.linear_relu", None),
        ("torch.nn.functional.linear", "torch"),
        ("torch.relu", "torch"),
    ]
    assert "joins refuses: has no kernel for that" in str(dovetail.explain(ours))


def test_forward_and_backward_are_prepared_and_the_gradients_are_right():
    ex = Joins()
    w = W.clone().requires_grad_()
    ours = dovetail.jit(layer, executors=[ex])
    ours(X, w).sum().backward()
    got, w.grad = w.grad, None
    layer(X, w).sum().backward()
    torch.testing.assert_close(got, w.grad)
    assert [name for name, _ in ex.seen] == ["forward", "backward"]
    assert "prepare joins" in [trace.made_by for trace in dovetail.last_traces(ours)]
    assert "prepare joins" not in [trace.made_by for trace in dovetail.last_backward_traces(ours)]  # there it changes nothing


def test_executors_prepare_in_the_order_in_which_they_are_asked():
    seen = []
    first, second = (Does(lambda trace, name=name: seen.append(name) or trace, name) for name in ("first", "second"))
    dovetail.jit(torch.sin, executors=[second, first])(X)
    assert seen == ["second", "first"]


def test_a_program_that_nobody_changes_is_no_pass():
    trace = dovetail.make_trace(layer)(X, W)
    assert rewrite(trace, Priority([Does(lambda trace: trace), Does(lambda trace: trace.derive("same", lines=list(trace.lines)))])) == []
    assert [after.made_by for after in rewrite(trace, Priority([Joins()]))] == ["prepare joins"]


def test_an_error_names_the_executor():
    def fails(trace):
        raise KeyError("what")

    with pytest.raises(ExecutorError, match=r"prepare of does 0 .* raised KeyError: 'what'\n  to go on without it: leave does out"):
        dovetail.jit(torch.sin, executors=[Does(fails)])(X)


@pytest.mark.parametrize(
    "outputs, message",
    [
        (lambda trace: (), "has 0 outputs, in the place of 1"),
        (lambda trace: trace.inputs[1], r'returns t1: "cpu f32\[5, 4\]" in the place of'),
    ],
)
def test_a_program_that_answers_otherwise_is_refused(outputs, message):
    ex = Does(lambda trace: trace.derive("wrong", lines=list(trace.lines), outputs=outputs(trace)))
    with pytest.raises(ContractError, match=f"does 0 .* broke the contract of prepare: its program {message}"):
        dovetail.jit(layer, executors=[ex])(X, W)


def test_other_inputs_and_no_trace_are_refused():
    with pytest.raises(ContractError, match="has the inputs"):
        dovetail.jit(layer, executors=[Does(lambda trace: trace.derive("wrong", inputs=trace.inputs[::-1], lines=trace.lines))])(X, W)
    with pytest.raises(ContractError, match="it returned no Trace"):
        dovetail.jit(layer, executors=[Does(lambda trace: None)])(X, W)


def test_the_contract_is_checked_line_by_line_when_asked(monkeypatch):
    ex = Does(lambda trace: trace.derive("wrong", lines=trace.lines[::-1]))
    monkeypatch.setenv("DOVETAIL_CHECK", "1")
    with pytest.raises(ContractError, match=r"broke the contract of prepare: .* is read by torch.relu before it is computed"):
        dovetail.jit(layer, executors=[ex])(X, W)


def test_a_result_may_be_computed_anew():
    def doubled(trace):
        new = trace.derive("doubled", lines=list(trace.lines))
        with recording(new):
            new.outputs = prims.clone(trace.outputs)
        return check(new)

    assert torch.equal(dovetail.jit(layer, executors=[Does(doubled)])(X, W), layer(X, W))


# Claims.


def claiming(message):
    ex = OperatorExecutor("says")
    ex.implements(torch.sin, torch.sin, checker=lambda input: message)
    ours = dovetail.jit(lambda x: torch.sin(x) + 1, executors=[ex])
    assert torch.equal(ours(X), torch.sin(X) + 1)
    return dovetail.explain(ours)


def test_a_claim_says_why_and_explain_shows_it():
    found = claiming(Claim("takes 2 us here, and 5 us without"))
    assert "\n    says runs it: takes 2 us here, and 5 us without\n" in str(found)
    candidate = json.loads(found.to_json())["rows"][0]["candidates"][0]
    assert candidate == {"executor": "says", "status": "runs", "message": "runs it: takes 2 us here, and 5 us without"}
    assert "runs it: takes 2 us here, and 5 us without" in found.to_html()
    assert found.rows[0].refusals == () and found.executors[0].claims == 1


@pytest.mark.parametrize("message", [True, Claim("")])
def test_a_claim_without_a_sentence_is_a_plain_yes(message):
    assert "says runs it" not in str(claiming(message))


def test_a_claim_of_a_region_stands_with_each_of_its_lines():
    class Counts(Pointwise):
        def worth(self, region):
            return Claim(f"saves {len(region.lines) - 1} passes over memory")

    ours = dovetail.jit(lambda x: torch.sin(x) * 2 + 1, executors=[Counts()])
    torch.testing.assert_close(ours(X), torch.sin(X) * 2 + 1)
    message = [row.candidates[0].message for row in dovetail.explain(ours).rows]
    assert message == ["runs it: saves 2 passes over memory"] * 3
