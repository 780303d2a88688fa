"""Programs with the executor in front: compared with eager PyTorch, or planned only, which needs no triton."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail
from dovetail.extend import Trace
from dovetail.extend.advanced import to_callable
from dovetail_triton_exec import availability
from dovetail_triton_exec.executor import TritonExecutor
from dovetail_triton_exec.regions import Region, compiled

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
FOLDER = tempfile.TemporaryDirectory(prefix="dovetail-triton-")

SAID = availability.available()
needs_kernels = pytest.mark.skipif(SAID is not True, reason=str(SAID))


class Here(TritonExecutor):
    """The executor on this machine's device, with files in a folder of the tests; `tiles` stands in for the table."""

    def __init__(self, tiles: Callable | None = None):
        super().__init__()
        self.options["folder"] = FOLDER.name
        self.tiles = tiles

    def fuse(self, region: Trace) -> Region:
        if self.tiles is None:
            return super().fuse(region)
        region = compiled(region, tiles=self.tiles)
        region.folder = FOLDER.name
        return region


class Planner(TritonExecutor):
    """Plans regions as for a GPU, and runs them as Python."""

    def __init__(self) -> None:
        super().__init__(devices=["cpu"])
        self.regions: list[Region] = []

    def fuse(self, region: Trace) -> Callable:
        self.regions.append(compiled(region, interpreted=False))
        return to_callable(region)


EX = Here()


def planned(fn: Callable, *args: Any, train: bool = False) -> list[Region]:
    """The regions of a program; with `train` those of its backward too."""
    planner = Planner()
    out = dovetail.jit(fn, executors=[planner, "torch"])(*args)
    if train:
        sum(t.sum() for t in flat(out)).backward()
    return planner.regions


def flat(result: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def ran(fn: Callable) -> list[Region]:
    """The regions of the program that ran last."""
    traces = [t[-1] for t in (dovetail.last_traces(fn), dovetail.last_backward_traces(fn)) if t]
    return [line.implementation.fn for trace in traces for line in trace.lines if line.implementation and line.implementation.executor == "triton"]


def here(value: Any) -> Any:
    """A tensor on the device that kernels run on."""
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


def assert_same(got: Any, want: Any, *, scale: float = 1.0) -> None:
    """Equal values, shapes, dtypes and strides; floats within `scale` times what their dtype resolves."""
    for x, y in zip(flat(got), flat(want), strict=True):
        assert x.dtype is y.dtype and x.shape == y.shape
        assert not x.numel() or all(a == b for a, b, n in zip(x.stride(), y.stride(), x.shape, strict=True) if n > 1), (x.stride(), y.stride())
        tolerance = TOLERANCE.get(x.dtype, 0.0) * scale
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


def assert_like_eager(fn: Callable, *args: Any, scale: float = 1.0, executor: TritonExecutor | None = None) -> Callable:
    """`fn` compiled gives what eager gives, and the executor has a part in it."""
    args = tuple(map(here, args))
    ours = dovetail.jit(fn, executors=[executor or EX, "torch"])
    assert_same(ours(*args), fn(*args), scale=scale)
    assert ran(ours)
    return ours


def assert_trains_like_eager(fn: Callable, *args: Any, scale: float = 1.0) -> Callable:
    """The gradients of `fn` are eager's, for cotangents that lie as its results do: Dovetail brings others into that layout."""
    inputs = [[x.to(DEVICE).detach().clone().requires_grad_(x.is_floating_point()) for x in args] for _ in range(2)]
    ours = dovetail.jit(fn, executors=[EX, "torch"])
    grads = []
    for call, arguments in zip((ours, fn), inputs, strict=True):
        outs = flat(call(*arguments))
        torch.manual_seed(0)
        loss = sum((out * torch.empty_like(out).copy_(torch.randn(out.shape))).sum() for out in outs)
        grads.append(torch.autograd.grad(loss, [x for x in arguments if x.requires_grad]))
    assert_same(grads[0], grads[1], scale=scale)
    assert ran(ours)
    return ours


def quiet_cache() -> dict[str, str]:
    """The environment of a process that is not to interpret."""
    return {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
