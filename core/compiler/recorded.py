"""Programs that autograd records as they run: gradients flow through nothing but PyTorch's own operations, and some of them are opaque.

>>> def computation(t0, t1):
...     t2 = torch.grid_sampler(t0, t1, 0, 0, False)
...     return t2

has no backward of its own.  A torch.autograd.Function around it would cost several times what the operation does, and add nothing: the
results get the history that they have in eager mode.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dovetail import prims
from dovetail.compiler.compilation import Compilation
from dovetail.langs.torch import TorchSymbol, graph_rule
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, proxies, requires_grad
from dovetail.trace.aliases import is_view, shares_history, views_in
from dovetail.trace.passes.grad import registered


def may_be_recorded(computation: Trace, compilation: Compilation) -> bool:
    """Return whether autograd may record a pure program: grad mode is on, nothing is written, and neither passes nor ranks need a backward."""
    if not torch.is_grad_enabled() or compilation.passes or compilation.distribution is not None or compilation.layouts:
        return False
    if compilation.stage_bytes is not None or computation.saved_writes or compilation.environment.repeated:
        return False
    if not all(map(is_view, compilation.epilogue.lines)):
        return False
    flowing = set(filter(requires_grad, computation.inputs))
    if not any(map(_is_opaque, computation.lines)) or not all([_passes_on(line, flowing) for line in computation.lines]):
        return False
    return flowing.isdisjoint(compilation.constant) and flowing.isdisjoint(compilation.detached)


def _passes_on(line: BoundSymbol, flowing: set[Proxy]) -> bool:
    """Return whether a line passes gradients on as PyTorch's own operation, or has none; add what gradients flow into to `flowing`."""
    results = [p for p in line.writes if isinstance(p, TensorProxy)]
    if flowing.isdisjoint(line.reads):
        return not any(map(requires_grad, results))
    flowing.update(filter(requires_grad, results))
    if is_view(line) and not all(map(shares_history, views_in(line))):
        return True
    if not all([requires_grad(p) or not p.spec.dtype.inexact for p in results]):
        return False  # it ran with grad mode off
    if is_view(line) or _is_opaque(line):
        return True
    is_torch = isinstance(line.symbol, TorchSymbol) and line.symbol.callable is not None and line.symbol.vjp_rule is None
    return is_torch and not any([registered(inner) for inner in (line, *_inner(line))])


def _is_opaque(line: BoundSymbol) -> bool:
    """Return whether autograd's graph of a line would be kept for the backward."""
    return graph_rule(line) is not None and not registered(line)


def _inner(line: BoundSymbol) -> Iterator[BoundSymbol]:
    for inner in line.body:
        yield inner
        yield from _inner(inner)


def is_recorded(program: Trace, compilation: Compilation) -> bool:
    """Return whether, in a program as it runs, executors of last resort run each line that a gradient flows through, by PyTorch's function."""
    reference = {ex.name for ex in compilation.executors if ex.last_resort}
    flowing = set(filter(requires_grad, program.inputs))
    for line in program.lines:
        if line.symbol is prims.delete or flowing.isdisjoint(line.reads):
            continue
        runs = line.implementation
        if runs is not None and (runs.executor not in reference or not (is_view(line) or runs.fn is line.symbol.callable)):
            return False
        flowing.update(filter(requires_grad, line.writes))
    return any([p in flowing for p in proxies(program.outputs)])
