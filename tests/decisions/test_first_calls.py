"""The call that compiles a function with decisions: it is interpreted twice, and what compiling has begun with goes on from there."""

from __future__ import annotations

import random
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of

from dovetail.frontend import bytecode
from dovetail.frontend.decisions.requests import Probe
from dovetail.frontend.decisions.session import Session


def branch(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y - (1 if y.max() > 3 else 2)


@pytest.fixture
def runs(monkeypatch):
    """What interprets the function: `acquire` without decisions, a probe, or a session."""
    seen = []

    def acquire(*args, session=None, **more):
        seen.append("acquire" if session is None else type(session).__name__)
        return whole(*args, session=session, **more)

    def run(self):
        seen.append("Session")
        return session_run(self)

    whole, session_run = bytecode.acquire, Session.run
    monkeypatch.setattr(bytecode, "acquire", acquire)
    monkeypatch.setattr(Session, "run", run)
    return seen


def test_the_first_call_interprets_a_function_twice(runs):
    fn = compiled(branch)
    agrees(fn, branch, torch.ones(3))
    assert runs.count("Session") == 1 and Probe.__name__ not in runs
    assert fn.cache_info().misses == 1 and graph_of(fn).begun is None
    runs.clear()
    agrees(fn, branch, torch.full((3,), 2.0))
    assert runs == ["Session"]
    runs.clear()
    agrees(fn, branch, torch.ones(3))
    assert not runs


def test_what_it_writes_and_draws_it_does_once():
    def both(x, counts):
        counts.append(len(counts))
        x.add_(torch.rand(3))
        if x.sum() > 0:
            x.mul_(2 + random.random())
        return x + torch.rand(3) + float(np.random.rand())

    fn, results = compiled(both), []
    for call in (fn, both):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        x, counts = torch.ones(3), []
        results.append([call(x, counts), x, counts, torch.rand(1), random.random(), np.random.rand()])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)


def test_where_it_cannot_go_on_the_call_runs_once_in_eager_mode():
    def opaque(x, calls):
        if x.sum() > 0:
            x = torch.rand(3) + x.add_(1)
            calls.append(1)
            x = x + float(np.linalg.slogdet(np.asarray(x.numpy(force=True)).reshape(1, 3).T @ np.ones((1, 3)))[0])
            raise ValueError("its own")
        return x

    fn, ends = compiled(opaque), []
    for call in (fn, opaque):
        torch.manual_seed(0)
        x, calls = torch.ones(3), []
        with warnings.catch_warnings(), pytest.raises(ValueError, match="its own"):
            warnings.simplefilter("ignore")
            call(x, calls)
        ends.append([x, calls, torch.rand(1)])
    for got, expected in zip(*ends, strict=True):
        torch.testing.assert_close(got, expected)


def test_another_call_does_not_take_what_compiling_has_begun_with():
    fn, (x, y) = compiled(branch), (torch.ones(3), torch.full((3,), -1.0))
    fn(x)
    graph, mine = graph_of(fn), ((x,), {})
    graph.clear()
    assert graph.begin(*mine, goes_on=True) is None and graph.begun is not None
    torch.testing.assert_close(graph.call((y,), {}), branch(y))
    torch.testing.assert_close(graph.call(*mine), branch(x))
    assert graph.begun is None


def test_the_arguments_die_with_the_call():
    fn, x = compiled(branch), torch.ones(3)
    alive = weakref.ref(x)
    fn(x)
    del x
    assert alive() is None


def test_another_thread_may_draw_meanwhile(monkeypatch):
    turn, drawn = threading.Semaphore(0), threading.Semaphore(0)

    def draw():
        while turn.acquire() and not done:
            torch.rand(1)
            drawn.release()

    def check(self):
        turn.release()
        drawn.acquire()
        whole(self)

    done, whole, thread = [], Session.check_restartable, threading.Thread(target=draw)
    monkeypatch.setattr(Session, "check_restartable", check)
    thread.start()
    try:
        fn, x = compiled(branch), torch.ones(3)
        torch.testing.assert_close(fn(x), branch(x))
        assert graph_of(fn).eager_calls == 0
    finally:
        done.append(True)
        turn.release()
        thread.join()
