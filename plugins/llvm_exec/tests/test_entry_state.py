"""Modules in calls that are checked in C: what they hold is found again where it changed, and only there."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref

import pytest
import torch
from changing import CHANGES, Block, Net, Twice
from llvm_against_eager import compiled
from torch import nn

import dovetail
from dovetail import prims
from dovetail.frontend.guards.guard import Miss
from dovetail_llvm_exec.call import entry as entries
from dovetail_llvm_exec.call import versions

needs_versions = pytest.mark.skipif(not versions.are_known(), reason="dictionaries of this Python have no version that is known")


@pytest.fixture(params=["versions", "called"])
def way(request, monkeypatch):
    """The state of modules is watched in C, or asked for at each call."""
    if request.param == "called":
        monkeypatch.setattr(versions, "are_known", lambda: False)
    elif not versions.are_known():
        pytest.skip("dictionaries of this Python have no version that is known")
    return request.param


def entry_of(fn):
    """The builtin function of the last call's program."""
    call = fn._cache.entries[0].call
    assert type(call).__name__ == "builtin_function_or_method", "the call runs its prologue in Python"
    return call


def python_calls(fn, *args):
    """The names of the Python functions that run in a call."""
    names = []
    sys.setprofile(lambda frame, event, arg: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        fn(*args)
    finally:
        sys.setprofile(None)
    return names


def agree(ours, net):
    """The compiled module and the module give the same, called often enough for what is remembered to be used."""
    for i in range(3):
        x = torch.randn(2, 3, dtype=next(net.parameters()).dtype) + i
        torch.testing.assert_close(ours(x), net(x))


def test_modules_that_stay_what_they_are_cost_no_python(way):
    net, x = Net().eval(), torch.randn(2, 3)
    ours = compiled(net)
    with torch.no_grad():
        agree(ours, net)
        names = python_calls(entry_of(ours), (x,), {})
    assert "prologue" not in names and "state" not in names
    assert ("__call__" in names) == (way == "called")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("training", [False, True])
def test_a_change_of_what_modules_hold_is_seen(way, change, training):
    net = Net().train(change == "eval")
    ours = compiled(net)
    with torch.set_grad_enabled(training):
        agree(ours, net)
        entry_of(ours)
        CHANGES[change](net)
        agree(ours, net)
        if "hook" not in change:  # a program with a hook in it looks at the keys of hooks, in Python
            x = torch.randn(2, 3, dtype=next(net.parameters()).dtype)
            assert "prologue" not in python_calls(ours, x), "what is compiled after the change runs from C, too"


def test_changes_one_after_the_other_are_seen(way):
    net = Net().eval()
    ours = compiled(net)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so many programs are many
        for change in CHANGES.values():
            change(net)
            agree(ours, net)
            net.eval()
            agree(ours, net)


def test_gradients_after_a_change_are_those_of_the_parameters_that_are_there(way):
    net = Net().eval()
    ours = compiled(net)
    agree(ours, net)
    old, new = net.blocks[1].linear.weight, nn.Parameter(torch.randn(3, 3))
    net.blocks[1].linear.weight = new
    x = torch.randn(2, 3)
    ours(x).sum().backward()
    got, new.grad = new.grad, None
    net(x).sum().backward()
    torch.testing.assert_close(got, new.grad)
    assert old.grad is None


class State:
    """What the state of modules is to an entry: a function, and all that it depends on."""

    def __init__(self, program, objects=(), tables=()):
        self.program, self.objects, self.tables = program, objects, tables


def entry_by_hand(state):
    """The entry of a prologue that gives what it finds in a state, and "slow" where it hands a call over."""
    args, kwargs, values, program = (dovetail.extend.advanced.Proxy(name) for name in ("args", "kwargs", "values", "program"))
    rows = (
        (prims.check_count, (args,), {"length": 0}, None),
        (prims.check_keys, (kwargs,), {"keys": ()}, None),
        (prims.unpack_state, (), {"state": state}, (values,)),
        (prims.call_program, (program, values), {}, None),
    )
    lines = [dovetail.extend.BoundSymbol(symbol, operands, keywords, out, []) for symbol, operands, keywords, out in rows]
    prologue = dovetail.extend.Trace("prologue", inputs=[args, kwargs], lines=lines)
    prologue.constants[program] = lambda x: x
    call = entries.entry(prologue, None, lambda args, kwargs: "slow", "llvm")
    return lambda: call((), {})


@needs_versions
def test_a_program_runs_again_only_after_a_change():
    table, x, runs = {"v": 1}, Block(), []

    def program():
        runs.append(0)
        return ((table["v"], x.scale),)

    run = entry_by_hand(State(program, (x,), (table,)))
    assert [run() for _ in range(9)] == [(1, 1.5)] * 9 and len(runs) == 1
    table["v"] = 2
    assert [run() for _ in range(9)] == [(2, 1.5)] * 9 and len(runs) == 2
    x.scale = 3
    assert [run() for _ in range(9)] == [(2, 3)] * 9 and len(runs) == 3
    x.__class__ = Twice
    assert run() == "slow"
    x.__class__, x.__dict__ = Block, dict(vars(x))
    assert run() == "slow" and len(runs) == 3


@needs_versions
def test_a_change_while_the_program_runs_is_seen():
    table = {"v": 1}

    def program():
        values = (table["v"],)
        table["v"] += 1
        return values

    run = entry_by_hand(State(program, (), (table,)))
    assert [run() for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [Miss("no"), (), (1, 2), [1], None], ids=lambda value: type(value).__name__)
def test_what_is_not_a_state_is_for_the_prologue(way, value):
    table = {"v": value}
    run = entry_by_hand(State(lambda: table["v"], (), (table,)) if way == "versions" else lambda: table["v"])
    assert [run(), run()] == ["slow"] * 2
    table["v"] = (3,)
    assert [run(), run()] == [3] * 2
    del table["v"]
    assert [run(), run()] == ["slow"] * 2, "an error in the program is for the prologue, too"


def test_a_state_without_versions_is_asked_each_time():
    values = iter(range(9))
    run = entry_by_hand(lambda: (next(values),))
    assert [run() for _ in range(4)] == [0, 1, 2, 3]


def test_what_a_state_gave_is_held_once(way):
    x, table = torch.ones(3), {}
    table["x"] = x
    run = entry_by_hand(State(lambda: (table["x"],), (), (table,)) if way == "versions" else lambda: (table["x"],))
    run()
    before = sys.getrefcount(x)
    for _ in range(50):
        run()
    assert sys.getrefcount(x) == before
    gone, table["x"] = weakref.ref(x), torch.zeros(3)
    del x
    run()
    assert gone() is None


@needs_versions
def test_a_state_that_others_change_is_never_older_than_the_last_change():
    table, wrong, done = {"v": 0}, [], threading.Event()
    run = entry_by_hand(State(lambda: (table["v"],), (), (table,)))

    def read():
        while not done.is_set():
            low, got, high = table["v"], run(), table["v"]
            if not low <= got <= high:
                wrong.append((low, got, high))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(20_000):
        table["v"] = i
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong and run() == 19_999


@needs_versions
@pytest.mark.parametrize("change", versions._CHANGES)
def test_versions_grow_with_every_change(change):
    assert versions._sees(change)


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_versions_are_not_read_where_they_are_not_found(monkeypatch, place):
    monkeypatch.setattr(versions, "VERSION", place * versions.WORD)
    assert not versions.are_known.__wrapped__()
