"""Find writes beside the arguments of a line: its first trial runs it on copies between guards before it sees the user's memory.

A view is copied alone: what lies around it in the user's memory, as the next row of a larger tensor, is a guard of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from dovetail.executors.dispatching.same_bytes import same_bytes
from dovetail.executors.trials.stale import OF_A_LINE
from dovetail.trace import Proxy

GUARD = 4096  # bytes before and after a copy
FILLED = 0x7F  # each byte around floats, which makes large numbers: a result shows that they were read; 0 around others


class Copy(NamedTuple):
    """A tensor of a call, its copy, and the memory around that."""

    name: str
    tensor: torch.Tensor
    copy: torch.Tensor
    memory: torch.Tensor
    size: int
    byte: int

    def is_whole(self) -> bool:
        """Return whether nothing was written around the copy."""
        guard = _guard(self.byte, self.memory.device)
        return all([same_bytes(part, guard) or torch.equal(part, guard) for part in (self.memory[:GUARD], self.memory[GUARD + self.size :])])


def copies(inputs: Mapping[Proxy, Any]) -> list[Copy]:
    """Return a copy between guards of each tensor; nothing where they are too large, or there are none that can be copied so."""
    tensors = {p.name: x for p, x in inputs.items() if isinstance(x, torch.Tensor)}
    if any(
        [type(x) not in (torch.Tensor, torch.nn.Parameter) or x.layout is not torch.strided or x.is_conj() or x.is_neg() for x in tensors.values()]
    ):
        return []
    sizes = {name: _extent(x) for name, x in tensors.items()}
    return [_copy(name, x, sizes[name]) for name, x in tensors.items()] if sum(sizes.values()) <= OF_A_LINE else []


def wrote_beside(copied: list[Copy]) -> str | None:
    """Describe beside which argument a line wrote; None where it did not."""
    return next((f"it wrote beside its argument {each.name}, into memory that is not its own" for each in copied if not each.is_whole()), None)


@cache
def _guard(byte: int, device: torch.device) -> torch.Tensor:
    """Return what is in an intact guard."""
    return torch.full((GUARD,), byte, dtype=torch.uint8, device=device)


def _copy(name: str, x: torch.Tensor, size: int) -> Copy:
    byte = FILLED if x.is_floating_point() or x.is_complex() else 0
    memory = torch.full((2 * GUARD + size,), byte, dtype=torch.uint8, device=x.device)
    copy = x.new_empty(0).set_(memory.untyped_storage(), GUARD // x.element_size(), x.shape, x.stride())
    if x.numel():
        flat = (size // x.element_size(),), (1,)
        copy.as_strided(*flat, GUARD // x.element_size()).copy_(x.detach().as_strided(*flat, x.storage_offset()))
    return Copy(name, x, copy.requires_grad_(x.requires_grad), memory, size, byte)


def _extent(x: torch.Tensor) -> int:
    """Return the bytes from the first to the last element of x."""
    return (1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride()))) * x.element_size() if x.numel() else 0
