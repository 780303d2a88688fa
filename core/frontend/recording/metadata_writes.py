"""Writes to the shape of a tensor itself, as `x.unsqueeze_(0)`: the program goes on with the same object, which is another view from there on.

>>> def before(x):
...     y = x * 2
...     y.unsqueeze_(0)
...     return y + 1

The lines recorded so far are renamed: what they call `y` becomes a value of its own, and `y` a view of it.  `recorder` is the TorchRecorder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail import prims
from dovetail.frontend.autograd.created_leaves import is_view_of_written
from dovetail.langs.torch import LANGUAGE, REFUSED, not_traced
from dovetail.torch_internals import OpOverload
from dovetail.trace import BoundSymbol, TensorProxy, renamed, requires_grad
from dovetail.trace.aliases import shares_history, view_bases, views_in

_NAMES = ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "as_strided")
CHANGES: dict[Any, str] = {getattr(torch.Tensor, f"{name}_"): name for name in _NAMES}  # method -> the one that returns a view
CHANGING = frozenset(f"{name}_" for name in _NAMES)


def method_changing(op: Any) -> Any:
    """Return the method of tensors that an operator of ATen is, where it changes the shape of a tensor itself; else None."""
    space, _, name = (op._schema.name if isinstance(op, OpOverload) else op._qualified_op_name).partition("::")
    method = getattr(torch.Tensor, name, None) if space == "aten" and name in CHANGING else None
    return method if method in CHANGES else None


def change_metadata(recorder: Any, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Trace x.unsqueeze_(...) and its like; refuse it for tensors that are known outside of the lines recorded so far."""
    if not may_redefine(recorder, x):
        raise not_traced(function, REFUSED[function])
    view = getattr(torch.Tensor, CHANGES[function])
    redefine(recorder, x, lambda before: recorder.environment.call(view, (before, *args), kwargs))
    return x


def resize_out(recorder: Any, out: Any, value: TensorProxy) -> bool:
    """Give a tensor that the program created the shape of the result that is written into it; return whether that is done.

    One with elements has memory that views may share, which PyTorch would write to as well; that is refused.
    """
    if not may_redefine(recorder, out) or (out.spec.numel and _shares_memory(out, recorder.trace.lines)):
        return False
    dtype = out.spec.dtype
    redefine(recorder, out, lambda before: LANGUAGE["clone"](LANGUAGE["to"](value, dtype=torch_dtype(dtype))))
    return True


def _shares_memory(x: TensorProxy, lines: list[BoundSymbol]) -> bool:
    """Return whether a tensor is a view, or has views."""
    bases = view_bases(lines)
    return x in bases or any([base is x for base in bases.values()])


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return torch's dtype."""
    return getattr(torch, dtype.name.rstrip("_"))


def may_redefine(recorder: Any, x: Any) -> bool:
    """Return whether a tensor is a value of the program, of which nothing but its lines knows."""
    trace, autograd = recorder.trace, recorder.autograd
    if not isinstance(x, TensorProxy) or trace.depth or trace.enclosing:
        return False
    session = recorder.environment.session
    outside = x in recorder.real or x in trace.constants or any([x is p for p in trace.inputs])
    by_autograd = any([x in known for known in (autograd.grads, autograd.leaves, autograd.parameters, autograd.hooks, autograd.retained)])
    return not outside and not by_autograd and x not in autograd.spent and _is_recent(x, trace.lines, 0 if session is None else session.visited)


def _is_recent(x: TensorProxy, lines: list[BoundSymbol], since: int) -> bool:
    """Return whether one of the lines from number `since` on creates x; what is before belongs to segments that have run."""
    first = next((i for i, line in enumerate(lines) if any([p is x for p in line.writes])), -1)
    return first >= since


def redefine(recorder: Any, x: TensorProxy, compute: Callable[[TensorProxy], TensorProxy]) -> None:
    """Make `x` the result of `compute`, which gets the value that it has had."""
    trace = recorder.trace
    before, count = trace.tensor(x.spec), len(trace.lines)
    trace.lines[:] = [renamed(line, {x: before}) for line in trace.lines]
    now = compute(before)
    if now is before:  # nothing has changed
        trace.lines[:] = [renamed(line, {before: x}) for line in trace.lines]
        return
    x.spec = now.spec
    trace.lines[count:] = [renamed(line, {now: x}) for line in trace.lines[count:]]
    trace.views = {view.out: view for line in trace.lines for view in views_in(line)}


def follow_view(recorder: Any, p: TensorProxy) -> None:
    """Make a view that was created with grad mode off, of a tensor that requires a gradient, a leaf where an operation reads it with grad mode on.

    As in eager mode it has no history, and what is computed from it requires a gradient.
    """
    trace = recorder.trace
    if requires_grad(p) or not p.spec.dtype.inexact or not torch.is_grad_enabled() or p in recorder.autograd.frozen:
        return
    base = p
    while (view := trace.views.get(base)) is not None and shares_history(view) and not requires_grad(base):
        base = view.args[0]
    if requires_grad(base) and may_redefine(recorder, p) and not is_view_of_written(trace, p):
        redefine(recorder, p, prims.detach)
        recorder.autograd.require_gradient(p)
