"""Whole calls in C: what fits runs, and whatever does not is for the prologue in Python."""

from __future__ import annotations

import gc
import resource
import sys
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_against_eager import EX, assert_same, compiled
from torch import nn
from torch.nn import functional as F

import dovetail
from dovetail.extend.advanced import torch_internals
from dovetail.frontend.guards.guard import Miss
from dovetail_llvm_exec.call import entry as entries
from dovetail_llvm_exec.call.entry_ir import EntryCode
from dovetail_llvm_exec.call.trampoline import Launch
from dovetail_llvm_exec.ir import jit

FACTOR = 2.0


def add(x, y):
    return x + y


def entry_of(fn):
    """The builtin function of the last call's program, which `dovetail.use`, once it was used in a process, wraps in a look at its scope."""
    call = fn._cache.entries[0].call
    assert type(call).__name__ == "builtin_function_or_method", "the call runs its prologue in Python"
    return call


def slow_of(fn):
    """The prologue of the last call, in Python."""
    return dovetail.extend.advanced.to_callable(dovetail.last_prologue_traces(fn)[-1])


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
    result = entry_of(ours)(other, {})
    assert type(result) is Miss and result.reason == slow_of(ours)(other, {}).reason


@pytest.mark.parametrize(
    "shape, steps, other", [((1, 4, 2, 3), (24, 1, 12, 4), (4, 1, 12, 4)), ((2, 4, 3, 1), (12, 1, 4, 4), (12, 1, 4, 1))], ids=str
)
def test_strides_of_sizes_of_1_that_decide_on_the_memory_format_are_checked(shape, steps, other):
    ours = compiled(torch.sin)
    images = [torch.randn(24).as_strided(shape, each) for each in (steps, other, steps)]
    for x in images:
        assert_same(ours(x), torch.sin(x))
    assert len(dovetail.cache_misses(ours)) == 2


@pytest.mark.parametrize(("shape", "steps"), [((1, 4), (3,)), ((1, 2, 3, 4), (4, 8, 1))], ids=str)
def test_other_strides_of_sizes_of_1_do_not_count(shape, steps):
    ours = compiled(torch.sin)
    for step in (1, 7, 40):
        x = torch.randn(48).as_strided(shape, (step, *steps))
        assert_same(entry_of(ours)((x,), {}) if ours._cache.entries else ours(x), torch.sin(x))


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
    devices, keys = torch_internals.autocast_devices(), torch_internals.autocast_keys()
    assert {"cpu", "cuda", "xpu"} <= set(devices) and keys.bit_count() == len(devices) == len(set(devices))


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
    from dovetail.extend.advanced import POOL

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
    alone = torch.randn(4), torch.randn(4)
    assert [sys.getrefcount(r) for r in results] == [sys.getrefcount(r) for r in alone]


@pytest.mark.alone
@pytest.mark.slow
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
    monkeypatch.setattr(entries, "compiled", lambda written: None)
    ours, x = compiled(add), torch.randn(4)
    assert_same(ours(x, x + 1), x + (x + 1))
    assert type(ours._cache.last).__name__ == "function"


@pytest.mark.parametrize("written", [EntryCode, Launch])
def test_the_object_code_is_good_for_every_process(written):
    target = jit.compiler().target
    assert written(target).text() == written(target).text()
    assert "inttoptr (i64" not in written(target).text()  # no address of this process


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


def test_a_program_that_writes_an_argument_is_one_builtin_function():
    def step(cache, row):
        cache[2:3] = row
        return cache.sum(0)

    ours, cache, same, row = compiled(step), torch.zeros(8, 4), torch.zeros(8, 4), torch.randn(1, 4)
    for _ in range(3):
        assert_same(ours(cache, row), step(same, row))
    call, before = entry_of(ours), sys.getrefcount(cache)
    for i in range(100):
        row.fill_(i)
        assert_same(call((cache, row), {}), step(same, row))
    assert_same(cache, same)
    assert sys.getrefcount(cache) == before
    assert type(call((cache, cache[3:4]), {})) is Miss
    assert_same(cache, same)
