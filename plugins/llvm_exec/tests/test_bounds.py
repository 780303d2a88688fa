"""Kernels write what they are given and nothing beside it: results and workspace lie between guards here."""

from __future__ import annotations

import ctypes

import pytest
import torch
from llvm_against_eager import assert_same, compiled
from torch.nn import functional as F

import dovetail
from dovetail.langs.torch import TO_TORCH
from dovetail_llvm_exec.call import kernel as regions
from dovetail_llvm_exec.call.launch import Bound, failed, runner
from dovetail_llvm_exec.executor import llvm_executor

GUARD, MARK = 512, 0x5A
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.bool]


def guarded(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(memory with a guard at each end, what lies between them)"""
    room = torch.full((size + 2 * GUARD,), MARK, dtype=torch.uint8)
    start = -(room.data_ptr() + GUARD) % 64
    return room, room[GUARD + start - 64 * (start > 0) : GUARD + start - 64 * (start > 0) + size]


def function(bound: Bound):
    """A launch in which writes that go astray are seen."""
    run = runner(bound.kernel)

    def call(*inputs):
        rooms, outs = [], []
        for out in bound.outputs:
            span = 1 + sum((n - 1) * s for n, s in zip(out.shape, out.steps, strict=True))
            room, inside = guarded(span * out.dtype.bytes)
            rooms.append((room, inside))
            outs.append(inside.view(TO_TORCH[out.dtype]).as_strided(out.shape, out.steps))
        room, work = guarded(bound.workspace)
        rooms.append((room, work))
        words = (ctypes.c_int64 * (2 + len(inputs) + len(outs)))(0, work.data_ptr(), *[x.data_ptr() for x in (*inputs, *outs)])
        run(words, 1)
        for room, inside in rooms:
            start = inside.storage_offset()
            assert (room[:start] == MARK).all() and (room[start + inside.numel() :] == MARK).all(), "a kernel wrote beside its results"
        if words[0]:
            failed(words[0])
        call.kernel = bound.kernel
        return tuple(outs)

    return call


@pytest.fixture
def ex(monkeypatch):
    monkeypatch.setattr(regions, "function", function)
    return llvm_executor()


def numbers(shape, dtype):
    return (torch.randn(shape) * 3).to(dtype)


MOVING = {
    "copy": lambda x: x.clone(),
    "transposed": lambda x: x.t().clone(),
    "repeat": lambda x: x.repeat(2, 1),
    "repeated rows": lambda x: x.repeat_interleave(2, 0),
    "roll": lambda x: torch.roll(x, 2, 1),
    "flip": lambda x: x.flip(1),
    "cat": lambda x: torch.cat([x, x[:, :1], x], 1),
    "stack": lambda x: torch.stack([x, x.flip(0)], 1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "slice": lambda x: x[:, 1::2].clone(),
    "windows": lambda x: x.unfold(1, 3, 1).clone(),
    "sum of parts": lambda x: x.reshape(-1, 1).expand(-1, 3).clone(),
    "where": lambda x: torch.where(x == 1, x, x.flip(0)),
    "compare": lambda x: (x == x.flip(1), x.clone()),
    "extremes": lambda x: (x.amax(0), x.amax(1), x.amin()),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MOVING)
def test_moving(name, dtype, ex):
    fn = MOVING[name]
    for shape in ((4, 3), (5, 17), (3, 64), (1, 5), (33, 8)):
        x = numbers(shape, dtype)
        assert_same(dovetail.jit(fn, executors=[ex, "torch"])(x), fn(x))


COMPUTING = {
    "chain": lambda x: torch.sin(x) * 2 + x,
    "softmax": lambda x: F.softmax(x, -1),
    "softmax down": lambda x: F.softmax(x, 0),
    "norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "sums": lambda x: (x.sum(0), x.sum(1), x.sum(), x * 2),
    "variance": lambda x: x.var(0, correction=0),
    "positions": lambda x: (x.argmax(0), x.argmax(1), x.argmin()),
    "gelu in parts": lambda x: torch.cat([F.gelu(part) for part in x.chunk(2, 0)]),
    "heads": lambda x: F.gelu(x).unsqueeze(0).transpose(1, 2).expand(2, -1, -1).reshape(2 * x.shape[1], -1),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES[:4])
@pytest.mark.parametrize("name", COMPUTING)
def test_computing(name, dtype, ex):
    fn = COMPUTING[name]
    for shape in ((4, 3), (5, 17), (40, 33), (1, 5), (600, 5), (2, 70000)):
        x = numbers(shape, dtype)
        assert_same(dovetail.jit(fn, executors=[ex, "torch"])(x), fn(x), scale=2000 if x.numel() > 10000 else 40)


def test_gathers_and_losses(ex):
    w, i, t = torch.randn(11, 19, requires_grad=True), torch.randint(0, 11, (7,)), torch.randint(0, 19, (7,))
    ours = dovetail.jit(lambda w, i, t: F.cross_entropy(F.embedding(i, w) * 2, t), executors=[ex, "torch"])
    mine, theirs = ours(w, i, t), F.cross_entropy(F.embedding(i, w) * 2, t)
    assert_same(mine, theirs, scale=10)
    assert_same(torch.autograd.grad(mine, w), torch.autograd.grad(theirs, w), scale=10)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_class_that_one_hot_has_no_column_for_is_an_error(wrong):
    fn = compiled(lambda x: F.one_hot(x, 4) + 0)
    with pytest.raises(RuntimeError, match="index out of bounds"):
        fn(torch.tensor([0, 3, wrong]))
    assert fn(torch.tensor([0, 3, 1])).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
