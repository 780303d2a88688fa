"""From nodes to expressions: what has to be computed for the element of a node at given coordinates."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch

from dovetail.dtypes import DType, bool_, float32, int64
from dovetail.langs.torch import TO_TORCH
from dovetail_triton_exec.exprs import Buffer, Condition, Expr, Guard, Table, computes_in
from dovetail_triton_exec.graph import LOW, Node
from dovetail_triton_exec.index import ZERO, Form, linear, plus, regrouped, shifted, times, whole

Coords = tuple[Form, ...]
OPEN: Guard = frozenset()
NUMERIC = frozenset({"uniform_philox", "normal_philox"})


AS_HELD = frozenset(  # operations that eager gives a number as the tensor's dtype holds it; others get it in float32
    {"where", "maximum", "minimum", "copysign", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "floordiv", "atan2"}
)


class CannotLower(Exception):
    """A node cannot be computed in this kernel; `node` is what would have to lie in memory before."""

    def __init__(self, why: str, node: Node | None = None):
        super().__init__(why)
        self.node = node


class Memory(Protocol):
    """What a kernel may read: the memory of nodes, and the results of reductions."""

    def buffer(self, node: Node) -> Buffer | None:
        """Return the buffer of `node`, if it lies in memory before the kernel starts."""

    def result(self, node: Node, coords: Coords, guard: Guard) -> Expr:
        """Read the result of a reduction at `coords` where `guard` holds; raise CannotLower where it is not known in the kernel."""


class Lowering:
    """Makes the expressions of one kernel."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.table = Table()
        self.memo: dict[tuple, Expr] = {}

    def at(self, node: Node, coords: Coords, guard: Guard = OPEN) -> Expr:
        """Return the element of `node` at `coords`.  Where `guard` does not hold nothing is read, and the value means nothing."""
        key = (node, coords, guard)
        expr = self.memo.get(key)
        if expr is None:
            expr = self.memo[key] = self._lower_node(node, coords, guard)
        return expr

    def _lower_node(self, node: Node, coords: Coords, guard: Guard) -> Expr:
        if node.is_view:
            return self.at(node.args[0], through(node, coords), guard)
        buffer = self.memory.buffer(node)
        if buffer is not None:
            return self.table.make("load", (), computes_in(buffer.dtype), (buffer, linear(coords, node.steps), guard))
        if node.reduces:
            return self.memory.result(node, coords, guard)
        special = SPECIAL.get(node.op)
        value = self._elementwise(node, coords, guard) if special is None else special(self, node, coords, guard)
        return self.table.make("narrow", (value,), float32, node.dtype.name) if node.rounds else value

    def _elementwise(self, node: Node, coords: Coords, guard: Guard) -> Expr:
        low = next((a.dtype for a in reversed(node.nodes) if a.dtype in LOW), None)
        held = low if node.op in AS_HELD else None
        args = tuple(self.at(a, coords, guard) if isinstance(a, Node) else _held(a, held) for a in node.args)
        return self.table.make(node.op, args, computes_in(node.dtype), tuple(sorted(node.params.items())) or None)

    def holds(self, conditions: list[Condition]) -> Expr:
        """Return whether all conditions hold, as an expression."""
        return self.table.make("inside", (), bool_, frozenset(conditions))


def _held(value: Any, dtype: DType | None) -> Any:
    """Return a number as float16 or bfloat16 holds it."""
    return value if dtype is None or isinstance(value, bool) or not math.isfinite(value) else float(torch.tensor(value, dtype=TO_TORCH[dtype]))


def through(node: Node, coords: Coords) -> Coords:
    """Return the coordinates in its argument of what a view shows at `coords`."""
    x, p = node.args[0], node.params
    if node.op == "reshape":
        return regrouped(coords, node.shape, x.shape)
    if node.op == "squeeze":
        inner = iter(coords)
        return tuple(ZERO if d in p["dims"] else next(inner) for d in range(len(x.shape)))
    if node.op == "transpose":
        return tuple(coords[p["order"].index(d)] for d in range(len(x.shape)))
    if node.op == "broadcast_in_dim":
        return tuple(coords[d] if n == node.shape[d] else ZERO for d, n in zip(p["dims"], x.shape, strict=True))
    if node.op == "strided_slice":
        return tuple(shifted(times(c, k), a) for c, k, a in zip(coords, p["steps"], p["starts"], strict=True))
    if node.op == "diagonal":
        return _diagonal(node, coords)
    if node.op == "unfold":
        *outer, within = coords
        return tuple(plus(times(c, p["step"]), within) if d == p["dim"] else c for d, c in enumerate(outer))
    return coords


def _diagonal(node: Node, coords: Coords) -> Coords:
    dim1, dim2, offset = (node.params[key] for key in ("dim1", "dim2", "offset"))
    *outer, along = coords
    rest = iter(outer)
    places = {dim1: shifted(along, max(-offset, 0)), dim2: shifted(along, max(offset, 0))}
    return tuple(places[d] if d in places else next(rest) for d in range(len(node.args[0].shape)))


def _copy(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    return low.at(node.args[0], coords, guard)


def _convert(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    """Return a conversion to a dtype that computes in float32 is one to float32; the node's rounding does the rest."""
    x = low.at(node.args[0], coords, guard)
    to = computes_in(node.dtype)
    return x if x.dtype is to else low.table.make("convert", (x,), to)


def _full(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    value = low.table.make("full", (node.params["value"],), computes_in(node.dtype))
    return low.table.make("narrow", (value,), float32, node.dtype.name) if node.dtype in LOW else value


def _iota(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    value = low.table.make("iota", (node.params["start"], node.params["step"]), computes_in(node.dtype), coords[0])
    return low.table.make("narrow", (value,), float32, node.dtype.name) if node.dtype in LOW else value


def _flip(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    dims = node.params["dims"]
    turned = tuple(shifted(times(c, -1), n - 1) if d in dims else c for d, (c, n) in enumerate(zip(coords, node.shape, strict=True)))
    return low.at(node.args[0], turned, guard)


def _pad(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    x, before = node.args[0], node.params["low"]
    inner = tuple(shifted(c, -a) for c, a in zip(coords, before, strict=True))
    inside = [Condition(c, 0, n) for c, n in zip(inner, x.shape, strict=True) if c.low < 0 or c.high >= n]
    value = low.table.make("full", (node.params["value"],), computes_in(node.dtype))
    if 0 in x.shape:
        return value
    if not inside:
        return low.at(x, inner, guard)
    return low.table.make("where", (low.holds(inside), low.at(x, inner, guard | frozenset(inside)), value), value.dtype)


def _cat(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    dim, result, at = node.params["dim"], None, 0
    for x in node.args[0]:
        n = x.shape[dim]
        if n == 0:
            continue
        inner = (*coords[:dim], shifted(coords[dim], -at), *coords[dim + 1 :])
        here = Condition(inner[dim], 0, n)
        part = low.at(x, inner, guard | {here})
        result = part if result is None else low.table.make("where", (low.holds([here]), part, result), part.dtype)
        at += n
    return result


def _put_slice(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    x, value = node.args
    inner = tuple(shifted(c, -a) for c, a in zip(coords, node.params["starts"], strict=True))
    inside = [Condition(c, 0, n) for c, n in zip(inner, value.shape, strict=True) if c.low < 0 or c.high >= n]
    if value.numel == 0:
        return low.at(x, coords, guard)
    put = low.at(value, inner, guard | frozenset(inside))
    return low.table.make("where", (low.holds(inside), put, low.at(x, coords, guard)), put.dtype) if inside else put


def _gather(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    """Read elements of x at loaded positions: `along` are the result's dims (from `first` on) that the index has."""
    x, indices = node.args
    first, along, axis = node.params["first"], node.params["along"], node.params.get("axis", False)
    at = coords if axis else tuple(coords[d] for d in along)
    places = [_position(low, i, at, x.shape[first + k], guard) for k, i in enumerate(indices)]
    if axis:
        return low.at(x, (*coords[:first], places[0], *coords[first + 1 :]), guard)
    start, count = along[0] if along else first, len(along)
    return low.at(x, (*coords[:start], *places, *coords[start + count :]), guard)


def _position(low: Lowering, index: Node, coords: Coords, size: int, guard: Guard) -> Form:
    """Return a loaded position; reading out of bounds is an error where the device says so."""
    value = low.at(index, coords, guard)
    checked = low.table.make("checked", (value, size), int64, guard)
    return whole(low.table.position(checked, size)) if size > 1 else _zero_after(low, checked)


def _zero_after(low: Lowering, checked: Expr) -> Form:
    """Return position 0 of a single row, still loaded and checked."""
    return whole(low.table.position(checked, 2))


def _scatter(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    """Return one element of each row put, or added, where its index says."""
    x, index, value = node.args
    dim, kept = node.params["dim"], low.at(node.args[0], coords, guard)
    single = (*coords[:dim], ZERO, *coords[dim + 1 :])
    place = low.table.make("checked", (low.at(index, single, guard), x.shape[dim]), int64, guard)
    here = low.table.make("eq", (low.table.make("iota", (0, 1), int64, coords[dim]), place), bool_)
    put = low.at(value, single, guard)
    if node.params["add"]:
        put = low.table.make("add", (kept, put), put.dtype)
        put = low.table.make("narrow", (put,), float32, node.dtype.name) if node.dtype in LOW and node.exact else put
    return low.table.make("where", (here, put, kept), put.dtype)


def _philox(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    """Number `position` of the stream; seed and offset are tensors without dimensions."""
    seed, offset = (low.at(a, (), guard) for a in node.args)
    steps = node.steps
    data = (linear(coords, steps), node.dtype.name, *(node.params[key] for key in sorted(node.params)))
    value = low.table.make(node.op, (seed, offset), computes_in(node.dtype), data)
    return low.table.make("narrow", (value,), float32, node.dtype.name) if node.dtype in LOW else value


def _part(low: Lowering, node: Node, coords: Coords, guard: Guard) -> Expr:
    raise CannotLower("the parts are known only when their kernel has run", node)


SPECIAL: dict[str, Any] = {
    "part": _part,
    **{"copy": _copy, "convert_element_type": _convert, "full": _full, "iota": _iota, "flip": _flip, "pad": _pad, "cat": _cat},
    **{"put_slice": _put_slice, "gather": _gather, "scatter": _scatter},
    **dict.fromkeys(NUMERIC, _philox),
}
