"""The part of an exploration that computes gradients after a decision: eager autograd goes back through the segments that have run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from dovetail.errors import EagerCall
from dovetail.frontend.autograd.created_leaves import computed_from
from dovetail.frontend.decisions.drawing import DrawingRequester
from dovetail.frontend.decisions.driver import GoEager
from dovetail.frontend.decisions.outside import proxies_in
from dovetail.frontend.decisions.requests import Request
from dovetail.frontend.decisions.steps import Gradients
from dovetail.frontend.recording.torch_recorder import TorchRecorder
from dovetail.trace import Proxy, Trace, requires_grad
from dovetail.trace.passes.functionalize import Functionalizer


class DifferentiatingRequester(DrawingRequester):
    """Answers with gradients.

    Attributes:
        freed: values of the trace whose graph was freed, so that nothing which it saved is read again.
        anchors: the leaves that the program has created, and the values of the pure program that are leaves of eager autograd.
    """

    trace: Trace
    functionalizer: Functionalizer
    recorder: TorchRecorder
    places: dict[Proxy, int]

    def __init__(self) -> None:
        super().__init__()
        self.freed: set[Proxy] = set()
        self.anchors: dict[Proxy, Proxy] = {}

    def flush(self) -> None:
        """Add the lines since the last decision to the pure program."""
        raise NotImplementedError

    def create_leaf(self, p: Proxy) -> None:
        """Let eager autograd have a leaf for a tensor that the program makes one, where a gradient of it is needed after a decision."""
        if not self.graph.assumptions.creates_leaves:
            return
        self.anchors[p] = leaf = self.call_outside(_leaf_of, (p,), {})
        self.functionalizer.replace(p, leaf)

    def can_reach(self, p: Proxy) -> bool:
        """Return whether eager autograd can go back to a leaf that the program has created: it must not have been written since."""
        if not self.graph.assumptions.creates_leaves:
            raise self.graph.start_over(creates_leaves=True)
        self.flush()
        return p in self.anchors and self.functionalizer.current(p) is self.anchors[p]

    def call_outside(self, function: Callable, args: Sequence[Any], kwargs: dict) -> Any:
        """Call an operation between two segments, where eager autograd has the leaves that its arguments are computed from."""
        reads, autograd = proxies_in((args, kwargs)), self.recorder.autograd
        leaves = [p for p in autograd.leaves if not computed_from(self.trace, [p], autograd.derived).isdisjoint(reads)]
        if not leaves or not torch.is_grad_enabled():
            return super().call_outside(function, args, kwargs)
        if not all(map(self.can_reach, leaves)):
            raise EagerCall("an operation that needs values, as x[mask], has a gradient for a leaf that the program has created and written since")
        result = super().call_outside(function, args, kwargs)
        autograd.derived.update(dict.fromkeys(proxies_in(result), reads))
        return result

    def differentiate(self, outputs: Mapping[Proxy, Proxy], wanted: Sequence[Proxy], retain: bool, create_graph: bool) -> list[Proxy | None]:
        """Return the gradients of inputs of the trace, None where nothing flows.

        Args:
            outputs: what is differentiated, and the cotangent of each.
            wanted: the inputs, and leaves that the program has created.
            retain: whether the graph may be differentiated again.
            create_graph: whether the gradients have a history.
        """
        if self.calls_python:
            raise EagerCall(
                "the backward of an autograd.Function that is left to autograd may have effects, which a call that starts again would repeat"
            )
        count = len(outputs)
        created, inputs = [p for p in wanted if p in self.anchors], [p for p in wanted if p not in self.anchors]
        self.pass_by_hooks(inputs)
        place = {p: i for i, p in enumerate([*created, *inputs])}
        order = [place[p] for p in wanted]

        step = Gradients(count, tuple(order), retain, create_graph, _gradients)
        mark = "gradients", count, tuple(order), retain, create_graph
        outcome, arriving = self.decide(Request("the gradients", mark, [*outputs, *outputs.values(), *created], step, inputs=tuple(inputs)))
        gradients = [None if flag is None else self.trace.tensor(p.spec.like(requires_grad=flag)) for p, flag in zip(wanted, outcome, strict=True)]
        first = len(arriving)
        arriving.update({p: first + i for i, p in enumerate([g for g in gradients if g is not None])})
        if not retain:
            self.freed.update(self.ancestors(outputs))
        return gradients

    def pass_by_hooks(self, inputs: Sequence[Proxy]) -> None:
        """Let segments read views of leaves with hooks: the program has these as lines, and the gradient of a view runs none of them."""
        self.flush()
        hooked, aliased = {self.places[p] for p in inputs if self.recorder.real[p]._backward_hooks}, self.graph.assumptions.aliased
        if not hooked <= aliased:
            raise self.graph.start_over(aliased=aliased | hooked)

    def ancestors(self, outputs: Collection[Proxy]) -> set[Proxy]:
        """Return the values with a history that some values are computed from, and these."""
        values = set(outputs)
        for line in reversed(self.trace.lines):
            if not values.isdisjoint(line.writes):
                values.update(filter(requires_grad, line.reads))
        return values


def _leaf_of(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_()


def _gradients(outputs: Sequence[Any], cotangents: Sequence[Any], inputs: Sequence[Any], retain: bool, create_graph: bool) -> list[Any]:
    """Return gradients with a storage of their own each, in the layout of their inputs: a program may write into one.

    Raises GoEager where autograd cannot go back.
    """
    try:
        gradients = torch.autograd.grad(outputs, inputs, cotangents, retain_graph=retain, create_graph=create_graph, allow_unused=True)
    except RuntimeError as error:  # a segment may free more than its operations would, each by itself
        raise GoEager(f"calls run eagerly where autograd cannot go back: {str(error).partition('(')[0]}") from error
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
