"""Segments are tried beside the reference and verified as straight programs are, and a function that mostly ends in eager mode is not compiled."""

from __future__ import annotations

import warnings

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of

import dovetail
from dovetail.extend import OperatorExecutor, get_grad, put_grad


@pytest.fixture(autouse=True)
def trial_folder(tmp_path, monkeypatch):
    """Keep disagreements in a folder of the test."""
    monkeypatch.setenv("DOVETAIL_TRIAL_FOLDER", str(tmp_path))
    monkeypatch.delenv("DOVETAIL_TRIAL", raising=False)


def executor(operation, function, **more):
    """Return an executor that runs one operation."""
    ex = OperatorExecutor("own", version="1")
    ex.implements(operation, function, **more)
    return ex


def branching(x):
    y = x * 2
    if y.sum() > 0:
        y = y.tanh()
    while y.abs().max() > 0.5:
        y = y * 0.5
    return y


def shifted(input):
    return torch.tanh(input) + 1e-2


def disagreements(fn, calls):
    """Return the warnings of wrong kernels; every call has to return what eager mode does."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in calls:
            agrees(fn, branching, x)
    return [each.message for each in caught if isinstance(each.message, dovetail.DisagreementWarning)]


def test_a_wrong_kernel_of_a_segment_is_caught_by_the_call_that_runs_it_first():
    fn = compiled(branching, executors=[executor(torch.tanh, shifted), "torch"])
    ones = torch.ones(4)
    assert disagreements(fn, [-ones]) == []
    (warned,) = disagreements(fn, [ones, ones, -ones])
    assert "own disagrees with the reference in torch.tanh" in str(warned)
    assert any("own disagreed with the reference" in reason for reason in dovetail.cache_misses(fn))
    assert "own" not in {row.actual for row in dovetail.explain(fn).rows}


def test_explain_shows_what_agreed_in_which_segment():
    fn = compiled(branching, executors=[executor(torch.tanh, torch.tanh), "torch"])
    assert disagreements(fn, [torch.ones(4), torch.ones(4)]) == []
    (row,) = dovetail.explain(fn).trials
    assert (row.program, row.operation, row.message, row.tries) == ("segment 1", "torch.tanh", "agreed, largest error 0 ulp", 2)


def test_trials_of_a_segment_become_rare():
    runs = []

    def counted(input):
        runs.append(1)
        return torch.tanh(input)

    fn = compiled(branching, executors=[executor(torch.tanh, counted), "torch"])
    for _ in range(20):
        fn(torch.ones(4))
    (segment,) = [each for each in graph_of(fn).programs.values() if each.trial is not None]
    assert segment.trial.count == 20 and segment.trial.due == 21 and segment.trial.tried[0].tries == 6  # calls 1, 2, 3, 5, 8 and 13
    # The first trial runs the line once more, others twice, and the second also on the inputs of the first and on its own in their memory.
    assert len(runs) == 20 + 2 * 6 + 1


def test_a_wrong_gradient_of_a_segment_never_reaches_the_user():
    def grad(x):
        out = torch.tanh(x)
        put_grad(x, get_grad(out) * 2)
        return out

    fn = compiled(branching, executors=[executor(torch.tanh, torch.tanh, grad=grad), "torch"])
    warned = 0
    for _ in range(3):
        x, y = (torch.full((4,), 0.3).requires_grad_() for _ in range(2))
        branching(x).sum().backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fn(y).sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
        assert not [each for each in caught if "report it as a bug" in str(each.message)]
        warned += len(caught)
    assert warned == 1


def test_verify_compares_the_segments_of_a_call_and_writes_nothing():
    seen = []

    def writing(x):
        y = branching(x)
        seen.append(1)
        x.add_(y)
        return y

    x = torch.ones(4)
    agreed = dovetail.verify(compiled(writing, executors=[executor(torch.tanh, torch.tanh), "torch"]), x)
    assert agreed and agreed.compared == 1 and agreed.executors == ("own",)
    wrong = dovetail.verify(compiled(writing, executors=[executor(torch.tanh, shifted), "torch"]), x)
    assert wrong.first.operation == "torch.tanh" and wrong.first.program == "segment 1" and wrong.end
    assert seen == [] and torch.equal(x, torch.ones(4))


def test_verify_compares_backwards_and_masks():
    def masked(x):
        picked = x[x > 0]
        return (picked.tanh() if picked.sum() > 1 else picked).sum()

    x = torch.linspace(-1, 2, 6).requires_grad_()
    ex = executor(torch.tanh, torch.tanh)
    agreed = dovetail.verify(compiled(masked, executors=[ex, "torch"]), x)
    assert agreed and agreed.compared == 1 and x.grad is None


def test_verify_names_the_decisions_that_a_wrong_kernel_changes():
    def decided(x):
        y = x.tanh()
        return y + 1 if y.max() > 0.5 else y - 1

    wrong = dovetail.verify(compiled(decided, executors=[executor(torch.tanh, lambda input: input * 0), "torch"]), torch.ones(4))
    assert wrong.end.startswith("not the same decisions were taken, as ") and "test_checks.py" in wrong.end


def test_verify_raises_the_error_of_the_function():
    def failing(x):
        if x.sum() > 0:
            raise ValueError("positive")
        return x

    with pytest.raises(ValueError, match="positive"):
        dovetail.verify(compiled(failing), torch.ones(2))


def listed(x):
    seen = []
    while x.sum() < 20:
        x = x + 1
        seen.append(x)
    return x, len(seen)


def test_a_function_whose_calls_all_end_in_eager_mode_starts_there_soon():
    fn = compiled(listed)
    with dovetail.use(decision_limit=3), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            agrees(fn, listed, torch.zeros(2))
        assert graph_of(fn).eager is None
        agrees(fn, listed, torch.zeros(2))
    assert graph_of(fn).eager == "4 of 4 calls ended in eager mode"


def test_calls_that_raise_are_not_counted_among_those_that_end_in_eager_mode():
    def checked(x):
        if (x < 0).any():
            raise ValueError("negative")
        return x.sqrt() * 2

    fn = compiled(checked)
    for _ in range(20):
        with pytest.raises(ValueError, match="negative"):
            fn(-torch.ones(2))
    agrees(fn, checked, torch.ones(2))
    assert graph_of(fn).eager is None and fn.cache_info().segments == 2


def test_a_function_whose_calls_mostly_end_in_eager_mode_starts_there():
    fn = compiled(listed)
    with dovetail.use(decision_limit=3), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agrees(fn, listed, torch.full((2,), 11.0))
        for _ in range(17):
            agrees(fn, listed, torch.zeros(2))
    assert graph_of(fn).eager == "16 of 17 calls ended in eager mode"
    (start,) = dovetail.explain(fn).decisions
    assert str(start.outcomes[0]) == "eager mode, since 16 of 17 calls ended in eager mode"


def test_explain_says_why_a_way_runs_eagerly():
    def backwards(x):
        y = (x * x).sum()
        if y > 0:
            y.register_hook(lambda g: g)
            y.backward()
        return x.grad

    fn = compiled(backwards)
    for _ in range(2):
        x = torch.ones(2, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.testing.assert_close(fn(x), torch.full((2,), 2.0))
    (outcome,) = dovetail.explain(fn).decisions[1].outcomes
    assert str(outcome).startswith("True: eager mode, since calls run eagerly after a condition at ")
    assert "backward() after a decision is not traced" in outcome.reason and outcome.count == 1
