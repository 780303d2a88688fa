"""Programs compiled with the executor in front, compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import dovetail
from dovetail_onednn_exec.executor import onednn_executor

ALWAYS = onednn_executor(choose="always", pack=True)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2}


def compiled(fn: Callable, ex: Any = ALWAYS, **how: Any) -> Callable:
    """`fn` with the executor asked first."""
    return dovetail.jit(fn, executors=[ex, "torch"], **how)


def ran(fn: Callable) -> list[str]:
    """The operations that the executor ran in the last call and its backward."""
    traces = [t[-1] for t in (dovetail.last_traces(fn), dovetail.last_backward_traces(fn)) if t]
    return [str(line.symbol) for trace in traces for line in trace.lines if line.implementation and line.implementation.executor == "onednn"]


def refusals(fn: Callable) -> list[str]:
    """What the executor said to the operations that it did not take."""
    return [c.message for row in dovetail.explain(fn).rows for c in row.candidates if c.executor == "onednn" and c.status == "refused"]


def verdicts_of(fn: Callable, *args: torch.Tensor) -> list[Any]:
    """What the executor says to the operations of `fn` that it implements, and to their parts."""

    def verdicts(lines: Any) -> Iterator[Any]:
        for line in lines:
            if ALWAYS.implementation(line.symbol) is not None:
                yield ALWAYS.verdict(line)
            yield from verdicts(line.body)

    return list(verdicts(dovetail.make_trace(fn)(*args).lines))


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal values within what the dtype resolves, shape, dtype and strides."""
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got, want, rtol=tolerance, atol=4 * tolerance)


def assert_like_eager(fn: Callable, *args: torch.Tensor, runs: int = 1) -> Callable:
    """`fn` compiled gives what eager gives, twice, and the executor runs as many lines of it."""
    ours = compiled(fn)
    with torch.no_grad():
        for _ in range(2):
            assert_same(ours(*args), fn(*args))
    assert len(ran(ours)) == runs, dovetail.explain(ours)
    return ours
