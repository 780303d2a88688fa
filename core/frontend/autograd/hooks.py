"""Hooks that a program registers while it is traced: on gradients of tensors, and on nodes of the autograd graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.errors import EagerCall
from dovetail.trace import user_line


class RemovableHook:
    """What register_hook returns in a traced function."""

    named = "handle of a hook"

    def __init__(self, hooks: dict[int, Any], number: int):
        self.hooks, self.number = hooks, number

    def remove(self) -> None:
        """Take the hook away."""
        self.hooks.pop(self.number, None)


def add_hook(hooks: dict[int, Any], hook: Any) -> RemovableHook:
    """Add a hook behind those that are there."""
    number = max(hooks, default=-1) + 1
    hooks[number] = hook
    return RemovableHook(hooks, number)


class Node:
    """What `.grad_fn` of the results of a torch.autograd.Function is in a traced function.

    Attributes:
        before: hooks that take the cotangents of the results, by number.
        after: hooks that take the cotangents of the inputs, and those of the results.
    """

    named = "grad_fn"

    def __init__(self, function: type[torch.autograd.Function]):
        self.function = function
        self.before: dict[int, Any] = {}
        self.after: dict[int, Any] = {}

    def name(self) -> str:
        """Return the name that eager autograd has for such a node."""
        return f"{self.function.__name__}Backward"

    def register_prehook(self, hook: Callable[[tuple], Any]) -> RemovableHook:
        """Let `hook(grad_outputs)` run before the backward; what it returns, if not None, replaces them."""
        return add_hook(self.before, hook)

    def register_hook(self, hook: Callable[[tuple, tuple], Any]) -> RemovableHook:
        """Let `hook(grad_inputs, grad_outputs)` run after the backward; what it returns, if not None, replaces the former."""
        return add_hook(self.after, hook)


class UntracedNode:
    """What `.grad_fn` of other results is in a traced function: there is one, and what it is called or leads to is not traced."""

    named = "grad_fn"

    def __getattr__(self, name: str) -> Any:
        raise EagerCall(
            f"the .grad_fn of a tensor that the compiled function computes is read at {user_line()}, and only whether there is one is traced"
        )

    def _refuse(self, *args: Any) -> Any:
        return self.__getattr__("")

    __repr__ = __hash__ = __eq__ = __ne__ = _refuse  # type: ignore[assignment]
