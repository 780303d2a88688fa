"""The Triton executor: regions of a program as generated GPU kernels, planned and written without a GPU."""

from __future__ import annotations

from dovetail.extend import hookimpl
from dovetail.extend.advanced import Executor

__version__ = "0.1.0"
__all__ = ["dovetail_executors"]


@hookimpl
def dovetail_executors() -> list[Executor]:
    from dovetail_triton_exec.executor import triton_executors

    return triton_executors()
