"""Loop nests that reduce few long rows: each in spans, and then their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.dtypes import float32
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.nest import Nest
from dovetail_llvm_exec.loops.reducers import Partial, Reducer, reducer_of, summed, tree
from dovetail_llvm_exec.loops.row_cache import Store
from dovetail_llvm_exec.loops.stage import Cost, Stage, first_lanes, size_of
from dovetail_llvm_exec.region.exprs import Buffer, Expr
from dovetail_llvm_exec.scalars import kinds

SPAN = 16384  # columns of a row that are one unit


class Wide(Stage):
    """Units are spans of rows."""

    def write(self) -> None:
        """Write a function for few long rows: each is reduced in spans, and then their results."""
        axis = self.columns[0]
        spans = -(-axis.size // SPAN)
        rows = size_of(self.outer)
        parts = []
        for item in self.results:
            dtype = float32 if item.node.args[0].dtype in kinds.HALVES else item.node.args[0].dtype
            parts.append(self.workspace.part(dtype, rows * spans, self.group.index))
        stores = [s for s in self.stores if not s.expr.row_results]
        b, nest = self._function("spans", self.exprs, {*parts, *(s.buffer for s in stores)})
        exprs = [item.expr.data.body for item in self.results] + [s.expr for s in stores]
        with b.loop(b.params[1], b.params[2]) as loop:
            row, span = b.split_unit(loop.index, spans)
            nest.enter(self._decoded(b, row, self.outer))
            self._span(nest, exprs, stores, span, [b.address(nest.pointers[p], kinds.stored(p.dtype), loop.index) for p in parts])
            nest.leave()
        nest.writes.update((part, None) for part in parts)
        self._finish(b, nest, rows * spans, self.cost, [*self.outer, axis], parts)
        self._write_spans_together(parts, rows, spans)

    def _span(self, nest: Nest, exprs: list[Expr], stores: list[Store], span: Value, places: list[Value]) -> None:
        b, axis = nest.b, self.columns[0]
        nest.across, nest.lanes = axis, self._lanes(self.exprs)
        lanes, ways = nest.lanes, 4
        reducers = [reducer_of(item.expr.data) for item in self.results]
        nest.hoist(exprs)
        partial = Partial(reducers, lanes, ways)

        def take(way: int, carried: list[Value]) -> list[Value]:
            running, at = partial.parted(b, carried), way * len(reducers)
            for i, (reducer, item) in enumerate(zip(reducers, self.results, strict=True)):
                running[at + i] = reducer.take(b, running[at + i], nest.operand(item.expr.data.body, lanes), nest.scopes[-1].mask, None)
            self._stored(nest, stores)
            return [v for r in running for v in r]

        first = b.mul(span, SPAN)
        stop = b.call("llvm.smin.i64", "i64", b.add(first, SPAN), b.constant(axis.size - axis.size % (lanes * ways), "i64"))

        def one(index: Value, values: list[Value]) -> list[Value]:
            for way in range(ways):
                nest.enter({axis: b.add(index, way * lanes)})
                values = take(way, values)
                nest.leave()
            return values

        running = summed(b, first, stop, lanes * ways, SPAN // (lanes * ways), partial.start(b), one, partial)
        if axis.size % (lanes * ways):
            running = self._last_of_span(nest, take, running, first)
        parts = partial.parted(b, running)
        for i, (reducer, place) in enumerate(zip(reducers, places, strict=True)):
            whole = reducer.across(b, tree(reducer, b, [parts[w * len(reducers) + i] for w in range(ways)]))
            value = reducer.result(b, whole)
            b.store(value if reducer.dtype in kinds.HALVES else kinds.to_memory(b, value, reducer.dtype), place)
        nest.across, nest.lanes = None, 1

    def _last_of_span(self, nest: Nest, take: Callable, running: list[Value], first: Value) -> list[Value]:
        """Return the columns that do not fill the vectors, in the last span."""
        b, axis, lanes = nest.b, self.columns[0], nest.lanes

        def rest() -> Sequence[Value]:
            values = running
            for way, at in enumerate(range(axis.size - axis.size % (lanes * 4), axis.size, lanes)):
                left = axis.size - at
                nest.enter({axis: b.constant(at, "i64")}, None if left >= lanes else first_lanes(left, lanes))
                values = take(way, values)
                nest.leave()
            return values

        return list(b.branch(b.compare("gt", b.add(first, SPAN), axis.size - 1), rest, running))

    def _write_spans_together(self, parts: list[Buffer], rows: int, spans: int) -> None:
        stores = [s for s in self.stores if s.expr.row_results]
        b, nest = self._function("join", [], {*parts, *(s.buffer for s in stores)})
        with b.loop(b.params[1], b.params[2]) as loop:
            nest.enter(self._decoded(b, loop.index, self.outer))
            for item, part in zip(self.results, parts, strict=True):
                reducer = Reducer(item.node.op, part.dtype)
                at = b.address(nest.pointers[part], kinds.stored(part.dtype), b.mul(loop.index, spans))

                def one(index: Value, values: list[Value], reducer: Reducer = reducer, part: Buffer = part, at: Value = at) -> list[Value]:
                    value = kinds.from_memory(b, b.load(kinds.stored(part.dtype), b.address(at, kinds.stored(part.dtype), index)), part.dtype)
                    return [reducer.binary(b, values[0], value)]

                start, partial = [kinds.number(b, reducer.identity(), part.dtype)], Partial([reducer], 1, 1)
                joined = summed(b, 0, spans, 1, spans, start, one, partial)
                nest.define(item.expr, kinds.rounded(b, joined[0], item.node.dtype))
            self._stored(nest, stores)
            nest.leave()
        nest.reads.update((part, None) for part in parts)
        self._finish(b, nest, rows, Cost(1.0, rows * spans), self.outer)
