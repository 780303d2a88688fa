"""Conditions on positions, which joins, pads and shifts ask of every element, decided once for a range of elements.

    out[i] = x[i] if i < 100 else y[i - 100]        becomes two loops, over 0 <= i < 100 and 100 <= i < n

A condition that does not change along the innermost loop is a branch around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from dovetail.dtypes import bool_, int64
from dovetail_llvm_exec.loops.axes import Axis
from dovetail_llvm_exec.loops.row_cache import Store
from dovetail_llvm_exec.region.exprs import Expr, Table, walk
from dovetail_llvm_exec.region.forms import Form

MOST_RANGES = 8  # of the innermost loop, each with code of its own
MOST_BRANCHES = 8  # around it


def conditions(exprs: Sequence[Expr]) -> list[Expr]:
    """Return what compares a position with a number that is the same in all loops, in the order of `walk`."""
    return [e for e in exprs if e.op in ("lt", "ge") and e.args[0].op == "index" and not e.args[0].data.moving and not e.args[1].atoms and e.atoms]


def branching(exprs: Sequence[Expr], axes: Sequence[Axis]) -> Expr | None:
    """Return a condition that does not change along `axes`; None where there is none."""
    atoms = {atom for axis in axes for atom in axis.atoms}
    return next((e for e in conditions(exprs) if e.atoms.isdisjoint(atoms)), None)


def ranges(exprs: Sequence[Expr], axis: Axis) -> list[tuple[int, int, dict[Expr, bool]]]:
    """Return ranges (start, stop) of `axis` in which each condition on its position alone is decided; a single one where they are too many."""
    turns: dict[Expr, int] = {}  # where `lt` begins not to hold, and `ge` to hold
    for e in conditions(exprs):
        step, number = axis.step(e.args[0].data), e.args[1]
        if e.atoms <= set(axis.atoms) and number.op == "const" and type(step) is int and step > 0:
            turns[e] = min(max(-((e.args[0].data.const - number.data[1]) // step), 0), axis.size)
    edges = sorted({0, axis.size, *turns.values()})
    if len(edges) > MOST_RANGES + 1:
        return [(0, axis.size, {})]
    return [(low, high, {e: (low >= turn) == (e.op == "ge") for e, turn in turns.items()}) for low, high in pairwise(edges)]


def assuming(table: Table, stores: Sequence[Store], truths: Mapping[Expr, bool]) -> list[Store]:
    """Return `stores` with the conditions decided as in `truths`."""
    if not truths:
        return list(stores)
    new: dict[Expr, Expr] = {}
    for e in walk([s.expr for s in stores]):
        new[e] = table.const(truths[e], bool_) if e in truths else _decided(table, e, new)
    return [s._replace(expr=new[s.expr]) for s in stores]


def _decided(table: Table, e: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """Return `e` with its parts replaced, and without what they decide."""
    args = tuple(new[a] for a in e.args)
    known = [a.data[1] if a.op == "const" else None for a in args]
    if e.op == "where" and known[0] is not None:
        return args[1] if known[0] else args[2]
    if e.op == "bitwise_and" and e.dtype is bool_ and (known[0] is not None or known[1] is not None):
        if known[0] is False or known[1] is False:
            return table.const(False, bool_)
        return args[0] if known[1] else args[1]
    if e.op == "load" and args and known[0] is not None:
        args = ()
        if not known[0]:
            return table.const(0.0 if e.dtype.kind == "float" else 0, e.dtype)  # nothing asks for its value
    if e.op == "checked" and len(args) > 1 and known[1] is not None:
        args = args[:1]
        if not known[1]:
            return table.const(0, int64)
    data = e.data
    if e.op == "load":
        buffer, form = data
        data = (buffer, _moved(form, new))
    elif e.op == "index":
        data = _moved(data, new)
    return e if args == e.args and data is e.data else table.make(e.op, args, e.dtype, data)


def _moved(form: Form, new: Mapping[Expr, Expr]) -> Form:
    return form._replace(moving=tuple((new[e], step) for e, step in form.moving)) if form.moving else form
