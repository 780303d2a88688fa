"""How tensors lie in memory."""

from __future__ import annotations

from torch import Tensor


def overlaps(x: Tensor) -> bool:
    """Whether two elements share memory."""
    return any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape)) or (x.numel() > 0 and x.untyped_storage().nbytes() < x.nbytes)
