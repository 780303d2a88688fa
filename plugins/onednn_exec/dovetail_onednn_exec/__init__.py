"""Matrix products and convolutions by oneDNN, where measurements on this machine show that it is faster than PyTorch."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.extend import OperatorExecutor, hookimpl

__version__ = "0.1.0"


@hookimpl
def dovetail_executors() -> list[OperatorExecutor]:
    from dovetail_onednn_exec.executor import onednn_executor

    return [onednn_executor()]


@hookimpl
def dovetail_doctor() -> list[tuple[str, Callable]]:
    from dovetail_onednn_exec import library

    return [("oneDNN multiplies as PyTorch does", library.works)]
