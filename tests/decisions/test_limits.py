"""Functions with many decisions: how much of them is traced again where a call has outcomes that are new."""

import warnings

import torch
from decisions.helpers import agrees, compiled, graph_of
from decisions.random_programs import difference

from dovetail.frontend.decisions.session import Session


def chosen(rows):
    total = 0
    for x in rows:
        total = total + x * 2 if x.sum() > 0 else total - x.abs()
    return total


def test_the_state_is_read_where_it_is_compared_and_nowhere_else(monkeypatch):
    read, decided = [], []
    for name, calls in (("values_for", read), ("check_restartable", decided)):
        method = getattr(Session, name)
        monkeypatch.setattr(Session, name, lambda *args, method=method, calls=calls: (calls.append(1), method(*args))[1])
    fn, count = compiled(chosen), 24
    for seed in range(4):
        torch.manual_seed(seed)
        agrees(fn, chosen, [torch.randn(3) for _ in range(count)])
    graph = graph_of(fn)
    explored = sum([len(decision.edges) for decision in graph.decisions])
    assert len(graph.decisions) == count and graph.eager_calls == 0
    assert explored < len(read) < 2 * (count + explored) < len(decided)


def test_a_hundred_decisions_are_compiled():
    fn = compiled(chosen)
    for sign in (1, -1):
        agrees(fn, chosen, [sign * torch.ones(2) for _ in range(100)])
    assert len(graph_of(fn).decisions) == 100 and graph_of(fn).eager_calls == 0


def test_a_replay_that_arrives_at_another_state_reads_all_on_its_way():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*does not do the same twice")
        assert difference(913299, True, True) is None
