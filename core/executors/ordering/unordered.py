"""Find executors whose order rests on their names alone, although they may claim the same operations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from dovetail import options
from dovetail.executors.contract.executor import Executor, FusionExecutor, OperatorExecutor


def unordered(order: Sequence[Executor]) -> Iterator[tuple[Executor, Executor]]:
    """Yield the pairs of different plugins' executors that no hint orders and whose declarations overlap, the one in front first.

    Overlap means a device and an operation in common; a fusion executor without `operations=` may claim any operation.
    """
    behind = _behind(order)
    for first, second in combinations(order, 2):
        same_plugin = first.distribution is not None and first.distribution == second.distribution
        ordered = same_plugin or first.last_resort != second.last_resort or first in behind[second] or second in behind[first]
        if not ordered and _overlap(first, second):
            yield first, second


def unordered_notes(order: Sequence[Executor]) -> list[str]:
    """Return a sentence for each unordered pair of installed executors that configuration does not mention, with the hint that orders them."""
    words = {word for setting in options.settings(options.EXECUTORS) for item in setting.value for word in re.findall(r"\w+", str(item))}
    installed = [ex for ex in order if ex.distribution is not None and ex.name not in words]
    return [
        f"{first.name} comes before {second.name} only because of their names, and both may claim the same operations; "
        f'declare {second.name}.after = ("{first.name}",) in its plugin, or set executors = ["{first.name} > {second.name}"]'
        for first, second in unordered(installed)
    ]


def _behind(order: Sequence[Executor]) -> dict[Executor, set[Executor]]:
    """For each executor those that hints, also through others, put behind it; executors of last resort are behind all others."""
    by_name = {ex.name: ex for ex in order}
    following: dict[Executor, set[Executor]] = {ex: {by_name[name] for name in ex.before if name in by_name} for ex in order}
    for ex in order:
        for name in ex.after:
            if name in by_name:
                following[by_name[name]].add(ex)
        if not ex.last_resort and not _after_last_resort(ex, by_name):
            following[ex].update(other for other in order if other.last_resort)
    reached: dict[Executor, set[Executor]] = {}
    for ex in order:
        waiting, seen = [ex], set()
        while waiting:
            new = following[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[ex] = seen
    return reached


def _after_last_resort(ex: Executor, by_name: dict[str, Executor]) -> bool:
    return any(by_name[name].last_resort for name in ex.after if name in by_name)


def _overlap(first: Executor, second: Executor) -> bool:
    """Whether two declarations have a device and an operation in common."""
    here, there = _devices(first), _devices(second)
    if here is not None and there is not None and not here & there:
        return False
    ours, theirs = _operations(first), _operations(second)
    if ours is None or theirs is None:
        return True
    return bool(ours & theirs)


def _devices(ex: Executor) -> frozenset[str] | None:
    """Return the kinds of device that an executor declares, for itself or for each operation; None where it may claim on any."""
    rows = list(ex.table.values()) if isinstance(ex, OperatorExecutor) else []
    if not rows or any([row.devices is None for row in rows]):
        return ex.devices
    return frozenset(kind for row in rows for kind in row.devices)


def _operations(ex: Executor) -> frozenset | None:
    """Return the operations that an executor declares; None where it may claim any."""
    if isinstance(ex, OperatorExecutor):
        return frozenset(ex.table)
    return ex.operations if isinstance(ex, FusionExecutor) else None
