"""Programs compiled with the executor in front, compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import dovetail
from dovetail_llvm_exec.executor import llvm_executor
from dovetail_llvm_exec.ir.target import Target, host
from dovetail_llvm_exec.loops.program import Program, program
from dovetail_llvm_exec.region.graph import Graph

EX = llvm_executor()
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def compiled(fn: Callable) -> Callable:
    """`fn` with the executor asked first."""
    return dovetail.jit(fn, executors=[EX, "torch"])


def flat(result: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def runs_kernels(fn: Callable) -> bool:
    """Whether the executor runs a line of the program that ran last."""
    traces = [t[-1] for t in (dovetail.last_traces(fn), dovetail.last_backward_traces(fn)) if t]
    return any(line.implementation is not None and line.implementation.executor == "llvm" for trace in traces for line in trace.lines)


def assert_same(got: Any, want: Any, *, scale: float = 1.0) -> None:
    """Equal values, shapes, dtypes and strides; floats within `scale` times what their dtype resolves."""
    for x, y in zip(flat(got), flat(want), strict=True):
        assert x.dtype is y.dtype and x.shape == y.shape
        spread = [(a, b) for a, b, n in zip(x.stride(), y.stride(), x.shape) if n > 1]
        assert not x.numel() or all(a == b for a, b in spread), (x.stride(), y.stride())
        tolerance = TOLERANCE.get(x.dtype, 0.0) * scale
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


def assert_like_eager(fn: Callable, *args: Any, scale: float = 1.0) -> Callable:
    """`fn` compiled gives what eager gives, and the executor has a part in it."""
    ours = compiled(fn)
    assert_same(ours(*args), fn(*args), scale=scale)
    assert runs_kernels(ours)
    return ours


def program_of(fn: Callable, *args: Any, target: Target | None = None) -> Program:
    """The kernel of `fn`, which is one region, for this machine or another."""
    ours = compiled(fn)
    ours(*args)
    (line,) = [line for line in dovetail.last_traces(ours)[-1].lines if line.implementation is not None and line.implementation.executor == "llvm"]
    graph = Graph(line.implementation.region)
    return program(graph, list({o.base: None for o in graph.outputs}), target or host())
