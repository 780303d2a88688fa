"""The Inductor executor: regions of a trace as torch.fx graphs, compiled by torch.compile's Inductor or by TorchScript."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.extend import FusionExecutor, hookimpl

__version__ = "0.1.0"


@hookimpl
def dovetail_executors() -> list[FusionExecutor]:
    from dovetail_inductor_exec.executor import inductor_executor

    return [inductor_executor()]


@hookimpl
def dovetail_doctor() -> list[tuple[str, Callable]]:
    from dovetail_inductor_exec import machine

    return [("a C++ compiler that works", machine.compiles)]
