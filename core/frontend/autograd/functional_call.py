"""torch.func.functional_call inside a traced function: a module sees other tensors in the place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import torch

from dovetail.errors import require
from dovetail.frontend.class_lookup import address_of
from dovetail.torch_internals import MODULE_TABLES


class _Table(NamedTuple):
    """A dictionary of a module's parameters or buffers: the attributes that lead to it, and the values that take the place of some."""

    path: tuple[str, ...]
    values: dict[str, Any]


def functional_call(
    tracker: Any, module: torch.nn.Module, values: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True, strict: bool = False
) -> Any:
    """Call a module with other tensors in the place of its parameters and buffers, as torch.func.functional_call does."""
    dicts = [dict(tracker.pairs(part)) for part in (tracker.spread(values) if isinstance(values, (list, tuple)) else [values])]
    named = {name: value for part in dicts for name, value in part.items()}
    missing = [name for name, _ in (*module.named_parameters(), *module.named_buffers()) if name not in named]
    require(not (strict and missing), "missing keys for strict functional_call: {}", missing, error=RuntimeError)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(tracker, module, _places(module, named, tie_weights)):
        return tracker.call(module, list(args), dict(kwargs or {}), None)


def _places(module: torch.nn.Module, named: dict[str, Any], tie_weights: bool) -> dict[int, _Table]:
    """Return the tables of modules, by their addresses as effects have them, with the values that names in them get.

    A tensor under two names gets one value under both.
    """
    by_tensor: dict[int, Any] = {}
    everywhere: list[tuple[str, dict, str]] = []
    tables: dict[int, _Table] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for table in MODULE_TABLES:
            members = object.__getattribute__(part, "__dict__").get(table, {})
            tables[address_of(members)] = _Table((*filter(None, path.split(".")), table), {})
            everywhere += [(f"{path}.{name}" if path else name, members, name) for name, x in members.items() if isinstance(x, torch.Tensor)]
    known = {path for path, *_ in everywhere}
    unknown = [name for name in named if name not in known]
    require(not unknown, "unexpected keys for functional_call: {}", unknown, error=RuntimeError)
    for path, members, name in everywhere:
        if path in named and tie_weights:
            by_tensor.setdefault(id(members[name]), named[path])
    for path, members, name in everywhere:
        if (value := named.get(path, by_tensor.get(id(members[name])))) is not None:
            tables[address_of(members)].values[name] = value
    return {key: table for key, table in tables.items() if table.values}


@contextmanager
def _replaced(tracker: Any, module: torch.nn.Module, tables: dict[int, _Table]) -> Iterator[None]:
    """Let the program see other values in the tables of modules while open; nothing is written."""
    shadows = tracker.effects.shadows
    before = {key: shadows.get(key) for key in tables}
    read = {key: dict(shadow) if shadow is not None else _kept(tracker, module, tables[key]) for key, shadow in before.items()}
    try:
        for key, table in tables.items():
            shadows[key] = read[key] | table.values
        yield
    finally:
        for key, shadow in before.items():
            shadows.pop(key, None)
            if shadow is not None:
                shadows[key] = shadow


def _kept(tracker: Any, module: torch.nn.Module, table: _Table) -> dict[str, Any]:
    """Return a table of a module as the program reads it, in order; what is to be replaced is not read."""
    members = reduce(tracker.load_attr, table.path, module)
    return {name: None if name in table.values else tracker.raw_item(members, name) for name in tracker.raw_iter(members)}
