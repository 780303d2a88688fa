"""Long chains of operations, in passes over a block of elements: what one pass computes lies in a small array until the next reads it.

Each operation of a chain waits for the one before, and a processor looks only so far ahead for others that it could do meanwhile.
Where a chain is longer than that, it is cut, so that many elements are at the same part of it at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dovetail.dtypes import float32, float64
from dovetail_llvm_exec.loops.row_cache import DEAR
from dovetail_llvm_exec.region.exprs import Expr, walk
from dovetail_llvm_exec.region.forms import Atom

LONG = 0.343  # nanoseconds, as costs count them, of a chain that a processor sees through
MOST = 3  # values that lie in arrays
SHORT = 0.05  # of a chain, what takes long to do often and no longer than others to do once
DIVIDING = frozenset({"div", "reciprocal", "sqrt", "rsqrt"})
FREE = frozenset({"load", "index", "const"})  # operations that no array saves


def passes(exprs: Sequence[Expr], atoms: Collection[Atom]) -> list[list[Expr]]:
    """Return, for each pass but the last, which values it leaves in arrays; `exprs` have what they are computed from before them.

    Values that do not change with `atoms`, the loop's, are no part of a chain.
    """
    until: dict[Expr, float] = {}  # the cost of the longest chain that ends in an expression
    for e in exprs:
        took = 0.0 if e.op in FREE else min(e.cost, SHORT) if e.op in DIVIDING else e.cost
        until[e] = 0.0 if e.atoms.isdisjoint(atoms) else took + max([until[p] for p in e.parts], default=0.0)
    of = {e: int(cost / LONG) for e, cost in until.items()}
    kept: dict[Expr, int] = {}
    for e in exprs:
        for p in e.parts:
            if of[p] < of[e] and p not in kept and _dear(p, kept, atoms):
                kept[p] = of[p]
    if len(kept) > MOST or any([p.dtype not in (float32, float64) for p in kept]):
        return []
    return [[p for p, at in kept.items() if at == number] for number in sorted(set(kept.values()))]


def _dear(expr: Expr, kept: Collection[Expr], atoms: Collection[Atom]) -> bool:
    """Return whether it costs more to compute an expression again, from what is kept, than to write and read it."""
    under = walk([expr], lambda e: e not in kept and not e.atoms.isdisjoint(atoms))
    return expr.op not in FREE and sum(e.cost for e in under if e.op not in FREE) >= DEAR
