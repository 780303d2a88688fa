"""Which results have a smaller error than their numbers of terms suggest, and which gradients a larger one than their values do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dovetail import prims
from dovetail.prims import Tag
from dovetail_conformance.axes.gradients import Gradients, cotangent, gradients
from dovetail_conformance.case import Case
from dovetail_conformance.oracle import flat
from dovetail_conformance.program import fresh

SUMS, PRODUCTS = {prims.sum, prims.cumsum, prims.div, prims.add}, {prims.matmul, prims.linear}
MOST = 1 << 24  # of the steps between numbers that float32 can tell apart
COPIES = 64  # of the inputs, so that eager fills its vectors
ROUNDINGS = 4.0  # of a normalized result, by which its gradient may be off


def sums_exactly(case: Case) -> bool:
    """Return whether it adds up few enough multiples of a half, or products of such: then no order of the terms makes an error."""
    computing = {symbol for symbol in case.prims if not {Tag.VIEW, Tag.CREATION} & set(symbol.tags)} - {prims.convert_element_type}
    inputs = case.program.inputs
    if not computing & (SUMS | PRODUCTS) or computing - SUMS - PRODUCTS or not all(x.is_floating_point() and x.itemsize > 1 for x in inputs):
        return False
    wide = [x.detach().to(torch.float64) for x in inputs if x.numel()]
    if not wide or not all(bool((2 * x == (2 * x).round()).all()) for x in wide):  # neither NaN nor infinity is
        return False
    largest = [float(x.abs().max()) for x in wide]
    term = 4 * largest[0] * largest[-1] if computing & PRODUCTS else 2 * max(largest)
    return term * case.length < MOST


def added_up(case: Case, results: Sequence[Any], wanted: Sequence[int]) -> int:
    """Return how many terms the sum of a gradient may have: the elements of a result for each of an input that was broadcast."""
    written = max((x.numel() for x in flat(results) if isinstance(x, Tensor)), default=1)
    return max((written // max(1, case.program.inputs[i].numel()) for i in wanted), default=1)


def undefined_room(values: Sequence[Any], extra: Sequence[Any]) -> list[Any]:
    """Return the rooms of gradients, without a limit where eager's are not finite: such as that of a product of 0 and infinity."""

    def room(gradient: Any, other: Any) -> Any:
        if not isinstance(gradient, Tensor) or gradient.is_complex():
            return other
        undefined = torch.where(torch.isfinite(gradient.detach()), 0.0, torch.inf).to(torch.float64)
        return undefined if other is None else undefined + other

    return [room(*pair) for pair in zip(values, extra, strict=True)]


def vector_room(case: Case, ours: Gradients, theirs: Gradients, wanted: Sequence[int], kind: str, extra: Sequence[Any]) -> list[Any]:
    """Return the rooms of gradients, without a limit where one is the NaN or the infinity that eager has in a large tensor.

    Eager computes few elements by other code than the vectors of many, which differ at NaN and at -0.0.
    """
    values, results = ours.values or [], [x for x in flat(theirs.results) if isinstance(x, Tensor)]
    special = any(isinstance(x, Tensor) and not bool(torch.isfinite(x).all()) for x in values)
    if not special or len(results) != 1 or {x.shape for x in case.program.inputs} != {results[0].shape}:
        return list(extra)
    slopes = gradients(case.eager, [torch.stack([x.detach()] * COPIES) for x in case.program.inputs], wanted, "ones")
    if slopes is None or slopes.values is None:
        return list(extra)
    g = cotangent(results[0], kind)

    def room(mine: Any, slope: Any, other: Any) -> Any:
        if not isinstance(mine, Tensor) or not isinstance(slope, Tensor) or mine.is_complex() or slope.shape[1:] != mine.shape:
            return other
        there = (slope[0] * g).to(mine.dtype)
        alike = (mine.detach() == there) | (mine.detach().isnan() & there.isnan())
        open_to_both = torch.where(alike & ~torch.isfinite(there), torch.inf, 0.0).to(torch.float64)
        return open_to_both if other is None else open_to_both + other

    return [room(*each) for each in zip(values, slopes.values, extra, strict=True)]


def normalized_room(case: Case, theirs: Gradients) -> list[Any]:
    """Return how far each gradient of a softmax may be off since it is computed of the rounded result, g - sum(result * g); None of others."""
    normalized = {prims.exp, prims.sum} <= set(case.prims)
    first = next((x for x in flat(theirs.results) if isinstance(x, Tensor)), None)

    def room(gradient: Any) -> Any:
        if not normalized or first is None or not isinstance(gradient, Tensor) or gradient.shape != first.shape or not first.is_floating_point():
            return None
        return ROUNDINGS * torch.finfo(first.dtype).eps * theirs.largest * first.detach().abs().to(torch.float64)

    return [room(gradient) for gradient in theirs.values or ()]


def turned_room(case: Case, values: Sequence[Any], wanted: Sequence[int], kind: str) -> list[Any]:
    """Return how far each gradient in complex128 may be off by the roundings of a product of its Jacobian; None of others.

    The gradient of sgn(z) is a small part of g / |z|, of which eager keeps the digits that are left. No wider dtype has the exact one, so that the
    size of the Jacobian tells: that of the gradient for the cotangent, and for the cotangent times i.
    """
    if not any(isinstance(x, Tensor) and x.dtype is torch.complex128 for x in values):
        return [None] * len(values)
    turned = gradients(case.eager, fresh(case.program.inputs), wanted, kind, turned=True)
    others = turned.values if turned is not None and turned.values is not None else [None] * len(values)

    def room(gradient: Any, other: Any) -> Any:
        if not isinstance(gradient, Tensor) or not isinstance(other, Tensor) or gradient.dtype is not torch.complex128:
            return None
        size = torch.maximum(gradient.detach().abs(), other.detach().abs()).nan_to_num(0.0, 0.0, 0.0)
        return (ROUNDINGS * torch.finfo(torch.float64).eps * size)[..., None]

    return [room(*pair) for pair in zip(values, others, strict=True)]
