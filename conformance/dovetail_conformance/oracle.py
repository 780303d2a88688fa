"""Whether two results are the same: `differs` and its tolerances are those of the core, which trials and `dovetail.verify` use, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dovetail.extend.advanced import differs as differs
from dovetail.extend.advanced import leaves


def flat(result: Any) -> list[Any]:
    """Return the leaves of nested tuples, lists and dicts."""
    return list(leaves(result))


def identical(got: Any, expected: Any) -> bool:
    """Return whether two results are the same down to the signs of their zeros; results with NaN are not."""
    a, b = flat(got), flat(expected)
    return len(a) == len(b) and all(_identical(x, y) for x, y in zip(a, b))


def _identical(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return type(a) is type(b) and a == b
    if (a.dtype, a.shape, a.device) != (b.dtype, b.shape, b.device) or not torch.equal(a, b):
        return False
    a, b = a.detach(), b.detach()
    return not a.is_floating_point() or a.dtype.itemsize == 1 or torch.equal(a.signbit(), b.signbit())


def same_bits(got: Any, expected: Any) -> bool:
    """Return whether two results hold the same bits; NaN is NaN."""
    return all(_same(a, b) for a, b in zip(flat(got), flat(expected), strict=True))


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return type(a) is type(b) and (a == b or (a != a and b != b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    parts = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (a.detach(), b.detach())]
    if not parts[0].is_floating_point():
        return False
    parts = [x.to(torch.float64) for x in parts]  # eight bits have no test for NaN
    return bool(torch.equal(*(x.isnan() for x in parts)) and torch.equal(*(x.nan_to_num() for x in parts)))


def tensors(result: Any) -> Iterator[Tensor]:
    """Yield the tensors of a result."""
    return (x for x in flat(result) if isinstance(x, Tensor))
