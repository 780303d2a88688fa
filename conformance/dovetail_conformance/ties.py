"""Equal elements: which of them an unstable sort puts first is undetermined."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.opinfo import OpInfo, SampleInput
from dovetail_conformance.oracle import flat, identical

TIES = ("sort", "argsort", "msort", "topk")  # which of equal elements they return first is undetermined


def settled(info: OpInfo, sample: SampleInput | None, result: Any, expected: Any, inputs: Any) -> Any:
    """Return a result, as its leaves, with eager's positions where both name equal elements of the first input; as it is where none do.

    Where a position comes twice, the result is wrong and left as it is.
    """
    if info.name.rpartition(".")[2] not in TIES or sample is None or identical(result, expected):
        return result
    names = list(inspect.signature(info.symbol.meta).parameters)
    arguments = {**dict(zip(names, sample.args)), **sample.kwargs}
    leaves, wanted, dim = flat(result), flat(expected), arguments.get("dim", -1)
    if arguments.get("stable") or type(dim) is not int or len(leaves) != len(wanted):
        return result
    ours, theirs = leaves[-1], wanted[-1]
    positions = all(isinstance(x, Tensor) and x.dtype is torch.int64 for x in (ours, theirs)) and ours.shape == theirs.shape
    if not positions or (len(leaves) == 1 and not info.name.endswith("argsort")):
        return result
    ties = _name_equal_elements(inputs[0], ours, theirs, dim)
    if ties is None or (ours.sort(dim)[0].diff(dim=dim) == 0).any():
        return result
    return [*leaves[:-1], torch.where(ties, theirs, ours)]


def _name_equal_elements(x: Tensor, ours: Tensor, theirs: Tensor, dim: int) -> Tensor | None:
    """Return where two tensors of positions along a dimension name equal elements of x, or two NaN; None where one is out of bounds."""
    if not x.ndim or not ours.numel() or not ((ours >= 0) & (ours < x.shape[dim])).all():
        return None
    first, second = (x.detach().gather(dim, positions) for positions in (ours, theirs))
    return (first == second) | ((first != first) & (second != second))
