"""Reductions: how a running value starts, takes an element, joins another, and becomes a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dovetail.dtypes import DType, bool_
from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, lanes_of, vector
from dovetail_llvm_exec.region.groups import Result
from dovetail_llvm_exec.scalars.kinds import number
from dovetail_llvm_exec.scalars.ops import Op, extreme

Running = tuple[Value, ...]
LONG = 64  # steps from which a loop that sums collects parts


class Reducer:
    """A reduction `op` of elements of `dtype`.  A running value is a tuple of values, each a scalar or a vector."""

    def __init__(self, op: str, dtype: DType, *, nan_blind: bool = False):
        self.op, self.dtype = op, dtype
        self.arg = op in ("argmax", "argmin")
        self.larger = op in ("amax", "argmax")
        self.nan_blind = nan_blind  # to NaN

    def identity(self) -> Any:
        """Return the identity of the operation."""
        if self.op in ("sum", "prod"):
            return int(self.op == "prod")
        if self.op in ("any", "all"):
            return self.op == "all"
        if self.dtype is bool_:
            return not self.larger
        if self.dtype.kind == "float":
            return -math.inf if self.larger else math.inf
        bits = self.dtype.bytes * 8
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if self.dtype.signed else (0, (1 << bits) - 1)
        return low if self.larger else high

    def start(self, b: Builder, lanes: int) -> Running:
        """Return the running values of no elements."""
        first = number(b, self.identity(), self.dtype, lanes)
        if self.arg:
            return first, b.constant((1 << 63) - 1, vector("i64", lanes))
        if self._watches_nan():
            return first, b.constant(False, vector("i1", lanes))
        return (first,)

    def _watches_nan(self) -> bool:
        return self.op in ("amax", "amin") and self.dtype.kind == "float" and not self.nan_blind

    def take(self, b: Builder, running: Running, x: Value, mask: Value | None, place: Value | None) -> Running:
        """Return the running values with an element, where the mask holds."""
        if mask is not None:
            x = b.select(mask, x, number(b, self.identity(), self.dtype, lanes_of(x.type)))
            if place is not None:
                place = b.select(mask, place, b.constant((1 << 63) - 1, place.type))
        if self.arg:
            return self._better(b, running, (x, place))
        if self._watches_nan():
            best = b.select(b.compare("gt" if self.larger else "lt", x, running[0]), x, running[0])
            return best, b.or_(running[1], b.compare("uno", x, x))
        return (self.binary(b, running[0], x),)

    def binary(self, b: Builder, x: Value, y: Value) -> Value:
        """Return two elements as one; not for positions."""
        if self.op == "sum":
            return b.add(x, y)
        if self.op == "prod":
            return b.mul(x, y)
        if self.op in ("any", "all"):
            return b.or_(x, y) if self.op == "any" else b.and_(x, y)
        if self.nan_blind:
            return b.select(b.compare("gt" if self.larger else "lt", x, y), x, y)
        return extreme(Op(b, self.dtype, self.dtype, _nothing, ()), x, y, self.larger)

    def join(self, b: Builder, x: Running, y: Running) -> Running:
        """Return two running values as one."""
        if self.arg:
            return self._better(b, x, y)
        if self._watches_nan():
            return b.select(b.compare("gt" if self.larger else "lt", y[0], x[0]), y[0], x[0]), b.or_(x[1], y[1])
        return (self.binary(b, x[0], y[0]),)

    def _better(self, b: Builder, x: Running, y: Running) -> Running:
        """Return the larger (smaller) of two with their positions; NaN beats all, and the first of equals counts."""
        first = b.compare("lt", y[1], x[1])
        if self.dtype.kind == "float":
            better = b.compare("gt" if self.larger else "lt", y[0], x[0])
            nan_x, nan_y = b.compare("uno", x[0], x[0]), b.compare("uno", y[0], y[0])
            better = b.or_(b.and_(better, b.not_(nan_x)), b.and_(nan_y, b.not_(nan_x)))
            same = b.or_(b.compare("eq", x[0], y[0]), b.and_(nan_x, nan_y))
        else:
            better = b.compare("gt" if self.larger else "lt", y[0], x[0], unsigned=not self.dtype.signed)
            same = b.compare("eq", x[0], y[0])
        chosen = b.or_(better, b.and_(same, first))
        return b.select(chosen, y[0], x[0]), b.select(chosen, y[1], x[1])

    def across(self, b: Builder, running: Running) -> Running:
        """Return all lanes as one, by halves."""
        if self._watches_nan() and running[1].type[0] == "<":
            plain = Reducer(self.op, self.dtype, nan_blind=True)
            return (*plain.across(b, running[:1]), b.any(running[1]))
        if self.op in ("any", "all"):
            return (b.reduce("or" if self.op == "any" else "and", running[0]),)
        lanes = lanes_of(running[0].type)
        while lanes > 2:
            lanes //= 2
            low = tuple(b.shuffle(v, None, range(lanes)) for v in running)
            high = tuple(b.shuffle(v, None, range(lanes, 2 * lanes)) for v in running)
            running = self.join(b, low, high)
        if lanes == 1:
            return running
        return self.join(b, tuple(b.extract(v, 0) for v in running), tuple(b.extract(v, 1) for v in running))

    def result(self, b: Builder, running: Running) -> Value:
        """Return the result of a scalar running value, not yet rounded."""
        if self.arg:
            return running[1]
        if self._watches_nan():
            return b.select(running[1], number(b, math.nan, self.dtype), running[0])
        return running[0]


def _nothing(mask: Value, what: str) -> None:
    """Do nothing: reductions divide by nothing."""


def tree(reducer: Reducer, b: Builder, runnings: Sequence[Running]) -> Running:
    """Combine several running values by pairs."""
    level = list(runnings)
    while len(level) > 1:
        level = [reducer.join(b, *level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]


def parted(values: Sequence[Value], widths: Sequence[int]) -> list[Running]:
    """Split values into tuples of the given lengths."""
    out, at = [], 0
    for n in widths:
        out.append(tuple(values[at : at + n]))
        at += n
    return out


class Partial(NamedTuple):
    """The running values of a loop that sums, and how to start and join them: a long loop collects parts, so that few roundings add up."""

    reducers: Sequence[Reducer]
    lanes: int
    ways: int

    @property
    def pays(self) -> bool:
        """Whether a sum of floats is among them; nothing else gets more exact."""
        return any(r.op == "sum" and r.dtype.kind == "float" for r in self.reducers)

    def start(self, b: Builder) -> list[Value]:
        """Return the values before the first element."""
        return [v for _ in range(self.ways) for r in self.reducers for v in r.start(b, self.lanes)]

    def parted(self, b: Builder, values: Sequence[Value]) -> list[Running]:
        """Return the running value of each reducer, for one way after the other."""
        return parted(values, [len(r.start(b, self.lanes)) for r in self.reducers] * self.ways)

    def join(self, b: Builder, x: Sequence[Value], y: Sequence[Value]) -> list[Value]:
        """Join two lists of values into one."""
        pairs = zip([*self.reducers] * self.ways, self.parted(b, x), self.parted(b, y), strict=True)
        return [v for reducer, one, other in pairs for v in reducer.join(b, one, other)]


def summed(
    b: Builder, first: Value | int, stop: Value | int, step: int, most: Value | int, carried: list[Value], one: Callable, partial: Partial | None
) -> list[Value]:
    """Write a loop over `one(index, values)` that carries the values of `partial`; of `most` steps and more than LONG, in parts of about the root.

    `most` may be known only when the loop runs.
    """

    def loop(first: Value | int, stop: Value | int, values: list[Value]) -> list[Value]:
        with b.loop(first, stop, step, values) as inner:
            inner.update(*one(inner.index, list(inner.carried)))
        return list(inner.results)

    if partial is None or not partial.pays or (type(most) is int and most < LONG):
        return loop(first, stop, carried)
    size = step << (most.bit_length() // 2) if type(most) is int else _part(b, step, most)
    with b.loop(first, stop, size, carried) as parts:
        end = b.call("llvm.smin.i64", "i64", b.add(parts.index, size), b.operand(stop, "i64"))
        parts.update(*partial.join(b, list(parts.carried), loop(parts.index, end, partial.start(b))))
    return list(parts.results)


def _part(b: Builder, step: int, most: Value) -> Value:
    """Return how far one part of a loop of `most` steps goes: all of it where the loop is short."""
    zeros = b.call("llvm.ctlz.i64", "i64", most, Value("false", "i1"))
    size = b.shl(b.constant(step, "i64"), b.lshr(b.sub(b.constant(64, "i64"), zeros), 1))
    return b.select(b.compare("lt", most, LONG), b.constant(1 << 62, "i64"), size)


def reducer_of(result: Result, *, nan_blind: bool = False) -> Reducer:
    """Return the reduction that a result of a row is made by; `blind` where NaN may be overlooked."""
    return Reducer(result.node.op, result.body.dtype, nan_blind=nan_blind)
