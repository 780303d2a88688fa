"""The order of lines: another order of the same program, which never holds more at once."""

from __future__ import annotations

import programs
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail import prims
from dovetail.dtypes import float32
from dovetail.executors import Priority, dispatch
from dovetail.extend.advanced import get_executor, to_callable
from dovetail.prims import TensorSpec
from dovetail.trace import BackwardTrace, check, cse, dce, functionalize, peak_bytes, schedule

F = torch.nn.functional
BIG = TensorSpec((4, 8), float32)


def names(trace):
    return [line.symbol.name for line in trace.lines]


def test_what_is_read_late_is_computed_late():
    def program(x, y):
        a = prims.exp(x)
        b = prims.sum(prims.sin(y), dims=(0, 1))
        return b, prims.sum(a, dims=(0, 1))

    before = programs.record(program, BIG, BIG)
    after = check(schedule(before))
    assert names(after) == ["sin", "sum", "exp", "sum"]
    assert (peak_bytes(before), peak_bytes(after)) == (2 * BIG.numel * 4 + 4, BIG.numel * 4 + 8)


def test_a_view_waits_and_what_shrinks_does_not():
    def program(x, y):
        view = prims.transpose(y, order=(1, 0))
        small = prims.sum(prims.exp(x), dims=(0,))
        late = prims.sum(prims.sin(x), dims=(0,))
        return prims.add(small, late), prims.neg(view)

    after = schedule(programs.record(program, BIG, BIG))
    assert names(after) == ["transpose", "exp", "sum", "sin", "sum", "add", "neg"]  # no better: the order stays


def test_lines_with_effects_keep_their_order():
    def program(x):
        first = prims.uniform(shape=(4, 8), low=0.0, high=1.0, dtype=float32, device=x.spec.device)
        a = prims.exp(x)
        second = prims.uniform(shape=(4, 8), low=0.0, high=2.0, dtype=float32, device=x.spec.device)
        return prims.sum(second, dims=(0, 1)), prims.sum(prims.mul(a, first), dims=(0, 1))

    after = check(schedule(programs.record(program, BIG)))
    assert [line.kwargs["high"] for line in after.lines if line.symbol is prims.uniform] == [1.0, 2.0]


def test_a_backward_lets_its_inputs_go_so_they_count():
    trace = programs.record(lambda x, y: (prims.sum(x, dims=(0, 1)), prims.sum(y, dims=(0, 1))), BIG, BIG)
    assert peak_bytes(trace) == 8
    assert peak_bytes(BackwardTrace(**vars(trace))) == 2 * BIG.numel * 4 + 4


UNARY = (torch.sin, torch.neg, lambda x: x @ x, lambda x: x.t(), lambda x: F.softmax(x, -1), lambda x: x.sum(0, keepdim=True).expand(5, 5))
BINARY = (torch.add, torch.mul, torch.matmul)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=16),
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
)
def test_any_program_computes_the_same_and_holds_no_more(steps, wanted):
    def fn(x, y):
        made = [x, y]
        for which, i, j in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(UNARY[which](a) if which < len(UNARY) else BINARY[which - len(UNARY)](a, b))
        return [made[i % len(made)] for i in wanted]

    x, y = torch.linspace(-1, 1, 25, dtype=torch.float64).view(5, 5), torch.linspace(1, 0, 25, dtype=torch.float64).view(5, 5)
    pure, epilogue = functionalize(dovetail.make_trace(fn)(x, y))
    torch_alone = Priority([get_executor("torch")])
    before = dispatch(cse(dce(pure)), torch_alone)
    after = check(schedule(before))
    assert sorted(map(id, after.lines)) == sorted(map(id, before.lines))
    assert peak_bytes(after) <= peak_bytes(before)
    finish = to_callable(dispatch(epilogue, torch_alone))
    for got, want in zip(finish(x, y, *to_callable(after)(x, y)), fn(x, y)):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_a_training_step_holds_no_more_than_eager_saves():
    """Layers whose activations are computed again: each where its own backward reads it, and no two at once."""

    def net(x, *weights):
        for w in weights:
            x = F.gelu(x @ w)
        return x.sum()

    x, weights = torch.randn(64, 64), [torch.randn(64, 64, requires_grad=True) for _ in range(6)]
    fn = dovetail.jit(net, executors=["torch"])
    fn(x, *weights)
    backward = dovetail.last_backward_traces(fn)[-1]
    made = [trace for trace in dovetail.last_backward_traces(fn) if trace.made_by == "schedule"]
    assert len(made) == 1 and peak_bytes(made[0]) <= 18 * 64 * 64 * 4 + 4
    assert backward.made_by == "release"
