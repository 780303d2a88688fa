"""torch.func.functional_call inside a traced function: a module sees other tensors in the place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Any, NamedTuple

import torch

from dovetail.errors import require
from dovetail.frontend.class_lookup import address_of
from dovetail.frontend.interpreter.tracking.effects import Write
from dovetail.torch_internals import MODULE_TABLES


class _Table(NamedTuple):
    """A dictionary of a module's parameters or buffers: the attributes that lead to it, and the values that take the place of some."""

    path: tuple[str, ...]
    values: dict[str, Any]

    def full(self, name: str) -> str:
        """Return a name as those who call a module have it."""
        return ".".join([*self.path[:-1], name])


def functional_call(
    tracker: Any, module: torch.nn.Module, values: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True, strict: bool = False
) -> Any:
    """Call a module with other tensors in the place of its parameters and buffers, as torch.func.functional_call does."""
    dicts = [dict(tracker.pairs(part)) for part in (tracker.spread(values) if isinstance(values, (list, tuple)) else [values])]
    named = {name: value for part in dicts for name, value in part.items()}
    missing = [name for name, _ in (*module.named_parameters(), *module.named_buffers()) if name not in named]
    require(not (strict and missing), "missing keys for strict functional_call: {}", missing, error=RuntimeError)
    args = () if args is None else args if isinstance(args, tuple) else (args,)

    def keep(name: str, value: Any) -> None:
        if name in named and isinstance(values, dict):
            tracker.set_item(values, name, value)

    with ExitStack() as stack:
        for table in _places(module, named, tie_weights):
            members = reduce(tracker.load_attr, table.path, module)
            stack.enter_context(_replaced(tracker, members, table, keep))
        return tracker.call(module, list(args), dict(kwargs or {}), None)


def _places(module: torch.nn.Module, named: dict[str, Any], tie_weights: bool) -> list[_Table]:
    """Return the tables of modules with the values that names in them get.

    A tensor under two names gets one value under both.
    """
    by_tensor: dict[int, Any] = {}
    everywhere: list[tuple[str, dict, str]] = []
    tables: dict[int, _Table] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for table in MODULE_TABLES:
            members = object.__getattribute__(part, "__dict__").get(table, {})
            tables[id(members)] = _Table((*filter(None, path.split(".")), table), {})
            everywhere += [(f"{path}.{name}" if path else name, members, name) for name, x in members.items() if isinstance(x, torch.Tensor)]
    known = {path for path, *_ in everywhere}
    unknown = [name for name in named if name not in known]
    require(not unknown, "unexpected keys for functional_call: {}", unknown, error=RuntimeError)
    for path, members, name in everywhere:
        if path in named and tie_weights:
            by_tensor.setdefault(id(members[name]), named[path])
    for path, members, name in everywhere:
        if (value := named.get(path, by_tensor.get(id(members[name])))) is not None:
            tables[id(members)].values[name] = value
    return [table for table in tables.values() if table.values]


@contextmanager
def _replaced(tracker: Any, members: dict[str, Any], table: _Table, keep: Callable[[str, Any], None]) -> Iterator[None]:
    """Let the program see other values in `members`, a table of a module, while open.

    As in eager mode, what it sets there meanwhile stays; under a replaced name it is passed to `keep`, with that name, and does not.
    """
    effects, key = tracker.effects, address_of(members)
    seen, start = effects.shadow(members), len(effects.log)  # with the writes that wait for a first read
    unread = seen is members and tracker.is_outside(members)
    if unread:
        seen = effects.shadows[key] = {name: None if name in table.values else tracker.raw_item(members, name) for name in tracker.raw_iter(members)}
    before = {name: seen[name] for name in table.values}
    seen.update(table.values)
    try:
        yield
    finally:
        after = {name: seen[name] for name in table.values}
        seen.update(before)
        effects.log[start:] = [write for write in effects.log[start:] if not _sets(write, members, before)]
        if unread:
            del effects.shadows[key]
            if any([write.owner is members for write in effects.log[start:]]):
                effects.shadows[key] = seen | {name: tracker.raw_item(members, name) for name in before}
        for name, value in after.items():
            if value is not table.values[name]:
                keep(table.full(name), value)


def _sets(write: Write, members: dict[str, Any], names: Collection[str]) -> bool:
    """Return whether a write sets one of `names` in a table of a module."""
    return write.owner is members and write.name == "__setitem__" and write.value[0][0] in names
