"""How tensors lie in memory."""

from __future__ import annotations

from torch import Tensor


def overlaps(x: Tensor) -> bool:
    """Return whether two elements share memory."""
    return any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape)) or (x.numel() > 0 and x.untyped_storage().nbytes() < x.nbytes)


def layout_of(x: Tensor) -> str:
    """Name the layout: "empty", "single", "row-major", "repeated", "permuted" (dense in another order) or "gapped"."""
    if x.numel() <= 1:
        return "single" if x.numel() else "empty"
    if x.is_contiguous():
        return "row-major"
    if overlaps(x):
        return "repeated"
    span = 1 + sum(step * (size - 1) for step, size in zip(x.stride(), x.shape))
    return "permuted" if span == x.numel() else "gapped"
