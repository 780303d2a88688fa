"""Gradients of a variant: of some of its inputs, for cotangents of every layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.axes.layouts import laid_out
from dovetail_conformance.axes.routes import Route
from dovetail_conformance.case import SEED, Ran
from dovetail_conformance.draws import generator
from dovetail_conformance.noise import Noise, recording_noise
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.oracle import flat, same_bits
from dovetail_conformance.program import nudged

GROUP_NORM = "torch.nn.functional.group_norm"
ATTENTION, PARTS = "torch.nn.functional.scaled_dot_product_attention", ("query", "key", "value")


@dataclass
class Gradients:
    """The outcome of a call that requires gradients: its results, the gradient of each input that requires one, or an error.

    `written` tells that the backward changed a cotangent; `largest` is the largest of their numbers; `noise` what the call and the backward
    printed and warned of.
    """

    results: Any = None
    values: list[Any] | None = None
    error: Exception | None = None
    written: bool = False
    largest: float = 0.0
    noise: Noise = field(default_factory=Noise)


def subset(candidates: Sequence[int], which: str) -> list[int]:
    """Choose which of the inputs that can require a gradient do."""
    chosen = {"all": candidates, "first": candidates[:1], "last": candidates[-1:], "but first": candidates[1:]}[which]
    return list(chosen or candidates)


def ends_the_process(operation: str, sample: SampleInput, wanted: Sequence[int]) -> bool:
    """Return whether eager mode's backward ends the process.

    That of group_norm does for channels-last images that need no gradient themselves, and that of attention, which writes beyond its memory,
    where there are more values than keys.
    """
    if operation == GROUP_NORM:
        return 0 not in wanted and not sample.args[0].is_contiguous()
    if operation != ATTENTION:
        return False
    _, key, value = (*sample.args, *(sample.kwargs[name] for name in PARTS if name in sample.kwargs))[:3]
    return key.ndim == value.ndim > 1 and key.shape[-2] != value.shape[-2]


def cotangent(x: Tensor, kind: str) -> Tensor:
    """Return the cotangent of a result: the same values for the same shape, in any precision."""
    values = torch.randn(x.shape, generator=generator(SEED), dtype=torch.float64).to(torch.bfloat16).to(x.device, x.dtype)
    if kind == "ones":
        return torch.ones_like(values)
    if kind == "zero":
        return torch.zeros_like(values)
    if kind == "repeated":
        return values.flatten()[:1].reshape(()).expand(x.shape) if x.numel() else values
    if kind == "not finite" and x.numel() > 1:
        values.view(-1)[:: max(2, x.numel() // 5)] = float("nan")
        values.view(-1)[0] = float("inf")
        return values
    laid = laid_out(values, kind) if kind in ("column-major", "gapped") else None
    return values if laid is None else laid


def gradients(
    call: Callable[..., Ran],
    inputs: Sequence[Tensor],
    wanted: Sequence[int],
    kind: str,
    moved: int | None = None,
    eps: float = 0.0,
    *,
    turned: bool = False,
    route: Route | None = None,
) -> Gradients | None:
    """Return the results and gradients of a call; None where no result requires a gradient.

    With `moved`, a seed, each element of the cotangents is off by about `eps`; with `turned`, complex cotangents are multiplied by i.
    A call of a program that takes its results on by a `route` gets the cotangents by that route, too.
    """
    leaves = [inputs[i].requires_grad_() for i in wanted]
    ran = call(inputs, grad=True)
    if ran.error is not None:
        return Gradients(error=ran.error)
    results = flat(ran.result) if route is None else route.results(flat(ran.result))
    ends = [(x, result) for x, result in zip(flat(ran.result), results) if isinstance(x, Tensor) and x.requires_grad]
    if not ends or not leaves:
        return None
    ends = ends[-1:] if kind == "of one result" else ends
    cotangents = [cotangent(result, kind) for _, result in ends]
    if moved is not None:
        noise = generator(moved)
        cotangents = [nudged(x, eps, noise).to(x.dtype) for x in cotangents]
    cotangents = [x * 1j if turned and x.is_complex() else x for x in cotangents]
    cotangents = [x if route is None else route.cotangent(x).to(end.dtype) for x, (end, _) in zip(cotangents, ends)]
    before = [x.clone() for x in cotangents]
    values = [x.detach().clone() if isinstance(x, Tensor) else x for x in results]
    try:
        with recording_noise() as noise:
            grads = torch.autograd.grad([end for end, _ in ends], leaves, cotangents, allow_unused=True)
    except Exception as error:
        return Gradients(values, error=error)
    largest = max((float(x.abs().nan_to_num(0.0, 0.0, 0.0).max()) for x in before if x.numel()), default=0.0)
    return Gradients(values, [_dense(x) for x in grads], written=not same_bits(cotangents, before), largest=largest, noise=ran.noise + noise)


def _dense(x: Tensor | None) -> Tensor | None:
    return x if x is None or x.layout is torch.strided else x.to_dense()
