"""A kernel that took too long with threads works alone for a while, and computes the same."""

from __future__ import annotations

import ctypes

import pytest
import torch

import dovetail
from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir import module as ir
from dovetail_llvm_exec.ir.target import host
from dovetail_llvm_exec.loops import crowd

pytestmark = pytest.mark.skipif(not host().clock, reason="programs may not read the clock of this processor")


def threads_used(calls: int, slack: float, monkeypatch) -> list[int]:
    """The threads of each call of an empty function that may have two, where a call may take `slack` nanoseconds."""
    monkeypatch.setattr(crowd, "SLACK", slack)
    module = ir.Module(host())
    b = module.function("f", "i32", [("threads", "i32"), ("counters", "ptr")])
    counter = crowd.Crowd(b, b.constant(crowd.limit_of(0.0), "i64"), b.params[1])
    threads, start = counter.enter(b.params[0]), b.call(crowd.CLOCK, "i64")
    counter.leave(threads, start)
    b.ret(threads)
    kernel = jit.Compiler(folder=None).compile(module.text(), "f")
    call, counters = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(kernel.address), (ctypes.c_int32 * 2)()
    return [call(2, ctypes.addressof(counters)) for _ in range(calls)]


def test_calls_that_keep_their_time_use_all_threads(monkeypatch):
    assert threads_used(100, 1e15, monkeypatch) == [2] * 100


def test_after_each_disturbance_twice_as_many_calls_work_alone(monkeypatch):
    used = threads_used(20_000, -1.0, monkeypatch)
    runs = [len(run) for run in "".join(map(str, used)).split("2")[1:]]
    assert runs[:9] == [32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]


def test_a_kernel_that_works_alone_computes_the_same_bits(monkeypatch):
    def function(x):
        return torch.softmax(torch.tanh(x) * 3, -1).sum(0)

    x = torch.randn(1000, 777)
    usual = dovetail.jit(function)(x)
    monkeypatch.setattr(crowd, "SLACK", -1e12)
    crowded = dovetail.jit(lambda x: function(x) + 0.0)
    for _ in range(5):
        assert torch.equal(crowded(x), usual)
