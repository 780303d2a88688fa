"""Values that several sweeps over a row need and that cost more to compute again than to keep: they are kept in a row of memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from dovetail.dtypes import bool_, float32
from dovetail.prims.sizes import Size
from dovetail_llvm_exec.ir.module import Module
from dovetail_llvm_exec.ir.target import Target
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.axes import Axis
from dovetail_llvm_exec.loops.nest import Nest
from dovetail_llvm_exec.region.exprs import Buffer, Expr, walk
from dovetail_llvm_exec.region.forms import Form, inside
from dovetail_llvm_exec.scalars import kinds

DEAR = 0.09  # nanoseconds for an element that are more than writing and reading it
ROOM = 1 << 18  # bytes on the stack of a thread, for all of them
ROW_MEMORY = "dovetail_row_memory"  # the function that takes memory for a row, in a module of its own
SHARE = ROOM // 4  # bytes on the stack for one whose length is known when the kernel runs; a longer one lies on the heap


class Store(NamedTuple):
    """`expr` goes to the place `form` of a buffer."""

    buffer: Buffer
    form: Form
    expr: Expr


class RowCache:
    """What is kept between the sweeps over one row of `columns`."""

    def __init__(self, columns: Sequence[Axis], nest: Nest):
        self.nest = nest
        self.atoms = frozenset(a for axis in columns for a in axis.atoms)
        self.form = inside([atom for axis in columns for atom in axis.atoms])
        self.size = prod(axis.size for axis in columns)
        self.left = ROOM
        self.after: dict[int, list[Store]] = {}  # by the identity of a sweep, what is kept by it

    def choose(self, sweeps: Sequence[Any]) -> None:
        """Find what is computed by one sweep and wanted by a later one."""
        first: dict[Expr, Any] = {}
        chosen: set[Expr] = set()
        for sweep in sweeps:
            stack, new = list(sweep.roots), set[Expr]()
            while stack:
                expr = stack.pop()
                if expr in new or expr in chosen or expr.atoms.isdisjoint(self.atoms):
                    continue
                if expr in first and self._worth(expr):
                    chosen.add(expr)
                    self._keep(expr, first[expr])
                    continue
                new.add(expr)
                stack += expr.parts
            for expr in new:
                first.setdefault(expr, sweep)

    def _worth(self, expr: Expr) -> bool:
        bytes = SHARE if type(self.size) is Size else self.size * max(expr.dtype.bytes, 4)
        if expr.dtype is bool_ or expr.op in ("load", "index", "checked", "const") or bytes > self.left:
            return False
        under = walk([expr], lambda e: not e.atoms.isdisjoint(self.atoms))
        return sum(e.cost for e in under if e.op not in ("load", "index")) >= DEAR

    def _keep(self, expr: Expr, sweep: Any) -> None:
        dtype = float32 if expr.dtype in kinds.HALVES else expr.dtype
        buffer = Buffer("row_cache", len(self.nest.pointers), dtype)
        if type(self.size) is Size:
            self.left -= SHARE
            self.nest.pointers[buffer] = row_memory(self.nest, self.size * dtype.bytes)
        else:
            self.left -= self.size * dtype.bytes
            self.nest.pointers[buffer] = self.nest.b.alloca(kinds.stored(dtype), self.size)
        self.after.setdefault(id(sweep), []).append(Store(buffer, self.form, expr))

    def done(self, sweep: Any) -> None:
        """Let later sweeps read what this one has kept."""
        for store in self.after.get(id(sweep), []):
            self.nest.cached[store.expr] = (store.buffer, store.form)


def row_memory(nest: Nest, bytes: Size) -> Value:
    """Return so many bytes of the function's own: on the stack up to SHARE, else from the heap until `release_rows`."""
    b = nest.b
    b.module.declare(ROW_MEMORY, "ptr", ["i64", "ptr", "i1"])
    count = b.constant(bytes, "i64")
    on_stack = b.at_head("i1", f"icmp ule {count}, {SHARE}")
    room = b.at_head("i64", f"select {on_stack}, {count}, i64 1")
    stack = b.at_head("ptr", f"alloca i8, {room}, align 64")
    memory = b.at_head("ptr", f"call ptr @{ROW_MEMORY}({count}, {stack}, {on_stack})")
    nest.heap.append((memory, stack))
    return memory


def release_rows(nest: Nest) -> None:
    """Free what `row_memory` took from the heap."""
    b = nest.b
    for memory, stack in nest.heap:
        own = b.compare("ne", b.cast("ptrtoint", memory, "i64"), b.cast("ptrtoint", stack, "i64"))
        b.branch(own, lambda memory=memory: b.call("free", "void", memory) and (), ())


@cache
def written_row_memory(target: Target) -> str:
    """Return the module of the function that returns the room on the stack, or as much from the heap; without memory the process ends."""
    module = Module(target)
    b = module.function(ROW_MEMORY, "ptr", [("bytes", "i64"), ("stack", "ptr"), ("enough", "i1")])
    count, stack, enough = b.params

    def take() -> Sequence[Value]:
        memory = b.call("malloc", "ptr", count)
        b.branch(b.compare("eq", b.cast("ptrtoint", memory, "i64"), 0), lambda: b.call("abort", "void") and (), (), rarely=True)
        return [memory]

    (memory,) = b.branch(b.not_(enough), take, [stack])
    b.ret(memory)
    return module.text()
