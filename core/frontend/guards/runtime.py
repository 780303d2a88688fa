"""Functions that prologues call: they run at every call of a compiled function."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import pairwise
from typing import Any

from dovetail.frontend.class_lookup import NULL, lookup


def overlap(written: tuple, others: tuple) -> bool:
    """Return whether a tensor in `written` shares its storage with another in `written` or `others`."""
    storages = [x.untyped_storage().data_ptr() for x in written if x.numel()]
    return len(set(storages)) < len(storages) or not set(storages).isdisjoint([x.untyped_storage().data_ptr() for x in others if x.numel()])


def memory_overlap(written: tuple, others: tuple) -> bool:
    """`overlap` of storages as ranges of addresses: those made of slices of one NumPy array are distinct, and may overlap."""
    spans = sorted(map(_span, [x for x in written if x.numel()]))
    if any([before[1] > after[0] for before, after in pairwise(spans)]):
        return True
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    rest = map(_span, [x for x in others if x.numel()])
    return any([(at := bisect_left(starts, end)) > 0 and ends[at - 1] > start for start, end in rest])


def _span(x: Any) -> tuple[int, int]:
    storage = x.untyped_storage()
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def has_natives(cls: type, methods: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether a class has these methods, NULL for none, under these names, as it had when the program was traced."""
    return all([lookup(cls, name) is raw for name, raw in methods])


def static_attribute(cls: type, name: str) -> Any:
    """Return the attribute `name` of a class or of a base of it, unbound.

    Raises:
        AttributeError: where there is none.
    """
    value = lookup(cls, name)
    if value is NULL:
        raise AttributeError(name)
    return value


def contents_of(value: Any, base: type) -> Any:
    """Return what is in a container of a class derived from `base`, as a plain one; no code of its class runs."""
    if issubclass(base, dict):
        return dict(zip(base.__iter__(value), [dict.get(value, key) for key in base.__iter__(value)], strict=True))
    return (set if issubclass(base, frozenset) else list if base is deque else base)(base.__iter__(value))
