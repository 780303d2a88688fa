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


BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a float: the integer that holds them


def same_bits(got: Any, expected: Any) -> bool:
    """Return whether two results hold the same bits; NaN is NaN, whatever its bits are."""
    a, b = flat(got), flat(expected)
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b))


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return type(a) is type(b) and (a.hex() == b.hex() if type(a) is float else a == b or (a != a and b != b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (_without_lazy_bits(x.detach()) for x in (a, b))
    if not a.is_floating_point() or a.layout is not torch.strided:
        return torch.equal(a, b)
    if torch.equal(*(x.view(BITS[x.dtype.itemsize]) for x in (a, b))):
        return True
    a, b = a.to(torch.float64), b.to(torch.float64)  # eight bits have no test for NaN
    return torch.equal(a.isnan(), b.isnan()) and identical(*(x.masked_fill(x.isnan(), 0) for x in (a, b)))


def _without_lazy_bits(x: Tensor) -> Tensor:
    """Compute what the conjugate and the negative bit of a tensor stand for; split a complex one into its parts."""
    return torch.view_as_real(x.resolve_conj().resolve_neg()) if x.is_complex() else x.resolve_neg()


def tensors(result: Any) -> Iterator[Tensor]:
    """Yield the tensors of a result."""
    return (x for x in flat(result) if isinstance(x, Tensor))
