"""A graph as a list of kernels, in the order in which they run.

A kernel is a loop over the elements of a leading node's shape: `x` counts what is kept, `r` what reductions run over.  Each has members:
nodes that it stores, reductions whose results it knows, and parts of reductions that it leaves in memory for the next kernel, where too
few programs would have too much to add up.  A kernel along rows may sweep: each program goes over several rows, one after the other, and
adds them up column by column on the way, so that the backward of a norm reads its rows once.  No kernel waits for another program, and
none uses atomics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.dtypes import int64
from dovetail_triton_exec.exprs import Buffer, Condition, Expr, Guard, Table
from dovetail_triton_exec.graph import LOW, Graph, Node, product
from dovetail_triton_exec.index import ZERO, Form, Var, linear, plus, regrouped, split, times, whole
from dovetail_triton_exec.lower import OPEN, CannotLower, Coords, Lowering

MOST_MEMBERS = 24
MOST_EXPRESSIONS = 600
DEEPEST = 64  # operations in a row that are computed again rather than read
REACH = 8  # kernels that are asked to take a node in
PROCESSORS = 132  # of an H100 or H200: a constant, so that plans do not depend on the machine
LONGEST_ROW = 32768  # elements of a row up to which one program is left with it
ROW_CHUNK = 4096  # the elements of a long row that one program adds up, at least
COLUMN_CHUNK = 32  # the rows that one program adds up, at least
COLUMN_BLOCK = 64  # the columns that one program adds up
SWEEPERS = 4 * PROCESSORS  # programs of a kernel that sweeps, at most
SWEPT = 4096  # elements of a row that a program holds while it sweeps, at most
MOST_SWEEPS = 4  # sums down the columns in one kernel


class Shape(NamedTuple):
    """What a kernel loops over: a shape, the dims that are reduced, in how many parts, and the order of dims, outermost first."""

    sizes: tuple[int, ...]
    dims: frozenset[int]
    parts: int
    order: tuple[int, ...]


@dataclass
class Store:
    """A value that is written: `form` is where, `guard` when."""

    node: Node
    buffer: Buffer
    value: Expr
    form: Form
    guard: Guard = OPEN


class Sweep(NamedTuple):
    """A sum down the columns, of the rows that one program goes over: what is added up, and where the program's part is stored."""

    value: Expr
    buffer: Buffer
    form: Form


class Kernel:
    """One kernel: its loops, and its members as expressions."""

    def __init__(self, plan: Plan, index: int, shape: Shape):
        self.plan, self.index, self.shape = plan, index, shape
        kept = [d for d in shape.order if d not in shape.dims]
        over = [d for d in shape.order if d in shape.dims]
        rows, columns = product(shape.sizes[d] for d in kept), product(shape.sizes[d] for d in over)
        self.chunk = -(-columns // shape.parts)
        self.x = Var("x", rows * shape.parts)
        self.r = Var("r", self.chunk) if over else None
        x, outer = whole(self.x), None
        if shape.parts > 1:
            outer, x = _halved(x, rows)
        position = plus(times(outer, self.chunk), whole(self.r)) if outer else whole(self.r) if self.r else Form()
        places = dict(zip(kept, split(x, [shape.sizes[d] for d in kept]), strict=True))
        places |= dict(zip(over, split(position, [shape.sizes[d] for d in over]), strict=True))
        self.part = outer
        self.coords: Coords = tuple(places[d] for d in range(len(shape.sizes)))
        self.guard = frozenset({Condition(position, 0, columns)}) if self.chunk * shape.parts != columns else OPEN
        self.lowering = Lowering(self)
        self.results: dict[Node, tuple[Coords, Expr]] = {}
        self.stores: list[Store] = []
        self.sweeps: list[Sweep] = []

    def __repr__(self) -> str:
        stored = ", ".join(f"{s.node!r}" for s in self.stores)
        return f"kernel {self.index} over {list(self.shape.sizes)} reducing {sorted(self.shape.dims)} in {self.shape.parts}: {stored}"

    @property
    def table(self) -> Table:
        return self.lowering.table

    @property
    def share(self) -> int:
        """The rows that one program goes over where it sweeps."""
        return max(-(-self.x.size // SWEEPERS), 4)

    @property
    def roots(self) -> list[Expr]:
        """What it computes to write it, or to add it up."""
        return [s.value for s in self.stores] + [s.value for s in self.sweeps]

    @property
    def shares(self) -> int:
        """How many programs go over rows."""
        return -(-self.x.size // self.share)

    def programs(self, x: int) -> int:
        """Return how many programs there are with `x` rows or elements at a time."""
        return self.shares if self.sweeps else -(-self.x.size // x)

    @property
    def rows(self) -> int:
        """How many results each of its reductions has."""
        return product(n for d, n in enumerate(self.shape.sizes) if d not in self.shape.dims)

    # --- what the lowering asks

    def buffer(self, node: Node) -> Buffer | None:
        """Return the memory of a node that is there before this kernel runs."""
        if self.plan.written.get(node, self.index) >= self.index:
            return None
        return self.plan.memory.get(node)

    def result(self, node: Node, coords: Coords, guard: Guard) -> Expr:
        """Return the result of a reduction of this row, or one that lies in memory."""
        node = self.plan.final(node)
        entry = self.results.get(node)
        if entry is not None:
            if entry[0] != coords:
                raise CannotLower("the result of another row", node)
            return entry[1]
        home = self.plan.home.get(node)
        if home is None or home.index >= self.index:
            raise CannotLower("the reduction is not known yet", node)
        self.plan.keep(node)
        return self.lowering.at(node, coords, guard)

    # --- members

    def admit(self, kind: str, node: Node) -> None:
        """Take in a store, a reduction ("reduce"), or a part of one ("part"); or raise CannotLower and stay as it was."""
        self._room()
        {"store": self._store, "reduce": self._reduce, "part": self._part}[kind](node)

    def _room(self) -> None:
        if len(self.stores) + len(self.results) + len(self.sweeps) >= MOST_MEMBERS or len(self.table.known) > MOST_EXPRESSIONS:
            raise CannotLower("the kernel is large enough")

    def _store(self, node: Node) -> None:
        coords, guard = self._place(node)
        value = self.lowering.at(node, coords, guard)
        self._written(node, value, linear(coords, node.steps), guard)

    def keep_result(self, node: Node) -> None:
        """Store the result of one of its reductions."""
        kept, value = self.results[node]
        self._written(node, value, linear(kept, node.steps))

    def _written(self, node: Node, value: Expr, form: Form, guard: Guard = OPEN) -> None:
        buffer = self.plan.outputs.get(node) or Buffer("tmp", len(self.plan.temporaries), node.kept)
        if self.shape.parts > 1 and value.level and node.op != "part":
            raise CannotLower("the sums are known only when all parts are done")
        self.stores.append(Store(node, buffer, value, form, guard))
        self.plan.remember(node, buffer, self)

    def _place(self, node: Node) -> tuple[Coords, Guard]:
        """Return the coordinates of a node's elements: one for each step of the loops, or one for each row."""
        sizes = self.shape.sizes
        if node.numel == product(sizes) and (node.numel != self.rows or not self.shape.dims):
            return regrouped(self.coords, sizes, node.shape), self.guard
        kept = [d for d in range(len(sizes)) if d not in self.shape.dims]
        if node.numel != self.rows or self.shape.parts > 1:
            raise CannotLower("another number of elements")
        return regrouped([self.coords[d] for d in kept], [sizes[d] for d in kept], node.shape), OPEN

    def _body(self, node: Node) -> tuple[Expr, Coords]:
        """Return what a reduction runs over, and the coordinates of its result."""
        x, dims, sizes = node.args[0], node.params["dims"], self.shape.sizes
        if x.numel != product(sizes) or not self.shape.dims:
            raise CannotLower("another domain")
        coords = regrouped(self.coords, sizes, x.shape)
        kept = tuple(coords[d] for d in range(len(x.shape)) if d not in dims)
        inside, outside = (frozenset().union(*(c.vars() for c in cs)) for cs in ([coords[d] for d in dims], kept))
        if self.shape.parts > 1:
            if x.shape != sizes or frozenset(dims) != self.shape.dims:
                raise CannotLower("other parts")
        elif not inside <= {self.r} or self.r in outside or product(n for d, n in enumerate(x.shape) if d not in dims) != self.rows:
            raise CannotLower("other rows")
        return self.lowering.at(x, coords, self.guard), kept

    def _reduce(self, node: Node) -> None:
        if self.shape.parts > 1:
            raise CannotLower("the kernel reduces parts")
        body, kept = self._body(node)
        place = None
        if node.op in ("argmax", "argmin"):
            x, dims = node.args[0], node.params["dims"]
            coords = regrouped(self.coords, self.shape.sizes, x.shape)
            place = linear([coords[d] for d in dims], _steps([x.shape[d] for d in dims]))
            if place != whole(self.r):
                raise CannotLower("another order of elements")
        expr = self.table.make(f"reduce_{node.op}", (body,), int64 if place else body.dtype, None, drop=self.r)
        if node.rounds:
            expr = self.table.make("narrow", (expr,), expr.dtype, node.dtype.name)
        self.results[node] = (kept, expr)

    def _part(self, node: Node) -> None:
        """Reduce each part, and store the results as rows of a temporary."""
        body, kept = self._body(node.params["of"])
        expr = self.table.make(f"reduce_{node.params['of'].op}", (body,), body.dtype, None, drop=self.r)
        self._written(node, expr, linear((self.part, *kept), node.steps))

    def sweep(self, node: Node) -> Node:
        """Take in a sum across its rows, of those that each program goes over; gives the parts, or raises CannotLower and stays as it was."""
        self._room()
        body, kept = self._across(node)
        parts = self.plan.parts_of(node, self.shares)
        buffer = Buffer("tmp", len(self.plan.temporaries), parts.kept)
        self.sweeps.append(Sweep(body, buffer, linear((ZERO, *kept), parts.steps)))
        self.plan.remember(parts, buffer, self)
        return parts

    def _across(self, node: Node) -> tuple[Expr, Coords]:
        """Return what a sum across the rows runs over, and the coordinates of its result, in a program that goes over rows."""
        x, sizes = node.args[0], self.shape.sizes
        down = frozenset(d for d, n in enumerate(sizes) if n > 1 and d not in node.params["dims"])
        if not down or x.shape != sizes or down != frozenset(d for d in self.shape.dims if sizes[d] > 1):
            raise CannotLower("other columns")
        if self.shape.parts > 1 or node.op != "sum" or len(self.sweeps) == MOST_SWEEPS or self.r.size > SWEPT or self.shares < 2:
            raise CannotLower("rows that are held while others are read")
        return self.lowering.at(x, self.coords), tuple(c for d, c in enumerate(self.coords) if d not in node.params["dims"])


def _halved(x: Form, rows: int) -> tuple[Form, Form]:
    """Return the part and the row that a program counts."""
    (digit, _) = x.terms[0]
    size = digit.size // rows
    parts, inner = split(x, (size, rows))
    return parts, inner


def _steps(sizes: Sequence[int]) -> list[int]:
    steps, step = [], 1
    for n in reversed(sizes):
        steps.append(step)
        step *= n
    return steps[::-1]


class Plan:
    """The kernels of a graph and the memory between them; `stored` are the nodes that have to lie in memory in the end."""

    def __init__(self, graph: Graph, stored: Sequence[Node]):
        self.graph, self.stored = graph, list(dict.fromkeys(stored))
        self.kernels: list[Kernel] = []
        self.memory: dict[Node, Buffer] = {node: Buffer("in", i, node.dtype) for i, node in enumerate(graph.inputs)}
        self.written: dict[Node, int] = dict.fromkeys(graph.inputs, -1)
        self.home: dict[Node, Kernel] = {}
        self.temporaries: list[Node] = []
        self.outputs = {node: Buffer("out", i, node.dtype) for i, node in enumerate(self.stored)}
        self.finals: dict[Node, Node] = {}
        depths: dict[Node, int] = {}
        later: list[Node] = []
        for node in self._live():
            depths[node] = 0 if node in self.memory else 1 + max([depths.get(n, 0) for n in node.nodes], default=0)
            if node.reduces:
                depths[node] = 0
                if _down(node.args[0], node.params["dims"]):
                    later.append(node)  # after those along rows, so that one kernel does them all
                else:
                    self._place_reduction(node)
            elif depths[node] > DEEPEST and not node.is_view:
                self.keep(node)
                depths[node] = 0
        for node in later:
            if self.final(node) not in self.home:
                self._place_reduction(node)
        for node in self.stored:
            self.keep(node)

    def final(self, node: Node) -> Node:
        """Return the reduction that gives what `node` promises: itself, or the one over its parts."""
        return self.finals.get(node, node)

    def remember(self, node: Node, buffer: Buffer, home: Kernel) -> None:
        """Note that `node` lies in `buffer` when `home` has run."""
        self.memory[node], self.written[node], self.home[node] = buffer, home.index, home
        if buffer.kind == "tmp":
            self.temporaries.append(node)

    def keep(self, node: Node) -> None:
        """Have `node` stored, in the kernel that computes it or one that can."""
        if node.reduces and self.final(node) not in self.home:
            self._place_reduction(node)
        final = self.final(node)
        if final is not node:  # the parts' reduction takes the place of its result
            self.keep(final)
            self.memory[node], self.written[node] = self.memory[final], self.written[final]
            return
        if node in self.memory:
            return
        home = self.home.get(node)
        if home is not None:
            home.keep_result(node)
        else:
            self._placed("store", node, node, frozenset(), 1)

    def _live(self) -> list[Node]:
        """Return what the stored nodes need, in order."""
        needed: set[Node] = set()
        stack = list(self.stored)
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack += node.nodes
        return [n for n in self.graph.nodes if n in needed]

    def _place_reduction(self, node: Node) -> None:
        x, dims = node.args[0], frozenset(node.params["dims"])
        parts = _parts(x, dims) if node.op not in ("argmax", "argmin") else 1
        if parts > 1:
            partial = self._left(node, parts)
            final = self.graph.make(node.op, (partial,), partial.shape[1:], node.dtype, dims=(0,))
            final.rounds, final.exact = node.rounds, node.exact
            self.finals[node] = final
            if node in self.outputs:
                self.outputs[final] = self.outputs[node]
            x, dims, node = partial, frozenset({0}), final
        self.home[node] = self._placed("reduce", node, x, dims, 1)

    def _left(self, node: Node, parts: int) -> Node:
        """Return the parts of a reduction, left by a kernel that goes over the same rows, else by one for them."""
        for kernel in self.kernels[-REACH:]:
            if kernel.r is not None:
                try:
                    return kernel.sweep(node)
                except CannotLower:
                    continue
        partial = self.parts_of(node, parts)
        self._placed("part", partial, node.args[0], frozenset(node.params["dims"]), parts)
        return partial

    def parts_of(self, node: Node, parts: int) -> Node:
        """Return what a reduction leaves where it is done in parts, in float32 at least."""
        kept = tuple(n for d, n in enumerate(node.args[0].shape) if d not in node.params["dims"])
        partial = self.graph.make("part", node.args, (parts, *kept), node.dtype, of=node)
        partial.rounds, partial.exact = False, node.dtype not in LOW
        return partial

    def _placed(self, kind: str, node: Node, leader: Node, dims: frozenset[int], parts: int) -> Kernel:
        """Return the first of the last kernels that takes `node`, or a new one, after what it needs is in memory."""
        for kernel in self.kernels[-REACH:]:
            if kernel.shape.parts == parts or kind == "store":
                try:
                    kernel.admit(kind, node)
                    return kernel
                except CannotLower:
                    continue
        while True:
            kernel = Kernel(self, len(self.kernels), _shape(leader, dims, parts, node.op))
            try:
                self.kernels.append(kernel)
                kernel.admit(kind, node)
                return kernel
            except CannotLower as cut:
                self.kernels.remove(kernel)
                if cut.node is None or cut.node in self.memory:
                    raise
                self.keep(cut.node)


def _order(x: Node) -> tuple[int, ...]:
    """Return the dims of a node, the one with the longest steps first."""
    steps = x.steps
    return tuple(sorted(range(len(x.shape)), key=lambda d: (-steps[d] if x.shape[d] > 1 else 0, d)))


def _shape(x: Node, dims: frozenset[int], parts: int, op: str) -> Shape:
    """Return the loops over x: sizes of 1 are no loops, and dims are in the order of memory where that is not a question of which comes first."""
    order = tuple(range(len(x.shape))) if op in ("argmax", "argmin") else _order(x)
    return Shape(x.shape, dims, parts, order)


def _down(x: Node, dims: Iterable[int]) -> bool:
    """Return whether a reduction runs down columns: what it adds up does not lie side by side."""
    loops = [d for d in _order(x) if x.shape[d] > 1]
    return bool(loops) and loops[-1] not in dims


def _parts(x: Node, dims: frozenset[int]) -> int:
    """Choose into how many parts a reduction is split, so that there is work for all processors."""
    columns = product(x.shape[d] for d in dims)
    rows = x.numel // columns
    if not _down(x, dims):
        most = min(columns // ROW_CHUNK, 2 * PROCESSORS // max(rows, 1)) if columns > LONGEST_ROW else 1
    else:
        most = min(columns // COLUMN_CHUNK, 2 * PROCESSORS // -(-rows // COLUMN_BLOCK))
    if most < 2:
        return 1
    return next((n for n in range(most, most // 2, -1) if columns % n == 0), most)
