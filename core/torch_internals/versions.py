"""How torch.clamp bounds integers by numbers that their dtype lacks, where versions of PyTorch disagree."""

from __future__ import annotations

from functools import cache

import torch

from dovetail.torch_internals.undisturbed import in_new_thread

CLAMP_SEEN = "wraps or is refused: 2.10 to 2.14; saturates: 2.15"


@cache
def clamp_saturates() -> bool:
    """Return whether a bound beyond the dtype counts as the nearest number that it has, as from torch 2.15 on; before, it wraps or is refused."""
    return in_new_thread(lambda: torch.zeros(1, dtype=torch.uint8, device="cpu").clamp(-1, 1).item() == 0)
