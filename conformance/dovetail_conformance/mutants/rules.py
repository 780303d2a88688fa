"""Mutations of grad rules: of the gradients that a rule puts, of its forward value, and of how it reads its cotangent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from dovetail.extend import OperatorExecutor, put_grad
from dovetail.extend.advanced import Implementation
from dovetail_conformance.mutants.mutations import Mutation
from dovetail_conformance.oracle import same_bits

Rule = Callable[..., Any]
GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {  # from (the gradient, the input)
    "a hundredth too large": lambda g, x: g * 1.01,
    "the other sign": lambda g, x: -g,
    "zero": lambda g, x: g * 0.0,
    "wrong over 64 elements": lambda g, x: g * 1.5 if x.numel() > 64 else g,
    "wrong over 4096 elements": lambda g, x: g * 1.5 if x.numel() > 4096 else g,
    "wrong over 2**20 elements": lambda g, x: g * 1.5 if x.numel() > 1 << 20 else g,
    "wrong in three dimensions": lambda g, x: g * 1.5 if x.ndim == 3 else g,
    "wrong in five dimensions": lambda g, x: g * 1.5 if x.ndim == 5 else g,
    "wrong without dimensions": lambda g, x: g * 1.5 if x.ndim == 0 else g,
    "wrong where it is negative": lambda g, x: torch.where(g < 0, g * 0.5, g),
    "wrong where the input is 0": lambda g, x: torch.where(x == 0, g + 1.0, g),
    "wrong where the input is large": lambda g, x: torch.where(x.abs() > 8.0, g * 0.5, g),
    "without NaN": lambda g, x: torch.nan_to_num(g, 0.0),
}


def rules(implementation: Implementation) -> Iterator[Mutation]:
    """Yield every mutation of the grad rule of an implementation; none where it has no rule."""
    if implementation.grad is None:
        return
    for name, wrong in GRADIENTS.items():
        yield Mutation("gradients", name, lambda had, wrong=wrong: replace(had, grad=_putting(had.grad, wrong)))
    yield Mutation("gradients", "its forward adds 0.25", lambda had: replace(had, grad=_returning(had.grad, lambda out: out + 0.25)))
    yield Mutation("gradients", "wrong where an argument is given", lambda had: replace(had, grad=_with_arguments(had.grad)))
    yield Mutation("gradients", "only where all inputs require one", lambda had: replace(had, grad=_all_or_none(had.grad)))
    yield Mutation("gradients", "swapped", lambda had: replace(had, grad=_swapped(had.grad)))
    for name, kernel in COTANGENTS.items():
        yield Mutation("cotangents", name, lambda had, kernel=kernel: replace(had, grad=_reading(had.grad, kernel)))


@contextmanager
def _instead(rule: Rule, name: str, other: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of the rule's module while open."""
    space = rule.__globals__
    had = space[name]
    space[name] = other
    try:
        yield
    finally:
        space[name] = had


def _putting(rule: Rule, wrong: Callable[[Any, Any], Any]) -> Rule:
    def grad(*args: Any, **kwargs: Any) -> Any:
        with _instead(rule, "put_grad", lambda x, g: put_grad(x, wrong(g, x))):
            return rule(*args, **kwargs)

    return grad


def _returning(rule: Rule, change: Callable[[Any], Any]) -> Rule:
    return lambda *args, **kwargs: change(rule(*args, **kwargs))


def _with_arguments(rule: Rule) -> Rule:
    def grad(*args: Any, **kwargs: Any) -> Any:
        if any(not isinstance(x, torch.Tensor) for x in [*args, *kwargs.values()]):
            grad.struck = True
            return _putting(rule, lambda g, x: g * 1.01)(*args, **kwargs)
        return rule(*args, **kwargs)

    grad.struck = False
    return grad


def _all_or_none(rule: Rule) -> Rule:
    def grad(*args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in [*args, *kwargs.values()] if isinstance(x, torch.Tensor)]
        if all(x.requires_grad for x in tensors):
            return rule(*args, **kwargs)
        return _putting(rule, lambda g, x: g * 2.0)(*args, **kwargs)

    return grad


def _swapped(rule: Rule) -> Rule:
    def grad(*args: Any, **kwargs: Any) -> Any:
        put: list[tuple[Any, Any]] = []
        with _instead(rule, "put_grad", lambda x, g: put.append((x, g))):
            out = rule(*args, **kwargs)
        gradients = [g for _, g in put]
        turned = gradients[1:] + gradients[:1] if len({tuple(g.shape) for g in gradients}) == 1 else gradients
        grad.struck = grad.struck or any(a is not b for a, b in zip(turned, gradients))
        for (x, _), g in zip(put, turned):
            put_grad(x, g)
        return out

    grad.struck = False
    return grad


def _halved(g: torch.Tensor) -> torch.Tensor:
    if g.numel() and 0 not in g.stride():
        g.mul_(0.5)
    return g.clone()


COTANGENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "writes into it": _halved,
    "wrong where it is expanded": lambda g: g * 1.5 if 0 in g.stride() and g.numel() > 1 else g.clone(),
    "wrong where it is not contiguous": lambda g: g.clone() if g.is_contiguous() else (g * 1.5).contiguous(),
    "zero where it is not finite": lambda g: g.nan_to_num(0.0, 0.0, 0.0),
    "wrong where it is zero": lambda g: torch.where(g == 0, torch.ones_like(g), g),
    "wrong over 1024 elements": lambda g: g * 1.5 if g.numel() > 1024 else g.clone(),
}


def _reading(rule: Rule, kernel: Callable[[torch.Tensor], torch.Tensor]) -> Rule:
    """Pass the cotangent of a rule through a kernel that runs when the backward does."""
    ex = OperatorExecutor("mutant_cotangent")

    def read(g: torch.Tensor) -> torch.Tensor:
        before = g.clone()
        out = kernel(g)
        grad.struck = grad.struck or not (same_bits(out, before) and same_bits(g, before))
        return out

    through = ex.operation(f"read_{id(kernel)}", read, meta=lambda g: g)

    def grad(*args: Any, **kwargs: Any) -> Any:
        with _instead(rule, "get_grad", lambda out, get=rule.__globals__["get_grad"]: through(get(out))):
            return rule(*args, **kwargs)

    grad.table, grad.struck = ex.table, False  # what the mutant runs besides
    return grad
