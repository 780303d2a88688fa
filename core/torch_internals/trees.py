"""Nested containers as torch's pytree knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.torch_internals.internal import Internal


def _round_trips(pytree: Any) -> bool:
    nest = {"a": [1, (2,)], "b": 3}
    leaves, spec = pytree.tree_flatten(nest)
    return leaves == [1, 2, 3] and pytree.tree_unflatten(leaves, spec) == nest and tuple in pytree.SUPPORTED_NODES


PYTREE = Internal(
    "torch.utils._pytree",
    purpose="take arguments and results apart, with the containers that users have registered",
    fallback="arguments and results that are nested are refused",
    probe=_round_trips,
)


def _missing(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(f"{PYTREE.problem}, which takes nested arguments apart; install a torch that has it")


def _function(name: str) -> Callable[..., Any]:
    return getattr(PYTREE.value, name, _missing)


tree_flatten = _function("tree_flatten")
tree_unflatten = _function("tree_unflatten")
tree_leaves = _function("tree_leaves")
tree_map_only = _function("tree_map_only")
SUPPORTED_NODES: dict[type, Any] = getattr(PYTREE.value, "SUPPORTED_NODES", {})
