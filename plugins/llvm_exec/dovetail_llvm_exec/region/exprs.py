"""Expressions of one loop nest: what is computed for an element, with equal ones created once.

An expression knows the atoms that it varies with, so that it is computed in the outermost loop that it can be computed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dovetail.dtypes import DType, bool_, int64
from dovetail_llvm_exec.region.forms import Atom, Form
from dovetail_llvm_exec.scalars.costs import POWERS, cost_of

NO_ATOMS: frozenset[Atom] = frozenset()


class Buffer(NamedTuple):
    """Memory that a kernel reads or writes: an input, an output, or a temporary by number; `dtype` is what lies there."""

    kind: str
    number: int
    dtype: DType


class Draw(NamedTuple):
    """Which number is drawn, at the row-major position `form`; of [low, high), or around `low` with the deviation `high`."""

    form: Form
    low: float
    high: float
    dtype: DType


class Expr:
    """An operation on expressions.  `data` is what else it depends on, `atoms` the loop variables, `row_results` the row results in it.

    `op` is a prim's name, or "const", "load" (data: a buffer and a position), "index" (data: a position), "row" (data: a reduction),
    "checked" (an index, and below what it has to be).  `cost` is in nanoseconds for each element, with everything under it.
    """

    __slots__ = ("__weakref__", "args", "atoms", "cost", "data", "dtype", "number", "op", "parts", "row_results")

    def __init__(self, number: int, op: str, args: tuple[Expr, ...], dtype: DType, data: Any, atoms: frozenset[Atom], row_results: frozenset):
        self.number, self.op, self.args, self.dtype, self.data, self.atoms, self.row_results = number, op, args, dtype, data, atoms, row_results
        self.parts = (*args, *[e for form in forms_of(op, data) for e, _ in form.moving])
        simple = POWERS.get(args[1].data[1]) if op == "pow" and args[1].op == "const" else None
        self.cost = cost_of(simple or op, dtype)

    def is_number(self, value: float) -> bool:
        """Return whether it is a constant equal to `value`."""
        return self.op == "const" and self.data[1] == value

    def __repr__(self) -> str:
        return f"e{self.number}={self.op}({', '.join(f'e{a.number}' for a in self.args)}; {self.data})"

    def __lt__(self, other: Expr) -> bool:
        return self.number < other.number


class Table:
    """The expressions of a loop nest: equal ones are one object."""

    def __init__(self) -> None:
        self.known: dict[tuple, Expr] = {}

    def make(self, op: str, args: tuple[Expr, ...], dtype: DType, data: Any = None) -> Expr:
        """Return the expression, from the table or new."""
        key = (op, args, dtype, data)
        expr = self.known.get(key)
        if expr is None:
            atoms = NO_ATOMS.union(*(a.atoms for a in args)) if args else NO_ATOMS
            row_results = frozenset().union(*(a.row_results for a in args)) if args else frozenset()
            for form in forms_of(op, data):
                atoms = atoms.union(a for a, _ in form.terms).union(*(e.atoms for e, _ in form.moving))
                row_results = row_results.union(*(e.row_results for e, _ in form.moving))
            if op == "row":
                row_results |= {data}
                atoms = data.row_atoms
            expr = self.known[key] = Expr(len(self.known), op, args, dtype, data, atoms, row_results)
        return expr

    def const(self, value: Any, dtype: DType) -> Expr:
        """Return a number; -0.0 is distinguished from 0.0, and NaN equals itself."""
        return self.make("const", (), dtype, (repr(value), value if value == value else None))

    def index(self, form: Form) -> Expr:
        """Return a position as an int64."""
        return self.make("index", (), int64, form)

    def both(self, a: Expr | None, b: Expr) -> Expr:
        """Return two masks as one."""
        return b if a is None else self.make("bitwise_and", (a, b), bool_)


def forms_of(op: str, data: Any) -> tuple[Form, ...]:
    """Return the positions in an expression's data."""
    if op == "load":
        return (data[1],)
    if op in ("uniform_philox", "normal_philox"):
        return (data.form,)
    return (data,) if op == "index" else ()


def walk(roots: list[Expr], inside: Callable[[Expr], bool] | None = None, below: Callable[[Expr], Sequence[Expr]] | None = None) -> list[Expr]:
    """List everything under `roots` for which `inside` holds, what is `below` it first; below others it does not look.

    Without `below`, that is what an expression is computed from: its arguments, and positions that are read from memory.
    """
    visited: set[Expr] = set()
    order: list[Expr] = []
    pending: list[Expr | None] = [*reversed(roots)]  # the next one last; None stands before one of which all below is listed
    while pending:
        expr = pending.pop()
        if expr is None:
            order.append(pending.pop())
        elif expr not in visited and (inside is None or inside(expr)):
            visited.add(expr)
            if under := expr.parts if below is None else below(expr):
                pending += (expr, None, *reversed(under))
            else:
                order.append(expr)
    return order
