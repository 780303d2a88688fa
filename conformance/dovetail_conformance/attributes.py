"""What a result is besides its values: its class, its flags, and how much memory it keeps alive, beside those of eager's result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.oracle import tensors

KEPT, ROOM = 8, 1 << 16  # times the memory of eager's result that one may keep alive, and bytes besides


def unlike(got: Any, eager: Any) -> str | None:
    """Describe how the first result that differs in kind from eager's does; None where none does.

    Only results of equal number are compared: another check reports a missing one.
    """
    ours, theirs = list(tensors(got)), list(tensors(eager))
    if len(ours) != len(theirs):
        return None
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if (problem := _problem(a, b)) is not None:
            return problem if len(ours) == 1 else f"result {i}: {problem}"
    return None


def _problem(a: Tensor, b: Tensor) -> str | None:
    if type(a) is not type(b):
        return f"a {type(a).__name__} was returned in place of a {type(b).__name__}"
    for name, flag in FLAGS.items():
        if flag(a) and not flag(b):
            return f"the result {name}, and eager's is not" if name.startswith("is") else f"the result {name}, and eager's does not"
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return None
    kept, allowed = (x.untyped_storage().nbytes() for x in (a, b))
    allowed = KEPT * max(allowed, a.numel() * a.element_size()) + ROOM
    return f"the result keeps {kept:,} bytes alive, and {allowed:,} are allowed" if kept > allowed else None


FLAGS = {
    "is an inference tensor": Tensor.is_inference,
    "is lazily conjugated": Tensor.is_conj,
    "is lazily negated": Tensor.is_neg,
    "is pinned": lambda x: x.device.type == "cpu" and torch.cuda.is_available() and x.is_pinned(),
    "has an attribute `grad`": lambda x: x.is_leaf and x.grad is not None,
}
