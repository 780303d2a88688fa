"""Thousands of calls at changing shapes: right results, and memory that stays where it is after the first rounds."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch
from llvm_against_eager import assert_same, compiled
from torch.nn import functional as F

from dovetail.extend.advanced import POOL
from dovetail_llvm_exec.call import launch

SHAPES = ((4,), (3, 5), (257, 33), (64, 1024), (1100, 1000), (1, 1), (7, 300), (2048, 600))
CALLS = 2000
MIB = 1 << 20
STATM = Path("/proc/self/statm")


def resident() -> int:
    """The bytes of this process that are in memory."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.softmax(torch.tanh(x * w) + x, -1)


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (F.layer_norm(x, x.shape[-1:], w) ** 2).mean()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="expected Linux, where a process can read how much of it is in memory")
def test_memory_does_not_grow_over_two_thousand_calls_at_changing_shapes(monkeypatch):
    monkeypatch.setattr(launch, "LARGE", 4 * MIB)  # some results from the pool, some not
    before = POOL.statistics().reused
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in SHAPES]
    weights = [torch.randn(shape[-1:], generator=generator, requires_grad=True) for shape in SHAPES]
    forward, loss = compiled(step), compiled(norm)
    wanted = [step(x, w.detach()) for x, w in zip(inputs, weights)]
    levels, kept = [], []
    for i in range(CALLS):
        at = i % len(SHAPES)
        x, w = inputs[at], weights[at]
        if i % 3 == 0:
            w.grad = None
            loss(x, w).backward()
            continue
        got = forward(x, w.detach())
        kept = [*kept[-2:], (at, got[..., :2].clone(), got)]  # results live on for a while
        if i % 97 == 0:
            assert_same(got, wanted[at], scale=20)
            assert all(torch.equal(result[..., :2], head) for _, head, result in kept)
        if i % (CALLS // 10) == 0:
            gc.collect()
            levels.append(resident())
    assert max(levels[3:]) - levels[2] < 48 * MIB, [f"{level / MIB:.0f} MiB" for level in levels]
    del got
    kept.clear()
    POOL.clear()
    assert POOL.statistics().idle == 0 and POOL.statistics().reused > before
