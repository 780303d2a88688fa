"""A region as a graph of nodes: composites taken apart to prims, reductions in few kinds, views with the memory that they show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, prod
from typing import Any

from dovetail.dtypes import DType, bfloat16, bool_, float16, float32, float64
from dovetail.extend import BoundSymbol, TensorSpec, Trace
from dovetail.extend.advanced import ExecutorError, RegionSizes, prims_of
from dovetail.prims import row_major
from dovetail.prims.sizes import Size, hint_of, is_symbolic
from dovetail_llvm_exec.region.forms import Form, plus, regrouped, shifted, times

VIEWS = frozenset({"reshape", "squeeze", "transpose", "broadcast_in_dim", "strided_slice", "diagonal", "unfold"})
REDUCTIONS = frozenset({"sum", "prod", "amax", "amin", "any", "all", "argmax", "argmin"})
COPIES = frozenset({"clone", "stride_order", "device_put"})
IN_ORDER = 32  # floats from which eager multiplies several products side by side
SHORT, MANY = 32, 2048  # columns of a short row, and rows that are many
NEAR = 4  # steps between elements up to which a vector of them is loaded by a few loads
FEW, WRITTEN = 16, 96  # elements that an expression joins, and the operations that it may have for that
PARTS = 4  # windows in a tensor from which computing one of them for all of its elements takes longer than storing it first
WINDOW, CHEAP = 32, 3  # elements of a window that an expression joins, and operations that are computed again for each window
CONTRACTED = frozenset({"torch.add", "torch.sub", "torch.rsub", "torch.addcmul", "torch.addr", "torch.lerp"})  # not addcdiv, which adds a quotient
UNROLLED = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum", "any": "bitwise_or", "all": "bitwise_and"}
EMPTY = {"sum": 0, "prod": 1, "any": False, "all": True, "var": float("nan")}


class Node:
    """A value: an operation on nodes and numbers.  `steps` are the strides of the tensor that it is, or would be in memory.

    `offset` says where a view's elements lie in the memory of its `base`.
    `depth` counts the operations before it.  `rough`: it is part of an operation whose results are all rounded to 16 bits.
    `contracted`: it is a sum whose second operand is a product that is not rounded before it is added.
    """

    __slots__ = ("args", "contracted", "depth", "dtype", "number", "offset", "op", "params", "proxy", "rough", "shape", "shown", "steps")

    def __init__(self, number: int, op: str, args: tuple, params: dict[str, Any], shape: tuple[int, ...], dtype: DType, steps: tuple[int, ...]):
        self.number, self.op, self.args, self.params, self.shape, self.dtype, self.steps = number, op, args, params, shape, dtype, steps
        self.proxy: Any = None  # of the line that computes it, where there is one
        self.shown, self.offset, self.rough, self.contracted = None, 0, False, False
        self.depth = 1 + max([a.depth for a in self.nodes], default=-1)
        if op in VIEWS:
            self.shown, self.offset = args[0].base, args[0].offset + _offset(op, args[0].steps, params)

    def __repr__(self) -> str:
        return f"n{self.number}:{self.op}{list(self.shape)}"

    @property
    def base(self) -> Node:
        """What it is a view of; other nodes are their own base."""
        return self if self.shown is None else self.shown  # no node holds itself, which only the garbage collector could undo

    @property
    def nodes(self) -> list[Node]:
        """Its arguments, but for numbers; those in lists too."""
        return [n for a in self.args for n in (a if isinstance(a, list) else [a]) if isinstance(n, Node)]

    @property
    def numel(self) -> int:
        """How many elements it has."""
        total = 1
        for n in self.shape:
            total *= n
        return total

    @property
    def is_view(self) -> bool:
        """Whether it shows another node's elements."""
        return self.op in VIEWS

    @property
    def reduces(self) -> bool:
        """Whether it is a reduction."""
        return self.op in REDUCTIONS


def _offset(op: str, steps: tuple[int, ...], params: dict[str, Any]) -> int:
    """Return how far into its base's elements a view starts."""
    if op == "strided_slice":
        return sum(start * step for start, step in zip(params["starts"], steps, strict=True))
    if op == "diagonal":
        return steps[params["dim1"]] * max(-params["offset"], 0) + steps[params["dim2"]] * max(params["offset"], 0)
    return 0


class Graph:
    """The nodes of a region.  `inputs` and `outputs` are those of the region's tensors, in order; `kept` are to lie in memory for others.

    `sizes` are its symbolic sizes, if it has any, and `numbers` those that are inputs of the region, behind its tensors.
    """

    def __init__(self, region: Trace, sizes: RegionSizes | None = None):
        self.sizes = sizes
        self.own: Callable[[Any], Any] = _unchanged if sizes is None else sizes.own
        self.nodes: list[Node] = []
        self.of: dict[Any, Node] = {}
        self.kept: set[Node] = set()
        self.inputs = [self._input(p) for p in region.inputs if type(p.spec) is TensorSpec]
        self.numbers = [self.own(p) for p in region.inputs if type(p.spec) is not TensorSpec]
        for line in region.lines:
            first = len(self.nodes)
            for inner in prims_of([line]):
                if inner.writes:
                    self._line(inner)
            for proxy in _sums_of_products(line):
                self.of[proxy].contracted = self.of[proxy].dtype.kind == "float"
            if line.body:
                self._unrounded(self.nodes[first:], {self.of[p].base for p in line.writes})
        self.outputs = [self.of[p] for p in region.outputs]
        if sizes is not None and not sizes.symbols():
            self.sizes = None

    def make(self, op: str, args: Iterable[Any], shape: tuple, dtype: DType, steps: tuple | None = None, params: dict | None = None) -> Node:
        """Return a new node; row-major without `steps`."""
        node = Node(len(self.nodes), op, tuple(args), params or {}, tuple(shape), dtype, row_major(tuple(shape)) if steps is None else steps)
        self.nodes.append(node)
        return node

    def extent(self, size: Any, dtype: DType) -> Node:
        """Return a size as a number."""
        return self.make("extent", (), (), dtype, None, {"size": size})

    def _input(self, proxy: Any) -> Node:
        node = self.make("input", (), self.own(proxy.spec.shape), proxy.spec.dtype, self.own(proxy.spec.steps))
        self.of[proxy] = node
        node.proxy = proxy
        return node

    def _line(self, line: BoundSymbol) -> None:
        args, kwargs = [self._argument(a) for a in line.args], self.own(line.kwargs)
        if any(type(a) is Size for a in args):
            dtype = next(a.dtype for a in args if isinstance(a, Node))
            args = [self.extent(a, dtype) if type(a) is Size else a for a in args]
        special = SPECIAL.get(line.symbol.name)
        if special is not None:
            nodes = special(self, line, *args, **kwargs)
        else:
            spec = line.out.spec
            nodes = self.make(line.symbol.name, args, self.own(spec.shape), spec.dtype, self.own(spec.steps), kwargs)
        if line.symbol.name == "put_slice" and _is_repeated(args[1], args[0], self.kept):
            self.kept.add(args[1].base)
        for proxy, node in zip(line.writes, nodes if isinstance(nodes, tuple) else (nodes,), strict=True):
            self.of[proxy] = node
            if node.proxy is None:
                node.proxy = proxy

    def _unrounded(self, nodes: list[Node], shown: set[Node]) -> None:
        """Keep values inside an operation in float32, as PyTorch's kernels of the whole operation do; what it compares, they round."""
        if not any(node.dtype.inexact for node in shown):
            return
        rough = all(node.dtype in (bfloat16, float16) for node in shown)
        for node in nodes:
            node.rough = rough
            if node.dtype in (bfloat16, float16) and node.op != "convert_element_type" and node not in shown and not node.is_view:
                node.dtype = float32

    def _argument(self, value: Any) -> Any:
        if issubclass(type(value), (list, tuple)):  # isinstance would also ask a traced tensor which class it stands for
            return [self._argument(v) for v in value]
        if not hasattr(value, "spec"):
            return self.own(value)
        if value not in self.of:
            raise ExecutorError(f"{value} is a constant inside an operation, and a region brings the values that its lines read, no others")
        return self.of[value]


def _sums_of_products(line: BoundSymbol) -> set[Any]:
    """Return what `line` computes as a sum of its first operand and a product, in operations that round the two once in eager's kernels."""
    sums = set[Any]().union(*map(_sums_of_products, line.body))
    if line.symbol.id in CONTRACTED:
        products = set[Any]()
        for inner in line.body:
            if inner.symbol.name == "mul" or (inner.symbol.name in VIEWS and inner.args[0] in products):
                products.add(inner.out)
            elif inner.symbol.name in ("add", "sub") and any(inner.args[1] is p for p in products):
                sums.add(inner.out)
    return sums


def _is_repeated(part: Node, whole: Node, kept: set[Node]) -> bool:
    """Return whether computing `part` for each element of `whole`, which it becomes a window of, takes longer than storing it first."""
    return 0 not in part.shape and hint_of(whole.numel) >= PARTS * hint_of(part.numel) and _operations(part.base, kept) > CHEAP


def _unchanged(value: Any) -> Any:
    return value


def _same(graph: Graph, line: BoundSymbol, x: Node, **_: Any) -> Node:
    return x


def _copy(graph: Graph, line: BoundSymbol, x: Node, **_: Any) -> Node:
    return graph.make("copy", (x,), x.shape, x.dtype, graph.own(line.out.spec.steps))


def _filled(graph: Graph, shape: tuple, dtype: DType, value: Any) -> Node:
    return graph.make("full", (), shape, dtype, None, {"value": value})


def reduced(graph: Graph, op: str, x: Node, dims: tuple[int, ...], dtype: DType) -> Node:
    """Return a reduction; of one element in each direction a copy, of none what that is by definition."""
    shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    if 0 in x.shape and 0 not in shape:
        return _filled(graph, shape, dtype, EMPTY[op])
    alone = _put_alone(x, dims) if op == "sum" else None
    if alone is not None:
        value, sign = alone
        steps = tuple(s for d, s in enumerate(value.steps) if d not in dims)
        return graph.make(sign, (graph.make("squeeze", (value,), shape, value.dtype, steps, {"dims": dims}),), shape, dtype)
    if all(x.shape[d] == 1 for d in dims):
        if op in ("argmax", "argmin"):
            return _filled(graph, shape, dtype, 0)
        steps = tuple(s for d, s in enumerate(x.steps) if d not in dims)
        return graph.make("copy", (graph.make("squeeze", (x,), shape, x.dtype, steps, {"dims": dims}),), shape, dtype)
    source = _source(x)
    if source is not None and hint_of(source.numel) <= hint_of(x.numel) and _operations(source, graph.kept) > CHEAP:
        graph.kept.add(source)  # windows overlap, or are short rows that fill no vectors
    if op in UNROLLED and _unrolls(op, x, dims, graph.kept):
        out = graph.make("unrolled", (x,), shape, dtype, _steps_as(x, dims), {"op": op, "dims": dims})
        return out if out.steps == row_major(shape) else graph.make("copy", (out,), shape, dtype)
    folded = _folded(x, dims, shape) if op in ("sum", "prod", "amax", "amin", "any", "all") else 1
    if folded > 1:
        rows, inner = 1, (folded, *shape)
        for d in dims:
            rows *= x.shape[d]
        wide = (rows // folded, *inner)
        partial = float32 if dtype in (bfloat16, float16) else dtype
        x = graph.make("reshape", (x,), wide, x.dtype, row_major(wide), {"shape": wide})
        x, dims = graph.make(op, (x,), inner, partial, None, {"dims": (0,)}), (0,)
    return graph.make(op, (x,), shape, dtype, None, {"dims": tuple(d for d in dims)})


def _unrolls(op: str, x: Node, dims: tuple[int, ...], kept: set[Node]) -> bool:
    """Return whether a reduction joins few elements, in windows or far apart: an element of the result is then an expression, and vectors
    of them lie side by side, or a few steps apart.  What is `kept` is in memory.
    """
    if is_symbolic(x.shape) or is_symbolic(x.steps):
        return False
    windows, count = _source(x) is not None, prod(x.shape[d] for d in dims)
    over, rest = ([x.steps[d] for d, n in enumerate(x.shape) if n != 1 and (d in dims) is inside] for inside in (True, False))
    if count > (WINDOW if windows else FEW) or not rest or min(rest) > max(min(over), NEAR):
        return False
    operations = _operations(x, kept)
    if min(rest) > min(over) and not windows and (op != "sum" or operations > CHEAP):
        return False  # what reads the result for each element of a short row, as a softmax its largest, would compute it again there
    return count * operations <= WRITTEN


def _operations(x: Node, kept: set[Node]) -> int:
    """Return how many operations compute an element of `x`."""
    computed, pending = set[Node](), [x]
    while pending:
        node = pending.pop()
        if node not in computed and node not in kept and not node.reduces and node.op not in ("input", "unrolled"):
            computed.add(node)
            pending += node.nodes
    return len(computed)


def _source(x: Node) -> Node | None:
    """Return what x shows windows of, behind views and padding; None where it shows none."""
    windows = False
    while x.is_view or x.op == "pad":
        windows, x = windows or x.op == "unfold", x.args[0]
    return x if windows else None


def _steps_as(x: Node, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return steps without gaps for the dimensions of `x` other than `dims`, in the order in which they lie in memory."""
    kept = [d for d in range(len(x.shape)) if d not in dims]
    steps, step = dict[int, int](), 1
    for d in sorted(kept, key=lambda d: (x.steps[d], -d)):
        steps[d], step = step, step * x.shape[d]
    return tuple(steps[d] for d in kept)


def _folded(x: Node, dims: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return how many rows to put side by side where many short ones are added up, so that they fill vectors; 1 where that brings nothing."""
    rows, short = 1, 1
    for d in dims:
        rows *= x.shape[d]
    for n in shape:
        short *= n
    if is_symbolic(x.shape) or short == 1 or dims != tuple(range(len(dims))) or short >= SHORT or rows < MANY or x.steps != row_major(x.shape):
        return 1
    return next((k for k in (64, 32, 16, 8, 4) if rows % k == 0 and k * short <= 4 * SHORT), 1)


def _put_alone(x: Node, dims: tuple[int, ...]) -> tuple[Node, str] | None:
    """Return the one element that is not 0 in each row of x, and "copy" or "neg": what the gradient of a loss is before that of its log-softmax."""
    sign = "copy"
    while x.op == "neg":
        x, sign = x.args[0], "neg" if sign == "copy" else "copy"
    zeros = x.op == "scatter_add" and x.args[0].op == "full" and x.args[0].params["value"] == 0
    return (x.args[2], sign) if zeros and dims == (x.params["dim"],) else None


def _reduction(op: str) -> Callable:
    def special(graph: Graph, line: BoundSymbol, x: Node, *, dims: tuple[int, ...]) -> Node:
        return reduced(graph, op, x, dims, line.out.spec.dtype)

    return special


def _prod(graph: Graph, line: BoundSymbol, x: Node, *, dims: tuple[int, ...]) -> Node:
    """Multiply few floats in float64, where no order overflows on the way to a number, or to a zero that makes NaN of it.

    They are as many as eager multiplies one after the other; of more it has several products side by side, too.
    """
    dtype = line.out.spec.dtype
    few = not is_symbolic(x.shape) and prod(x.shape[d] for d in dims) < IN_ORDER
    if dtype.kind != "float" or dtype is float64 or not few:
        return reduced(graph, "prod", x, dims, dtype)
    return _convert(graph, reduced(graph, "prod", _convert(graph, x, float64), dims, float64), dtype)


def _position(op: str) -> Callable:
    def special(graph: Graph, line: BoundSymbol, x: Node, *, dim: int | None) -> Node:
        return reduced(graph, op, x, tuple(range(len(x.shape))) if dim is None else (dim,), line.out.spec.dtype)

    return special


def _convert(graph: Graph, x: Node, dtype: DType) -> Node:
    return x if x.dtype is dtype else graph.make("convert_element_type", (x,), x.shape, dtype, x.steps, {"dtype": dtype})


def moments(graph: Graph, x: Node, dims: tuple[int, ...], correction: float) -> tuple[Node, Node]:
    """Return (variance, mean): a first mean, then the sums of what lies around it and of its squares; in float32 at least.

    The mean of what lies around the first mean is added to it: a sum of equal numbers is rounded, and what a norm divides by is then 0.
    """
    count = 1
    for d in dims:
        count *= x.shape[d]
    wide = _convert(graph, x, float32) if x.dtype.bytes == 2 else x
    shape, dtype = tuple(n for d, n in enumerate(x.shape) if d not in dims), wide.dtype
    if count == 0:
        return _filled(graph, shape, x.dtype, EMPTY["var"]), _filled(graph, shape, x.dtype, EMPTY["var"])
    mean = _mean(graph, reduced(graph, "sum", wide, dims, dtype), count)
    if count == 1 or not dims:
        steps = tuple(s for d, s in enumerate(x.steps) if d not in dims)
        mean = graph.make("copy", (graph.make("squeeze", (wide,), shape, dtype, steps, {"dims": dims}),), shape, dtype)
    kept = tuple(d for d in range(len(x.shape)) if d not in dims)
    strides = dict(zip(kept, mean.steps, strict=True))
    steps = tuple(strides.get(d, 0) for d in range(len(x.shape)))
    around = graph.make("broadcast_in_dim", (mean,), x.shape, dtype, steps, {"shape": x.shape, "dims": kept})
    off = graph.make("sub", (wide, around), x.shape, dtype, wide.steps)
    squares = graph.make("mul", (off, off), x.shape, dtype, wide.steps)
    total = reduced(graph, "sum", squares, dims, dtype)
    if count > 1 and dims:
        rest = _mean(graph, reduced(graph, "sum", off, dims, dtype), count)
        bounded = graph.make("lt", (graph.make("abs", (mean,), shape, dtype), inf), shape, bool_)
        mean = graph.make("where", (bounded, graph.make("add", (mean, rest), shape, dtype), mean), shape, dtype)  # around infinity lies NaN
        times = graph.extent(count, dtype) if type(count) is Size else float(count)
        lost = graph.make("mul", (graph.make("mul", (rest, rest), shape, dtype), times), shape, dtype)
        less = graph.make("maximum", (graph.make("sub", (total, lost), shape, dtype), 0.0), shape, dtype)
        finite = graph.make("lt", (total, inf), shape, bool_)
        total = graph.make("where", (finite, less, total), shape, dtype)  # where squares overflow, infinite and not NaN
    var = _divided_by_freedom(graph, total, count, correction)
    return _convert(graph, var, x.dtype), _convert(graph, mean, x.dtype)


def _mean(graph: Graph, total: Node, count: Any) -> Node:
    if type(count) is Size:
        return _over(graph, total, graph.extent(count, total.dtype))
    return graph.make("mul", (total, 1.0 / count), total.shape, total.dtype)


def _over(graph: Graph, total: Node, number: Node) -> Node:
    """Return total * (1 / number), one division for all rows."""
    share = graph.make("div", (1.0, number), (), total.dtype)
    return graph.make("mul", (total, share), total.shape, total.dtype)


def _divided_by_freedom(graph: Graph, total: Node, count: Any, correction: float) -> Node:
    """Return total / max(count - correction, 0)"""
    shape, dtype = total.shape, total.dtype
    if type(count) is Size:
        left = graph.make("sub", (graph.extent(count, dtype), float(correction)), (), dtype)
        return _over(graph, total, graph.make("maximum", (left, 0.0), (), dtype))
    freedom = max(float(count - correction), 0.0)
    return graph.make("mul" if freedom else "div", (total, 1.0 / freedom if freedom else 0.0), shape, dtype)


def _var(graph: Graph, line: BoundSymbol, x: Node, *, dims: tuple[int, ...], correction: float) -> Node:
    return moments(graph, x, dims, correction)[0]


def _var_mean(graph: Graph, line: BoundSymbol, x: Node, *, dims: tuple[int, ...], correction: float) -> tuple[Node, Node]:
    return moments(graph, x, dims, correction)


SPECIAL: dict[str, Callable] = {
    "detach": _same,
    "prod": _prod,
    "var": _var,
    "var_mean": _var_mean,
    **dict.fromkeys(COPIES, _copy),
    **{op: _reduction(op) for op in ("sum", "amax", "amin", "any", "all")},
    **{op: _position(op) for op in ("argmax", "argmin")},
}


def through(node: Node, coords: tuple[Form, ...]) -> tuple[Form, ...]:
    """Return where the element of a view at `coords` lies in its argument."""
    x, params = node.args[0], node.params
    if node.op == "reshape":
        return regrouped(coords, node.shape, x.shape)
    if node.op == "squeeze":
        left = iter(coords)
        return tuple(Form(0) if d in params["dims"] else next(left) for d in range(len(x.shape)))
    if node.op == "transpose":
        back = {d: coords[i] for i, d in enumerate(params["order"])}
        return tuple(back[d] for d in range(len(x.shape)))
    if node.op == "broadcast_in_dim":
        return tuple(Form(0) if n == 1 else coords[d] for d, n in zip(params["dims"], x.shape, strict=True))
    if node.op == "strided_slice":
        return tuple(shifted(times(c, step), start) for c, step, start in zip(coords, params["steps"], params["starts"], strict=True))
    return _windows(node, coords)


def _windows(node: Node, coords: tuple[Form, ...]) -> tuple[Form, ...]:
    """Take `through` a diagonal, or the windows of an unfold."""
    x, params = node.args[0], node.params
    if node.op == "unfold":
        moved = list(coords[:-1])
        moved[params["dim"]] = plus(times(coords[params["dim"]], params["step"]), coords[-1])
        return tuple(moved)
    left, last = iter(coords[:-1]), coords[-1]
    at = {params["dim1"]: shifted(last, max(-params["offset"], 0)), params["dim2"]: shifted(last, max(params["offset"], 0))}
    return tuple(at[d] if d in at else next(left) for d in range(len(x.shape)))
