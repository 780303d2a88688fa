"""The state of many modules: looked at in Python, or known to be what it was since nothing has changed."""

from __future__ import annotations

import sys

import pytest
import torch
import torch._dynamo  # so that both ways to watch are there
from changing import CHANGES, Net
from eager_versions import OLDEST

import dovetail
from dovetail.frontend.guards import module_state
from dovetail.frontend.guards.guard import Miss

WAYS = {"at once": (module_state._by_guard_manager,), "one by one": (module_state._by_versions,), "never": ()}


def require(way: str) -> None:
    """Skip a way to watch that fails its self-test here, as other guards or dicts without versions make it do; `watch` chooses another then."""
    unsure = sys.version_info >= (3, 12) or OLDEST
    if unsure and not all(module_state._detects(each, change) for each in WAYS[way] for change in module_state._CHANGES):
        pytest.skip(f"torch {torch.__version__} on Python {sys.version_info.major}.{sys.version_info.minor} does not see changes {way}")


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Modules are watched in one way, or in none."""
    require(request.param)
    ways = WAYS[request.param]
    monkeypatch.setattr(module_state, "watch", lambda objects, tables: ways[0](objects, tables) if ways else None)
    return request.param


def state_of(compiled):
    guards = dovetail.last_prologue_traces(compiled)[-1]
    (line,) = [line for line in guards.lines if line.symbol is dovetail.prims.unpack_state]
    return guards.constants[line.kwargs["state"]]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_modules_hold_is_seen(way, change):
    torch.manual_seed(0)
    net = Net().train(change == "eval")
    compiled = dovetail.jit(net, executors=["torch"], interpretation="bytecode")
    x = torch.randn(2, 3)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), net(x))
    assert (state_of(compiled).watched is None) == (way == "never")
    CHANGES[change](net)
    x = x.to(net.blocks[0].linear.weight.dtype)
    for i in range(3):
        torch.testing.assert_close(compiled(x + i), net(x + i))


@pytest.mark.parametrize("way", ["at once", "one by one"])
@pytest.mark.parametrize("change", module_state._CHANGES)
def test_both_ways_to_watch_see_every_change(way, change):
    require(way)
    assert module_state._detects(WAYS[way][0], change)


def test_a_change_while_the_program_runs_is_seen():
    table = {"v": 1}

    def program():
        found = (table["v"],)
        table["v"] += 1
        return found

    looked = module_state.ModuleState(program, (), (table,))
    assert [looked() for _ in range(4)] == [(1,), (2,), (3,), (4,)]


def test_what_does_not_change_is_looked_at_no_more():
    table, runs = {"v": 1}, []

    def program():
        runs.append(0)
        return (table["v"],)

    looked = module_state.ModuleState(program, (), (table,))
    assert [looked() for _ in range(9)] == [(1,)] * 9 and len(runs) == 2
    table["v"] = 2
    assert [looked() for _ in range(9)] == [(2,)] * 9 and len(runs) == 5, "after a change it waits longer before it watches again"


def test_a_miss_is_given_on_and_not_kept():
    table = {"v": Miss("not this one")}
    looked = module_state.ModuleState(lambda: (3,) if table["v"] is None else table["v"], (), (table,))
    assert [type(looked()) for _ in range(3)] == [Miss] * 3 and looked.watched is None
    table["v"] = None
    assert [looked() for _ in range(3)] == [(3,)] * 3


def test_a_module_that_the_program_writes_to_is_not_watched():
    class Keeps(Net):
        def forward(self, x):
            self.last = x.mean()
            return super().forward(x)

    net = Keeps()
    compiled = dovetail.jit(net, interpretation="bytecode")
    for i in range(4):
        x = torch.full((2, 3), float(i))
        compiled(x)
        assert net.last == i
    watched = state_of(compiled)
    assert watched.watched is not None and net not in set(watched.objects)
    assert compiled.cache_info().programs == 1


def test_the_items_of_a_tuple_are_state(way):
    net = torch.nn.Sequential(*[torch.nn.Conv2d(3, 3, 3, padding=1) for _ in range(6)])
    compiled = dovetail.jit(net, interpretation="bytecode")
    x = torch.randn(1, 3, 8, 8)
    compiled(x)
    prologue = dovetail.last_prologue_traces(compiled)[-1]
    assert not [line for line in prologue.lines if line.symbol is dovetail.prims.unpack_item and line.kwargs["key"] == 1]
    for padding in ((0, 1), (1, 0), (2, 1)):
        net[2].padding = padding
        torch.testing.assert_close(compiled(x), net(x))
    net[2].padding = [1, 1]
    torch.testing.assert_close(compiled(x), net(x))
    net[2].padding[0] = 0
    torch.testing.assert_close(compiled(x), net(x))
