"""Results that are written where an input lies: which may be, and the function of a region that does so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dovetail_llvm_exec.call.launch import Bound, filler, maker
from dovetail_llvm_exec.region.exprs import Buffer, Expr, walk
from dovetail_llvm_exec.region.forms import Form, dot
from dovetail_llvm_exec.region.graph import Node
from dovetail_llvm_exec.region.groups import Group, Plan

FAULTY = frozenset({"checked", "floordiv", "truncdiv", "remainder", "fmod"})  # may end in an error, which leaves inputs as they are


class Reads:
    """What each loop nest of a plan reads, by buffer; `faulty`: something may end in an error, after which inputs are as they were."""

    def __init__(self, plan: Plan):
        self.plan, self.faulty = plan, False
        self.forms: dict[Buffer, list[tuple[Group, Form]]] = {}
        for group in plan.groups:
            for expr in _computed(group):
                self.faulty = self.faulty or expr.op in FAULTY
                if expr.op == "load":
                    self.forms.setdefault(expr.data[0], []).append((group, expr.data[1]))

    def overwritable(self, node: Node, source: Node) -> bool:
        """Return whether `node` may be stored where the input `source` lies: each element is read before that, by what is stored there, if at all."""
        home = self.plan.home.get(node)
        item = next((i for i in home.items if i.kind == "store" and i.node is node), None) if home is not None else None
        if self.faulty or item is None or node.dtype is not source.dtype or node.steps != source.steps or node.shape != source.shape:
            return False
        own, alone = dot(item.coords, node.steps), all(i.kind == "store" for i in home.items)
        later = [(g, form) for g, form in self.forms.get(self.plan.memory[source], ()) if g.index >= home.index]
        return all(g is home and alone and form == own for g, form in later)


def _computed(group: Group) -> list[Expr]:
    """Return the expressions of a loop nest."""
    bodies = [i.expr.data.body if i.kind == "result" else i.expr for i in group.items]
    return walk([*bodies, *(i.expr.data.place for i in group.items if i.kind == "result" and i.expr.data.place is not None)])


def writing(bound: Bound, into: dict[int, int], plain: Callable[..., tuple]) -> Callable[..., tuple]:
    """Return a function that gives the results of `bound`, those of `into` as the inputs that it names, written over; `plain` is for odd tensors."""
    run, makers = filler(bound), [None if i in into else maker(out) for i, out in enumerate(bound.outputs)]
    over = tuple(into.values())

    def call(*inputs: torch.Tensor) -> tuple:
        if any([inputs[i].is_neg() for i in over]):
            return plain(*inputs)
        outs = [inputs[into[i]] if make is None else make() for i, make in enumerate(makers)]
        run(*inputs, *outs)
        return tuple(outs)

    return call


def chosen(plan: Plan, stored: Sequence[Node], inputs: Sequence[Node], wanted: dict[int, int]) -> dict[int, int]:
    """Return what of `wanted`, results by number into inputs by number, may be."""
    reads, result_by_input = Reads(plan), dict[int, int]()  # inputs into results, so that none is taken twice
    for result, source in wanted.items():
        if source not in result_by_input and reads.overwritable(stored[result], inputs[source]):
            result_by_input[source] = result
    return {result: source for source, result in result_by_input.items()}
