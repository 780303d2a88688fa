"""Loop nests that reduce: over the columns of each row, in as many sweeps as results wait for one another, and down the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import NamedTuple

from dovetail.dtypes import float32
from dovetail.prims.sizes import Size, is_symbolic
from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.axes import Axis
from dovetail_llvm_exec.loops.nest import Nest
from dovetail_llvm_exec.loops.reducers import Partial, Reducer, reducer_of, summed, tree
from dovetail_llvm_exec.loops.row_cache import RowCache, Store
from dovetail_llvm_exec.loops.shares import nan_blind
from dovetail_llvm_exec.loops.stage import Cost, Stage, first_lanes, lanes_below, size_of
from dovetail_llvm_exec.region.exprs import Buffer, Expr, walk
from dovetail_llvm_exec.region.forms import Atom, Form, dot
from dovetail_llvm_exec.region.graph import Node
from dovetail_llvm_exec.region.groups import Item, Result
from dovetail_llvm_exec.scalars import kinds

FEWEST_ROWS = 16  # that are added up by one unit
MOST_UNITS = 64  # that few rows which are added up are shared by
BLOCK_ROWS = 64  # that are added up by one unit where sizes are known when the kernel runs


class Tally(NamedTuple):
    """`expr` of every row is joined to what lies at `form` of `partial`, of which each unit has `numel` of its own."""

    node: Node
    reducer: Reducer
    partial: Buffer
    form: Form
    expr: Expr
    numel: int


class Sweep(NamedTuple):
    """What is done in one sweep over the columns of a row."""

    results: list[Result]
    stores: list[Store]
    tallies: list[Tally]

    @property
    def roots(self) -> list[Expr]:
        """What has to be computed."""
        places = [r.place for r in self.results if r.place is not None]
        return [*(r.body for r in self.results), *places, *(s.expr for s in self.stores), *(t.expr for t in self.tallies)]


class Rows(Stage):
    """Units are rows, or, where something is added up over rows, blocks of them."""

    def write(self) -> None:
        """Write a function whose units are rows, or, where something is added up over rows, blocks of them."""
        height = size_of(self.down)
        blocks = self._blocks(height)
        tallies = [self._tally(item, blocks) for item in self.tallied]
        buffers = {s.buffer for s in self.stores} | {t.partial for t in tallies}
        places = [item.expr.data.place for item in self.results if item.expr.data.place is not None]
        self.exprs = walk([*self.exprs, *places])
        self.nan_blind = nan_blind([i.expr.data for i in self.results], self.exprs, [*(s.expr for s in self.stores), *(t.expr for t in tallies)])
        b, nest = self._function("rows", self.exprs, buffers)
        with b.loop(b.params[1], b.params[2]) as units_loop:
            unit = units_loop.index
            if not tallies:
                nest.enter(self._decoded(b, unit, self.outer))
                self._row(nest, [])
                nest.leave()
            else:
                self._block_of_rows(nest, unit, tallies, blocks, height)
        axes, own = (self.outer, []) if self._is_one(blocks) else ([*self.outer, *self.down], [t.partial for t in tallies])
        self._finish(b, nest, size_of(self.outer) * blocks, self.cost, axes, own)
        for tally in tallies:
            self._write_together(tally, blocks)

    def _blocks(self, height: int) -> int:
        """Return how many parts the rows that are added up fall in: by their number alone."""
        if not self.tallied:
            return 1
        if is_symbolic(self.group.shape):
            return -(-height // BLOCK_ROWS)
        most = max(MOST_UNITS, isqrt(height))  # of about the root of the rows: few roundings add up
        return max(min(-(-most // size_of(self.outer)), height // FEWEST_ROWS), 1)

    def _is_one(self, blocks: int) -> bool:
        return type(blocks) is int and blocks == 1

    def _tally(self, item: Item, blocks: int) -> Tally:
        node = item.node
        dtype = float32 if node.dtype in kinds.HALVES else node.dtype
        form, buffer = dot(item.coords, node.steps), self.group.plan.memory[node]
        partial = buffer if self._is_one(blocks) and dtype is node.dtype else self.workspace.part(dtype, blocks * node.numel, self.group.index)
        return Tally(node, Reducer(node.op, dtype), partial, form, item.expr, node.numel)

    def _block_of_rows(self, nest: Nest, unit: Value, tallies: list[Tally], blocks: int, height: int) -> None:
        b = nest.b
        row, block = self._part(b, unit, blocks)
        for tally in tallies:
            if not self._is_one(blocks):
                nest.pointers[tally.partial] = b.address(
                    self._address(b, tally.partial), kinds.stored(tally.partial.dtype), b.mul(block, tally.numel)
                )
        size = BLOCK_ROWS if is_symbolic(self.group.shape) else -(-height // blocks)
        first = b.mul(block, size)
        last = b.call("llvm.smin.i64", "i64", b.add(first, size), b.constant(height, "i64"))
        nest.enter(self._decoded(b, row, self.outer))
        self._sweep(nest, [t.expr for t in tallies], lambda: [self._cleared(nest, t) for t in tallies])
        with b.loop(first, last) as rows:
            nest.enter(self._decoded(b, rows.index, self.down))
            self._row(nest, tallies)
            nest.leave()
        nest.leave()

    def _cleared(self, nest: Nest, tally: Tally) -> None:
        value = kinds.number(nest.b, tally.reducer.identity(), tally.reducer.dtype, nest.lanes)
        nest.put(tally.partial, tally.form, kinds.to_memory(nest.b, value, tally.partial.dtype))

    def _row(self, nest: Nest, tallies: list[Tally]) -> None:
        """Write one row: a sweep over its columns for each step that waits for results of the one before."""
        columns = frozenset(a for axis in self.columns for a in axis.atoms)
        inner = [s for s in self.stores if not s.expr.atoms.isdisjoint(columns) or any(a in columns for a, _ in s.form.terms)]
        order = self._steps()
        last = max([*order.values(), *(self._step(order, part.expr) for part in (*inner, *tallies))], default=-1)
        sweeps = []
        for step in range(last + 1):
            results = [r for r, n in order.items() if n == step]
            parts = ([p for p in group if self._step(order, p.expr) == step] for group in (inner, tallies))
            sweeps.append(Sweep(results, *parts))
        row_cache = RowCache(self.columns, nest)
        row_cache.choose(sweeps)
        for sweep in sweeps:
            if any(sweep[:3]):
                self._swept(nest, sweep, row_cache.after.get(id(sweep), []))
                row_cache.done(sweep)
        nest.cached.clear()
        outside = [s for s in self.stores if s not in inner]
        nest.hoist([s.expr for s in outside])
        self._stored(nest, outside)

    def _steps(self) -> dict[Result, int]:
        """Return the sweep that computes each result of a row: the one after those it needs."""
        steps: dict[Result, int] = {}
        for item in self.results:
            steps[item.expr.data] = self._step(steps, item.expr.data.body)
        return steps

    def _step(self, steps: dict[Result, int], expr: Expr) -> int:
        return 1 + max([steps[r] for r in expr.row_results], default=-1)

    def _swept(self, nest: Nest, sweep: Sweep, kept: list[Store]) -> None:
        """Write one sweep: reduce, store and add up; then the results of the row are known."""
        b, (results, stores, tallies) = nest.b, sweep
        reducers = [reducer_of(r, nan_blind=r in self.nan_blind) for r in results]
        exprs = sweep.roots
        lanes = self._lanes(self.exprs)
        ways = self._ways(results, exprs, lanes)
        partial = Partial(reducers, lanes, ways)

        def body(way: int, carried: list[Value]) -> list[Value]:
            running, at = partial.parted(b, carried), way * len(reducers)
            for i, (reducer, result) in enumerate(zip(reducers, results, strict=True)):
                place = None if result.place is None else nest.operand(result.place, lanes)
                running[at + i] = reducer.take(b, running[at + i], nest.operand(result.body, lanes), nest.scopes[-1].mask, place)
            self._stored(nest, stores)
            for store in kept:
                nest.put(store.buffer, store.form, nest.operand(store.expr, lanes))
            for tally in tallies:
                self._added(nest, tally)
            return [v for r in running for v in r]

        running = partial.parted(b, self._loops(nest, exprs, partial.start(b), body, ways, partial))
        for i, (reducer, result) in enumerate(zip(reducers, results, strict=True)):
            whole = reducer.across(b, tree(reducer, b, [running[w * len(reducers) + i] for w in range(ways)]))
            nest.define(result.expr, kinds.rounded(b, reducer.result(b, whole), result.node.dtype))

    def _ways(self, results: list[Result], exprs: list[Expr], lanes: int) -> int:
        """Return how many running values a sum has, so that additions need not wait for one another."""
        size = self.columns[-1].size if self.columns else 1
        if not results:
            return 1
        cost = sum(e.cost for e in walk(exprs, lambda e: not e.atoms.isdisjoint(self.columns[-1].atoms)))
        long, middle = (True, True) if type(size) is Size else (size >= 4 * lanes, size >= 2 * lanes)
        return 4 if cost < 0.3 and long else 2 if cost < 1.0 and middle else 1

    def _added(self, nest: Nest, tally: Tally) -> None:
        b, dtype = nest.b, tally.partial.dtype
        old = kinds.from_memory(b, b.unshared(nest.get(tally.partial, tally.form, nest.lanes)), dtype)
        new = tally.reducer.binary(b, old, nest.operand(tally.expr, nest.lanes))
        nest.put(tally.partial, tally.form, kinds.to_memory(b, new, dtype))

    def _sweep(self, nest: Nest, exprs: list[Expr], write: Callable[[], object]) -> None:
        """Call `write` at every column."""

        def body(way: int, carried: list[Value]) -> list[Value]:
            write()
            return carried

        self._loops(nest, [], [], body, 1)

    def _loops(
        self,
        nest: Nest,
        exprs: list[Expr],
        carried: list[Value],
        body: Callable[[int, list[Value]], list[Value]],
        ways: int,
        partial: Partial | None = None,
    ) -> list[Value]:
        """Return the loops over the columns of a row, around `body`, which is written for `ways` vectors at once."""
        if not self.columns:
            return body(0, carried)
        nest.across, nest.lanes = self.columns[-1], self._lanes(self.exprs)
        carried = self._around(nest, exprs, carried, body, ways, self.columns, partial)
        nest.across, nest.lanes = None, 1
        return carried

    def _around(
        self, nest: Nest, exprs: list[Expr], carried: list[Value], body: Callable, ways: int, axes: Sequence[Axis], partial: Partial | None
    ) -> list[Value]:
        nest.hoist(exprs)
        if len(axes) == 1:
            return self._along(nest, carried, body, ways, axes[0], partial)

        def one(index: Value, values: list[Value]) -> list[Value]:
            nest.enter({axes[0]: index})
            values = self._around(nest, exprs, values, body, ways, axes[1:], partial)
            nest.leave()
            return values

        return summed(nest.b, 0, axes[0].size, 1, _steps(nest.b, axes[0].size), carried, one, partial)

    def _along(self, nest: Nest, carried: list[Value], body: Callable, ways: int, axis: Axis, partial: Partial | None) -> list[Value]:
        """Return the innermost loop: `ways` vectors at once, then the vectors that are left, then a masked one."""
        b, lanes = nest.b, nest.lanes

        def one(index: Value, values: list[Value]) -> list[Value]:
            for way in range(ways):
                nest.enter({axis: b.add(index, way * lanes) if way else index})
                values = body(way, values)
                nest.leave()
            return values

        if type(axis.size) is Size:
            return self._counted(nest, carried, body, one, ways, axis, partial)
        whole = axis.size - axis.size % (lanes * ways)
        if whole:
            carried = summed(b, 0, whole, lanes * ways, whole // (lanes * ways), carried, one, partial)
        for way, at in enumerate(range(whole, axis.size, lanes)):
            left = axis.size - at
            nest.enter({axis: b.constant(at, "i64")}, None if left >= lanes else first_lanes(left, lanes))
            carried = body(way % ways, carried)
            nest.leave()
        return carried

    def _counted(
        self, nest: Nest, carried: list[Value], body: Callable, one: Callable, ways: int, axis: Axis, partial: Partial | None
    ) -> list[Value]:
        """Return the innermost loop over a size that is known when the kernel runs: groups of vectors, single vectors, one with a mask."""
        b, lanes = nest.b, nest.lanes
        groups = axis.size // (lanes * ways)
        in_groups, whole = b.constant(groups * (lanes * ways), "i64"), b.constant(axis.size // lanes * lanes, "i64")
        first = carried
        carried = self._streaming(nest, lambda: summed(b, 0, in_groups, lanes * ways, b.constant(groups, "i64"), first, one, partial))
        if ways > 1:
            with b.loop(in_groups, whole, lanes, carried) as loop:
                nest.enter({axis: loop.index})
                loop.update(*body(0, list(loop.carried)))
                nest.leave()
            carried = list(loop.results)
        if lanes > 1:
            with b.loop(whole, axis.size, lanes, carried) as loop:  # once, or not at all
                nest.enter({axis: loop.index}, lanes_below(b, b.sub(b.constant(axis.size, "i64"), loop.index), lanes))
                loop.update(*body(0, list(loop.carried)))
                nest.leave()
            carried = list(loop.results)
        return carried

    def _write_together(self, tally: Tally, blocks: int) -> None:
        """Join what the blocks added up, in order, into the result."""
        buffer = self.group.plan.memory[tally.node]
        if tally.partial == buffer:
            return
        b, nest = self._function(f"join{len(self.phases)}", [], {buffer, tally.partial})
        axis = Axis([Atom(0, tally.numel)])
        nest.axis_of = {axis.atoms[0]: axis}
        lanes = self.module.target.vector_bytes // max(4, tally.partial.dtype.bytes)
        units = -(-tally.numel // lanes)
        nest.across, nest.lanes = axis, lanes
        form = Form(0, ((axis.atoms[0], 1),))
        with b.loop(b.params[1], b.params[2]) as loop:
            start = b.mul(loop.index, lanes)
            left = b.sub(b.constant(tally.numel, "i64"), start)
            mask = lanes_below(b, left, lanes) if type(tally.numel) is Size or tally.numel % lanes else None
            nest.enter({axis: start}, mask)
            total = kinds.number(b, tally.reducer.identity(), tally.reducer.dtype, lanes)
            with b.loop(0, blocks, 1, [total]) as over:
                nest.pointers[tally.partial] = b.address(
                    self._address(b, tally.partial), kinds.stored(tally.partial.dtype), b.mul(over.index, tally.numel)
                )
                nest.enter({})
                part = kinds.from_memory(b, nest.get(tally.partial, form, lanes), tally.partial.dtype)
                over.update(tally.reducer.binary(b, over.carried[0], part))
                nest.leave()
            nest.put(buffer, form, kinds.to_memory(b, kinds.rounded(b, over.results[0], buffer.dtype), buffer.dtype))
            nest.leave()
        self._finish(b, nest, units, Cost(0.05, tally.numel * blocks), [axis])


def _steps(b: Builder, size: int) -> Value | int:
    """Return how many steps a loop has, as `summed` takes it."""
    return b.constant(size, "i64") if type(size) is Size else size
