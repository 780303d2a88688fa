"""If-conversion: where both outcomes of a condition are known, cheap and without effects, one segment computes both and selects.

    values = segment_0(x); if values[0]: values = segment_1(values[1]) else: values = segment_2(values[1])

becomes one program that computes all three and ends in `where`, if that is faster for the values of a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from dovetail import prims
from dovetail.dtypes import bool_
from dovetail.frontend.decisions.generators import effects
from dovetail.frontend.guards.guard import Miss
from dovetail.langs.torch import spec_of
from dovetail.prims import Tag
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, recording
from dovetail.trace.ir import prims_of, substitute

if TYPE_CHECKING:
    from dovetail.frontend.decisions.nodes import Decision, Edge

_LARGEST = 16  # prims behind an outcome
_MOST = 32  # decisions in one segment
_FASTER = 0.95  # of the time of both ways, the share that the segment with selects may take
_ROUNDS, _CALLS = 7, 10  # of a measurement
_OF_CLASSES = frozenset({prims.check_count, prims.check_keys, prims.check_contains, prims.call_program})
_PLAIN = frozenset({Tag.ELEMENTWISE, Tag.REDUCTION})
_SHAPES = frozenset({prims.broadcast_in_dim, prims.reshape, prims.transpose, prims.squeeze, prims.strided_slice, prims.full})


class CannotJoin(Exception):
    """What follows a condition cannot be computed on both outcomes."""


def is_joinable(decision: Any) -> bool:
    """Return whether both outcomes of a decision are known, lead to one place, and may be computed whatever the condition is."""
    edges = getattr(decision, "edges", {})
    if getattr(decision, "text", None) != "bool({})" or edges.keys() != {True, False}:
        return False
    each = [edge for alternatives in edges.values() for edge in alternatives]
    plain = len(each) == 2 and not any([edge.conditions or edge.eager is not None for edge in each]) and all(map(_checks_classes, each))
    return plain and each[0].target is each[1].target and all([is_cheap(edge.trace) for edge in each])


def _checks_classes(edge: Edge) -> bool:
    """Return whether the guards of an edge, but for those that the start has checked, are about what classes define."""
    return edge.prologue is None or not (edge.slots or [line for line in edge.prologue.lines if line.symbol not in _OF_CLASSES])


def is_cheap(trace: Trace) -> bool:
    """Return whether a program is short, computes on floats alone, so that nothing raises, on the CPU, and needs no gradient."""
    tensors = [*trace.inputs, *[p for line in trace.lines for p in line.writes]]
    lines = list(prims_of(trace.lines))
    return (
        trace.relations is None
        and len(lines) <= _LARGEST
        and all([not _PLAIN.isdisjoint(line.symbol.tags) or line.symbol in _SHAPES for line in lines])
        and all([isinstance(p, TensorProxy) and not p.spec.requires_grad and p.spec.device.type == "cpu" for p in tensors])
        and all([p.spec.dtype.kind in ("float", "bool") for p in tensors])
    )


@dataclass
class Joined:
    """Several segments as one.

    Attributes:
        trace: the program.
        takes: where its inputs are, as those of an edge.
        held: what arrives at the next decision: a value of the program, or where it was before as (True, position) or (False, slot).
        target: what follows.
        decisions: the decisions that became selects.
        real: returns the value that was at a place, for its spec.
    """

    trace: Trace
    takes: dict[tuple[bool, int], Proxy]
    held: list[Proxy | tuple[bool, int]]
    target: Any
    real: Callable[[tuple[bool, int]], Any]
    decisions: list[Decision] = field(default_factory=list)

    def input(self, place: tuple[bool, int]) -> Proxy:
        """Return the input that is at a place."""
        if place not in self.takes:
            spec = spec_of(self.real(place))
            if spec.requires_grad:
                raise CannotJoin
            self.takes[place] = proxy = self.trace.tensor(spec)
            self.trace.inputs.append(proxy)
        return self.takes[place]

    def value(self, held: Proxy | tuple[bool, int]) -> Proxy:
        """Return something held as a value of the program."""
        return held if isinstance(held, Proxy) else self.input(held)

    def append(self, edge: Edge, before: Sequence[Any] | None) -> list[Any]:
        """Add the lines of an edge; return what is held after it.  `before` is what was held, None at the start."""
        places = [place if before is None or not place[0] else before[place[1]] for place in edge.takes]
        env: dict[Proxy, Proxy] = {p: self.value(held) for p, held in zip(edge.trace.inputs, places, strict=True)}
        for p, constant in edge.trace.constants.items():
            env[p] = self.trace.tensor(p.spec)
            self.trace.constants[env[p]] = constant
        for line in edge.trace.lines:
            self.trace.lines.append(self._renamed(line, env))
        after: list[Any] = []
        for place, i in edge.gives:
            after.append(env[edge.trace.outputs[i]] if place == 0 else (False, i) if place == 2 else (True, i) if before is None else before[i])
        return after

    def _renamed(self, line: BoundSymbol, env: dict[Proxy, Proxy]) -> BoundSymbol:
        """Return a line and its body with the names of this program; `env` gets those of what the line computes."""
        body = tuple([self._renamed(inner, env) for inner in line.body])
        for p in line.writes:
            env.setdefault(p, self.trace.tensor(p.spec))
        args, kwargs, out, reads = substitute((line.args, line.kwargs, line.out, line.reads), env)
        return line.replace(args=args, kwargs=kwargs, out=out, reads=reads, body=body)

    def select(self, decision: Decision) -> None:
        """Add both outcomes of a decision, and choose between what they give."""
        condition = self.value(self.held[decision.reads[0]])
        if not isinstance(condition, TensorProxy) or condition.spec.shape:
            raise CannotJoin
        (yes,), (no,) = decision.edges[True], decision.edges[False]
        pairs = list(zip(self.append(yes, self.held), self.append(no, self.held), strict=True))
        with recording(self.trace):
            if condition.spec.dtype is not bool_:
                condition = prims.ne(condition, 0.0)
            self.held = [a if _are_same(a, b) else self._chosen(condition, self.value(a), self.value(b)) for a, b in pairs]
        self.target = yes.target
        self.decisions.append(decision)

    def _chosen(self, condition: Proxy, a: Proxy, b: Proxy) -> Proxy:
        if not isinstance(a, TensorProxy) or not isinstance(b, TensorProxy) or (repr(a.spec), a.spec.strides) != (repr(b.spec), b.spec.strides):
            raise CannotJoin
        if a.spec.shape:
            condition = prims.broadcast_in_dim(condition, shape=a.spec.shape, dims=())
        chosen = prims.where(condition, a, b)
        if chosen.spec.strides != a.spec.strides:
            raise CannotJoin
        return chosen


def _are_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) is tuple and a == b)


def joined(edge: Edge, values: tuple, inputs: Mapping[int, Any]) -> Joined:
    """Return an edge with the conditions behind it as selects, for values and inputs like these.  Raises CannotJoin where there are none."""
    lines = edge.trace.lines
    tensors = [*edge.trace.inputs, *[p for line in lines for p in line.writes]]
    if edge.trace.relations is not None or any(effects(lines)) or not all([isinstance(p, TensorProxy) for p in tensors]):
        raise CannotJoin
    if any([p.spec.requires_grad or p.spec.device.type != "cpu" for p in tensors]):
        raise CannotJoin
    whole = Joined(Trace(name="segment"), {}, [], edge.target, lambda place: values[place[1]] if place[0] else inputs[place[1]])
    whole.held = whole.append(edge, None)
    while is_joinable(whole.target) and whole.target not in whole.decisions and len(whole.decisions) < _MOST:
        whole.select(whole.target)
    whole.trace.outputs = tuple(dict.fromkeys([x for x in whole.held if isinstance(x, Proxy)]))
    return whole


def replacement(edge: Edge, values: tuple, inputs: Mapping[int, Any], compile: Callable[[Trace], Any]) -> Edge | None:
    """Return an edge that does what one does and what the conditions behind it do; None where that is not faster, or cannot be.

    Args:
        edge: the edge.
        values: those that arrive at its source.
        inputs: those of the call.
        compile: compiles a program to a segment.
    """
    try:
        whole = joined(edge, values, inputs)
        segment = compile(whole.trace)
    except Exception:  # the graph does without
        return None
    place = {p: i for i, p in enumerate(whole.trace.outputs)}
    gives = [(0, place[x]) if isinstance(x, Proxy) else (1 if x[0] else 2, x[1]) for x in whole.held]
    takes, decisions = list(whole.takes), tuple(whole.decisions)
    new = replace(edge, segment=segment, takes=takes, gives=gives, target=whole.target, trace=whole.trace, selects=decisions, before=edge)
    add_checks(new, [each for decision in decisions for alternatives in decision.edges.values() for each in alternatives])
    new.connect()

    def walked() -> tuple:
        arriving = edge.advance(values, inputs)
        for decision in decisions:
            outcome, _ = decision.step(arriving)
            arriving = decision.edges[outcome][0].advance(arriving, inputs)
        return arriving

    pairs = zip(walked(), new.advance(values, inputs), strict=True)
    same = all([a is b or (isinstance(a, torch.Tensor) and torch.allclose(a, b, equal_nan=True)) for a, b in pairs])
    return new if same and is_faster(lambda: new.advance(values, inputs), walked) else None


def add_checks(edge: Edge, others: Sequence[Edge]) -> None:
    """Let an edge check the guards of others, too."""
    distinct = {tuple(reasons(each.prologue)): each for each in others if each.prologue}
    if not distinct:
        return
    own, more = edge.check, [each.check for each in distinct.values()]

    def check(args: tuple, kwargs: dict) -> Any:
        for each in more:
            checked = each(args, kwargs)
            if type(checked) is Miss:
                return checked
        return own(args, kwargs) if own is not None else ((), ())

    programs = [*([edge.prologue] if edge.prologue is not None else []), *[each.prologue for each in distinct.values()]]
    edge.check, edge.prologue = check, programs[0].derive("guards", lines=[line for program in programs for line in program.lines])


def reasons(prologue: Trace) -> list[str]:
    """Return the sentences of the guards of a prologue."""
    return [line.kwargs["miss"].reason for line in prologue.lines if "miss" in line.kwargs]


def is_faster(new: Callable[[], Any], old: Callable[[], Any]) -> bool:
    """Return whether one way takes less time than another: the least of several rounds, in turn."""
    best = {new: math.inf, old: math.inf}
    for _ in range(_ROUNDS):
        for way in best:
            began = perf_counter()
            for _ in range(_CALLS):
                way()
            best[way] = min(best[way], perf_counter() - began)
    return best[new] < _FASTER * best[old]
