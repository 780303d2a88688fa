"""torch.func.functional_call inside a traced function: a module sees other tensors in the place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail.errors import require
from dovetail.torch_internals import MODULE_TABLES


def functional_call(
    tracker: Any, module: torch.nn.Module, values: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True, strict: bool = False
) -> Any:
    """Call a module with other tensors in the place of its parameters and buffers, as torch.func.functional_call does."""
    dicts = [dict(tracker.pairs(part)) for part in (tracker.spread(values) if isinstance(values, (list, tuple)) else [values])]
    named = {name: value for part in dicts for name, value in part.items()}
    missing = [name for name, _ in (*module.named_parameters(), *module.named_buffers()) if name not in named]
    require(not (strict and missing), "missing keys for strict functional_call: {}", missing, error=RuntimeError)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(tracker, _places(module, named, tie_weights)):
        return tracker.call(module, list(args), dict(kwargs or {}), None)


def _places(module: torch.nn.Module, named: dict[str, Any], tie_weights: bool) -> list[tuple[dict, str, Any]]:
    """Return the tables of modules, the names in them and the values that these get; a tensor under two names gets one value under both."""
    by_tensor: dict[int, Any] = {}
    everywhere: list[tuple[str, dict, str]] = []
    for path, part in module.named_modules(remove_duplicate=False):
        for table in MODULE_TABLES:
            members = object.__getattribute__(part, "__dict__").get(table, {})
            everywhere += [(f"{path}.{name}" if path else name, members, name) for name, x in members.items() if isinstance(x, torch.Tensor)]
    known = {path for path, *_ in everywhere}
    unknown = [name for name in named if name not in known]
    require(not unknown, "unexpected keys for functional_call: {}", unknown, error=RuntimeError)
    for path, members, name in everywhere:
        if path in named and tie_weights:
            by_tensor.setdefault(id(members[name]), named[path])
    chosen = [(members, name, named.get(path, by_tensor.get(id(members[name])))) for path, members, name in everywhere]
    return [row for row in chosen if row[2] is not None]


@contextmanager
def _replaced(tracker: Any, places: list[tuple[dict, str, Any]]) -> Iterator[None]:
    """Let the program see other values in the tables of modules while open; nothing is written."""
    shadows = tracker.effects.shadows
    before = {id(members): shadows.get(id(members)) for members, *_ in places}
    try:
        for members, name, value in places:
            if shadows.get(id(members)) is before[id(members)]:
                shadows[id(members)] = dict(members if before[id(members)] is None else before[id(members)])
            shadows[id(members)][name] = value
        yield
    finally:
        for key, shadow in before.items():
            shadows.pop(key, None)
            if shadow is not None:
                shadows[key] = shadow
