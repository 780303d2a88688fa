"""Whole calls in C: what fits runs, and whatever does not is for the prologue in Python."""

from __future__ import annotations

import collections
import copy
import gc
import resource
import sys
import threading
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_against_eager import EX, assert_same, compiled
from torch import nn
from torch.nn import functional as F

import dovetail
from dovetail import prims
from dovetail.frontend.guards import Miss
from dovetail_llvm_exec import entry as entries
from dovetail_llvm_exec import gate, jit

FACTOR = 2.0
needs_versions = pytest.mark.skipif(not entries._versions(), reason="dictionaries of this Python have no version that is known")


def add(x, y):
    return x + y


def entry_of(fn):
    """The builtin function of the last call's program, which `dovetail.use`, once it was used in a process, wraps in a look at its scope."""
    found = fn._cache.entries[0].call
    assert type(found).__name__ == "builtin_function_or_method", "the call runs its prologue in Python"
    return found


def slow_of(fn):
    """The prologue of the last call, in Python."""
    return dovetail.extend.compiled(dovetail.last_prologue_traces(fn)[-1])


def test_a_call_is_one_builtin_function():
    ours, x, y = compiled(add), torch.randn(4), torch.randn(4)
    assert_same(ours(x, y), x + y)
    assert_same(entry_of(ours)((x, y), {}), x + y)
    assert len(dovetail.cache_misses(ours)) == 1


@pytest.mark.parametrize(
    "other",
    [
        (torch.randn(4, dtype=torch.float64), torch.randn(4)),
        (torch.randn(5), torch.randn(5)),
        (torch.randn(2, 2), torch.randn(2, 2)),
        (torch.randn(8)[::2], torch.randn(4)),
        (torch.randn(4, requires_grad=True), torch.randn(4)),
        (nn.Parameter(torch.randn(4)), torch.randn(4)),
        (torch.randn(4), 3.0),
        (torch.randn(4), None),
        (torch.randn(4),),
        (torch.randn(4), torch.randn(4), torch.randn(4)),
        (torch.randn(4).to_sparse(), torch.randn(4)),
        (torch.zeros(4, device="meta"), torch.randn(4)),
        ([1.0] * 4, torch.randn(4)),
        (torch.randn(4).as_subclass(type("Mine", (torch.Tensor,), {})), torch.randn(4)),
    ],
    ids=lambda other: f"{type(other[0]).__name__} {getattr(other[0], 'dtype', '')} {len(other)}",
)
def test_a_call_that_does_not_fit_is_for_the_prologue(other):
    ours = compiled(add)
    ours(torch.randn(4), torch.randn(4))
    found = entry_of(ours)(other, {})
    assert type(found) is Miss and found.reason == slow_of(ours)(other, {}).reason


def test_names_repeats_and_switches_are_for_the_prologue():
    ours, x, y = compiled(add), torch.randn(4), torch.randn(4)
    ours(x, y)
    run = entry_of(ours)
    slow = slow_of(ours)
    for call in (((x,), {"y": y}), ((x, x), {})):
        assert type(run(*call)) is type(slow(*call))
    with torch.no_grad():
        assert type(run((x, y), {})) is Miss
    for kind in ("cpu", "cuda"):
        torch.set_autocast_enabled(kind, True)
        try:
            assert type(run((x, y), {})) is Miss
        finally:
            torch.set_autocast_enabled(kind, False)
    assert_same(run((x, y), {}), x + y)
    assert_same(ours(x, y=y), x + y)
    assert_same(ours(x, x), x + x)


def test_a_result_that_is_a_number_is_for_the_prologue():
    ours, x = compiled(lambda x: x.sum().item()), torch.arange(4.0)
    assert ours(x) == 6.0
    assert entry_of(ours)((x + 1,), {}) == 10.0


def test_every_kind_of_device_that_has_autocast_is_asked():
    devices = entries._machine().devices
    assert 0 in devices and 1 in devices and len(devices) == len(set(devices)) >= 5


def test_what_a_function_reads_besides_its_arguments_is_checked():
    global FACTOR

    def scaled(x):
        return x * FACTOR

    ours, x = dovetail.jit(scaled, executors=[EX, "torch"], interpretation="bytecode"), torch.randn(4)
    try:
        assert_same(ours(x), x * 2)
        entry_of(ours)
        FACTOR = 3.0
        assert_same(ours(x), x * 3)
    finally:
        FACTOR = 2.0
    assert_same(ours(x), x * 2)
    assert len(dovetail.cache_misses(ours)) == 2


def test_a_module_is_guarded_as_in_python():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.GELU()).eval()
    ours, x = compiled(model), torch.randn(3, 4)
    with torch.no_grad():
        assert_same(ours(x), model(x))
        entry_of(ours)
        model[0].weight = nn.Parameter(torch.randn(4, 4))
        assert_same(ours(x), model(x))
        assert len(dovetail.cache_misses(ours)) == 1
        model[0] = nn.Linear(4, 6).eval()
        assert_same(ours(x), model(x))
        model.train()
        ours(x)
        assert len(dovetail.cache_misses(ours)) == 3
        model.eval()
        assert_same(ours(x), model(x))
        assert len(dovetail.cache_misses(ours)) == 3


def test_a_training_step_has_an_entry_too():
    ours, w, x = compiled(lambda x, w: F.gelu(x * w).sum()), torch.randn(9, requires_grad=True), torch.randn(9)
    for _ in range(2):
        w.grad = None
        ours(x, w).backward()
        got, w.grad = w.grad, None
        F.gelu(x * w).sum().backward()
        torch.testing.assert_close(got, w.grad)
    entry_of(ours)


def test_several_kernels_several_results_and_an_argument_that_comes_back():
    def fn(x, y, z):
        a = torch.sin(x) * 2
        return a, (y + 1).sum(), x

    args = torch.randn(3, 5), torch.randn(7), torch.randn(2)
    ours = compiled(fn)
    for _ in range(3):
        got = ours(*args)
        assert type(got) is tuple and got[2] is args[0]
        assert_same(got[:2], fn(*args)[:2])
    entry_of(ours)


def test_large_results_come_from_the_pool():
    from dovetail.extend import POOL

    ours, x = compiled(lambda x: x * 2), torch.randn(2100, 2000)
    ours(x)
    entry_of(ours)
    before = POOL.statistics().reused
    assert_same(ours(x), x * 2)
    assert_same(ours(x), x * 2)
    assert POOL.statistics().reused > before


def test_an_error_in_a_kernel_says_where_as_from_python():
    ours, x = compiled(lambda x, i: F.embedding(i, x) * 2), torch.randn(4, 5)
    assert_same(ours(x, torch.tensor([3])), F.embedding(torch.tensor([3]), x) * 2)
    entry_of(ours)
    with pytest.raises(IndexError, match="out of range") as raised:
        ours(x, torch.tensor([4]))
    assert any("raised by llvm" in note for note in raised.value.__notes__)
    with pytest.raises(IndexError, match="out of range"):
        ours(x, torch.tensor([-1]))


def test_references_are_counted():
    def fn(x, y):
        return torch.sin(x + y), x - y

    ours, x, y = compiled(fn), torch.randn(4), torch.randn(4)
    ours(x, y)
    ours(x, x)
    ours(x, 2.0)
    gc.collect()  # what compiling leaves behind in cycles
    before = sys.getrefcount(x), sys.getrefcount(y)
    for _ in range(50):
        results = ours(x, y)
        ours(x, x)
        ours(x, 2.0)
    assert (sys.getrefcount(x), sys.getrefcount(y)) == before
    assert [sys.getrefcount(r) for r in results] == [3, 3]


def test_calls_leave_nothing_behind():
    ours, bad, x, y = compiled(add), compiled(lambda x, i: F.embedding(i, x) * 2), torch.randn(4), torch.randn(4)
    rows, past = torch.randn(4, 5), torch.tensor([9])
    bad(rows, torch.tensor([1]))

    def round_of(n):
        for i in range(n):
            ours(x, y)
            if i % 50 == 0:
                with pytest.raises(IndexError):
                    bad(rows, past)
                entry_of(ours)((x, 1), {})

    ours(x, y)
    round_of(20_000)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    round_of(60_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3_000


def test_an_entry_is_collected_with_its_function():
    ours, x = compiled(add), torch.randn(4)
    ours(x, x + 1)
    held = [entry_of(ours), ours._cache]
    counts = sys.getrefcount(held[1])
    del ours
    gc.collect()
    assert sys.getrefcount(held[1]) < counts or counts == 2
    assert_same(held[0]((x, x + 1), {}), x + x + 1)


def test_many_threads_call_at_once():
    ours = compiled(lambda x, y: torch.tanh(x) * y)
    x, y = torch.randn(300, 70), torch.randn(300, 70)
    want, wrong = ours(x, y), []

    def work():
        for _ in range(300):
            if not torch.equal(ours(x, y), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_prologue_with_a_guard_that_is_not_known_is_declined():
    def fn(x, *, factor):
        return x * factor

    ours = compiled(fn)
    assert_same(ours(torch.ones(3), factor=2.0), torch.full((3,), 2.0))
    assert_same(ours(torch.ones(3), factor=1.0), torch.ones(3))
    assert type(ours._cache.last).__name__ == "function"


def test_containers_are_looked_into():
    def fn(x, factors):
        return x * factors["a"] + factors["b"][0]

    ours, x = compiled(fn), torch.randn(3)
    for factors in ({"a": 2.0, "b": (x,)}, {"a": 2.0, "b": [x]}, {"a": 3.0, "b": (x,)}, {"b": (x,), "a": 3.0}, {"a": 2.0, "b": (x,), "c": 0}):
        for _ in range(2):
            assert_same(ours(x + 1, factors), fn(x + 1, factors))


def test_without_the_builtin_calls_run_in_python(monkeypatch):
    monkeypatch.setattr(entries, "_machine", lambda: None)
    ours, x = compiled(add), torch.randn(4)
    assert_same(ours(x, x + 1), x + (x + 1))
    assert type(ours._cache.last).__name__ == "function"


def test_the_object_code_is_good_for_every_process():
    target = jit.compiler().target
    assert gate.text(target, 32) == gate.text(target, 32)
    assert "inttoptr (i64" not in gate.text(target, 32)  # no address of this process


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.scale = nn.Linear(3, 3), nn.Dropout(1.0), 1.5

    def forward(self, x):
        return self.drop(F.gelu(self.linear(x)) + 1) * self.scale


class Twice(Block):
    def forward(self, x):
        return super().forward(x) * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Cubed(Net):
    def forward(self, x):
        return super().forward(x) ** 3


def hooked(module, args, result):
    return result - 4


CHANGES = {
    "a parameter": lambda net: setattr(net.blocks[1].linear, "weight", nn.Parameter(torch.ones(3, 3))),
    "a parameter in its table": lambda net: net.blocks[2].linear._parameters.update(bias=nn.Parameter(torch.ones(3))),
    "the data of a parameter": lambda net: setattr(net.blocks[1].linear.weight, "data", torch.ones(3, 3)),
    "elements of a parameter": lambda net: net.blocks[1].linear.weight.data.zero_(),
    "a parameter that needs no gradient": lambda net: net.blocks[3].linear.bias.requires_grad_(False),
    "no parameter": lambda net: setattr(net.blocks[3].linear, "bias", None),
    "a table of parameters": lambda net: setattr(net.blocks[1].linear, "_parameters", dict(nn.Linear(3, 3)._parameters)),
    "a tensor of another shape": lambda net: setattr(net.blocks[0].linear.bias, "data", torch.ones(1, 3)),
    "another dtype": lambda net: net.double(),
    "a submodule": lambda net: setattr(net.blocks[0], "linear", nn.Linear(3, 3, dtype=net.blocks[1].linear.weight.dtype)),
    "a submodule of another class": lambda net: setattr(net.blocks[0], "drop", nn.Tanh()),
    "the order": lambda net: net.blocks._modules.update({"0": net.blocks[1], "1": net.blocks[0]}),
    "one block less": lambda net: net.blocks._modules.pop("3"),
    "an attribute": lambda net: setattr(net.blocks[2], "scale", 7.0),
    "an attribute in its dictionary": lambda net: vars(net.blocks[1]).update(scale=3.0),
    "a forward of its own": lambda net: setattr(net.blocks[2], "forward", lambda x: x * 5),
    "a hook": lambda net: net.blocks[0].register_forward_hook(hooked),
    "hooks": lambda net: setattr(net.blocks[0], "_forward_hooks", collections.OrderedDict({0: hooked})),
    "a class": lambda net: setattr(net.blocks[1], "__class__", Twice),
    "a class of the whole": lambda net: setattr(net, "__class__", Cubed),
    "a __dict__": lambda net: setattr(net.blocks[1], "__dict__", {**vars(net.blocks[1]), "scale": 9.0}),
    "train": lambda net: net.train(),
    "eval": lambda net: net.eval(),
    "copies": lambda net: setattr(net, "blocks", copy.deepcopy(net.blocks)),
}


@pytest.fixture(params=["versions", "called"])
def way(request, monkeypatch):
    """The state of modules is watched in C, or asked for at each call."""
    if request.param == "called":
        monkeypatch.setattr(entries, "_versions", lambda: False)
    elif not entries._versions():
        pytest.skip("dictionaries of this Python have no version that is known")
    return request.param


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
    args, kwargs, found, program = (dovetail.extend.Proxy(name) for name in ("args", "kwargs", "found", "program"))
    rows = (
        (prims.check_count, (args,), {"length": 0}, None),
        (prims.check_keys, (kwargs,), {"type": None, "keys": ()}, None),
        (prims.unpack_state, (), {"state": state}, (found,)),
        (prims.call_program, (program, found), {}, None),
    )
    lines = [dovetail.extend.BoundSymbol(symbol, given, named, out, []) for symbol, given, named, out in rows]
    prologue = dovetail.extend.Trace("prologue", inputs=[args, kwargs], lines=lines)
    prologue.constants[program] = lambda x: x
    made = entries.entry(prologue, None, lambda args, kwargs: "slow", "llvm")
    return lambda: made((), {})


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
        found = (table["v"],)
        table["v"] += 1
        return found

    run = entry_by_hand(State(program, (), (table,)))
    assert [run() for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("found", [Miss("no"), (), (1, 2), [1], None], ids=str)
def test_what_is_not_a_state_is_for_the_prologue(way, found):
    table = {"v": found}
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


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_versions_are_not_read_where_they_are_not_found(monkeypatch, place):
    monkeypatch.setattr(entries, "VERSION", place * entries.WORD)
    assert not entries._versions.__wrapped__()


SIZES = st.sampled_from([(4,), (2, 2), (1, 4), (4, 1), (0, 4), (5,)])
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bfloat16])


@st.composite
def tensors(draw):
    """A tensor of any of a few shapes, dtypes and layouts; or something else."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from([None, 1.5, "x", (), [torch.ones(4)]]))
    x = torch.ones(draw(SIZES), dtype=draw(DTYPES))
    if kind == 1:
        x = x.t() if x.dim() == 2 else x
    if kind == 2:
        x = torch.ones((*x.shape, 2), dtype=x.dtype)[..., 0]
    if kind == 3 and x.is_floating_point():
        x.requires_grad_()
    return x


@settings(max_examples=150, deadline=None)
@given(tensors(), tensors(), tensors(), tensors())
def test_the_builtin_and_the_prologue_agree_on_every_call(a, b, c, d):
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return
    ours = compiled(lambda x, y: (x.sum(), y * 2))
    ours(a, b)
    if a.requires_grad or b.requires_grad:
        return
    run, slow = entry_of(ours), slow_of(ours)
    for args in ((a, b), (c, d), (a, d), (b, a), (c,)):
        got, want = run(args, {}), slow(args, {})
        assert (type(got) is Miss) == (type(want) is Miss)
        if type(want) is not Miss:
            assert_same(got, want)
        else:
            assert got.reason == want.reason
