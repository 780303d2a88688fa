"""What a kernel computes for one element: expressions, each created once.

An expression has the dtype that it computes in: float32 for float16 and bfloat16, which exist only in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dovetail.dtypes import DType, bfloat16, float16, float32
from dovetail_triton_exec.index import Form, Var


class Buffer(NamedTuple):
    """Memory that a kernel reads or writes: input, output or temporary `number`, of `dtype`."""

    kind: str
    number: int
    dtype: DType

    @property
    def name(self) -> str:
        return f"{self.kind}{self.number}"


class Condition(NamedTuple):
    """low <= form < high."""

    form: Form
    low: int
    high: int


Guard = frozenset[Condition]


class Expr:
    """An operation on expressions and numbers.  `free` are the loop variables that it depends on, `level` the reductions that it waits for."""

    __slots__ = ("args", "data", "dtype", "free", "level", "number", "op")

    def __init__(self, number: int, op: str, args: tuple, dtype: DType, data: Any, free: frozenset[Var], level: int):
        self.number, self.op, self.args, self.dtype, self.data, self.free, self.level = number, op, args, dtype, data, free, level

    def __repr__(self) -> str:
        return f"v{self.number}:{self.op}"

    @property
    def parts(self) -> list[Expr]:
        """The expressions that it is computed from, those in its index with them."""
        return [a for a in self.args if isinstance(a, Expr)] + _dynamic(self.data)


def computes_in(dtype: DType) -> DType:
    """Return the dtype in which values of `dtype` are computed."""
    return float32 if dtype is float16 or dtype is bfloat16 else dtype


def forms(data: Any) -> list[Form]:
    """Return the index forms in what an expression holds besides its arguments."""
    if isinstance(data, Form):
        return [data]
    if isinstance(data, Condition):
        return [data.form]
    if isinstance(data, (tuple, frozenset)) and not isinstance(data, Buffer):
        return [f for item in data for f in forms(item)]
    return []


def _dynamic(data: Any) -> list[Expr]:
    """Return the expressions whose values are part of an index."""
    return [v.value for form in forms(data) for v in sorted(form.vars(), key=lambda v: v.name) if v.value is not None]


def variables(data: Any) -> frozenset[Var]:
    """Return the loop variables in an index, those of loaded positions with them."""
    free_variables: set[Var] = set()
    for form in forms(data):
        for var in form.vars():
            free_variables |= {var} if var.value is None else var.value.free
    return frozenset(free_variables)


class Table:
    """The expressions of one kernel, equal ones once."""

    def __init__(self) -> None:
        self.known: dict[tuple, Expr] = {}
        self.positions: dict[tuple[Expr, int], Var] = {}

    def make(self, op: str, args: tuple, dtype: DType, data: Any = None, *, drop: Var | None = None) -> Expr:
        """Return the expression; `drop` is the loop variable that a reduction runs over."""
        key = (op, tuple((type(a).__name__, repr(a)) if not isinstance(a, Expr) else a for a in args), dtype, data)
        expr = self.known.get(key)
        if expr is None:
            parts = [a for a in args if isinstance(a, Expr)] + _dynamic(data)
            free = frozenset().union(*(p.free for p in parts)) | variables(data)
            level = max((p.level for p in parts), default=0)
            if drop is not None:
                free, level = free - {drop}, level + 1
            expr = self.known[key] = Expr(len(self.known), op, args, dtype, data, free, level)
        return expr

    def position(self, value: Expr, size: int) -> Var:
        """Return a loaded position, as a variable of index forms."""
        key = (value, size)
        if key not in self.positions:
            self.positions[key] = Var(f"p{value.number}_{size}", size, value)
        return self.positions[key]
