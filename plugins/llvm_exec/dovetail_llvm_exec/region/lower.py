"""From nodes to expressions: what has to be computed for the element of a node at given coordinates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any, Protocol

from dovetail.dtypes import DType, bfloat16, bool_, float16, float32, float64, int64
from dovetail.prims.sizes import Size
from dovetail_llvm_exec.region.exprs import Buffer, Draw, Expr, Table, walk
from dovetail_llvm_exec.region.forms import ZERO, CannotLower, Form, dot, flat, shifted, times
from dovetail_llvm_exec.region.graph import UNROLLED, Node, through
from dovetail_llvm_exec.scalars.kinds import HALVES, nearest

CHOICES = frozenset(  # take numbers as their dtype holds them
    {"where", "maximum", "minimum", "copysign", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"}
)
SUMS = frozenset({"add", "sub"})  # do so unless they are part of an operation that is computed in float32
MOST_PLACES = 64  # elements of one node that a turn of the loops computes; they may double with each shifted window that is written

Coords = tuple[Form, ...]


def _sum(table: Table, args: tuple[Expr, ...], node: Node) -> Expr | None:
    """Return x + p * q and x - p * q, rounded once, where eager's kernel of the operation does so; else what `_one_more` makes of a sum."""
    x, product = args
    if node.contracted and product.op == "mul":
        p, q = product.args
        p = table.make("neg", (p,), p.dtype) if node.op == "sub" else p
        return table.make("muladd", (p, q, x), node.dtype)
    return _one_more(table, args, node) if node.op == "add" else None


def _one_more(table: Table, args: tuple[Expr, ...], node: Node) -> Expr | None:
    """Return erf(x) + 1 and tanh(x) + 1, which gelu consists of."""
    for x, other in (args, args[::-1]):
        if node.dtype is float32 and x.op in ("erf", "tanh") and other.is_number(1.0):
            return table.make(f"{x.op}_plus_one", x.args, node.dtype)
    return None


def _gelu(table: Table, args: tuple[Expr, ...], node: Node) -> Expr | None:
    """Return x / 2 * (erf(x / sqrt(2)) + 1)"""
    for half, other in (args, args[::-1]):
        if half.op == "mul" and other.op == "erf_plus_one" and half.args[1].is_number(0.5):
            (x, _), inner = half.args, other.args[0]
            if inner.op == "mul" and inner.args[0] is x and inner.args[1].is_number(math.sqrt(0.5)):
                cdf = table.make("normal_cdf_roughly" if node.rough else "normal_cdf", (x,), node.dtype)
                return table.make("mul", (x, cdf), node.dtype)
    return None


def _below_its_largest(table: Table, args: tuple[Expr, ...], node: Node) -> Expr | None:
    """Return exp(x - the largest x of the row)"""
    (x,) = args
    if x.op != "sub" or x.args[1].op != "row" or node.dtype not in (float32, float64):
        return None
    result = x.args[1].data
    return table.make("exp_nonpositive", args, node.dtype) if result.node.op == "amax" and result.body is x.args[0] else None


def _softplus(table: Table, args: tuple[Expr, ...], node: Node) -> Expr | None:
    """Return log1p(exp(-|x|)), with an exp for numbers that are not positive."""
    (e,) = args
    if e.op != "exp" or e.args[0].op != "neg" or e.args[0].args[0].op != "abs" or node.dtype not in (float32, float64):
        return None
    return table.make("log1p", (table.make("exp_negative", e.args, e.dtype),), node.dtype)


def _share(table: Table, args: tuple[Expr, ...], node: Node) -> Expr | None:
    """Return x / the sum of such: the sum is 1 at least, and its reciprocal is no trouble."""
    x, total = args
    if total.op != "row" or total.data.node.op != "sum" or total.data.body.op != "exp_nonpositive":
        return None
    return table.make("mul", (x, table.make("reciprocal", (total,), node.dtype)), node.dtype)


def _back(table: Table, args: tuple[Expr, ...], node: Node) -> Expr | None:
    """Return x for x widened and narrowed again, as in the gradient of a sum of 16-bit numbers."""
    (wide,) = args
    widened = wide.op == "convert_element_type" and wide.args[0].dtype is node.dtype
    return wide.args[0] if widened and wide.dtype in WIDER.get(node.dtype, ()) else None


WIDER = {bfloat16: (float32, float64), float16: (float32, float64), float32: (float64,)}  # dtypes that hold all numbers of a dtype
FUSIONS: dict[str, Callable[[Table, tuple[Expr, ...], Node], Expr | None]] = {
    "add": _sum,
    "sub": _sum,
    "mul": _gelu,
    "exp": _below_its_largest,
    "log1p": _softplus,
    "div": _share,
    "convert_element_type": _back,
}


class Memory(Protocol):
    """What a loop nest may read: the memory of nodes, and the results of reductions."""

    def buffer(self, node: Node) -> Buffer | None:
        """Return the buffer of `node`, if it lies in memory before the loop nest starts."""

    def check(self, node: Node, coords: Coords) -> None:
        """Raise CannotLower where the loop nest must not compute the element of `node` at `coords`."""

    def result(self, node: Node, coords: Coords, mask: Expr | None) -> Expr:
        """Read the result of a reduction at `coords` where `mask` holds; raise CannotLower where it is not known in the loop nest."""


class Lowering:
    """Makes the expressions of one loop nest."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.table = Table()
        self.memo: dict[tuple, Expr] = {}
        self.places: dict[Node, int] = Counter()  # how many elements of a node one turn of the loops computes

    def at(self, node: Node, coords: Coords, mask: Expr | None = None) -> Expr:
        """Return the element of `node` at `coords`.  Where `mask` does not hold nothing is read, and the value means nothing."""
        key = (node, coords, mask)
        expr = self.memo.get(key)
        if expr is None:
            expr = self.memo[key] = self._lower_node(node, coords, mask)
        return expr

    def _lower_node(self, node: Node, coords: Coords, mask: Expr | None) -> Expr:
        buffer = self.memory.buffer(node.base)
        if buffer is not None:
            args = () if mask is None else (mask,)
            return self.table.make("load", args, buffer.dtype, (buffer, dot(coords, node.steps, node.offset)))
        if node.is_view:
            try:
                inner = through(node, coords)
            except CannotLower as cut:
                raise CannotLower(str(cut), node.base) from None
            return self.at(node.args[0], inner, mask)
        self.memory.check(node, coords)
        self.places[node] += 1
        if self.places[node] > MOST_PLACES and node.nodes and not node.reduces:
            raise CannotLower("it is computed at too many places, as where shifted windows are read of what shifted windows were written to", node)
        if node.reduces:
            return self.memory.result(node, coords, mask)
        special = SPECIAL.get(node.op)
        return self._elementwise(node, coords, mask) if special is None else special(self, node, coords, mask)

    def _elementwise(self, node: Node, coords: Coords, mask: Expr | None) -> Expr:
        dtype = next((a.dtype for a in node.args[node.op == "where" :] if isinstance(a, Node)), node.dtype)
        exact = node.op in CHOICES or (node.op in SUMS and node.dtype is dtype)
        numbers = (self.table.const(nearest(a, dtype) if exact else a, dtype) if not isinstance(a, Node) else None for a in node.args)
        args = tuple(self.at(a, coords, mask) if isinstance(a, Node) else number for a, number in zip(node.args, numbers))
        known = FUSIONS.get(node.op)
        fused = known(self.table, args, node) if known is not None else None
        return fused or self.table.make(node.op, args, node.dtype, args[0].dtype if node.op == "convert_element_type" else None)

    def inside(self, form: Form, low: int, high: int, mask: Expr | None) -> Expr | None:
        """Return `mask` and low <= form < high."""
        bound = not form.moving and surely(lambda: all(step > 0 for _, step in form.terms))
        where = self.table.index(form)
        if not (bound and surely(lambda: form.const >= low)):
            mask = self.table.both(mask, self.table.make("ge", (where, self.number(low)), bool_))
        if not (bound and surely(lambda: form.highest < high)):
            mask = self.table.both(mask, self.table.make("lt", (where, self.number(high)), bool_))
        return mask

    def number(self, n: Any) -> Expr:
        """Return an int or a size as an int64."""
        return self.table.index(Form(n)) if type(n) is Size else self.table.const(n, int64)

    def choice(self, condition: Expr | None, a: Expr, b: Expr | None) -> Expr:
        """Return a where the condition holds, else b."""
        return a if condition is None or b is None else self.table.make("where", (condition, a, b), a.dtype)


def surely(test: Callable[[], bool]) -> bool:
    """Return whether a test on sizes holds; False where some calls only decide it."""
    try:
        return test()
    except CannotLower:
        return False


def _full(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    value = node.params["value"]
    value = nearest(value, node.dtype) if isinstance(value, float) else value  # an element, which is computed with in float32
    return low.table.const(value, node.dtype)


def _extent(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    return converted(low, low.table.index(Form(node.params["size"])), node.dtype)


def _copy(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    return low.at(node.args[0], coords, mask)


def _iota(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    start, step, table = node.params["start"], node.params["step"], low.table
    if node.dtype.kind == "int":
        return converted(low, table.index(shifted(times(coords[0], step), start)), node.dtype)
    where = converted(low, table.index(coords[0]), float64)
    scaled = table.make("mul", (where, table.const(step, float64)), float64)
    return converted(low, table.make("add", (scaled, table.const(start, float64)), float64), node.dtype)


def converted(low: Lowering, x: Expr, dtype: DType) -> Expr:
    """Return an expression as another dtype."""
    return x if x.dtype is dtype else low.table.make("convert_element_type", (x,), dtype, x.dtype)


def _flip(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    dims = set(node.params["dims"])
    return low.at(node.args[0], tuple(shifted(times(c, -1), n - 1) if d in dims else c for d, (c, n) in enumerate(zip(coords, node.shape))), mask)


def _checked(low: Lowering, index: Node, coords: Coords, size: int, mask: Expr | None, fault: str = "IndexError") -> Form:
    """Return the position that an index tensor holds, which has to be below `size`; else the kernel reports `fault`."""
    position = low.at(index, coords, mask)
    args = (position,) if mask is None else (position, mask)
    return Form(0, (), ((low.table.make("checked", args, int64, (size, fault)), 1),))


def _looked_up(low: Lowering, x: Node, coords: Coords, dim: int, place: Form, mask: Expr | None) -> Expr:
    """Return the element of x at a checked position along `dim`; the position is checked where all elements are one, too."""
    value, position = low.at(x, (*coords[:dim], place, *coords[dim + 1 :]), mask), place.moving[0][0]
    if position in walk([value]):
        return value
    return low.choice(low.table.make("ge", (position, low.number(0)), bool_), value, low.table.const(0, value.dtype))


def _embedding(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    weight, index = node.args
    return _looked_up(low, weight, (ZERO, coords[-1]), 0, _checked(low, index, coords[:-1], weight.shape[0], mask), mask)


def _take(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    x, index = node.args
    dim = node.params["dim"]
    fault = "RuntimeError" if dim else "IndexError"  # as torch.index_select raises
    return _looked_up(low, x, coords, dim, _checked(low, index, (coords[dim],), x.shape[dim], mask, fault), mask)


def _take_along_axis(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    x, index = node.args
    dim = node.params["dim"]
    return _looked_up(low, x, coords, dim, _checked(low, index, coords, x.shape[dim], mask, "RuntimeError"), mask)


def _scatter(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    """Return x, with `value` at (or added at) one position along `dim`: the index has size 1 there."""
    x, index, value = node.args
    dim, table = node.params["dim"], low.table
    there = (*coords[:dim], ZERO, *coords[dim + 1 :])
    place = _checked(low, index, there, x.shape[dim], mask, "RuntimeError")
    hit = table.make("eq", (table.index(coords[dim]), place.moving[0][0]), bool_)
    old, new = low.at(x, coords, mask), low.at(value, there, mask)
    return low.choice(hit, table.make("add", (old, new), node.dtype) if node.op == "scatter_add" else new, old)


def _unrolled(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    """Return the elements that a reduction joins as one, joined by pairs; floats of 16 bits are joined in float32."""
    (x,), dims, name = node.args, node.params["dims"], UNROLLED[node.params["op"]]
    summing = node.params["op"] in ("sum", "prod")
    level = []
    for places in product(*(range(x.shape[d]) for d in dims)):
        kept, at = iter(coords), dict(zip(dims, places, strict=True))
        element = low.at(x, tuple(Form(at[d]) if d in at else next(kept) for d in range(len(x.shape))), mask)
        level.append(converted(low, element, float32 if summing and element.dtype in HALVES else element.dtype))
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [low.table.make(name, tuple(pair), pair[0].dtype) if len(pair) == 2 else pair[0] for pair in pairs]
    return converted(low, level[0], node.dtype)


def _pad(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    x = node.args[0]
    if 0 in x.shape:
        return low.table.const(node.params["value"], node.dtype)
    moved = tuple(shifted(c, -a) for c, a in zip(coords, node.params["low"], strict=True))
    within = None
    for form, size, (a, b) in zip(moved, x.shape, zip(node.params["low"], node.params["high"], strict=True), strict=True):
        if not surely(lambda a=a, b=b: a <= 0 and b <= 0):
            within = low.inside(form, 0, size, within)
    inner = low.at(x, moved, mask if within is None else low.table.both(mask, within))
    return low.choice(within, inner, low.table.const(node.params["value"], node.dtype))


def _put_slice(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    x, value = node.args
    if 0 in value.shape:
        return low.at(x, coords, mask)
    starts, stops = node.params["starts"], node.params["stops"]
    within = None
    for form, size, start, stop in zip(coords, x.shape, starts, stops, strict=True):
        if not surely(lambda start=start, stop=stop, size=size: start <= 0 and stop >= size):
            within = low.inside(form, start, stop, within)
    moved = tuple(shifted(c, -start) if size > 1 else ZERO for c, start, size in zip(coords, starts, value.shape, strict=True))
    new = low.at(value, moved, mask if within is None else low.table.both(mask, within))
    return new if within is None else low.choice(within, new, low.at(x, coords, mask))


def _cat(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    dim, parts, start = node.params["dim"], [], 0
    for x in node.args[0]:
        size = x.shape[dim]
        if size:
            within = low.inside(coords[dim], start, start + size, None)
            moved = shifted(coords[dim], -start) if size > 1 else ZERO
            inner = low.at(x, (*coords[:dim], moved, *coords[dim + 1 :]), mask if within is None else low.table.both(mask, within))
            parts.append((within, inner))
        start += size
    out = parts[-1][1]
    for within, inner in reversed(parts[:-1]):
        out = low.choice(within, inner, out)
    return out


def _drawn(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    seed, offset = (low.at(x, (), mask) for x in node.args)
    ends = ("low", "high") if node.op == "uniform_philox" else ("mean", "std")
    draw = Draw(flat(coords, node.shape), *(float(node.params[name]) for name in ends), node.dtype)
    return converted(low, low.table.make(node.op, (seed, offset), float64, draw), node.dtype)


def _input(low: Lowering, node: Node, coords: Coords, mask: Expr | None) -> Expr:
    raise CannotLower("an input lies in memory")


SPECIAL: dict[str, Callable[[Lowering, Node, Coords, Any], Expr]] = {
    "input": _input,
    "full": _full,
    "copy": _copy,
    "extent": _extent,
    "iota": _iota,
    "flip": _flip,
    "embedding": _embedding,
    "take": _take,
    "take_along_axis": _take_along_axis,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "unrolled": _unrolled,
    "pad": _pad,
    "put_slice": _put_slice,
    "cat": _cat,
    "uniform_philox": _drawn,
    "normal_philox": _drawn,
}
