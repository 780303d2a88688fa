"""The configuration that a compiled program depends on."""

from __future__ import annotations

from typing import Any, NamedTuple

from dovetail import options
from dovetail.executors.contract.executor import Executor


class Identity(NamedTuple):
    """One executor, as compiled programs depend on it."""

    executor: Executor
    version: str
    distribution: tuple[str, str | None] | None
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        message = "".join(f" {key}={value!r}" for key, value in self.options)
        return f"{self.executor.name} {(self.distribution or ('', None))[1] or self.version}{message}"


class Key(NamedTuple):
    """The configuration that a compiled program depends on."""

    executors: tuple[Identity, ...]
    operations: tuple[tuple[str, tuple], ...]
    strict: tuple[str, ...]
    check: bool
    random: str
    trial: tuple[tuple[str, str], ...] = ()


def difference(old: Key, now: Key, sources: tuple[str, ...]) -> str:
    """Return why a program that was compiled for `old` does not fit the order `now`, which `sources` configure."""
    changes = []
    were, are = [each.executor.name for each in old.executors], [each.executor.name for each in now.executors]
    if were != are:
        by = f" by {', '.join(sources)}" if sources else ""
        changes.append(f"the executors are {', '.join(are) or 'none'}{by}, and were {', '.join(were) or 'none'}")
    for before, after in zip(old.executors, now.executors):
        if before.executor.name == after.executor.name and before != after:
            changes.append(f"executor {before} became {after}" if str(before) != str(after) else f"executor {after} was replaced")
    if old.operations != now.operations:
        changes.append(f"the executors of single operations changed to {options.shown(now.operations)}")
    for name in ("strict", "check", "random", "trial"):
        if getattr(old, name) != getattr(now, name):
            changes.append(f"{name} is {options.shown(getattr(now, name))}")
    return "; ".join(changes)
