"""The LLVM executor: fuses regions of a trace into loops over vectors and compiles them in milliseconds."""

from __future__ import annotations

from dovetail.extend import FusionExecutor, hookimpl

__version__ = "0.1.0"


@hookimpl
def dovetail_executors() -> list[FusionExecutor]:
    from dovetail_llvm_exec.executor import llvm_executor

    return [llvm_executor()]
