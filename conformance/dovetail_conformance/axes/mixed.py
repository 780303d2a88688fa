"""Dtypes that are mixed in one call: what the language promotes, where the operation takes it."""

from __future__ import annotations

import torch
from torch import Tensor

WIDER = {torch.float32: torch.float64, torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex64: torch.complex128}
NARROWER = {torch.float64: torch.float32, torch.float32: torch.float16, torch.int64: torch.int16, torch.complex64: torch.float32}
OTHER = {True: torch.int64, False: torch.float32}  # for floats, and for whole numbers
LEVELS = ("wider", "narrower", "other", "wider number", "other number")


def converted(x: Tensor, mixed: str) -> Tensor:
    """Return `x` in another dtype: of more or fewer bytes, or of the other kind; as a tensor without dimensions where it is a number."""
    kind = mixed.removesuffix(" number")
    if kind == "other":
        dtype = OTHER[x.is_floating_point() or x.is_complex()]
    else:
        dtype = (WIDER if kind == "wider" else NARROWER).get(x.dtype, x.dtype)
    value = x.detach().real if x.is_complex() and not dtype.is_complex else x.detach()
    value = value.flatten()[0].clone() if mixed != kind and x.numel() else value
    return value.to(dtype)
