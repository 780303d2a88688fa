"""How torch.clamp bounds integers by numbers that their dtype lacks, where versions of PyTorch disagree."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch


@cache
def clamp_saturates() -> bool:
    """Return whether a bound beyond the dtype counts as the nearest number that it has, as from torch 2.15 on; before, it wraps or is refused.

    The probe runs in a new thread, where no mode of the caller is on.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: torch.zeros(1, dtype=torch.uint8, device="cpu").clamp(-1, 1).item() == 0).result()
