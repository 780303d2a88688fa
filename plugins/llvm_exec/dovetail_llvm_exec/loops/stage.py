"""What the functions of one loop nest have in common.

A function does the units lo <= u < hi of its work, so that threads can share it; every unit is computed in one order whoever does it, and
what units give together is put together by a function of its own, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from dovetail.dtypes import DType
from dovetail.extend.advanced import ExecutorError
from dovetail.prims.sizes import Size, hint_of, is_symbolic
from dovetail_llvm_exec.ir.module import Builder, Module
from dovetail_llvm_exec.ir.values import Value, constant_mask, vector
from dovetail_llvm_exec.loops.axes import Axis, merged
from dovetail_llvm_exec.loops.nest import Access, Nest
from dovetail_llvm_exec.loops.row_cache import Store, release_rows
from dovetail_llvm_exec.region.exprs import Buffer, Expr, forms_of, walk
from dovetail_llvm_exec.region.forms import Atom, dot, known_equal
from dovetail_llvm_exec.region.groups import ENOUGH, PARTS, STREAMED, Group, Item

LINE = 64  # bytes of a line of the cache, at which everything in a workspace starts


class Cost(NamedTuple):
    """Nanoseconds, by estimate: `each` of so many `elements`, which may be a size."""

    each: float
    elements: int

    @property
    def now(self) -> float:
        """The cost where sizes are as in the call that is compiled."""
        return self.each * hint_of(self.elements)


class Phase(NamedTuple):
    """A function and how much there is to do: `units`, and the nanoseconds of all of them.

    `reads` and `writes` are what its code does to memory, `split` the loop variables that tell units apart, and each unit has a part of
    its own of the buffers in `own`.
    """

    name: str
    units: int
    cost: Cost
    reads: frozenset[Access] = frozenset()
    writes: frozenset[Access] = frozenset()
    split: frozenset[Atom] = frozenset()
    own: frozenset[Buffer] = frozenset()


class Room(NamedTuple):
    """Bytes `low` to `high` of a workspace, which `buffer` uses from the loop nest `first` to the loop nest `last`."""

    buffer: Buffer

    low: int
    high: int
    first: int
    last: int


class Workspace:
    """Memory that a call needs for itself, `size` bytes; what is not in use at the same time may lie in the same place."""

    def __init__(self) -> None:
        self.size = 0
        self.offsets: dict[Buffer, int] = {}
        self.rooms: list[Room] = []
        self.numbers = count()  # of the buffers without a name

    def take(self, buffer: Buffer, numel: int, first: int, last: int) -> Buffer:
        """Reserve room for `numel` elements, as low as it is free from the loop nest `first` to the loop nest `last`."""
        if buffer in self.offsets:
            raise ExecutorError(f"{buffer} has a place in the workspace already; two values of a kernel have one name, which is a bug in its plan")
        size, at = -(-numel * buffer.dtype.bytes // LINE) * LINE, 0
        if type(size) is Size or type(self.size) is Size:
            return self._take_sized(buffer, size, first, last)
        for low, high in sorted((r.low, r.high) for r in self.rooms if r.first <= last and first <= r.last):
            if at + size <= low:
                break
            at = max(at, high)
        self.rooms.append(Room(buffer, at, at + size, first, last))
        self.offsets[buffer] = at
        self.size = max(self.size, at + size)
        return buffer

    def _take_sized(self, buffer: Buffer, size: int, first: int, last: int) -> Buffer:
        """Reserve room where a value of the very size lay, and none in use at the time does; else behind all others."""
        places = [room.low for room in self.rooms if type(size) is Size and known_equal(room.high - room.low, size)]
        for at in places:
            if all(r.last < first or last < r.first for r in self.rooms if known_equal(r.low, at)):
                break
        else:
            at, self.size = self.size, self.size + size
        self.rooms.append(Room(buffer, at, at + size, first, last))
        self.offsets[buffer] = at
        return buffer

    def part(self, dtype: DType, numel: int, nest: int) -> Buffer:
        """Reserve room without a name, while the loop nest `nest` runs."""
        return self.take(Buffer("part", next(self.numbers), dtype), numel, nest, nest)


class Stage:
    """One group as functions of a module, which `write` writes; `phases` says in which order they run."""

    def __init__(self, module: Module, name: str, group: Group, workspace: Workspace, inputs: int):
        self.module, self.name, self.group, self.workspace, self.inputs = module, name, group, workspace, inputs
        self.phases: list[Phase] = []
        self.results: list[Item] = [i for i in group.items if i.kind == "result"]
        self.stores = [Store(group.plan.memory[i.node], dot(i.coords, i.node.steps), i.expr) for i in group.items if i.kind == "store"]
        self.tallied = [i for i in group.items if i.kind == "tally"]
        self._axes()
        bodies = [item.expr.data.body for item in self.results]
        self.exprs = walk([*bodies, *(s.expr for s in self.stores), *(i.expr for i in self.tallied)])
        self.cost = Cost(sum(e.cost for e in self.exprs), group.numel)

    # --- loops

    def _axes(self) -> None:
        group = self.group
        atoms = [[a for d in group.order if d in dims for a in group.cells[d]] for dims in self._dimensions()]
        forms = [s.form for s in self.stores] + [dot(i.coords, i.node.steps) for i in self.tallied]
        bodies = [item.expr.data.body for item in self.results] + [s.expr for s in self.stores] + [i.expr for i in self.tallied]
        bodies += [item.expr.data.place for item in self.results if item.expr.data.place is not None]
        forms += [form for e in walk(bodies) for form in forms_of(e.op, e.data)]
        if not self.results and not self.tallied:
            axes = merged([a for part in atoms for a in part], forms)
            self.outer, self.down, self.columns = axes[:-1], [], axes[-1:]
            return
        outer, down, columns = atoms
        fixed = not is_symbolic(group.shape)
        if fixed and not self.results and columns and columns[-1].size >= PARTS[-1] and size_of(outer) < ENOUGH:
            outer, columns = outer + columns[:-1], columns[-1:]
        self.outer, self.down, self.columns = (merged(part, forms) for part in (outer, down, columns))

    def _dimensions(self) -> tuple[set[int], set[int], set[int]]:
        """Return the dimensions that units count, those that are added up, those of the columns."""
        group = self.group
        rows = set(range(len(group.shape))) - group.columns
        return rows - group.down, rows & group.down, group.columns

    def _lanes(self, exprs: Sequence[Expr]) -> int:
        """Return how many columns are computed at once: as many as the widest numbers fill a vector, and no more than there are."""
        inner = set(self.columns[-1].atoms) if self.columns else set()
        moving = [e for e in exprs if e.op not in ("index", "const", "row") and not e.atoms.isdisjoint(inner)]
        widest = max([e.dtype.bytes if e.dtype.kind != "float" else max(e.dtype.bytes, 4) for e in moving], default=4)
        lanes = max(self.module.target.vector_bytes // widest, 1)
        columns = self.columns[-1].size if self.columns else 1
        while type(columns) is int and lanes > 1 and lanes // 2 >= columns:
            lanes //= 2
        return lanes

    def _function(self, suffix: str, exprs: Sequence[Expr], buffers: set[Buffer]) -> tuple[Builder, Nest]:
        """Return the head of a function of (args, lo, hi): where everything lies."""
        b = self.module.function(f"{self.name}_{suffix}", "void", [("args", "ptr"), ("lo", "i64"), ("hi", "i64")], linkage="internal ")
        pointers: dict[Buffer, Value] = {}
        for buffer in sorted(buffers | {e.data[0] for e in exprs if e.op == "load"}, key=lambda x: x[:2]):
            pointers[buffer] = self._address(b, buffer)
        nest = Nest(b, pointers, [*self.outer, *self.down, *self.columns])
        nest.streamed = self.group.plan.streamed & buffers
        b.store(b.constant(0, "i64"), nest.slot("fault"))
        return b, nest

    def _address(self, b: Builder, buffer: Buffer) -> Value:
        if buffer.kind in ("in", "out"):
            number = 2 + buffer.number + (self.inputs if buffer.kind == "out" else 0)
            return b.load("ptr", b.address(b.params[0], "i64", number), align=8)
        return b.address(b.load("ptr", b.address(b.params[0], "i64", 1), align=8), "i8", self.workspace.offsets[buffer])

    def _finish(self, b: Builder, nest: Nest, units: int, cost: Cost, axes: Sequence[Axis], own: Iterable[Buffer] = ()) -> None:
        """Say in the status what went wrong, and return: a phase, of units that differ in their place along `axes`."""
        fault = b.load("i32", nest.slot("fault"))

        def tell() -> Sequence[Value]:
            b.store(b.cast("zext", fault, "i64"), b.params[0])
            return ()

        b.branch(b.compare("ne", fault, 0), tell, ())
        release_rows(nest)
        if nest.streamed:
            b.line("fence seq_cst")
        b.ret()
        split = frozenset(a for axis in axes for a in axis.atoms)
        self.phases.append(Phase(b.name, units, cost, frozenset(nest.reads), frozenset(nest.writes), split, frozenset(own)))

    def _decoded(self, b: Builder, unit: Value, axes: Sequence[Axis]) -> dict[Axis, Value]:
        """Return the index of each axis from a row-major number."""
        indices: dict[Axis, Value] = {}
        for axis in reversed(axes[1:]):
            unit, indices[axis] = b.split_unit(unit, axis.size)
        return indices | dict.fromkeys(axes[:1], unit)

    def _part(self, b: Builder, unit: Value, parts: int) -> tuple[Value, Value]:
        """Return a number as those of a whole and of one of its parts."""
        return (unit, b.constant(0, "i64")) if type(parts) is int and parts == 1 else b.split_unit(unit, parts)

    def _streaming(self, nest: Nest, write: Callable[[], list[Value]]) -> list[Value]:
        """Return what `write` returns, a loop over whole vectors: where sizes allow it when the kernel runs, it stores past the caches."""
        fits = self._may_stream(nest)
        if fits is None:
            return write()

        def streamed() -> list[Value]:
            nest.aligned = True
            results = write()
            nest.aligned = False
            return results

        return list(nest.b.branch(fits, streamed, write))

    def _may_stream(self, nest: Nest) -> Value | None:
        """Return whether vectors of the streamed buffers never straddle lines of the cache, and there is much of them; None where they do anyway."""
        b, stores = nest.b, [store for store in self.stores if store.buffer in nest.streamed]
        fits: Value | None = None
        for store in stores:
            steps = [store.form.const, *[step for atom, step in store.form.terms if atom not in nest.across.atoms]]
            if store.form.moving or any(type(n) is int and n % nest.lanes for n in steps):
                return None
            sizes = [b.compare("eq", b.constant(n % nest.lanes, "i64"), 0) for n in steps if type(n) is Size]
            many = b.compare("ge", b.constant(self.group.numel, "i64"), STREAMED // store.buffer.dtype.bytes)
            for test in (many, *sizes):
                fits = test if fits is None else b.and_(fits, test)
        return fits

    def _stored(self, nest: Nest, stores: Sequence[Store]) -> None:
        values = [(s, nest.to_memory(nest.operand(s.expr, nest.lanes), s.buffer.dtype)) for s in stores]
        for store, value in values:
            nest.put(store.buffer, store.form, value)


def size_of(axes: Sequence[Axis | Atom]) -> int:
    total = 1
    for axis in axes:
        total *= axis.size
    return total


def lanes_below(b: Builder, left: Value, lanes: int) -> Value:
    """Return a mask of the lanes whose number is below `left`."""
    type = vector("i64", lanes)
    return b.compare("lt", b.lane_numbers(type), b.splat(left, lanes))


def first_lanes(count: int, lanes: int) -> Value:
    """Return a mask of the first lanes."""
    return lanes_between(0, count, lanes)


def lanes_between(low: int, high: int, lanes: int) -> Value:
    """Return a mask of the lanes from `low` to below `high`."""
    return constant_mask(low <= i < high for i in range(lanes))
