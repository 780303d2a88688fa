"""How much the gradient of a tensor that is passed twice may be off, by the gradients of its uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dovetail_conformance.axes.gradients import Gradients, gradients
from dovetail_conformance.case import Case
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.program import program_of


def with_uses_apart(case: Case) -> tuple[Case, list[list[int]]] | None:
    """Return the case with an input for each use of a tensor, and which inputs each of its own became; None where no tensor is used twice."""
    uses: list[list[int]] = [[] for _ in case.program.inputs]
    count = 0

    def separate(value: object) -> object:
        nonlocal count
        if isinstance(value, Tensor):
            at = next(i for i, x in enumerate(case.program.inputs) if x is value)
            uses[at].append(count)
            count += 1
            return value.detach() if len(uses[at]) > 1 else value
        if type(value) in (tuple, list):
            return type(value)(separate(x) for x in value)
        return {key: separate(x) for key, x in value.items()} if type(value) is dict else value

    if case.sample is None:
        return None
    args, kwargs = separate((case.sample.args, case.sample.kwargs))
    if count <= len(case.program.inputs):
        return None
    return Case(case.subject, case.info, program_of(case.info.symbol, SampleInput(args, kwargs)), case.label), uses


def moved_gradients(case: Case, wanted: Sequence[int], kind: str, moved: int, eps: float) -> Gradients | None:
    """Return the gradients in float64 for inputs that are off by a rounding.

    Of a tensor that is passed twice, the uses move apart, and the gradient is off by as much as those of all uses together: they are computed one by
    one, and may cancel in the sum.
    """
    separated = with_uses_apart(case)
    if separated is None:
        return gradients(case.eager, case.widened(moved), wanted, kind, moved, eps)
    apart, uses = separated
    leaves = [k for i in wanted for k in uses[i]]
    exact, off = (gradients(apart.eager, apart.widened(seed), leaves, kind, seed, eps) for seed in (None, moved))
    if exact is None or off is None or exact.values is None or off.values is None:
        return None
    pairs = {k: (a, b) for k, a, b in zip(leaves, exact.values, off.values) if a is not None and b is not None}
    return replace(off, values=[_off([pairs[k] for k in uses[i] if k in pairs]) for i in wanted])


def _off(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """Return the sum of the first of each pair, off by as much as all second ones are."""
    return torch.stack([a + (b - a).abs() for a, b in pairs]).sum(0) if pairs else None
