"""If-conversion: conditions with cheap outcomes become selects in one segment, where that is faster."""

from __future__ import annotations

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of
from decisions.random_programs import difference

import dovetail
from dovetail.frontend.decisions import selects


@pytest.fixture(autouse=True)
def measured(decisions_alone, monkeypatch):
    """Let conditions become selects."""
    monkeypatch.setenv("DOVETAIL_SELECTS", "measured")


@pytest.fixture
def always(monkeypatch):
    """Take selects to be faster."""
    monkeypatch.setattr(selects, "is_faster", lambda new, old: True)


def selected(fn):
    """Return how many decisions each segment with selects has."""
    graph = graph_of(fn)
    edges = [edge for each in (graph.origin, *graph.decisions) for edges in each.edges.values() for edge in edges]
    return sorted([len(edge.selects) for edge in edges if edge.selects])


def branch(x):
    return x * 2 if x.sum() > 0 else x - 1


def branches(x, y):
    for value in x:
        y = y + 1 if value > 0 else y * 0.5
    return y, x


def joined(x):
    y = x.sin()
    if x.sum() > 0:
        z = y + 2
    else:
        z, y = y * 3, x * 1
    if y[0] > 0:
        y = y + 1
    return {"y": y + z, "z": (z, None)}


def inputs(count):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(6, generator=generator) for _ in range(count)]


@pytest.mark.parametrize(
    ("program", "args", "decisions"),
    [
        (branch, [(torch.ones(4),), (-torch.ones(4),)], [1]),
        (branches, [(x, torch.ones(3)) for x in inputs(9)], [6]),
        (joined, [(x,) for x in (*inputs(5), torch.zeros(6))], [2]),
    ],
)
def test_conditions_become_selects(program, args, decisions, always):
    fn = compiled(program)
    for _ in range(6):
        for each in args:
            agrees(fn, program, *each)
    assert selected(fn) == decisions and graph_of(fn).driver is not None and graph_of(fn).eager_calls == 0
    explored = len(fn._cache.explored)
    for each in args:
        agrees(fn, program, *each)
    assert len(fn._cache.explored) == explored
    assert f"(both outcomes of {', '.join([f'd{i}' for i in range(decisions[0])])} are computed)" in str(dovetail.explain(fn))
    compile(dovetail.last_driver(fn), "driver", "exec")


def divided(x):
    n = x.long()
    return n // 2 if x.sum() > 0 else n // n.sum()


def drawn(x):
    return x * 2 if x.sum() > 0 else x * torch.rand(6)


def other_shapes(x):
    return x * 2 if x.sum() > 0 else x[:3] * 2


def looped(x):
    while x.sum() > 1:
        x = x * 0.5
    return x


def numbered(x):
    return (x * 2, x.max().item()) if x.sum() > 0 else (x, 0.5)


@pytest.mark.parametrize("program", [divided, drawn, other_shapes, looped, numbered])
def test_what_may_raise_draw_or_differ_in_shape_stays_a_decision(program, always):
    fn = compiled(program)
    for _ in range(6):
        for x in inputs(4):
            agrees(fn, program, x + 0.1)
    assert selected(fn) == []


def test_values_that_need_gradients_stay_decisions(always):
    def root(x):
        return x.abs().sqrt() if x.sum() > 0 else x * 0  # where nothing flows back, the gradient of the root is not NaN

    fn = compiled(root)
    for _ in range(6):
        for start in (torch.zeros(3), torch.ones(3)):
            x, y = (start.clone().requires_grad_() for _ in range(2))
            fn(x).sum().backward()
            root(y).sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
    assert selected(fn) == []


def test_what_one_outcome_reads_from_outside_stays_behind_it(always):
    class Scale:
        factor = 2.0

    def scaled(x):
        return x * scale.factor if x.sum() > 0 else x - 1

    scale, fn = Scale(), compiled(scaled)
    for factor in (2.0, 2.0, 2.0, 2.0, 3.0, 3.0):
        scale.factor = factor
        for x in (torch.ones(3), -torch.ones(3)):
            agrees(fn, scaled, x)
    assert selected(fn) == []


def test_a_slower_way_is_not_taken(monkeypatch):
    monkeypatch.setattr(selects, "is_faster", lambda new, old: False)
    fn = compiled(branch)
    for _ in range(6):
        for sign in (1, -1):
            agrees(fn, branch, torch.full((3,), float(sign)))
    assert selected(fn) == []


def test_the_option_keeps_decisions(always):
    fn = compiled(branch)
    with dovetail.use(selects="never"):
        for _ in range(6):
            for sign in (1, -1):
                agrees(fn, branch, torch.full((3,), float(sign)))
    assert selected(fn) == []


def test_the_faster_of_two_ways():
    assert selects.is_faster(lambda: None, lambda: sum(range(2000)))
    assert not selects.is_faster(lambda: sum(range(2000)), lambda: None)


def test_32_random_programs_with_selects(always):
    for seed in range(500, 512):
        assert (text := difference(seed, False)) is None, text
