"""Nested arguments and results: torch's pytrees, with dataclasses taken apart as well."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dovetail.torch_internals import tree_flatten, tree_unflatten


@dataclasses.dataclass(frozen=True)
class Tree:
    """The structure of a nest: torch's pytree, with the dataclasses at its leaves taken apart as well.  Compares equal by structure."""

    spec: Any
    inner: tuple[tuple[type, tuple[str, ...], Tree] | None, ...]
    size: int

    def build(self, leaves: list[Any]) -> Any:
        """Return the nest with these leaves."""
        if not any(self.inner):
            return tree_unflatten(leaves, self.spec)
        items, at = [], 0
        for fields in self.inner:
            if fields is None:
                items.append(leaves[at])
                at += 1
                continue
            type_, names, tree = fields
            values = tree.build(leaves[at : at + tree.size])
            at += tree.size
            items.append(_rebuilt(type_, names, values))
        return tree_unflatten(items, self.spec)


def _rebuilt(type_: type, names: tuple[str, ...], values: list[Any]) -> Any:
    new = object.__new__(type_)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(new, name, value)
    return new


def flatten(nest: Any) -> tuple[list[Any], Tree]:
    """Return the leaves and the structure of a nest of tuples, lists, dicts, named tuples, dataclasses, and of what torch's pytree registers."""
    items, spec = tree_flatten(nest)
    leaves: list[Any] = []
    inner: list[tuple[type, tuple[str, ...], Tree] | None] = []
    for item in items:
        if not dataclasses.is_dataclass(item) or isinstance(item, type):
            leaves.append(item)
            inner.append(None)
            continue
        names = tuple(f.name for f in dataclasses.fields(item))
        values, tree = flatten([getattr(item, name) for name in names])
        leaves += values
        inner.append((type(item), names, tree))
    return leaves, Tree(spec, tuple(inner), len(leaves))


def tree_map(fn: Callable[[Any], Any], nest: Any) -> Any:
    """Return the same nest with every leaf x replaced by fn(x)."""
    leaves, tree = flatten(nest)
    return tree.build([fn(leaf) for leaf in leaves])
