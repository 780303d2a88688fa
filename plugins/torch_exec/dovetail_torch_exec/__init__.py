"""The reference executor: every prim, and every torch operation whole, as eager PyTorch."""

from __future__ import annotations

from dovetail.extend import OperatorExecutor, hookimpl

__version__ = "0.1.0"


@hookimpl
def dovetail_executors() -> list[OperatorExecutor]:
    from dovetail_torch_exec.executor import torch_executor

    return [torch_executor()]
