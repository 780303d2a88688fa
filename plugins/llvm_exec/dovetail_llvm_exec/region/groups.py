"""Loop nests: a domain, what is reduced over its columns or down its rows, and what is stored; and how nodes are given to them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from dovetail.prims.sizes import Size, hint_of, is_symbolic
from dovetail_llvm_exec.region.exprs import Buffer, Expr, Table
from dovetail_llvm_exec.region.forms import Atom, CannotLower, Form, Refine, flat, known_equal, plus, regrouped, times
from dovetail_llvm_exec.region.graph import Graph, Node
from dovetail_llvm_exec.region.layouts import align
from dovetail_llvm_exec.region.lower import Coords, Lowering
from dovetail_llvm_exec.region.repeats import in_turns, repeated

DEEPEST = 90  # operations in one expression, after which a value is stored
REACH = 4  # how many groups back a node may still join
MOST_ITEMS = 12  # of one loop nest
MOST_EXPRESSIONS = 500
APART = 1 << 14  # elements from which a loop nest does not store what reads other tensors than it does
ENOUGH = 16  # units that keep threads busy
PARTS = (4096, 3072, 2048, 1536, 1024, 768, 512)  # columns that rows which are added up may be parted by
STREAMED = 16 << 20  # bytes of an output that nothing would find in a cache
FEW, LONG = 4, 1 << 17  # rows, and columns, of which a loop nest is wide


class Result:
    """A reduction over the columns of a row: `body` for each of them; `place` is its position, where that is what is looked for."""

    def __init__(self, table: Table, node: Node, body: Expr, row_atoms: frozenset[Atom], place: Expr | None):
        self.node, self.body, self.row_atoms, self.place = node, body, row_atoms, place
        self._expr = weakref.ref(table.make("row", (), node.dtype, self))  # which holds this

    @property
    def expr(self) -> Expr:
        """What stands for it in other expressions, as long as their table is there."""
        return self._expr()


@dataclass
class Item:
    """A part of a loop nest's work.

    kind "store": `expr` goes to `node`'s memory at `coords`; "result": a reduction over the columns, whose expression it is;
    "tally": a reduction down the rows, `expr` is added up in memory at `coords`.
    """

    kind: str
    node: Node
    expr: Expr
    coords: Coords


class Group:
    """One loop nest: rows (the outer loops) and columns (the inner ones) of a domain."""

    def __init__(self, plan: Plan, index: int, leader: Node):
        self.plan, self.index = weakref.proxy(plan), index  # neither holds the other, which only the garbage collector could undo
        dims = [d for d, n in enumerate(leader.shape) if n != 1]
        self.shape = tuple(leader.shape[d] for d in dims)
        self.order = sorted(range(len(dims)), key=lambda i: (-hint_of(leader.steps[dims[i]]), i))  # the dimension with the longest steps first
        self.numbers = count()
        self.cells = [[Atom(next(self.numbers), n)] for n in self.shape]
        self.columns: set[int] = set(self.order[-1:])  # dimensions of the inner loops
        self.down: set[int] = set()  # of the rows, those that are reduced
        self.wanted: list[tuple[str, Node]] = []
        self.sources: set[Node] = set()  # what it computes, and the tensors that it reads for it
        self._restart()

    def _restart(self) -> None:
        self.lowering = Lowering(weakref.proxy(self))
        self.items: list[Item] = []
        self.results: dict[Node, tuple[Coords, Expr]] = {}

    # --- what the lowering asks

    def buffer(self, node: Node) -> Buffer | None:
        """Return the memory of a node that is there before this loop nest runs."""
        if self.plan.written.get(node, -2) >= self.index:
            return None
        return self.plan.memory.get(node)

    def check(self, node: Node, coords: Coords) -> None:
        """Refuse to compute windows of what is kept for them: a later loop nest reads them."""
        if node in self.plan.graph.kept and not known_equal(coords, self.coordinates(node.shape)):
            raise CannotLower("windows are read once what they show is stored")

    def result(self, node: Node, coords: Coords, mask: Expr | None) -> Expr:
        """Return the result of a reduction of this row."""
        entry = self.results.get(node)
        if entry is not None:
            if not known_equal(entry[0], coords):
                raise CannotLower("a result of another row")
            return entry[1]
        home = self.plan.home.get(node)
        if home is None or home.index >= self.index:
            raise CannotLower("the reduction is not known yet")
        self.plan.keep(node)
        return self.lowering.at(node, coords, mask)

    # --- members

    @property
    def numel(self) -> int:
        """How many elements the domain has."""
        return _product(self.shape)

    @property
    def wide(self) -> bool:
        """Whether rows are few and long: each is reduced by many units, so that their results are known only when all are done."""
        across = _product([self.shape[d] for d in self.columns])
        if type(across) is Size or type(self.numel) is Size:
            return False
        few = self.numel <= FEW * across and across >= LONG and not self.down
        return few and bool(self.columns) and self.results != {} and all(n.op not in ("argmax", "argmin") for n in self.results)

    @property
    def full(self) -> bool:
        """Whether it does enough for one loop nest."""
        if any(node in self.plan.copies for _, node in self.wanted):
            return True
        return len(self.wanted) >= MOST_ITEMS or len(self.lowering.table.known) > MOST_EXPRESSIONS

    def stranger(self, sources: set[Node]) -> bool:
        """Return whether what is computed from `sources` is better done by a loop nest of its own: memory is read in fewer places at a time."""
        return hint_of(self.numel) >= APART and bool(sources) and bool(self.sources) and self.sources.isdisjoint(sources)

    def admit(self, kind: str, node: Node) -> None:
        """Take `node` in, or raise CannotLower and stay as it was."""
        before = self.columns, self.down, [list(cell) for cell in self.cells], list(self.wanted)
        try:
            if kind != "store":
                self._shape_for(kind, node)
            self.wanted.append((kind, node))
            self._lower_all(len(self.items))
            if self.wide and not self._reducible():
                raise CannotLower("the row is long, and its sums are known only at the end")
        except CannotLower:
            moved = self.columns is not before[0] or self.down is not before[1] or self.cells != before[2]
            self.columns, self.down, self.cells, self.wanted = before
            if moved:
                self._restart()
            else:
                del self.items[len(self.wanted) :]
                self.results.pop(node, None) if kind == "result" else None
            self._lower_all(len(self.items))
            raise

    def _reducible(self) -> bool:
        """Return whether nothing in a wide loop nest waits for its results."""
        own = set(self.results)
        return all(
            not item.expr.row_results
            or (item.kind == "store" and item.node in own)
            or (item.kind == "result" and not item.expr.data.body.row_results)
            for item in self.items
        )

    def _lower_all(self, start: int) -> None:
        while True:
            try:
                for kind, node in self.wanted[start:]:
                    self.items.append(self._lowered(kind, node))
                return
            except Refine as refine:
                self._split(refine)
                self._restart()
                start = 0

    def _split(self, refine: Refine) -> None:
        self.cells = [list(cell) for cell in self.cells]
        for cell in self.cells:
            if refine.atom in cell:
                at = cell.index(refine.atom)
                cell[at : at + 1] = [Atom(next(self.numbers), refine.atom.size // refine.inner), Atom(next(self.numbers), refine.inner)]
                return
        raise CannotLower("the position is that of another loop nest")

    def _stores_only(self) -> bool:
        return all(kind == "store" for kind, _ in self.wanted)

    def _shape_for(self, kind: str, node: Node) -> None:
        """Make the columns what a reduction wants, where nothing stands against it."""
        x, dims = node.args[0], node.params["dims"]
        kept = [d for d, n in enumerate(x.shape) if n != 1]
        if not known_equal(tuple(x.shape[d] for d in kept), self.shape):
            raise CannotLower("another domain")
        over = {i for i, d in enumerate(kept) if d in dims}
        free = self._stores_only()
        if kind == "tally":
            last = max(self.order.index(d) for d in over)
            columns = {d for d in range(len(self.shape)) if d not in over and self.order.index(d) > last} if free else self.columns
            if not over.isdisjoint(columns) or (self.down and self.down != over):
                raise CannotLower("the rows are not what is reduced")
            self.down = over
        else:
            columns = over
            if not over.isdisjoint(self.down):
                raise CannotLower("the columns are rows that are added up")
        if columns != self.columns:
            if not free:
                raise CannotLower("other columns")
            self.columns = columns
            self._restart()
            self._lower_all(0)

    def spread(self) -> None:
        """Split the columns into two loops where few long rows are added up, so that parts of them can be units."""
        rows = set(range(len(self.shape))) - self.columns - self.down
        if is_symbolic(self.shape) or not self.down or self.results or not self.columns or _product([self.shape[d] for d in rows]) >= ENOUGH:
            return
        atom = self.cells[max(self.columns, key=self.order.index)][-1]
        inner = next((n for n in PARTS if atom.size > n and atom.size % n == 0), None)
        if inner is not None:
            self._split(Refine(atom, inner))
            self._restart()
            self._lower_all(0)

    # --- coordinates

    def form(self, dim: int) -> Form:
        """Return the coordinate of the domain in one of its dimensions."""
        step, parts = 1, []
        for atom in reversed(self.cells[dim]):
            parts.append(times(Form(0, ((atom, 1),)), step))
            step *= atom.size
        return plus(*parts)

    def atoms(self, dims: Sequence[int] | set[int]) -> frozenset[Atom]:
        """Return the loop variables of some dimensions."""
        return frozenset(a for d in dims for a in self.cells[d])

    def coordinates(self, shape: tuple[int, ...]) -> Coords:
        """Return the coordinates in a tensor of `shape`: that of the domain, or of its rows."""
        dims = list(range(len(self.shape)))
        if not known_equal(_product(shape), _product(self.shape)):
            dims = [d for d in dims if d not in self.columns]
            if not known_equal(_product(shape), _product([self.shape[d] for d in dims])):
                raise CannotLower("another number of elements")
            if self._stores_only() and any(len(self.cells[d]) > 1 for d in self.columns):
                raise CannotLower("units are parts of rows, and each would store what there is once for a row")
        return regrouped([self.form(d) for d in dims], [self.shape[d] for d in dims], shape)

    def _lowered(self, kind: str, node: Node) -> Item:
        if kind == "store":
            coords = self.coordinates(node.shape)
            return Item(kind, node, self.lowering.at(node, coords), coords)
        x, dims = node.args[0], node.params["dims"]
        inside = regrouped([self.form(d) for d in range(len(self.shape))], self.shape, x.shape)
        kept = tuple(inside[d] for d in range(len(x.shape)) if d not in dims)
        body = self.lowering.at(x, inside)
        if kind == "tally":
            return Item(kind, node, body, kept)
        rows = self.atoms([d for d in range(len(self.shape)) if d not in self.columns])
        place = None
        if node.op in ("argmax", "argmin"):
            place = self.lowering.table.index(flat([inside[d] for d in dims], [x.shape[d] for d in dims]))
        result = Result(self.lowering.table, node, body, rows, place)
        self.results[node] = (kept, result.expr)
        return Item(kind, node, result.expr, kept)


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


class Plan:
    """The loop nests of a graph, in the order in which they run, and the memory between them.

    `stored` are the nodes that have to lie in memory in the end; `temporaries` those that the loop nests keep for one another, `copies` those
    of them that have a loop nest each; `streamed` the outputs that are written past the caches.
    """

    def __init__(self, graph: Graph, stored: Sequence[Node]):
        self.graph, self.stored = graph, list(dict.fromkeys(stored))
        self.copies = align(graph) | in_turns(graph.nodes)
        self.groups: list[Group] = []
        self.memory: dict[Node, Buffer] = {node: Buffer("in", i, node.dtype) for i, node in enumerate(graph.inputs)}
        self.written: dict[Node, int] = dict.fromkeys(graph.inputs, -1)
        self.home: dict[Node, Group] = {}
        self.temporaries: list[Node] = []
        self.numbers = count()  # of temporaries: no two have the same
        self.streamed: frozenset[Buffer] = frozenset()
        self.outputs = {node: Buffer("out", i, node.dtype) for i, node in enumerate(self.stored)}
        live = self._live()
        wanted, depths = {*self.stored, *graph.kept, *repeated(live, {*self.memory, *graph.kept})}, dict[Node, int]()
        for node in live:
            if node.reduces:
                self._place_reduction(node)
            depths[node] = 0 if node in self.memory else 1 + max([depths[n] for n in node.nodes], default=0)
            if node in wanted or node in self.copies or node.op == "unrolled" or depths[node] > DEEPEST:
                self.keep(node.base)
                depths[node] = 0
        for group in self.groups:
            group.spread()
        self._forget_unread()

    def _forget_unread(self) -> None:
        """Leave out what was to be stored for later loop nests, and is computed by the one that uses it."""
        read = self.last_reads()
        for node in [n for n in self.temporaries if self.memory[n] not in read]:
            home = self.home[node]
            kept = [i for i in home.items if i.node is not node or i.kind != "store"]
            if len(kept) < len(home.items):
                home.items = kept
                self.temporaries.remove(node)

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

    def stream(self, *, symbolic: bool = False) -> None:
        """Write large outputs past the caches, those that no loop nest reads; where sizes are symbols, such as may be large, or all if `symbolic`."""
        least = {True: 0 if symbolic else STREAMED // 4, False: STREAMED}
        large = {self.memory[n] for n in self.stored if not n.reduces and hint_of(n.numel) * n.dtype.bytes >= least[is_symbolic(n.shape)]}
        if large:
            self.streamed = frozenset(large - self.last_reads().keys())

    def last_reads(self) -> dict[Buffer, int]:
        """Return what loop nests read, and the last that does."""
        return {e.data[0]: g.index for g in self.groups for e in g.lowering.table.known.values() if e.op == "load"}

    def keep(self, node: Node) -> None:
        """Have `node` stored, in the loop nest that computes it or one that can."""
        if node in self.memory:
            return
        home = self.home.get(node)
        if home is None:
            home = self._placed("store", node, node)
        elif not any(item.kind == "tally" and item.node is node for item in home.items):
            home.admit("store", node)
        self._remember(node, home)

    def _remember(self, node: Node, home: Group) -> None:
        """Name the memory of a node that `home` stores: only now, since placing it may have kept other nodes, which have names of their own."""
        buffer = self.outputs.get(node)
        if buffer is None:
            buffer = Buffer("temp", next(self.numbers), node.dtype)
            self.temporaries.append(node)
        self.memory[node], self.written[node], self.home[node] = buffer, home.index, home

    def _place_reduction(self, node: Node) -> None:
        x = node.args[0]
        trial = Group(self, -1, x)
        kept = [d for d, n in enumerate(x.shape) if n != 1]
        over = {i for i, d in enumerate(kept) if d in node.params["dims"]}
        kind = "result" if trial.order[-1] in over else "tally"
        if node.op in ("argmax", "argmin"):
            kind = "result"
        home = self._placed(kind, node, x)
        self.home[node] = home
        if kind == "tally":
            self.keep(node)

    def _sources(self, node: Node, numel: int) -> set[Node]:
        """Return what is read to compute `node`: tensors of `numel` elements that lie in memory, and reductions."""
        sources, visited, stack = set[Node](), {node}, [*node.nodes]
        while stack:
            x = stack.pop()
            if x in visited:
                continue
            visited.add(x)
            if x in self.memory or x in self.home:
                sources.update({x} if x.reduces or known_equal(x.numel, numel) else ())
            else:
                stack += x.nodes
        return sources

    def _placed(self, kind: str, node: Node, leader: Node) -> Group:
        """Return the last group that takes `node`, or a new one."""
        sources = self._sources(node, leader.numel)
        for group in self.groups[: -REACH - 1 : -1] if node not in self.copies else ():
            if group.full or (kind == "store" and group.stranger(sources)):
                continue
            try:
                group.admit(kind, node)
                group.sources |= {node, *sources}
                return group
            except CannotLower:
                continue
        while True:
            group = Group(self, len(self.groups), leader)
            try:
                group.admit(kind, node)
                group.sources |= {node, *sources}
                self.groups.append(group)
                return group
            except CannotLower as cut:
                if cut.node is None or cut.node in self.memory:
                    raise
                self.keep(cut.node)
