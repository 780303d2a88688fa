"""Guards that torch's Dynamo has in C: many tensors in one call, and versions of dictionaries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from dovetail.torch_internals.internal import Internal


def _guard_of(kind: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return the check of a TensorGuards; built without its keyword arguments it ends the process."""
    sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    return kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def _tells_tensors_apart(kind: Any) -> bool:
    x, p = torch.ones(2, 3), torch.nn.Parameter(torch.ones(3))
    check = _guard_of(kind, (x, p))
    others = (x.double(), x[:1], torch.ones(3, 2).t(), x.clone().requires_grad_(), torch.nn.Parameter(x), 1.0, x.to("meta"))
    return check(x.clone(), p) is True and not any([check(other, p) for other in others]) and not check(x, p.detach())


def _counts_changes(version: Any) -> bool:
    table = {"a": 1}
    before = version(table)
    same = version(table) == before
    table["a"] = 2
    return same and version(table) != before


TENSOR_GUARDS = Internal(
    "torch._C._dynamo.guards.TensorGuards",
    purpose="check dtype, device, shape, strides and requires_grad of many inputs in one call",
    fallback="each input is checked in Python, some 0.4 us for a tensor",
    probe=_tells_tensors_apart,
)
DICT_VERSION = Internal(
    "torch._C._dynamo.guards.dict_version",
    purpose="notice that the state of a module is unchanged without reading it",
    fallback="the state of modules is read at every call; Python 3.14 keeps no versions",
    probe=_counts_changes,
)
ROOT_GUARD_MANAGER = Internal(
    "torch._C._dynamo.guards.RootGuardManager",
    purpose="check the versions of many dictionaries in one call, where torch._dynamo has been imported",
    fallback="versions are read one by one",
    probe=lambda kind: callable(kind().check),
)
GUARD_MANAGER_TYPE = Internal(
    "torch._dynamo.guards.GuardManagerType",
    purpose="build a RootGuardManager",
    fallback="versions are read one by one",
    probe=lambda kind: kind.GUARD_MANAGER is not None,
    costly=True,
)


def tensor_guard(tensors: Sequence[torch.Tensor]) -> Any:
    """Return a function that is true of tensors like these in this thread's modes, or None where torch has no such guard."""
    kind = TENSOR_GUARDS.usable
    return None if kind is None else _guard_of(kind, tensors)


def guard_managers_loaded() -> bool:
    """Return whether torch._dynamo has been imported for some other reason; importing it takes seconds."""
    return "torch._dynamo.guards" in sys.modules


def guard_manager() -> tuple[Any, Any]:
    """Return a new root of guards and the type of its members; raises TypeError where this torch has none."""
    return ROOT_GUARD_MANAGER.value(), GUARD_MANAGER_TYPE.value.GUARD_MANAGER
