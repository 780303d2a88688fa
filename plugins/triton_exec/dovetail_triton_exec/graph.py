"""A region as a graph of nodes: composites taken apart to prims, and prims to the few kinds that a kernel knows.

A node of float16 or bfloat16 is computed in float32.  It is rounded to its dtype where eager rounds: at what a line of the region shows, and
at conversions that the program asks for; within a composite, which eager computes in one kernel, values keep their precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dovetail.dtypes import DType, bfloat16, bool_, float16, float32, int64
from dovetail.extend import BoundSymbol, Trace
from dovetail.extend.advanced import prims_of
from dovetail.prims import row_major

VIEWS = frozenset({"reshape", "squeeze", "transpose", "broadcast_in_dim", "strided_slice", "diagonal", "unfold", "detach"})
REDUCTIONS = frozenset({"sum", "prod", "amax", "amin", "any", "all", "argmax", "argmin"})
COPIES = frozenset({"clone", "stride_order"})
GATHERS = frozenset({"take", "take_along_axis", "index", "embedding"})
LOW = frozenset({float16, bfloat16})
EMPTY = {"sum": 0, "prod": 1, "any": False, "all": True}
EXACT = (
    frozenset(  # what low-precision operands give is a value of their dtype
        {"neg", "abs", "sign", "maximum", "minimum", "where", "amax", "amin", "floor", "ceil", "trunc", "round", "copysign", "copy", "flip"}
        | {"pad", "cat", "gather", "scatter", "put_slice", "full", "iota", "input", "uniform_philox", "normal_philox"}
    )
    | VIEWS
)


class Node:
    """A value: an operation on nodes and numbers.  `steps` are the strides of the tensor that it is, or would be in memory.

    `base` and `offset` say where a view's elements lie in the memory of what it is a view of; other nodes are their own base.
    `rounds` says that the value is rounded to its dtype; a node that is not, and has to lie in memory, does so as `kept`.
    """

    __slots__ = ("args", "base", "dtype", "exact", "number", "offset", "op", "params", "rounds", "shape", "steps")

    def __init__(self, number: int, op: str, args: tuple, params: dict[str, Any], shape: tuple[int, ...], dtype: DType, steps: tuple[int, ...]):
        self.number, self.op, self.args, self.params = number, op, args, params
        self.shape, self.dtype, self.steps = shape, dtype, steps
        self.rounds = dtype in LOW and op not in EXACT
        self.exact = True
        self.base, self.offset = self, 0
        if op in VIEWS:
            self.base, self.offset = args[0].base, args[0].offset + _offset(op, args[0].steps, params)

    def __repr__(self) -> str:
        return f"n{self.number}:{self.op}{list(self.shape)}"

    @property
    def nodes(self) -> list[Node]:
        """Its arguments, but for numbers; those in lists too."""
        return [n for a in self.args for n in (a if isinstance(a, list) else [a]) if isinstance(n, Node)]

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return product(self.shape)

    @property
    def is_view(self) -> bool:
        """Whether it shows another node's elements."""
        return self.op in VIEWS

    @property
    def reduces(self) -> bool:
        """Whether it is a reduction."""
        return self.op in REDUCTIONS

    @property
    def kept(self) -> DType:
        """The dtype in which it lies in memory between kernels."""
        return self.dtype if self.exact else float32


def product(sizes: Iterable[int]) -> int:
    """Return the product of sizes."""
    total = 1
    for n in sizes:
        total *= n
    return total


def _offset(op: str, steps: tuple[int, ...], params: dict[str, Any]) -> int:
    """Return how far into its base's elements a view starts."""
    if op == "strided_slice":
        return sum(start * step for start, step in zip(params["starts"], steps, strict=True))
    if op == "diagonal":
        return steps[params["dim1"]] * max(-params["offset"], 0) + steps[params["dim2"]] * max(params["offset"], 0)
    return 0


class Graph:
    """The nodes of a region.  `inputs` and `outputs` are those of the region's proxies, in order."""

    def __init__(self, region: Trace):
        self.nodes: list[Node] = []
        self.of: dict[Any, Node] = {}
        self.inputs = [self._input(p) for p in region.inputs]
        for line in region.lines:
            shown = set(line.writes)
            for inner in prims_of([line]):
                self._line(inner, shown)
        self.outputs = [self.of[p] for p in region.outputs]

    def make(self, op: str, args: Iterable[Any], shape: tuple, dtype: DType, steps: tuple | None = None, /, **params: Any) -> Node:
        """Return a new node; row-major without `steps`."""
        shape = tuple(shape)
        node = Node(len(self.nodes), op, tuple(args), params, shape, dtype, row_major(shape) if steps is None else steps)
        if node.dtype in LOW and op in EXACT and op not in ("input", "full", "iota"):
            node.exact = all(a.exact for a in node.nodes)
        self.nodes.append(node)
        return node

    def _input(self, proxy: Any) -> Node:
        node = self.of[proxy] = self.make("input", (), proxy.spec.shape, proxy.spec.dtype, proxy.spec.steps)
        return node

    def _line(self, line: BoundSymbol, shown: set[Any]) -> None:
        args = [self._argument(a) for a in line.args]
        nodes = MAKERS.get(line.symbol.name, _plain)(self, line, *args, **line.kwargs)
        for proxy, node in zip(line.writes, nodes if isinstance(nodes, tuple) else (nodes,), strict=True):
            self.of[proxy] = self._shown(node) if proxy in shown else self._inner(node, line)

    def _inner(self, node: Node, line: BoundSymbol) -> Node:
        """Return a value within a composite, which is not rounded unless the program converts."""
        if node.rounds and line.symbol.name != "convert_element_type":
            node.rounds = node.exact = False
        return node

    def _shown(self, node: Node) -> Node:
        """Return a value that a line of the region shows: of its dtype's precision."""
        if node.exact:
            return node
        steps = node.steps
        return self.make("convert_element_type", (node,), node.shape, node.dtype, steps)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        return self.of[value] if hasattr(value, "spec") else value

    def view(self, op: str, x: Node, shape: tuple[int, ...], /, **params: Any) -> Node:
        """Return a view as it would lie; its strides matter only where its base is in memory, row-major else."""
        return self.make(op, (x,), shape, x.dtype, **params)

    def spread(self, x: Node, shape: tuple[int, ...], dims: tuple[int, ...]) -> Node:
        """Return a reduced node repeated over the dims that it lost."""
        return self.view("broadcast_in_dim", x, shape, shape=shape, dims=tuple(d for d in range(len(shape)) if d not in dims))

    def reduce(self, op: str, x: Node, dims: tuple[int, ...], dtype: DType) -> Node:
        """Return a reduction; over no dims a copy, of no elements its identity."""
        kept = tuple(n for d, n in enumerate(x.shape) if d not in dims)
        if any(x.shape[d] == 0 for d in dims):
            return self.make("full", (), kept, dtype, value=EMPTY[op])
        if product(x.shape[d] for d in dims) == 1:
            if op in ("argmax", "argmin"):
                return self.make("full", (), kept, dtype, value=0)
            node = self.make("copy", (self.view("reshape", x, kept, shape=kept),), kept, dtype)
            return node
        node = self.make(op, (x,), kept, dtype, dims=dims)
        return node


def _plain(graph: Graph, line: BoundSymbol, *args: Any, **params: Any) -> Node:
    spec = line.out.spec
    return graph.make(line.symbol.name, args, spec.shape, spec.dtype, spec.steps, **params)


def _reduction(graph: Graph, line: BoundSymbol, x: Node, dims: tuple[int, ...]) -> Node:
    return graph.reduce(line.symbol.name, x, tuple(dims), line.out.spec.dtype)


def _position(graph: Graph, line: BoundSymbol, x: Node, dim: int | None) -> Node:
    return graph.reduce(line.symbol.name, x, tuple(range(len(x.shape))) if dim is None else (dim,), int64)


def _moments(graph: Graph, x: Node, dims: tuple[int, ...], correction: float) -> tuple[Node, Node]:
    """Compute variance and mean in two passes: the mean, then the mean of squared differences.  Inner values are not rounded."""
    nan = float("nan")
    count = product(x.shape[d] for d in dims)
    kept = tuple(n for d, n in enumerate(x.shape) if d not in dims)

    def step(op: str, *args: Any, shape: tuple = x.shape) -> Node:
        node = graph.make(op, args, shape, x.dtype)
        if x.dtype in LOW:
            node.rounds, node.exact = False, False
        return node

    total = graph.reduce("sum", x, dims, x.dtype)
    if total.reduces and x.dtype in LOW:
        total.rounds, total.exact = False, False
    mean = step("mul", total, 1.0 / count, shape=kept) if count else graph.make("full", (), kept, x.dtype, value=nan)
    off = step("sub", x, graph.spread(mean, x.shape, dims))
    squares = graph.reduce("sum", step("mul", off, off), dims, x.dtype)
    if squares.reduces and x.dtype in LOW:
        squares.rounds, squares.exact = False, False
    freedom = max(count - correction, 0)
    return step("div", squares, float(freedom), shape=kept), mean


def _rounded(graph: Graph, node: Node) -> Node:
    return node if node.dtype not in LOW else graph.make("convert_element_type", (node,), node.shape, node.dtype)


def _var(graph: Graph, line: BoundSymbol, x: Node, dims: tuple[int, ...], correction: float) -> Node:
    return _rounded(graph, _moments(graph, x, tuple(dims), correction)[0])


def _var_mean(graph: Graph, line: BoundSymbol, x: Node, dims: tuple[int, ...], correction: float) -> tuple[Node, Node]:
    variance, mean = _moments(graph, x, tuple(dims), correction)
    return _rounded(graph, variance), _rounded(graph, mean)


def _copy(graph: Graph, line: BoundSymbol, x: Node, **params: Any) -> Node:
    spec = line.out.spec
    return graph.make("copy", (x,), spec.shape, spec.dtype, spec.steps)


def _take(graph: Graph, line: BoundSymbol, x: Node, index: Node, dim: int) -> Node:
    """Take rows: the position within the index is the coordinate at `dim`."""
    return graph.make("gather", (x, [index]), line.out.spec.shape, x.dtype, first=dim, along=(dim,))


def _along(graph: Graph, line: BoundSymbol, x: Node, index: Node, dim: int) -> Node:
    return graph.make("gather", (x, [index]), line.out.spec.shape, x.dtype, first=dim, along=tuple(range(len(index.shape))), axis=True)


def _index(graph: Graph, line: BoundSymbol, x: Node, indices: list[Node]) -> Node:
    spec = line.out.spec
    return graph.make("gather", (x, list(indices)), spec.shape, x.dtype, spec.steps, first=0, along=tuple(range(len(indices[0].shape))))


def _embedding(graph: Graph, line: BoundSymbol, weight: Node, index: Node) -> Node:
    spec = line.out.spec
    return graph.make("gather", (weight, [index]), spec.shape, weight.dtype, spec.steps, first=0, along=tuple(range(len(index.shape))))


def _scatter(graph: Graph, line: BoundSymbol, x: Node, index: Node, value: Node, dim: int) -> Node:
    add = line.symbol.name == "scatter_add"
    return graph.make("scatter", (x, index, value), line.out.spec.shape, x.dtype, dim=dim, add=add)


def _convert(graph: Graph, line: BoundSymbol, x: Node, dtype: DType) -> Node:
    spec = line.out.spec
    return graph.make("convert_element_type", (x,), spec.shape, spec.dtype, spec.steps)


def _full(graph: Graph, line: BoundSymbol, shape: tuple, value: Any, dtype: DType, device: Any) -> Node:
    return graph.make("full", (), line.out.spec.shape, dtype, value=bool(value) if dtype is bool_ else value)


def _iota(graph: Graph, line: BoundSymbol, length: int, start: Any, step: Any, dtype: DType, device: Any) -> Node:
    return graph.make("iota", (), (length,), dtype, start=start, step=step)


def _random(graph: Graph, line: BoundSymbol, seed: Node, offset: Node, shape: tuple, dtype: DType, device: Any, **params: Any) -> Node:
    return graph.make(line.symbol.name, (seed, offset), shape, dtype, **params)


MAKERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("sum", "prod", "amax", "amin", "any", "all"), _reduction),
    **dict.fromkeys(("argmax", "argmin"), _position),
    **dict.fromkeys(COPIES, _copy),
    **dict.fromkeys(("scatter", "scatter_add"), _scatter),
    **dict.fromkeys(("uniform_philox", "normal_philox"), _random),
    **{"var": _var, "var_mean": _var_mean, "take": _take, "take_along_axis": _along, "index": _index, "embedding": _embedding},
    **{"convert_element_type": _convert, "full": _full, "iota": _iota},
}
