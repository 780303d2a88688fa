"""From Python into a kernel: the quick way and the slow one, errors, threads, forks, many shapes."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import dill
import pytest
import torch
from llvm_against_eager import assert_same, compiled
from torch.nn import functional as F

import dovetail
from dovetail_llvm_exec.call import launch, threads
from dovetail_llvm_exec.executor import llvm_executor

STATM = Path("/proc/self/statm")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


def kernel_of(fn):
    """The function of the one region in the program that ran last."""
    (line,) = [line for line in dovetail.last_traces(fn)[-1].lines if line.implementation is not None]
    assert line.implementation.executor == "llvm"
    return line.implementation.fn


def chain(x, y):
    return torch.sin(x + y) * 2 - x


@pytest.fixture
def slow(monkeypatch):
    """No builtin: as on a machine where tensors do not lie as expected."""
    monkeypatch.setattr(launch, "compiled", lambda written: None)


def test_small_kernels_are_builtin_functions_here():
    ours = compiled(chain)
    ours(torch.ones(5), torch.ones(5))
    assert type(kernel_of(ours)).__name__ == "builtin_function_or_method"


def test_the_slow_way_gives_the_same(slow):
    for shape in ((3, 21), (1100, 1000)):
        x, y = torch.randn(shape), torch.randn(shape)
        ours = compiled(lambda x, y: (chain(x, y), (x * y).sum(0), x.t() + 1))
        assert_same(ours(x, y), (chain(x, y), (x * y).sum(0), x.t() + 1), scale=100)
    ours = compiled(lambda x, i: F.embedding(i, x) + 1)
    with pytest.raises(IndexError, match="out of range"):
        ours(torch.randn(4, 5), torch.tensor([4]))


def test_a_tensor_of_another_class_goes_the_slow_way():
    class Mine(torch.Tensor):
        pass

    ours, x = compiled(chain), torch.randn(9)
    ours(x, x + 1)
    (got,) = kernel_of(ours)(x.as_subclass(Mine), x + 1)
    assert_same(got, chain(x, x + 1))


def test_a_tensor_that_stands_for_the_negative_of_its_memory():
    z = torch.randn(30, dtype=torch.complex64)
    plain, negated = z.imag.clone(), z.conj().imag
    assert negated.is_neg()
    ours = compiled(lambda x: x * 2 + 1)
    with torch.no_grad():
        assert_same(ours(plain), plain * 2 + 1)
        assert_same(kernel_of(ours)(negated.clone())[0], negated * 2 + 1)
        assert_same(kernel_of(ours)(torch._neg_view(plain))[0], -plain * 2 + 1)


def test_a_tensor_without_memory_is_an_error():
    ours = compiled(lambda x: x * 2 + 1)
    ours(torch.randn(3))
    with pytest.raises(RuntimeError, match=r"data pointer|storage"):
        torch.func.vmap(lambda x: kernel_of(ours)(x)[0])(torch.randn(4, 3))


def test_parameters_and_results_of_views_lie_where_they_say():
    w = torch.nn.Parameter(torch.randn(10, 12))
    with torch.no_grad():
        ours = compiled(lambda w: w[2:, 3:].detach() * 2 + w[0, 3:])
        assert_same(ours(w), w[2:, 3:] * 2 + w[0, 3:])


def test_results_are_counted_once():
    ours, x = compiled(chain), torch.randn(50)
    result = ours(x, x + 1)
    alone = torch.randn(50)
    assert sys.getrefcount(result) == sys.getrefcount(alone)
    assert not result.requires_grad and result.is_contiguous() and result.grad_fn is None


@pytest.mark.alone
@pytest.mark.slow
def test_an_error_leaves_no_result_behind():
    ours, x = compiled(lambda x, i: F.embedding(i, x) + 1), torch.randn(100, 1000)
    ours(x, torch.arange(100))
    bad = torch.full((100,), 100)
    before = None
    for i in range(400):
        with pytest.raises(IndexError):
            ours(x, bad)
        if i == 100:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@pytest.mark.alone
@pytest.mark.slow
def test_calls_leave_nothing_behind():
    ours, x = compiled(chain), torch.randn(4)
    fn = (ours(x, x + 1), kernel_of(ours))[1]
    y = x + 1
    for _ in range(20_000):
        fn(x, y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100_000):
        fn(x, y)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000


def test_threads_of_python_call_one_program():
    ours = compiled(lambda x: F.softmax(x, -1) * 2 + x.sum(0))
    x = torch.randn(300, 500)
    want, wrong = F.softmax(x, -1) * 2 + x.sum(0), []
    ours(x)

    def work():
        for _ in range(20):
            if not torch.allclose(ours(x), want, atol=1e-3):
                wrong.append(1)
            torch.mul(x, 2)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def status_of(child):
    """What a child process ended with, after five minutes at most."""
    for _ in range(6000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


def out_of_memory(call):
    """Whether calls of which each keeps more memory end in torch's error where no more is to be had."""
    now = int(STATM.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (40 << 20), -1))
    kept = []
    try:
        for _ in range(100):  # enough for what the heap still holds of freed memory
            kept.append(call())
    except RuntimeError as error:
        return "allocate" in str(error) and len(kept) > 0
    return False


@pytest.mark.alone
@needs_fork
@pytest.mark.skipif(not STATM.exists(), reason="expected Linux, where a process can read how much memory it has")
@pytest.mark.parametrize("fn", [lambda x: chain(x, x), pytest.param(lambda x: (x + 1, x * 2), marks=pytest.mark.slow)])
def test_too_little_memory_is_an_error(fn):
    ours, x = compiled(fn), torch.randn(3_500_000)
    ours(x)
    assert type(kernel_of(ours)).__name__ == "builtin_function_or_method"
    child = os.fork()
    if child == 0:
        os._exit(0 if out_of_memory(lambda: ours(x)) else 1)
    assert status_of(child) == 0


@needs_fork
def test_a_forked_child_runs_alone():
    ours, x = compiled(lambda x: F.softmax(x, -1)), torch.randn(2000, 500)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        want = ours(x)
        child = os.fork()
        if child == 0:
            got = ours(x)
            torch.set_num_threads(1)  # torch's own kernels would wait for the parent's threads
            os._exit(0 if torch.equal(got, want) and threads.ALONE.value == 1 else 1)
        assert status_of(child) == 0
        assert threads.ALONE.value == 0 and torch.equal(ours(x), want)
    finally:
        torch.set_num_threads(before)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize(("dynamic", "programs"), [(False, 77), (None, 2)])
def test_no_growth_over_changing_shapes(dynamic, programs):
    def fn(x, w):
        return F.layer_norm(x, (x.shape[-1],), w) + F.softmax(x, -1), x.sum(0)

    def call(i):
        x = torch.randn(3 + i % 7, 5 + i % 11)
        w = torch.randn(x.shape[1])
        assert_same(ours(x, w), fn(x, w), scale=40)

    ours = dovetail.jit(fn, executors=["llvm", "torch"], dynamic=dynamic)
    for i in range(77):
        call(i)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(1000):
        call(i)
    assert len(dovetail.cache_misses(ours)) == programs
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000


def test_equal_layers_are_compiled_once():
    from dovetail_llvm_exec.executor import llvm_executor

    ex = llvm_executor()
    layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)) for _ in range(6)])
    ours = dovetail.jit(layers, executors=[ex, "torch"])
    x = torch.randn(3, 8)
    assert_same(ours(x), layers(x), scale=20)
    regions = [line for line in dovetail.last_traces(ours)[-1].lines if line.implementation is not None and line.implementation.executor == "llvm"]
    assert len(regions) >= 6 and len({id(line.implementation.fn) for line in regions}) <= 4


def test_kernels_do_not_alias_their_inputs_or_each_other(monkeypatch):
    monkeypatch.setenv("DOVETAIL_CHECK", "1")
    x = torch.randn(4, 6)
    ours = compiled(lambda x: (x * 1, x.clone(), x.sum(1, keepdim=True), x.unsqueeze(0).sum(0), x[:1].sum(0), x.detach() + 0))
    results = ours(x)
    assert len({r.untyped_storage().data_ptr() for r in results} | {x.untyped_storage().data_ptr()}) == 7


def test_writing_an_argument_in_place_reads_it_first():
    def fn(x, y):
        z = x + y
        x.mul_(2).add_(z)
        return x * y

    x, y = torch.randn(5, 40), torch.randn(5, 40)
    mine, theirs = x.clone(), x.clone()
    assert_same(compiled(fn)(mine, y), fn(theirs, y), scale=4)
    assert_same(mine, theirs, scale=4)


def test_arguments_that_overlap():
    base = torch.randn(100)
    ours = compiled(lambda x, y: x * 2 + y)
    assert_same(ours(base[:90], base[10:]), base[:90] * 2 + base[10:])


def test_a_region_that_makes_no_loop_nests_runs_line_by_line(monkeypatch):
    from dovetail_llvm_exec.call import kernel as regions
    from dovetail_llvm_exec.executor import llvm_executor
    from dovetail_llvm_exec.region.forms import CannotLower

    def cut(region, sizes, mark):
        raise CannotLower("as a test")

    monkeypatch.setattr(regions, "_compiled", cut)
    ours, x = dovetail.jit(lambda x: (F.softmax(x, -1) * 2).t(), executors=[llvm_executor(), "torch"]), torch.randn(4, 5)
    assert_same(ours(x), (F.softmax(x, -1) * 2).t())


@pytest.mark.parametrize("fn", [chain, lambda x, y: (chain(x, y).t(), x[1:]), lambda x, y: torch.cat([x] * 4).repeat(40000, 1)])
def test_the_function_of_a_region_is_pickled_as_the_region(fn):
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    ours = compiled(fn)
    ours(x, y)
    lines = [line for line in dovetail.last_traces(ours)[-1].lines if line.implementation is not None and line.implementation.executor == "llvm"]
    assert lines
    for line in lines:
        again, inputs = dill.loads(dill.dumps(line.implementation.fn)), [torch.randn(p.spec.shape) for p in line.args]
        assert_same(again(*inputs), line.implementation.fn(*inputs))


def test_a_kernel_is_shared_by_equal_operations_not_by_equal_parts():
    def whole(x, y, z):
        return torch.addcmul(x, y, z, value=0.3)

    def in_parts(x, y, z):
        return x + y * 0.3 * z

    args = [torch.randn(64, 64).bfloat16() for _ in range(3)]
    ex = llvm_executor()
    assert_same(dovetail.jit(whole, executors=[ex, "torch"])(*args), whole(*args))
    assert torch.equal(dovetail.jit(in_parts, executors=[ex, "torch"])(*args), in_parts(*args))  # which rounds after each operation
    assert len(ex.kernels.cache.kernels) == 2
