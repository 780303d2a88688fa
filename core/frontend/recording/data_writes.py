"""Writes to `.data`: `p.data = value` gives the tensor p other memory, with other values.

The program writes the values into the memory that p has.  That is the same as long as nothing else uses this memory or that of `value`; other
calls run in eager mode:

- `value` has the shape, dtype, device and strides of p, and is a result of the program with memory of its own;
- p is all of a tensor that the program created, or a guard checks at every call that no other tensor shares its memory;
- other names of the two memories, as an earlier `p.data` or `value` itself, are not used afterwards.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.errors import EagerCall
from dovetail.frontend.guards.overlap import owns_memory
from dovetail.trace import TensorProxy, user_line
from dovetail.trace.aliases import storage_roots, tracked_views, view_bases


def set_data(recorder: Any, tracker: Any, p: TensorProxy, value: TensorProxy) -> None:
    """Trace `p.data = value` of the TorchRecorder `recorder`; let the call run in eager mode where a copy of the values would do something else."""
    trace, call = recorder.trace, recorder.environment.call
    (p, value), _ = recorder.environment.lift(((p, value), {}), trace)
    lines = trace.lines
    if _is_data_of(p, value, lines):
        return
    roots = storage_roots(trace, lines)
    root, base = roots.get(value, value), roots.get(p, p)
    outside = {*trace.inputs, *trace.constants, *recorder.real}
    real = recorder.real.get(p)
    problem = None
    if trace.depth or trace.enclosing:
        problem = "inside a function that is traced on its own"
    elif not p.spec.agrees(value.spec) or p.spec.steps != value.spec.steps:
        problem = f'of a tensor "{p.spec}" to "{value.spec}", which has another shape, dtype, device or strides'
    elif root in outside or root.spec.numel != value.spec.numel:
        problem = "to a tensor that would share memory with another"
    elif (base in outside or base.spec.numel != p.spec.numel) if base is not p else real is None and p in outside:
        problem = "of a tensor that is a view of another"
    elif real is not None and not owns_memory(real):
        problem = "of a tensor whose memory other tensors use"
    if problem is not None:
        raise EagerCall(f"the program sets .data {problem}; write the values with p.data.copy_(value), or do it outside\n  called at {user_line()}")
    if real is not None:
        tracker.guard("alone", tracker.source(p), owns_memory)
    call(torch.Tensor.copy_, (call(torch.Tensor.detach, (p,), {}), value), {})
    recorder.environment.parted |= {x for x, r in roots.items() if (r is root or r is base) and x is not p}


def is_replaced(recorder: Any, p: Any, value: Any) -> bool:
    """Return whether Module.to makes a new parameter of `value` in the place of `p`, rather than set the .data of p.

    It does for a parameter that the program created, which cannot change its dtype, device or layout; what has the old one cannot use it.
    """
    if p not in recorder.autograd.parameters or (p.spec.agrees(value.spec) and p.spec.steps == value.spec.steps):
        return False
    recorder.environment.leaving.add(p)
    return True


def _is_data_of(p: TensorProxy, value: TensorProxy, lines: list) -> bool:
    """Return whether `value` is p already, or p.data, as in `p.data = p.data.clamp_(0)`."""
    bases, others = view_bases(lines), tracked_views(lines)
    while value is not p and value in bases and value not in others:
        value = bases[value]
    return value is p
