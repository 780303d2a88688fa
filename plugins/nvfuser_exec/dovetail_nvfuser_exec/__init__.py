"""The nvFuser executor: regions of a program on CUDA devices, as definitions that NVIDIA's nvFuser compiles."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.extend import hookimpl
from dovetail.extend.advanced import Executor

__version__ = "0.1.0"
__all__ = ["dovetail_doctor", "dovetail_executors"]


@hookimpl
def dovetail_executors() -> list[Executor]:
    from dovetail_nvfuser_exec.executor import nvfuser_executors

    return nvfuser_executors()


@hookimpl
def dovetail_doctor() -> list[tuple[str, Callable]]:
    from dovetail_nvfuser_exec import availability

    return [("nvfuser_direct imports", availability.imports)] if availability.installed() is not None else []
