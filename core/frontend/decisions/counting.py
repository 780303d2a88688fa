"""The part of an exploration that lets loops close: counters, and ends of ranges, become numbers of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail import prims
from dovetail.frontend.decisions.counters import CountedRange, differing, follows
from dovetail.frontend.decisions.differentiating import DifferentiatingRequester
from dovetail.frontend.decisions.requests import Request
from dovetail.frontend.decisions.state import State, is_looped_over
from dovetail.trace import NumberProxy, Proxy

_PATIENCE = 4  # iterations after which a loop over a range that has not closed is taken for one that never does


class CountingRequester(DifferentiatingRequester):
    """Answers with numbers of the program for counters.

    Attributes:
        counters: what stands for counters.
        ranges: those whose ends are numbers of the program.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counters: set[Proxy] = set()
        self.ranges: list[CountedRange] = []

    def check_ranges(self) -> None:
        """Start again with ranges whose ends are known where a loop over one has not closed."""
        if any([each.taken > _PATIENCE for each in self.ranges]):
            raise self.graph.start_over(counts=False)

    def to_widen(self, request: Request, state: State) -> tuple[int, ...]:
        """Return which counters of a state become numbers of the program: those in which it differs from one that is otherwise equal."""
        graph = self.graph
        if not graph.assumptions.widens or state.key is None or (request.mark, state.key) in graph.known:
            return ()
        values = [counter.value() for counter in state.counters]
        return differing(graph.outlines.setdefault((request.mark, state.outline), values), values)

    def number(self, number: Proxy) -> Any:
        return super().number(self.no_counter(number))

    def size(self, number: Proxy) -> Any:
        return super().size(self.no_counter(number))

    def no_counter(self, number: Proxy) -> Proxy:
        """Return a number whose value the program needs; start again with a state for each value of the counters where it follows from one."""
        if number not in self.numbers and follows(number, self.counters, self.trace.lines):
            raise self.graph.start_over(widens=False)
        return number

    def counted(self, bounds: Sequence[Any]) -> CountedRange | None:
        bounds = [self.numbers.get(x, x) if type(x) is NumberProxy else x for x in bounds]
        start, stop, step = bounds if len(bounds) == 3 else (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)
        whole = all([type(x) is int or (type(x) is NumberProxy and x.spec.kind == "int") for x in (start, stop)])
        unknown = NumberProxy in (type(start), type(stop))
        assumes_so = self.graph.assumptions.widens and self.graph.assumptions.counts
        if not (assumes_so and self.is_open and whole and unknown and type(step) is int and step and is_looped_over()):
            return None
        at = prims.integer(value=start) if type(start) is int else start
        self.counters.add(at)
        self.ranges.append(CountedRange(at, stop, step))
        return self.ranges[-1]
