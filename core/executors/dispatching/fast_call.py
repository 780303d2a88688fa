"""A compiled call from its very beginning: an executor may check what the prologue checks, and run what it runs, in code of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.errors import ExecutorError
from dovetail.executors.discovery.plugin_errors import named, way_out
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.trace import TensorProxy, Trace

Call = Callable[[tuple, dict], Any]


def fast_call_for(slow: Call, prologue: Trace, computation: Trace | None, programs: Sequence[Trace], executors: Priority) -> Call:
    """Return the first fast call that an executor provides, or `slow`, the compiled prologue, where none does.

    Only executors are tried that run a line of `programs`, or whose declared devices hold all inputs of `programs`.
    """
    running = {line.implementation.executor for trace in programs for line in trace.lines if line.implementation is not None}
    kinds = {p.spec.device.type for trace in programs for p in trace.inputs if isinstance(p, TensorProxy)}
    for ex in executors:
        if ex.name not in running and (ex.devices is None or not kinds <= ex.devices):
            continue
        try:
            call = ex.fast_call(prologue, computation, slow)
        except Exception as error:
            raise ExecutorError(f"fast_call of {named(ex)} raised {type(error).__name__}: {error}\n  {way_out(ex)}") from error
        if call is not None:
            return call
    return slow
