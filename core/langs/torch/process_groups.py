"""Process groups by the names that programs print, and what is known of collectives that run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed

from dovetail.errors import DovetailError

WORLD = "world"
GROUPS: dict[str, Any] = {}  # the registry: name -> process group


def is_distributed() -> bool:
    """Return whether this process is a rank of an initialized process group."""
    return distributed.is_available() and distributed.is_initialized()


def world() -> Any:
    """Return the default process group; None outside of one.  Programs with collectives are guarded on it."""
    return distributed.group.WORLD if is_distributed() else None


def names_ranks(x: Any) -> bool:
    """Return whether x is a process group or a device mesh."""
    if not distributed.is_available():
        return False
    meshes = sys.modules.get("torch.distributed.device_mesh")
    return isinstance(x, distributed.ProcessGroup) or (meshes is not None and isinstance(x, meshes.DeviceMesh))


def group_name(group: Any = None) -> str:
    """Return the name of a process group in programs: "world", the dimension of its device mesh, or its description.

    Every rank names its groups in the same order, so that the programs of all ranks print alike.
    """
    default = world()
    if default is None:
        raise DovetailError("no process group is initialized; call torch.distributed.init_process_group(...) first")
    if group is None or group is default:
        GROUPS[WORLD] = default
        return WORLD
    described = getattr(group, "group_desc", None) or "group"
    word = described.removeprefix("mesh_") if described != "undefined" else "group"
    for name in (word, *[f"{word}_{i}" for i in range(1, len(GROUPS) + 2)]):
        if name != WORLD and (name not in GROUPS or GROUPS[name] is group or not _is_alive(GROUPS[name])):
            GROUPS[name] = group
            return name
    raise DovetailError(f"no name is left for the process group {described!r}")


def process_group(name: str) -> Any:
    """Return the process group that programs call `name`.  Raises DovetailError where there is none."""
    group = world() if name == WORLD else GROUPS.get(name)
    if group is None:
        raise DovetailError(f"no process group is called {name!r} in this process; initialize torch.distributed and compile the function again")
    return group


def _is_alive(group: Any) -> bool:
    try:
        return distributed.get_rank(group) >= 0
    except (ValueError, RuntimeError, KeyError):
        return False


@dataclass
class Traffic:
    """The collectives that ran, and the bytes that each rank sent for them, as a ring of ranks sends them.

    Attributes:
        calls: (operation, group, bytes sent by one rank) of each collective, in order.
    """

    calls: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The bytes that one rank sent."""
        return sum([sent for _, _, sent in self.calls])


def bytes_sent(operation: str, size: int, ranks: int) -> int:
    """Return the bytes that a rank sends in a ring of `ranks`, where `size` is that of the whole tensor: the larger of argument and result."""
    share = {"all_reduce": 2, "broadcast": 1}.get(operation, 1)
    return size * share * (ranks - 1) // ranks


COUNTERS: list[Traffic] = []  # the registry: who counts; a backward runs in other threads, which context variables do not reach


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Count the collectives of compiled programs while open, in all threads of this process."""
    counter = Traffic()
    COUNTERS.append(counter)
    try:
        yield counter
    finally:
        COUNTERS.remove(counter)


def count(operation: str, group: str, ranks: int, *tensors: torch.Tensor) -> None:
    """Note that a collective runs on these tensors, its argument and its result."""
    if COUNTERS:
        sent = bytes_sent(operation, max([x.numel() * x.element_size() for x in tensors]), ranks)
        for counter in COUNTERS:
            counter.calls.append((operation, group, sent))
