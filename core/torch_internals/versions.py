"""What versions of PyTorch answer differently: each is tried once."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from dovetail.torch_internals.undisturbed import in_new_thread

CLAMP_SEEN = "wraps or is refused: 2.10 to 2.14; saturates: 2.15"


@cache
def clamp_saturates() -> bool:
    """Return whether a bound beyond the dtype counts as the nearest number that it has, as from torch 2.15 on; before, it wraps or is refused."""
    return in_new_thread(lambda: torch.zeros(1, dtype=torch.uint8, device="cpu").clamp(-1, 1).item() == 0)


@cache
def asarray_keeps_gradients() -> bool:
    """Return whether torch.asarray(x) requires a gradient where x does, as in torch 2.13; in 2.10 it makes x require none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch 2.13, that it does so now
        return in_new_thread(lambda: torch.asarray(torch.ones(1, device="cpu", requires_grad=True)).requires_grad)
