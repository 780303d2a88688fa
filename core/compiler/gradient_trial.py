"""Trials of grad rules: one operation, differentiated by an executor's rule and by the reference's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from dovetail.compiler.entry import compile_call
from dovetail.executors import Executor, resolve_executors
from dovetail.executors.trials.reference import widened
from dovetail.executors.trials.tolerance import differs
from dovetail.trace import BoundSymbol, Proxy, is_proxy, leaves, tree_map


def gradients_differ(line: BoundSymbol, inputs: Mapping[Proxy, Any], ex: Executor, reference: Iterable[Executor]) -> str | None:
    """Return how the gradients of `line` by `ex` differ from the reference's, for random cotangents; None where they agree."""
    got, expected = _gradients(line, inputs, [ex]), _gradients(line, inputs, reference)
    difference = differs(got, expected)
    if difference is not None:
        difference = differs(got, expected, _gradients(line, inputs, reference, wide=True))
    return None if difference is None else f"in its gradients, {difference}"


def _gradients(line: BoundSymbol, inputs: Mapping[Proxy, Any], executors: Iterable[Executor], *, wide: bool = False) -> list[Any]:
    """Return the gradients of `line` with respect to its floating inputs; `wide` computes them in twice the precision."""

    def fn(*values: Any) -> Any:
        env = dict(zip(inputs, values, strict=True))
        args, kwargs = tree_map(lambda leaf: env[leaf] if is_proxy(leaf) else leaf, (line.args, line.kwargs))
        return line.symbol(*args, **kwargs)

    values = tuple([_own(x, wide) if isinstance(x, torch.Tensor) else x for x in inputs.values()])
    with torch.enable_grad():
        entry = compile_call(fn, values, {}, resolve_executors(executors), interpretation="native")
        results = [x for x in leaves(entry.call(values, {})) if isinstance(x, torch.Tensor) and x.requires_grad]
        generator = torch.Generator().manual_seed(0)
        cotangents = [torch.randn(x.shape, generator=generator).to(x) for x in results]
        differentiable = [x for x in values if isinstance(x, torch.Tensor) and x.requires_grad]
        return list(torch.autograd.grad(results, differentiable, cotangents, allow_unused=True))


def _own(x: torch.Tensor, wide: bool) -> torch.Tensor:
    """Return a copy of `x` that requires grad if it can."""
    copy = widened(x.detach()).clone() if wide else x.detach().clone()
    return copy.requires_grad_(copy.is_floating_point())
