"""Rewriting before dispatch: each executor may change the program in a pass of its own.

>>> t3 = torch.nn.functional.linear(t0, t1, t2)
>>> t4 = torch.relu(t3)

may become

>>> t4 = mine.linear_relu(t0, t1, t2)

with those two lines as its decomposition, so that it runs as before where `mine` refuses it after all.
"""

from __future__ import annotations

from functools import partial

from dovetail import options
from dovetail.errors import ExecutorError, InvalidTrace
from dovetail.executors.contract.executor import Executor
from dovetail.executors.discovery.plugin_errors import ContractError, named, way_out
from dovetail.executors.dispatching.codegen import identical
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.trace import Proxy, TensorProxy, Trace, check, proxies, run_pass


def rewrite(trace: Trace, executors: Priority) -> list[Trace]:
    """Let each executor rewrite the program before its lines are offered; return one program for each executor that changes it, in order."""
    programs: list[Trace] = []
    for ex in executors:
        if type(ex).prepare is Executor.prepare:
            continue
        before = programs[-1] if programs else trace
        after = run_pass(partial(_by, ex, executors), before.derive(f"prepare {ex.name}", lines=list(before.lines)))
        if after.lines != before.lines or after.outputs is not before.outputs:
            programs.append(after)
    return programs


def _by(ex: Executor, executors: Priority, trace: Trace) -> Trace:
    """Return the program that `ex` rewrites `trace` to.  Raises ContractError where its inputs or outputs are not those of `trace`."""
    try:
        rewritten = ex.prepare(trace, executors)
    except Exception as error:
        raise ExecutorError(f"prepare of {named(ex)} raised {type(error).__name__}: {error}\n  {way_out(ex)}") from error
    message = "it returned no Trace" if not isinstance(rewritten, Trace) else _differs(rewritten, trace)
    if message is None and options.CHECK.read():
        try:
            check(rewritten)
        except InvalidTrace as error:
            message = str(error)
    if message is not None:
        raise ContractError(f"{named(ex)} broke the contract of prepare: {message}\n  {way_out(ex)}")
    rewritten.made_by = f"prepare {ex.name}"
    return rewritten


def _differs(rewritten: Trace, trace: Trace) -> str | None:
    """Return how the inputs or outputs of a program differ from those of `trace`; None where they do not."""
    if not identical(rewritten.inputs, trace.inputs):
        return f"its program has the inputs {rewritten.inputs}, in the place of {trace.inputs}"
    if any([p not in rewritten.constants for p in trace.constants]):
        return "its program lacks constants"
    new, old = proxies(rewritten.outputs), proxies(trace.outputs)
    if len(new) != len(old):
        return f"its program has {len(new)} outputs, in the place of {len(old)}"
    for a, b in zip(new, old):
        if a is not b and not _alike(a, b):
            return f'its program returns {a.name}: "{a.spec}" in the place of {b.name}: "{b.spec}"'
    return None


def _alike(a: Proxy, b: Proxy) -> bool:
    """Whether two values have the same type; for tensors, also the same layout."""
    if isinstance(a, TensorProxy) and isinstance(b, TensorProxy):
        return a.spec.agrees(b.spec) and a.spec.steps == b.spec.steps
    return not isinstance(a, TensorProxy) and not isinstance(b, TensorProxy) and type(a.spec) is type(b.spec)
