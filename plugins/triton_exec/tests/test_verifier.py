"""The verifier refuses plans that would compute something else: faults are planted into plans that are right.  No triton is needed."""

from __future__ import annotations

import itertools

import pytest
import torch
from triton_helpers import Planner

import dovetail
from dovetail.dtypes import float32
from dovetail.extend.advanced import ExecutorWarning
from dovetail_triton_exec.executor import TritonExecutor
from dovetail_triton_exec.exprs import Buffer
from dovetail_triton_exec.graph import Graph
from dovetail_triton_exec.index import ZERO, shifted, times
from dovetail_triton_exec.plan import Plan
from dovetail_triton_exec.verifier import Broken, verify

X = torch.randn(500, 300)


def norm(x):
    return (x / x.norm()).sum() + x.norm()


class Keeper(Planner):
    """Keeps the region, to plan it again."""

    def fuse(self, region):
        self.region = region
        return super().fuse(region)


def planned(fn, *args):
    """The plan of a program of one region, which is right."""
    keeper = Keeper()
    dovetail.jit(fn, executors=[keeper, "torch"])(*args)
    graph = Graph(keeper.region)
    plan = Plan(graph, list({o.base: None for o in graph.outputs}))
    verify(plan)
    return plan


def refused(plan, words):
    with pytest.raises(Broken, match=words):
        verify(plan)


def test_two_values_in_one_temporary():
    plan = planned(norm, X)
    first, second = plan.temporaries[:2]
    plan.memory[second] = plan.memory[first]
    refused(plan, "two values of the plan share tmp")


def test_a_kernel_that_runs_before_what_it_reads():
    plan = planned(norm, X)
    plan.kernels.reverse()
    refused(plan, "which no earlier kernel has written")


def test_a_kernel_that_reads_what_it_writes():
    plan = planned(lambda x: x * 2 + 1, X)
    (store,) = plan.kernels[0].stores
    (load,) = [e for e in plan.kernels[0].table.known.values() if e.op == "load"]
    load.data = (store.buffer, *load.data[1:])
    refused(plan, "kernel 0 reads out0, which no earlier kernel has written")


def test_a_value_that_no_kernel_writes():
    plan = planned(norm, X)
    plan.kernels[-1].stores.clear()
    refused(plan, "no kernel writes")


def test_a_value_that_is_written_twice():
    plan = planned(lambda x: x * 2 + 1, X)
    plan.kernels[0].stores *= 2
    refused(plan, "out0 is written more than once")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda form: shifted(form, 1), "at 1 to 150000 of 150000 elements"),
        (lambda form: times(form, 2), "of 150000 elements"),
        (lambda form: ZERO, "in a place that does not change with the value"),
    ],
)
def test_a_place_that_is_wrong(change, words):
    plan = planned(lambda x: x * 2 + 1, X)
    (store,) = plan.kernels[0].stores
    store.form = change(store.form)
    refused(plan, words)


def test_a_load_that_leaves_its_memory():
    plan = planned(lambda x: x * 2 + 1, X)
    (load,) = [e for e in plan.kernels[0].table.known.values() if e.op == "load"]
    load.data = (load.data[0], shifted(load.data[1], 5), load.data[2])
    refused(plan, "reads in0 at 5 to 150004 of 150000 elements")


def parts_of_unequal_length():
    """A plan whose softmax is written in 31 parts of 33 rows, of 997 rows, and that store."""
    plan = planned(lambda x: (x.sum(0), x.sum(), torch.softmax(x.reshape(-1), 0)), torch.randn(997, 67))
    (store,) = [s for kernel in plan.kernels for s in kernel.stores if s.guard]
    return plan, store


def test_a_guard_that_keeps_the_last_part_inside():
    plan, _ = parts_of_unequal_length()
    verify(plan)


@pytest.mark.parametrize(
    "change",
    [lambda guard: frozenset(), lambda guard: frozenset(condition._replace(high=condition.high + 1) for condition in guard)],
    ids=["without a guard", "one row more"],
)
def test_a_last_part_that_leaves_its_memory(change):
    plan, store = parts_of_unequal_length()
    store.guard = change(store.guard)
    refused(plan, "of 66799 elements")


def test_loops_of_another_kernel():
    plan = planned(lambda x: (torch.softmax(x, -1), x.sum(0)), X)
    first, second = plan.kernels[:2]
    first.stores[0].form = second.stores[0].form
    refused(plan, "from loops that it does not have|does not change with the value")


def test_a_region_that_is_planned_wrong_is_refused(monkeypatch):
    remember = Plan.remember

    def in_one_temporary(self, node, buffer, home):
        remember(self, node, Buffer("tmp", 0, float32) if buffer.kind == "tmp" else buffer, home)

    monkeypatch.setattr(Plan, "remember", in_one_temporary)
    fn = dovetail.jit(norm, executors=[TritonExecutor(devices=["cpu"]), "torch"])
    with pytest.warns(ExecutorWarning, match="other executors run: two values of the plan share tmp0"):
        got = fn(X)
    torch.testing.assert_close(got, norm(X))
    refusals = [each for row in dovetail.explain(fn).rows for each in row.refusals if each.executor == "triton"]
    assert any(each.message.startswith("has no right plan for the region: two values of the plan share tmp0") for each in refusals)
    assert {row.actual for row in dovetail.explain(fn).rows} <= {"torch", None}


@pytest.mark.parametrize("shape", [(5,), (128, 96), (8192, 768), (3, 100003), (2, 3, 4, 5)], ids=str)
def test_plans_that_are_right_are_taken(shape):
    """Over every choice of dimensions, alone and in one another."""
    x = torch.zeros(shape)
    for n in range(1, len(shape) + 1):
        for dims in itertools.combinations(range(len(shape)), n):
            planned(lambda x, dims=dims: (x - x.mean(dims, keepdim=True)) * (x * 2).amax(dims, keepdim=True) + x.sum(), x)
