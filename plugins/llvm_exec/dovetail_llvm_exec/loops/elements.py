"""Loop nests without reductions: every element is computed and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.prims.sizes import Size, hint_of
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.axes import Axis
from dovetail_llvm_exec.loops.cases import MOST_BRANCHES, assuming, branching, ranges
from dovetail_llvm_exec.loops.nest import Nest
from dovetail_llvm_exec.loops.passes import passes
from dovetail_llvm_exec.loops.row_cache import Store
from dovetail_llvm_exec.loops.stage import Stage, first_lanes, lanes_below, lanes_between, size_of
from dovetail_llvm_exec.region.exprs import Buffer, Expr, walk
from dovetail_llvm_exec.region.forms import inside, known_equal
from dovetail_llvm_exec.scalars import kinds

BLOCK = 4096  # elements of the innermost loop that are one unit
LEAST = 256  # elements of the innermost loop from which passes pay
SPLIT = 4  # vectors in the innermost loop from which ranges of it pay
TILE = 16  # rows that are done together where a load runs down the columns


class Elements(Stage):
    """Units are blocks of the innermost axis, or tiles."""

    def write(self) -> None:
        """Write a function whose units are blocks of the innermost axis; where a load crosses it, tiles of that axis and the one it runs along."""
        exprs = [s.expr for s in self.stores]
        b, nest = self._function("each", self.exprs, {s.buffer for s in self.stores})
        along = self._crossing()
        outer = [axis for axis in self.outer if axis is not along]
        size = self.columns[0].size if self.columns else 1
        block = BLOCK if along is None else TILE * 8
        blocks = -(-size // block) if self._divisible() and (type(size) is Size or size >= 2 * block) else 1
        tiles = 1 if along is None else -(-along.size // TILE)
        nest.hoist(exprs)
        with b.loop(b.params[1], b.params[2]) as units_loop:
            row, part = self._part(b, units_loop.index, blocks * tiles)
            tile, at = self._part(b, part, blocks)
            nest.enter(self._decoded(b, row, outer))
            start = b.mul(at, block) if type(blocks) is Size or blocks > 1 else None
            long = along is None and bool(self.columns) and self._passes(nest, self.columns[0], start, block)

            def write(stores: list[Store]) -> None:
                if self.columns:
                    self._ranges(nest, stores, start, block, long, lambda stores: self._body(nest, along, tile, stores))
                else:
                    self._stored(nest, stores)

            if long:
                write(self.stores)
            else:
                self._cases(nest, self.stores, [*self.columns, *([] if along is None else [along])], write, MOST_BRANCHES)
            nest.cached.clear()
            nest.leave()
        parted = type(blocks) is Size or blocks > 1
        self._finish(b, nest, blocks * tiles * size_of(outer), self.cost, [*self.outer, *(self.columns if parted else [])])

    def _divisible(self) -> bool:
        """Return whether units can have parts of the columns: not where a store has one element for a whole row, which each of them would write."""
        columns = {atom for axis in self.columns for atom in axis.atoms if hint_of(atom.size) != 1}
        return all(columns <= {atom for atom, _ in store.form.terms} for store in self.stores)

    def _cases(self, nest: Nest, stores: list[Store], within: list[Axis], write: Callable[[list[Store]], None], most: int) -> int:
        """Branch on the conditions that do not change along the axes `within`, and `write` the stores of each case; return what of `most` is left."""
        b, condition = nest.b, branching(walk([s.expr for s in stores]), within)
        if condition is None or not most:
            write(stores)
            return most
        left = most - 1

        def case(holds: bool) -> Sequence[Value]:
            nonlocal left
            nest.enter({})
            left = self._cases(nest, assuming(self.group.lowering.table, stores, {condition: holds}), within, write, left)
            nest.leave()
            return ()

        b.branch(nest.operand(condition, 1), lambda: case(True), lambda: case(False))
        return left

    def _ranges(self, nest: Nest, stores: list[Store], start: Value | None, block: int, long: bool, body: Callable[[list[Store]], Callable]) -> None:
        """Write the elements of one unit, the ranges of the innermost axis in which conditions on positions are decided one after the other."""
        axis, lanes = self.columns[0], self._lanes(self.exprs)
        fixed = type(axis.size) is int and axis.size >= SPLIT * lanes and not long
        parts = ranges(walk([s.expr for s in stores]), axis) if fixed else []
        if len(parts) < 2:
            self._vectors(nest, [s.expr for s in stores], axis, start, block, body(stores))
            return
        for low, high, truths in parts:
            decided = assuming(self.group.lowering.table, stores, truths)
            nest.enter({})
            self._range(nest, [s.expr for s in decided], axis, (low, high), start, block, body(decided))
            nest.leave()

    def _range(
        self, nest: Nest, exprs: list[Expr], axis: Axis, part: tuple[int, int], start: Value | None, block: int, body: Callable[[Value | None], None]
    ) -> None:
        """Write what one unit has of a range: whole vectors, each at a multiple of the lanes, and the ends under masks."""
        b, lanes, (low, high) = nest.b, self._lanes(self.exprs), part
        nest.across, nest.lanes = axis, lanes
        nest.hoist(exprs)
        first, stop = -(-low // lanes) * lanes, high // lanes * lanes

        def end(at: int) -> None:
            """Write the vector at `at`, of which the range has a part, in the unit that it is in."""
            mask = lanes_between(low - at, high - at, lanes)

            def write() -> Sequence[Value]:
                nest.enter({axis: b.constant(at, "i64")}, mask)
                body(mask)
                nest.leave()
                return ()

            if start is None:
                write()
            else:
                b.branch(b.compare("lt", b.sub(b.constant(at, "i64"), start), block, unsigned=True), write, ())

        if low < first:
            end(first - lanes)
        if first < stop:
            begin, until = b.constant(first, "i64"), b.constant(stop, "i64")
            if start is not None:
                begin = b.call("llvm.smax.i64", "i64", start, begin)
                until = b.call("llvm.smin.i64", "i64", b.add(start, block), until)
            with b.loop(begin, until, lanes) as loop:
                nest.enter({axis: loop.index})
                body(None)
                nest.leave()
        if first <= stop < high:
            end(stop)
        nest.across, nest.lanes = None, 1

    def _passes(self, nest: Nest, axis: Axis, start: Value | None, block: int) -> bool:
        """Write all passes over one unit but the last, if there are several: each leaves in arrays what later ones read."""
        b = nest.b
        if hint_of(axis.size) < LEAST or (start is None and isinstance(axis.size, Size)):  # arrays have a size that is known here
            return False
        form = inside(axis.atoms)
        parted = passes(self.exprs, axis.atoms)
        for values in parted:
            stores = []
            for expr in values:
                buffer, type = Buffer("pass", len(nest.pointers), expr.dtype), kinds.stored(expr.dtype)
                array = b.alloca(type, block if isinstance(axis.size, Size) else min(axis.size, block) if start is not None else axis.size)
                nest.pointers[buffer] = array if start is None else b.address(array, type, b.neg(start))
                stores.append(Store(buffer, form, expr))
            self._vectors(nest, values, axis, start, block, lambda mask, stores=stores: self._stored(nest, stores))
            nest.cached.update({store.expr: (store.buffer, form) for store in stores})
        return bool(parted)

    def _crossing(self) -> Axis | None:
        """Return the outer axis that a load runs along which crosses the innermost: reading a transposed matrix."""
        for form in (e.data[1] for e in self.exprs if e.op == "load" and not e.data[1].moving):
            if self.columns and abs(hint_of(self.columns[0].step(form))) > 1:
                for axis in self.outer:
                    if known_equal(axis.step(form), 1) and hint_of(axis.size) >= 4:
                        return axis
        return None

    def _body(self, nest: Nest, along: Axis | None, tile: Value, stores: list[Store]) -> Callable[[Value | None], None]:
        """Return what is done at each vector, under a mask: the stores, for every row of the tile where there are tiles."""
        b = nest.b
        if along is None:
            return lambda mask: self._stored(nest, stores)
        first = b.mul(tile, TILE)
        last = b.call("llvm.smin.i64", "i64", b.add(first, TILE), b.constant(along.size, "i64"))

        def rows(mask: Value | None) -> None:
            nest.hoist([s.expr for s in stores])
            with b.loop(first, last) as loop:
                nest.enter({along: loop.index}, mask)
                self._stored(nest, stores)
                nest.leave()

        return rows

    def _vectors(self, nest: Nest, exprs: list[Expr], axis: Axis, start: Value | None, block: int, body: Callable[[Value | None], None]) -> None:
        """Write the elements of one unit: whole vectors, then what is left in one with a mask."""
        b = nest.b
        nest.across, nest.lanes = axis, self._lanes(self.exprs)
        nest.hoist(exprs)
        if type(axis.size) is Size:
            self._counted(nest, axis, start, block, body)
            return
        whole = axis.size - axis.size % nest.lanes
        first, stop = start or b.constant(0, "i64"), b.constant(whole, "i64")
        if start is not None:
            stop = b.call("llvm.smin.i64", "i64", b.add(start, block), stop)
        if whole:
            with b.loop(first, stop, nest.lanes) as loop:
                nest.enter({axis: loop.index})
                body(None)
                nest.leave()

        def rest() -> Sequence[Value]:
            mask = first_lanes(axis.size - whole, nest.lanes)
            nest.enter({axis: b.constant(whole, "i64")}, mask)
            body(mask)
            nest.leave()
            return ()

        if axis.size != whole:
            rest() if start is None else b.branch(b.compare("gt", b.add(start, block), axis.size), rest, ())
        nest.across, nest.lanes = None, 1

    def _counted(self, nest: Nest, axis: Axis, start: Value | None, block: int, body: Callable[[Value | None], None]) -> None:
        """Write the elements of one unit where the number of whole vectors is known when the kernel runs; without a start, it has all of them."""
        b, lanes = nest.b, nest.lanes
        size, whole = b.constant(axis.size, "i64"), b.constant(axis.size // lanes * lanes, "i64")
        end = size if start is None else b.add(start, block)

        def vectors() -> list[Value]:
            with b.loop(b.constant(0, "i64") if start is None else start, b.call("llvm.smin.i64", "i64", end, whole), lanes) as loop:
                nest.enter({axis: loop.index})
                body(None)
                nest.leave()
            return []

        self._streaming(nest, vectors)

        def rest() -> Sequence[Value]:
            mask = lanes_below(b, b.sub(size, whole), lanes)
            nest.enter({axis: whole}, mask)
            body(mask)
            nest.leave()
            return ()

        if lanes > 1:
            b.branch(b.and_(b.compare("gt", size, whole), b.compare("gt", end, whole)), rest, ())
        nest.across, nest.lanes = None, 1
