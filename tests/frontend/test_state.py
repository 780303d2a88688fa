"""The state of many modules: looked at in Python, or known to be what it was since nothing has changed."""

from __future__ import annotations

import collections

import pytest
import torch
import torch._dynamo  # so that both ways to watch are there
from torch import nn

import dovetail
from dovetail.frontend import state
from dovetail.frontend.guards import FEW_MODULES, Miss


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 3), 1.5

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


class Twice(Block):
    def forward(self, x):
        return super().forward(x) * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(FEW_MODULES)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x) + 1
        return x


def hooked(module, args, result):
    return result - 4


def _replaced(module):
    module.__dict__ = {**module.__dict__, "scale": 9.0}


CHANGES = {
    "nothing": lambda net: None,
    "an attribute": lambda net: setattr(net.blocks[2], "scale", 7.0),
    "a forward of its own": lambda net: setattr(net.blocks[2], "forward", lambda x: x * 5),
    "a class": lambda net: setattr(net.blocks[2], "__class__", Twice),
    "a __dict__": lambda net: _replaced(net.blocks[2]),
    "a parameter": lambda net: setattr(net.blocks[1].linear, "weight", nn.Parameter(torch.ones(3, 3))),
    "no parameter": lambda net: setattr(net.blocks[1].linear, "bias", None),
    "a parameter in place": lambda net: net.blocks[1].linear.weight.data.zero_(),
    "the data of a parameter": lambda net: setattr(net.blocks[1].linear.weight, "data", torch.ones(3, 3)),
    "another dtype": lambda net: net.double(),
    "a table of parameters": lambda net: setattr(net.blocks[1].linear, "_parameters", dict(nn.Linear(3, 3)._parameters)),
    "a submodule": lambda net: setattr(net.blocks[0], "linear", nn.Linear(3, 3)),
    "the order": lambda net: net.blocks._modules.update({"0": net.blocks[1], "1": net.blocks[0]}),
    "one block less": lambda net: net.blocks._modules.pop("3"),
    "a hook": lambda net: net.blocks[3].register_forward_hook(hooked),
    "hooks": lambda net: setattr(net.blocks[3], "_forward_hooks", collections.OrderedDict({0: hooked})),
}
WAYS = {"at once": (state._at_once,), "one by one": (state._one_by_one,), "never": ()}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Modules are watched in one way, or in none."""
    ways = WAYS[request.param]
    monkeypatch.setattr(state, "watch", lambda objects, tables: ways[0](objects, tables) if ways else None)
    return request.param


def state_of(compiled):
    guards = dovetail.last_prologue_traces(compiled)[-1]
    (line,) = [line for line in guards.lines if line.symbol is dovetail.prims.unpack_state]
    return guards.constants[line.kwargs["state"]]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_modules_hold_is_seen(way, change):
    torch.manual_seed(0)
    net = Net()
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
@pytest.mark.parametrize("change", state._CHANGES)
def test_both_ways_to_watch_see_every_change(way, change):
    assert state._sees(WAYS[way][0], change)


def test_a_change_while_the_program_runs_is_seen():
    table = {"v": 1}

    def program():
        found = (table["v"],)
        table["v"] += 1
        return found

    looked = state.State(program, (), (table,))
    assert [looked() for _ in range(4)] == [(1,), (2,), (3,), (4,)]


def test_what_does_not_change_is_looked_at_no_more():
    table, runs = {"v": 1}, []

    def program():
        runs.append(0)
        return (table["v"],)

    looked = state.State(program, (), (table,))
    assert [looked() for _ in range(9)] == [(1,)] * 9 and len(runs) == 2
    table["v"] = 2
    assert [looked() for _ in range(9)] == [(2,)] * 9 and len(runs) == 5, "after a change it waits longer before it watches again"


def test_a_miss_is_given_on_and_not_kept():
    table = {"v": Miss("not this one")}
    looked = state.State(lambda: (3,) if table["v"] is None else table["v"], (), (table,))
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
