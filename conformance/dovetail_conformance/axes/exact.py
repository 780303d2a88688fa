"""Which results have a smaller error than their numbers of terms suggest, and which gradients a larger one than their values do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dovetail import prims
from dovetail.prims import Tag
from dovetail_conformance.axes.gradients import gradients
from dovetail_conformance.case import Case
from dovetail_conformance.oracle import flat
from dovetail_conformance.program import fresh

SUMS, PRODUCTS = {prims.sum, prims.cumsum, prims.div, prims.add}, {prims.matmul, prims.linear}
MOST = 1 << 24  # of the steps between numbers that float32 can tell apart
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


def normalized_room(case: Case, results: Sequence[Any], gradients: Sequence[Any], cotangent: float) -> list[Any]:
    """Return how far each gradient of a softmax may be off since it is computed of the rounded result, g - sum(result * g); None of others."""
    normalized = {prims.exp, prims.sum} <= set(case.prims)
    first = next((x for x in flat(results) if isinstance(x, Tensor)), None)

    def room(gradient: Any) -> Any:
        if not normalized or first is None or not isinstance(gradient, Tensor) or gradient.shape != first.shape or not first.is_floating_point():
            return None
        return ROUNDINGS * torch.finfo(first.dtype).eps * cotangent * first.detach().abs().to(torch.float64)

    return [room(gradient) for gradient in flat(gradients)]


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
