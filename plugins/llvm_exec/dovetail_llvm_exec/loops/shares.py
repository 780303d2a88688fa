"""Which largest elements of a row may overlook NaN: those of a softmax, whose sum is NaN then, and with it all that is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail_llvm_exec.region.exprs import Expr
from dovetail_llvm_exec.region.groups import Result

CARRY = frozenset({"add", "sub", "mul", "div", "neg", "exp", "exp_nonpositive", "log", "reciprocal", "convert_element_type"})  # NaN gives NaN


def nan_blind(results: Sequence[Result], exprs: Iterable[Expr], sinks: Iterable[Expr]) -> set[Result]:
    """Return the results that need not see NaN; `exprs` are all that is computed, `sinks` what is stored or added up."""
    sums = [r for r in results if r.node.op == "sum" and r.body.op == "exp_nonpositive"]
    totals_of = {}
    for total in sums:
        largest = total.body.args[0].args[1].data
        totals_of.setdefault(largest, set()).add(total)
    if not totals_of:
        return set()
    users: dict[Expr, list[Expr]] = {}
    for expr in exprs:
        for arg in expr.args:
            users.setdefault(arg, []).append(expr)
    ends = set(sinks) | {r.body for r in results if r not in sums} | {r.place for r in results if r.place is not None}
    return {largest for largest, totals in totals_of.items() if _meets(largest.expr, totals, users, ends)}


def _meets(expr: Expr, totals: set[Result], users: dict[Expr, list[Expr]], ends: set[Expr]) -> bool:
    """Return whether all that is computed from `expr` is computed from one of the sums, too, so that it is NaN where they are."""
    if expr in ends:
        return False
    for user in users.get(expr, ()):
        if user.dtype.kind != "float" or user.op not in CARRY:
            return False
        others = [a for a in user.args if a is not expr]
        if not any(_carries(a, totals) for a in others) and not _meets(user, totals, users, ends):
            return False
    return True


def _carries(expr: Expr, totals: set[Result]) -> bool:
    """Return whether `expr` is NaN where one of the sums is."""
    if expr.op == "row":
        return expr.data in totals
    return expr.op in CARRY and expr.dtype.kind == "float" and any(_carries(a, totals) for a in expr.args)
