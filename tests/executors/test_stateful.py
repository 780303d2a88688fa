"""Stateful operations: one state for each call site of a compiled program."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import dovetail
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.extend import OperatorExecutor, get_grad, make_prim, put_grad
from dovetail.extend.advanced import implementations_of


def _meta(x):
    """x times how often this call site has run."""
    return x.fresh()


counted = make_prim("stateful.counted", "counted", meta=_meta, replace=True)


class Count:
    """How often one call site has run."""

    made: list[weakref.ref] = []

    def __init__(self):
        self.calls = 0
        Count.made.append(weakref.ref(self))

    def __call__(self, x):
        self.calls += 1
        return x * self.calls


@pytest.fixture
def ex():
    Count.made.clear()
    ex = OperatorExecutor("counting")
    ex.implements(counted, stateful=Count)
    return ex


def test_scenario_45_each_call_site_has_a_state_of_its_own(ex):
    jitted = dovetail.jit(lambda x: (counted(x), counted(x + 1)), executors=[ex])
    x = torch.ones(1)

    assert [[float(v) for v in jitted(x)] for _ in range(3)] == [[1, 2], [2, 4], [3, 6]]
    assert len(Count.made) == 2


def test_a_state_belongs_to_one_compiled_program(ex):
    jitted = dovetail.jit(lambda x: counted(x), executors=[ex])

    assert [float(jitted(torch.ones(1))) for _ in range(2)] == [1, 2]
    assert jitted(torch.ones(2)).tolist() == [1, 1]  # another shape, another program
    assert float(jitted(torch.ones(1))) == 3
    other = dovetail.jit(lambda x: counted(x), executors=[ex])
    assert float(other(torch.ones(1))) == 1


def test_the_state_is_what_runs_the_line_and_is_named_after_it(ex):
    jitted = dovetail.jit(lambda x: counted(x), executors=[ex])
    jitted(torch.ones(1))
    program = dovetail.last_traces(jitted)[-1]
    (line,) = [line for line in program.lines if line.implementation]

    assert isinstance(line.implementation.fn, Count) and line.implementation.fn.calls == 1
    assert "counting_exec.counted_t1(t0)" in str(program)


def test_scenario_45_state_and_a_temporary_executor_go_with_the_program():
    def once():
        ex = OperatorExecutor("temporary")
        ex.implements(counted, stateful=Count)
        jitted = dovetail.jit(lambda x: counted(x), executors=[ex])
        assert float(jitted(torch.ones(1))) == 1
        return weakref.ref(ex), weakref.ref(jitted)

    Count.made.clear()
    refs = once()
    gc.collect()
    assert [ref() for ref in (*refs, *Count.made)] == [None] * 3
    assert "temporary" not in REGISTRY.executors


def test_forward_and_backward_are_call_sites_of_their_own(ex):
    def rule(x):
        out = counted(x)
        put_grad(x, counted(get_grad(out)))
        return out

    ex.implements(counted, stateful=Count, grad=rule)
    jitted = dovetail.jit(lambda x: counted(x), executors=[ex])
    grads = []
    for _ in range(3):
        x = torch.ones(1, requires_grad=True)
        jitted(x).sum().backward()
        grads.append(float(x.grad))

    assert grads == [1, 2, 3] and len(Count.made) == 2


def test_a_saved_program_keeps_its_own_state(ex, tmp_path):
    REGISTRY.load()
    REGISTRY.add(ex, replace=True)
    try:
        jitted = dovetail.jit(lambda x: counted(x), executors=[ex])
        jitted(torch.ones(1))
        dovetail.last_traces(jitted)[-1].save(tmp_path / "program.py")
        scope: dict = {"__file__": str(tmp_path / "program.py")}
        exec((tmp_path / "program.py").read_text(), scope)

        assert [float(scope["computation"](torch.ones(1))) for _ in range(3)] == [1, 2, 3]
        assert implementations_of("counting").counted is not implementations_of("counting").counted
    finally:
        REGISTRY.executors.pop("counting")


def test_a_program_of_many_states_prints_each_under_a_name_of_its_own(ex):
    jitted = dovetail.jit(lambda x: [counted(x + i) for i in range(5)], executors=[ex])
    jitted(torch.ones(1))
    names = [line.implementation.name for line in dovetail.last_traces(jitted)[-1].lines if line.symbol is counted]

    assert len(set(names)) == 5
