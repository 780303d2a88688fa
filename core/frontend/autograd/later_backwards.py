"""Backwards of one call that run one after another, as those of two losses that share no operation.

To autograd a call is one node, and what a node has saved is freed once its backward has run.  In eager mode the losses have nodes of their own:
what one backward frees, the other does not need.  So a backward in which some cotangents are absent keeps what only they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Group = frozenset[int]  # positions of cotangents


@dataclass(frozen=True)
class Independent:
    """The groups of cotangents that share no operation which reads saved tensors, and the positions of those that the gradients of some read."""

    groups: Callable[[], Sequence[Group]]
    reads: Callable[[Group], Sequence[int]]

    def of(self, cotangents: Iterable[int]) -> frozenset[Group]:
        """Return the groups of these cotangents."""
        some = {*cotangents}
        return frozenset([group for group in self.groups() if group & some])


class Kept:
    """The saved tensors of a call that gradients of these groups need, which no backward has computed yet."""

    def __init__(self, independent: Independent, groups: frozenset[Group], saved: Sequence[Any]):
        self.independent, self.groups = independent, groups
        positions = independent.reads(frozenset().union(*groups))
        self.tensors = {i: (saved[i].detach(), saved[i]._version) for i in positions}  # detached: a result holds the node that holds this

    def take(self, cotangents: Iterable[int], count: int) -> list[Any] | None:
        """Return `count` saved tensors, None for those that these cotangents do not need; None where one of them was in a backward before."""
        if not self.independent.of(cotangents) <= self.groups:
            return None
        if any([x._version != version for x, version in self.tensors.values()]):
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation")
        return [self.tensors[i][0] if i in self.tensors else None for i in range(count)]


def kept(independent: Independent, before: Kept | None, absent: Sequence[int], present: Sequence[int], saved: Sequence[Any]) -> Kept | None:
    """Return what a backward leaves to later ones; `before` is what the one before has left, where the node's own tensors are freed."""
    groups = independent.of(absent) if before is None else before.groups
    groups -= independent.of(present)
    return Kept(independent, groups, saved) if groups else None
