"""Cotangents that reach a grad rule in a layout of their own.

A compiled function lays the cotangents that autograd passes to it out as its results are. In which layout the rule of an operation finds its
cotangent is up to what the program computes of the result: transposed behind a row-major copy of its transpose, repeated behind a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.case import Case
from dovetail_conformance.program import inexact


@dataclass(frozen=True)
class Route:
    """What a program returns for a result, so that the cotangent of the result has a layout: `onward` of it.

    `cotangent` makes the cotangent of what is returned from that of the result, and `result` the result from what is returned; without it, the
    program returns the result, too, of which no cotangent flows.
    """

    onward: Callable[[Tensor], Tensor]
    cotangent: Callable[[Tensor], Tensor]
    result: Callable[[Tensor], Tensor] | None = None

    def program(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the program that returns the leaves of `fn`'s result, those that are inexact tensors by this route."""

        def routed(*tensors: Any) -> list[Any]:
            leaves = _leaves(fn(*tensors))
            kept = [] if self.result is not None else [x.detach().clone() if _is_inexact(x) else x for x in leaves]
            return [*(self.onward(x) if _is_inexact(x) else x for x in leaves), *kept]

        return routed

    def results(self, returned: Sequence[Any]) -> list[Any]:
        """Return the leaves of the result, from what the program returned."""
        if self.result is None:
            return list(returned[len(returned) // 2 :])
        return [self.result(x) if inexact(x) else x for x in returned]


def _reversed(x: Tensor) -> Tensor:
    return x.permute(tuple(range(x.ndim))[::-1])


def _times_one(x: Tensor) -> Tensor:
    return _reversed(x).contiguous() * 1.0  # a view alone is made of the result outside of the program


def _behind_zeros(x: Tensor) -> Tensor:
    x = x.reshape(*x.shape, 1)
    return torch.cat([torch.zeros_like(x), x], -1)


def _first_element(x: Tensor) -> Tensor:
    return x.flatten()[0].clone() if x.numel() else x.new_zeros(())


ROUTES = {
    "column-major": Route(_times_one, lambda x: _reversed(x).contiguous(), _reversed),
    "gapped": Route(_behind_zeros, _behind_zeros, lambda x: x.select(-1, 1)),
    "repeated": Route(torch.sum, _first_element),
}


def routed(case: Case, route: Route) -> Case:
    """Return the case with a program that takes the results on by a route."""
    return Case(case.subject, case.info, replace(case.program, fn=route.program(case.program.fn)), case.label, case.sample)


def _leaves(result: Any) -> list[Any]:
    """Return the leaves of a result of tensors or proxies."""
    return [leaf for each in result for leaf in _leaves(each)] if isinstance(result, (tuple, list)) else [result]


def _is_inexact(x: Any) -> bool:
    """Return whether `x` is a tensor of floats or complex numbers, or a proxy of one."""
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
