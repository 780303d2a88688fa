"""Calls that are traced and end in eager mode all the same: the next ones like them are not all traced, which would take many times as long."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from dovetail import options
from dovetail.executors.discovery.configuration import WATCH
from dovetail.trace import leaves

ALWAYS = 2  # calls of one kind that are traced one after another: the first may have filled a cache that the next one finds
LONGEST = 1024  # calls that are not traced between two that are
KINDS = 64  # how many are remembered
_PLAIN = (int, float, bool, complex, str, bytes, type(None))


class EagerCalls:
    """How often tracing has ended so for each kind of call, and how many calls of it run in eager mode until one is traced again.

    That number doubles each time.  A kind is what a call is from outside: it decides only what is traced again when, not what is right.
    """

    def __init__(self) -> None:
        self.ended: dict[Hashable, int] = {}
        self.left: dict[Hashable, int] = {}

    def passes(self, kind: Hashable) -> bool:
        """Return whether this call runs in eager mode without being traced."""
        left = self.left.get(kind, 0)
        if left:
            self.left[kind] = left - 1
        return left > 0

    def note(self, kind: Hashable) -> bool:
        """Note that tracing a call has ended in eager mode; return whether it did so before, for a call of this kind."""
        if len(self.ended) >= KINDS and kind not in self.ended:
            self.clear()
        ended = self.ended[kind] = self.ended.get(kind, 0) + 1
        self.left[kind] = min(2**ended, LONGEST) if ended >= ALWAYS else 0
        return ended >= ALWAYS

    def clear(self) -> None:
        """Trace the next call of each kind."""
        self.ended.clear()
        self.left.clear()


def kind_of(fn: Callable, args: tuple, kwargs: dict) -> Hashable:
    """Return what is equal for calls that look alike: configuration, modes, what tensors are, plain values, and the types of all else."""
    modes = WATCH.generation, options.SCOPE.get(), torch.is_grad_enabled(), getattr(fn, "training", None)
    return *modes, tuple(kwargs), tuple(map(_look, leaves((args, kwargs))))


def _look(x: Any) -> Hashable:
    if type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_nested:
        return type(x), x.shape, x.dtype, x.device, x.requires_grad
    return (type(x), repr(x)) if type(x) in _PLAIN else type(x)
