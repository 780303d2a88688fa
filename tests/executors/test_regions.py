"""Regions: which of them are worth a kernel, what becomes of the others, and that they can be pickled."""

from __future__ import annotations

import pickle

import dill
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import Pointwise

import dovetail
from dovetail.executors import Priority, dispatch
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.extend import FusionExecutor, OperatorExecutor
from dovetail.extend.advanced import CannotFuse, RegionLimit, get_executor, prims_of, to_callable
from dovetail.trace import check, cse, dce, functionalize

F = torch.nn.functional


class Choosy(Pointwise):
    """Fuses elementwise prims where there are at least `least` of them in a region."""

    def __init__(self, least=2, name="choosy"):
        super().__init__(name)
        self.least, self.asked = least, []

    def worth(self, region):
        names = [line.symbol.name for line in region.lines]
        self.asked.append(names)
        return len(names) >= self.least or f"expected regions of {self.least} operations, got {len(names)}"


def runs(fn):
    """(operation, executor) for each line of the program that runs; a region counts once."""
    return [(line.symbol.name, line.implementation.executor) for line in dovetail.last_traces(fn)[-1].lines if line.implementation]


def test_a_region_that_is_not_worth_it_goes_line_by_line_to_the_executors_behind():
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    fn = dovetail.jit(lambda x, y: (torch.sin(x) * 2 + 1) @ torch.neg(y), executors=[Choosy()])
    torch.testing.assert_close(fn(x, y), (torch.sin(x) * 2 + 1) @ torch.neg(y))
    assert sorted(ex for _, ex in runs(fn)) == ["choosy", "torch", "torch"]
    rows = {row.operation: row for row in dovetail.explain(fn).rows}
    assert rows["torch.sin"].actual == "choosy" and rows["torch.neg"].actual == "torch"
    assert [(each.executor, each.message) for each in rows["torch.neg"].refusals] == [("choosy", "expected regions of 2 operations, got 1")]
    assert "choosy refuses: expected regions of 2 operations, got 1" in str(dovetail.explain(fn))
    (part,) = [part for part in dovetail.explain(fn).executors if part.name == "choosy"]
    assert part.claims == part.operations == 3


class WithoutSilu(Pointwise):
    """Fuses elementwise prims, and leaves silu to whoever runs it whole."""

    def claims_whole(self, line):
        return line.symbol.name != "silu" or "leaves silu whole to others"


def test_a_composite_that_a_fusion_executor_does_not_want_is_offered_whole_to_those_behind():
    x, ex = torch.randn(4), WithoutSilu()
    fn = dovetail.jit(lambda x: F.silu(x + 1) * 2, executors=[ex])
    torch.testing.assert_close(fn(x), F.silu(x + 1) * 2)
    assert ("silu", "torch") in runs(fn)
    row = next(row for row in dovetail.explain(fn).rows if row.operation == "torch.nn.functional.silu")
    assert [(each.executor, each.message) for each in row.refusals] == [("pointwise", "leaves silu whole to others")]
    limited = dovetail.jit(lambda x: F.silu(x + 1) * 2, executors=[RegionLimit(ex, 5)])
    torch.testing.assert_close(limited(x), fn(x))
    assert runs(limited) == runs(fn)


def test_the_parts_of_a_composite_that_no_other_executor_runs_whole_are_fused():
    trace = dce(functionalize(dovetail.make_trace(F.silu)(torch.ones(3)))[0])
    (line,) = dispatch(trace, Priority([WithoutSilu()])).lines
    assert line.implementation.executor == "pointwise" and len(line.body) > 1
    assert all(part.symbol.module == "prims" for part in line.body)


class Reluctant(Pointwise):
    """Fuses elementwise prims, and refuses regions with a sine when they are to be compiled."""

    def __init__(self):
        super().__init__("reluctant")
        self.fused = []

    def fuse(self, region):
        names = [line.symbol.name for line in region.lines]
        if "sin" in names:
            raise CannotFuse("has no sine today")
        self.fused.append(names)
        return super().fuse(region)


def test_a_region_that_cannot_be_fused_goes_to_the_executors_behind_and_explain_says_why():
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    ex = Reluctant()
    fn = dovetail.jit(lambda x, y: (torch.sin(x) * 2) @ torch.neg(y), executors=[ex])
    torch.testing.assert_close(fn(x, y), (torch.sin(x) * 2) @ torch.neg(y))
    assert [name for name, executor in runs(fn) if executor == "torch"] == ["sin", "mul", "matmul"]
    rows = {row.operation: row for row in dovetail.explain(fn).rows}
    assert [(each.executor, each.message) for each in rows["torch.mul"].refusals] == [("reluctant", "has no sine today")]
    assert rows["torch.neg"].actual == "reluctant" and ex.fused == [["neg"]]
    assert "reluctant refuses: has no sine today" in str(dovetail.explain(fn))


def test_a_composite_that_is_given_back_is_offered_whole_and_then_in_parts():
    ex = Choosy(least=99)
    fn = dovetail.jit(lambda x: F.silu(x), executors=[ex])
    x = torch.randn(3)
    torch.testing.assert_close(fn(x), F.silu(x))
    assert runs(fn) == [("silu", "torch")] and ex.asked == [["silu"]]
    own = OperatorExecutor("own")
    parts = ("neg", "exp", "add", "div")
    for name in parts:
        own.implements(f"prims.{name}", get_executor("torch").implementation(getattr(dovetail.prims, name)).fn)
    trace = dispatch(dce(functionalize(dovetail.make_trace(F.silu)(x))[0]), Priority([Choosy(least=99), own]))
    assert [line.implementation.executor for line in trace.lines] == ["own"] * 4
    assert [(d.line.symbol.name, d.depth) for d in trace.dispatch_record.decisions] == [("silu", 0), *((name, 1) for name in parts)]
    assert [(note.executor, note.verdict) for note in trace.dispatch_record.offers] == [
        ("choosy", "expected regions of 99 operations, got 1"),
        ("own", "does not implement torch.nn.functional.silu"),
        *[("choosy", "expected regions of 99 operations, got 1"), ("own", True)] * 4,
    ]


def test_what_one_fusion_executor_gives_back_the_next_may_fuse():
    fn = dovetail.jit(lambda x: torch.sin(x) + 1, executors=[Choosy(3, "first"), Choosy(2, "second")])
    assert torch.equal(fn(torch.zeros(2)), torch.ones(2)) and [ex for _, ex in runs(fn)] == ["second"]


def test_an_execution_transform_behind_a_region_that_is_given_back():
    own = OperatorExecutor("own")
    own.implements(torch.neg, None, execution_transform=lambda input: dovetail.prims.mul(input, -1.0))
    x = torch.randn(3)
    fn = dovetail.jit(lambda x: torch.exp(torch.neg(x)).sum() + torch.neg(x).sum(), executors=[Choosy(3), own])
    torch.testing.assert_close(fn(x), torch.exp(-x).sum() - x.sum())
    assert ("mul", "torch") in runs(fn)


def test_a_reason_may_be_left_out_and_an_error_says_whose_it_is():
    class Silent(Pointwise):
        def worth(self, region):
            return False

    class Broken(Pointwise):
        def worth(self, region):
            return 1 // 0

    fn = dovetail.jit(torch.sin, executors=[Silent("silent")])
    fn(torch.zeros(2))
    assert "silent refuses: gave no reason" in str(dovetail.explain(fn))
    with pytest.raises(dovetail.DovetailError, match=r"worth of broken 0 \(defined in this process.*\) raised ZeroDivisionError"):
        dovetail.jit(torch.sin, executors=[Broken("broken")])(torch.zeros(2))


def test_fuel_gives_back_what_its_executor_would():
    fn = dovetail.jit(torch.sin, executors=[RegionLimit(Choosy(), 5)])
    fn(torch.zeros(2))
    assert runs(fn) == [("sin", "torch")]


STEPS = (torch.sin, torch.neg, lambda x: x @ x, lambda x: x.t(), lambda x: F.silu(x), lambda x: torch.cumsum(x, 0))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(STEPS)), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12), st.integers(1, 4))
def test_any_program_is_the_same_whatever_is_given_back(steps, least):
    def fn(x):
        made = [x]
        for which, i, j in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(STEPS[which](a) if which < len(STEPS) else a + b)
        return made[-1], made[len(made) // 2]

    executors = Priority([Choosy(least, "one"), Choosy(2, "two"), get_executor("torch")])
    x = torch.linspace(-1, 1, 9, dtype=torch.float64).view(3, 3)
    pure, epilogue = functionalize(dovetail.make_trace(fn)(x))
    trace = check(dispatch(cse(dce(pure)), executors))
    assert all(len(line.body) >= least for line in trace.lines if line.implementation.executor == "one")
    assert len(set(map(id, executors[0].asked))) == len(executors[0].asked)
    got = to_callable(dispatch(epilogue, executors))(x, *to_callable(trace)(x))
    torch.testing.assert_close(got, fn(x), rtol=1e-8, atol=1e-8, equal_nan=True)


def test_a_trace_with_regions_pickles_whatever_its_executor_makes_of_them():
    class Opaque(Pointwise):
        """Its functions cannot be pickled."""

        def fuse(self, region):
            run = super().fuse(region)
            return lambda *inputs: run(*inputs)

    ex = Opaque("opaque")
    REGISTRY.add(ex)
    try:
        fn = dovetail.jit(lambda x: torch.sin(x) * 2 + 1, executors=[ex])
        want = fn(torch.ones(3))
        trace = dovetail.last_traces(fn)[-1]
        for pickler in (pickle, dill):
            again = pickler.loads(pickler.dumps(trace))
            assert str(again) == str(trace) and "opaque_exec.fusion_" in str(again)
            assert torch.equal(to_callable(again)(torch.ones(3)), want)
    finally:
        REGISTRY.executors.pop("opaque")


def test_the_symbol_of_a_region_cannot_be_called():
    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[Pointwise()])
    fn(torch.ones(3))
    (line,) = [line for line in dovetail.last_traces(fn)[-1].lines if line.implementation]
    with pytest.raises(dovetail.DovetailError, match="is a line of one program"):
        line.symbol.meta(torch.ones(3))


class Everything(FusionExecutor):
    """Fuses whatever it is offered."""

    def can_fuse(self, line):
        return True

    def fuse(self, region):
        return to_callable(dispatch(region, Priority([get_executor("torch")])))


def test_a_named_executor_of_last_resort_stands_before_the_others():
    slow = Everything("slow", last_resort=True)
    slow.after = ("torch",)
    REGISTRY.add(slow)
    try:
        fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=["slow"])
        fn(torch.ones(3))
        assert [ex for _, ex in runs(fn)] == ["slow"]
        assert dovetail.verify(fn, torch.ones(3)).executors == ("slow",)
        plain = dovetail.jit(lambda x: torch.sin(x) * 2)
        plain(torch.ones(3))
        assert "slow" not in [ex for _, ex in runs(plain)]
    finally:
        REGISTRY.executors.pop("slow")


def regions(trace):
    """The operations of each region, in order."""
    return [[inner.symbol.name for inner in line.body] for line in trace.lines if line.body and line.implementation.executor == "pointwise"]


def test_what_a_backward_computes_again_is_computed_where_it_is_read():
    def fn(x, w, v):
        return ((F.gelu(x @ w) @ v) ** 2).sum()

    x, w, v = (torch.randn(16, 16, dtype=torch.float64, requires_grad=i > 0) for i in range(3))
    compiled_fn = dovetail.jit(fn, executors=[Pointwise()])
    compiled_fn(x, w, v).backward()
    got = w.grad, v.grad
    w.grad = v.grad = None
    fn(x, w, v).backward()
    torch.testing.assert_close(got, (w.grad, v.grad))
    made = regions(dovetail.last_backward_traces(compiled_fn)[-1])
    (again,) = [names for names in made if "erf" in names]
    assert "exp" in again  # the product with gelu's result waits for gelu's own backward, so the two are one region


def test_a_sum_is_computed_where_its_terms_are_not_where_it_is_read():
    def fn(x, y):
        short = torch.exp(x).sum(0)
        return torch.sin(y @ y) + short

    class Summing(Pointwise):
        def can_fuse(self, line):
            return line.symbol.name == "sum" or super().can_fuse(line)

    compiled_fn = dovetail.jit(lambda x, y: fn(x @ x, y), executors=[Summing()])
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    torch.testing.assert_close(compiled_fn(x, y), fn(x @ x, y))
    assert ["exp", "sum"] in regions(dovetail.last_traces(compiled_fn)[-1])


LAYERED = (torch.sin, torch.neg, lambda x: x @ x, lambda x: F.silu(x), lambda x: x.sum(0, keepdim=True) + x)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(LAYERED) + 1), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=14))
def test_any_gradient_is_the_same_however_lines_are_moved(steps):
    def fn(x, y):
        made = [x, y]
        for which, i, j in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(LAYERED[which](a) if which < len(LAYERED) else a * b if which == len(LAYERED) else a @ b)
        return torch.tanh(made[-1]).sum()

    inputs = [torch.linspace(-1, 1, 9, dtype=torch.float64).view(3, 3).requires_grad_(), torch.eye(3, dtype=torch.float64).requires_grad_()]
    found = []
    for run in (dovetail.jit(fn, executors=[Choosy(2, "one"), Pointwise("two")]), fn):
        run(*inputs).backward()
        found.append([None if x.grad is None else x.grad.clone() for x in inputs])
        for x in inputs:
            x.grad = None
    for got, want in zip(*found):
        assert (got is None) == (want is None)
        assert got is None or torch.allclose(got, want, rtol=1e-7, atol=1e-9, equal_nan=True)


def test_a_trace_pickles_whatever_functions_an_operator_executor_has():
    class Twice:
        """A state that cannot be pickled."""

        def __init__(self):
            self.fn = lambda x: torch.cos(x) * 2

        def __call__(self, x):
            return self.fn(x)

    ex = OperatorExecutor("unpicklable")
    ex.implements(torch.sin, lambda x: torch.sin(x))
    ex.implements(torch.cos, stateful=Twice)
    REGISTRY.add(ex)
    try:
        fn = dovetail.jit(lambda x: torch.sin(x) + torch.cos(x) + torch.cos(x + 1), executors=[ex])
        want = fn(torch.ones(3))
        trace = dovetail.last_traces(fn)[-1]
        for pickler in (pickle, dill):
            again = pickler.loads(pickler.dumps(trace))
            assert str(again) == str(trace) and str(again).count("unpicklable_exec.cos_") == 2
            assert torch.equal(to_callable(again)(torch.ones(3)), want)
    finally:
        REGISTRY.executors.pop("unpicklable")


class Turning(Pointwise):
    """Fuses elementwise prims and transposes, and remembers the prims of each region."""

    def __init__(self):
        super().__init__("turning")
        self.fused = []

    def can_fuse(self, line):
        return line.symbol.name == "transpose" or super().can_fuse(line)

    def worth(self, region):
        return any(line.symbol.name != "transpose" for line in prims_of(region.lines)) or "leaves views alone"

    def fuse(self, region):
        self.fused.append({line.symbol.name for line in prims_of(region.lines)})
        return super().fuse(region)


@pytest.mark.parametrize(
    ("fn", "fused"),
    [
        (lambda x: (torch.sin(x) * 2, x.t() @ x), {"sin", "mul"}),  # a product reads the view
        (lambda x: (torch.sin(x) * 2, torch.sin(x.t()) @ x), {"sin", "mul", "transpose"}),  # the region computes with it
        (lambda x: (torch.sin(x) * 2).t() @ x, {"sin", "mul", "transpose"}),  # a view of what the region computes
    ],
)
def test_a_view_of_an_argument_is_part_of_a_region_that_computes_with_it(fn, fused):
    x, turning = torch.randn(4, 4), Turning()
    compiled = dovetail.jit(fn, executors=[turning])
    torch.testing.assert_close(compiled(x), fn(x))
    assert turning.fused == [fused]
