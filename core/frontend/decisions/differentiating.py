"""The part of an exploration that computes gradients after a decision: eager autograd goes back through the segments that have run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from dovetail.frontend.decisions.drawing import DrawingRequester
from dovetail.frontend.decisions.driver import GoEager
from dovetail.frontend.decisions.requests import Outcome, Request
from dovetail.trace import Proxy, requires_grad


class DifferentiatingRequester(DrawingRequester):
    """Answers with gradients.

    Attributes:
        freed: values of the trace whose graph was freed, so that nothing which it saved is read again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.freed: set[Proxy] = set()

    def differentiate(self, outputs: Mapping[Proxy, Proxy], wanted: Sequence[Proxy], retain: bool, create_graph: bool) -> list[Proxy | None]:
        """Return the gradients of inputs of the trace, None where nothing flows.

        Args:
            outputs: what is differentiated, and the cotangent of each.
            wanted: the inputs.
            retain: whether the graph may be differentiated again.
            create_graph: whether the gradients have a history.
        """
        count = len(outputs)

        def step(*real: torch.Tensor) -> tuple[Outcome, tuple]:
            try:
                gradients = _gradients(real[:count], real[count : 2 * count], real[2 * count :], retain, create_graph)
            except RuntimeError as error:  # a segment may free more than its operations would, each by itself
                raise GoEager(f"calls run eagerly where autograd cannot go back: {str(error).partition('(')[0]}") from error
            return Outcome.of_gradients(gradients), tuple([g for g in gradients if g is not None])

        mark = "gradients", count, retain, create_graph
        outcome, arriving = self.decide(Request("the gradients", mark, [*outputs, *outputs.values()], step, inputs=tuple(wanted)))
        gradients = [None if flag is None else self.trace.tensor(p.spec.like(requires_grad=flag)) for p, flag in zip(wanted, outcome, strict=True)]
        first = len(arriving)
        arriving.update({p: first + i for i, p in enumerate([g for g in gradients if g is not None])})
        if not retain:
            self.freed.update(self.ancestors(outputs))
        return gradients

    def ancestors(self, outputs: Collection[Proxy]) -> set[Proxy]:
        """Return the values with a history that some values are computed from, and these."""
        values = set(outputs)
        for line in reversed(self.trace.lines):
            if not values.isdisjoint(line.writes):
                values.update(filter(requires_grad, line.reads))
        return values


def _gradients(outputs: Sequence[Any], cotangents: Sequence[Any], inputs: Sequence[Any], retain: bool, create_graph: bool) -> list[Any]:
    """Return gradients with a storage of their own each, in the layout of their inputs: a program may write into one."""
    gradients = torch.autograd.grad(outputs, inputs, cotangents, retain_graph=retain, create_graph=create_graph, allow_unused=True)
    storages = {x.untyped_storage().data_ptr() for x in (*cotangents, *outputs)}
    own = []
    for g, x in zip(gradients, inputs, strict=True):
        if g is not None:
            storage = g.untyped_storage().data_ptr()
            if storage in storages or g.stride() != x.stride():
                with torch.set_grad_enabled(create_graph):
                    g = torch.empty_like(x, requires_grad=False).copy_(g)
            storages.add(storage)
        own.append(g)
    return own
