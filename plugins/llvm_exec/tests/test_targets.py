"""Whole kernels for machines that are not this one: LLVM makes code of them, which calls nothing but torch's threads.

Those of older machines of this one's kind run here.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm
import pytest
import torch
from llvm_against_eager import assert_same, program_of, runs_kernels
from torch.nn import functional as F
from vmath_evaluate import calls

import dovetail
from dovetail_llvm_exec.executor import llvm_executor
from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir.target import LEVELS, named
from dovetail_llvm_exec.region import groups

MACHINES = [("x86_64-linux-gnu", "x86-64"), ("x86_64-linux-gnu", "x86-64-v3"), ("x86_64-linux-gnu", "x86-64-v4")]
MACHINES += [("aarch64-linux-gnu", "generic"), ("aarch64-linux-gnu", "neoverse-v1"), ("arm64-apple-macos", "apple-m1")]
THREADS = {"GOMP_parallel", "omp_get_num_threads", "omp_get_thread_num"}
X, W = torch.randn(256, 130), torch.randn(130)
KERNELS = {
    "elements": (lambda x, w: F.gelu(x + w) * torch.tanh(x), X, W),
    "rows": (lambda x, w: F.softmax(F.layer_norm(x, (130,), w), -1), X, W),
    "columns": (lambda x, w: (x * w).sum(0), X, W),
    "wide": (lambda x: x.sum(), torch.randn(1 << 18)),
    "transposed": (lambda x, w: x.t() * 2 + w[:, None], X, W),
    "gathered": (lambda table, i: F.embedding(i, table) * 2, X, torch.randint(256, (64,))),
    "doubles": (lambda x, w: torch.exp(x.double()) * w, X, W),
    "bfloat16": (lambda x, w: F.softmax(x * w, -1), X.bfloat16(), W.bfloat16()),
    "float16": (lambda x, w: (x * w, x.argmax(-1)), X.half(), W.half()),
    "single bfloat16": (lambda x: torch.sigmoid(x) * 2, torch.tensor([0.75], dtype=torch.bfloat16)),
    "padded halves": (lambda x, w: F.pad(x, (1, 2), value=3) + w, X.half(), torch.randn(133, dtype=torch.float64)),
    "integers": (lambda i: ((i // 3) % 5, i > 7), torch.randint(100, (256, 130))),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("triple", "cpu"), MACHINES, ids=[cpu for _, cpu in MACHINES])
def test_kernels_become_code_for_other_machines(triple, cpu, name, monkeypatch):
    monkeypatch.setattr(groups, "STREAMED", 1 << 10)
    fn, *args = KERNELS[name]
    target = named(triple, cpu)
    module = llvm.parse_assembly(program_of(fn, *args, target=target).text)
    module.verify()
    outside = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    code = target.machine(jit=False).emit_assembly(module)
    assert outside <= THREADS
    assert [n for n in calls(code) if not n.lstrip("_").startswith(("nest", "omp_", "GOMP_", "run"))] == []


@cache
def compiler_of(cpu):
    """For an older machine of this one's kind."""
    return jit.Compiler(named(llvm.get_process_triple(), cpu))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_kernels_of_older_machines_give_the_same(cpu, name, monkeypatch):
    has = llvm.get_host_cpu_features()
    if not llvm.get_process_triple().startswith("x86_64") or not all([has.get(feature, False) for feature in LEVELS[cpu]]):
        pytest.skip(f"this machine is none that runs what {cpu} runs")
    monkeypatch.setattr(jit, "compiler", lambda: compiler_of(cpu))
    fn, *args = KERNELS[name]
    ours = dovetail.jit(fn, executors=[llvm_executor(), "torch"])
    assert_same(ours(*args), fn(*args), scale=1 if args[0].dtype.itemsize == 2 else 8)
    assert runs_kernels(ours)
