"""Where a rounding decides: operands so close to a kink, a jump or a tie that float32 may fall on the other side of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.fuzz.draft import Step

MARGIN = 64  # roundings that a value may be off by


def gap(x: Tensor, dims: tuple[int, ...] = ()) -> Tensor:
    """Return how far the second largest element over `dims` (all if empty) is from the largest."""
    dims = tuple(d % x.dim() for d in dims) or tuple(range(x.dim()))
    kept = [d for d in range(x.dim()) if d not in dims]
    rows = x.permute(*kept, *dims).flatten(len(kept)) if dims else x.reshape(1)
    if rows.shape[-1] < 2:
        return torch.ones(())
    top = rows.topk(2).values
    return top[..., 0] - top[..., 1]


def close_to_kink(step: Step, env: Mapping[str, Any], eps: Mapping[str, float] | None = None) -> bool:
    """Return whether the operands of a step lie within MARGIN roundings of a place where its result or gradient jumps.

    `eps` has the precision of operands that are held in another dtype than they are computed in.
    """
    operands = [env[name] for name in step.operands]
    space = {"torch": torch, "gap": gap, **{f"v{i}_": x.detach() for i, x in enumerate(operands) if isinstance(x, Tensor)}}
    inexact = [(name, x) for name, x in zip(step.operands, operands) if isinstance(x, Tensor) and x.is_floating_point() and x.numel()]
    if not inexact:
        return False
    error = max((eps or {}).get(name, torch.finfo(x.dtype).eps) * float(x.detach().abs().nan_to_num(posinf=0.0).max()) for name, x in inexact)
    names = [f"v{i}_" for i in range(len(operands))]
    for kink in step.kinks:
        distance = eval(kink.format(*names), space)
        if distance.numel() and bool((distance.abs() < MARGIN * error).any()):
            return True
    return False
