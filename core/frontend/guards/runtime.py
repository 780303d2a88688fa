"""Functions that prologues call: they run at every call of a compiled function."""

from __future__ import annotations

from collections import deque
from typing import Any

from dovetail.frontend.class_lookup import NULL, lookup


def overlap(written: tuple, others: tuple) -> bool:
    """Whether a tensor in `written` shares its storage with another in `written` or `others`."""
    storages = [x.untyped_storage().data_ptr() for x in written if x.numel()]
    return len(set(storages)) < len(storages) or not set(storages).isdisjoint([x.untyped_storage().data_ptr() for x in others if x.numel()])


def has_natives(cls: type, methods: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether a class has these methods, NULL for none, under these names, as it had when the program was traced."""
    return all([lookup(cls, name) is raw for name, raw in methods])


def static_attribute(cls: type, name: str) -> Any:
    """What a class or a base of it has under a name, unbound; an AttributeError where there is nothing."""
    found = lookup(cls, name)
    if found is NULL:
        raise AttributeError(name)
    return found


def contents_of(value: Any, base: type) -> Any:
    """Return what is in a container of a class derived from `base`, as a plain one; no code of its class runs."""
    if issubclass(base, dict):
        return dict(zip(base.__iter__(value), [dict.get(value, key) for key in base.__iter__(value)], strict=True))
    return (set if issubclass(base, frozenset) else list if base is deque else base)(base.__iter__(value))
