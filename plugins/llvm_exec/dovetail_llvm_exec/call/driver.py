"""One function that runs every kernel of known sizes: it calls the loop nests that a table names, in threads where that pays.

The words of a table are those of FIELDS, then a row of those of ROW for each loop nest.  The loop nests are functions without their numbers
(`ir/lift.py`), so kernels of one structure share their code, and a kernel whose loop nests are all known needs no compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir.module import Builder, Module
from dovetail_llvm_exec.ir.target import Target
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.crowd import CLOCK, Crowd
from dovetail_llvm_exec.loops.sharing import share_of

FIELDS = ("limit", "counters", "nests")  # cycles that a call with threads may take, 0 for kernels without; two counters of `Crowd`
ROW = ("function", "units", "numbers", "threads")
NAME, SHARE = "run", "share"


class NestCall(NamedTuple):
    """One loop nest of a kernel: the key of its object on disk, its units, how many threads may share them, its numbers."""

    key: str
    units: int
    threads: int
    numbers: Sequence[int]


class DrivenKernel:
    """A kernel that is a table: `address` is the driver's, `table` what that gets."""

    def __init__(self, driver: jit.Kernel, functions: Sequence[jit.Kernel], calls: Sequence[NestCall], limit: int):
        self.functions, self.calls, self.driver = tuple(functions), tuple(calls), driver
        self.address, self.limit = driver.address, limit
        self.others: dict[str, int] = {}
        self._numbers = [(ctypes.c_int64 * max(len(call.numbers), 1))(*call.numbers) for call in calls]
        words = [limit, 0, len(calls)]
        for function, call, numbers in zip(functions, calls, self._numbers, strict=True):
            words += [function.address, call.units, ctypes.addressof(numbers), call.threads]
        self._words = (ctypes.c_int64 * len(words))(*words)
        self.table: int = ctypes.addressof(self._words)

    @property
    def cached(self) -> bool:
        """Whether all of its code was known."""
        return all([function.cached for function in self.functions])

    def facts(self) -> dict[str, Any]:
        """Return what makes an equal kernel in another process."""
        return {"limit": self.limit, "calls": [list(call) for call in self.calls]}


def recalled(compiler: jit.Compiler, facts: dict[str, Any], parallel: bool) -> DrivenKernel | None:
    """Return the kernel of what `facts` returned; None where code of it is no longer on disk."""
    calls = [NestCall(*call) for call in facts["calls"]]
    functions = [function for call in calls if (function := compiler.known(call.key)) is not None]
    return DrivenKernel(driver(compiler, parallel), functions, calls, facts["limit"]) if len(functions) == len(calls) else None


def driver(compiler: jit.Compiler, parallel: bool) -> jit.Kernel:
    """Return the driver; `parallel`: one that shares units among threads."""
    return compiler.shared(written(compiler.target, parallel), NAME)


@cache
def written(target: Target, parallel: bool) -> str:
    """Return the driver's module: run(args, threads, table)."""
    module = Module(target)
    b = module.function(NAME, "void", [("args", "ptr"), ("threads", "i32"), ("table", "ptr")])
    args, threads, table = b.params
    limit, start = b.load("i64", table, align=8), b.constant(0, "i64")
    crowd = Crowd(b, limit, b.address(table, "i64", FIELDS.index("counters"))) if parallel and target.clock else None
    several = b.compare("ne", limit, 0)
    if crowd is not None:
        threads, start = b.branch(several, lambda: [crowd.enter(threads), b.call(CLOCK, "i64")], [threads, start])
    rows = b.address(table, "i64", len(FIELDS))
    with b.loop(0, b.load("i64", b.address(table, "i64", FIELDS.index("nests")), align=8)) as loop:
        row = b.address(rows, "i64", b.mul(loop.index, len(ROW)))
        _call(module, b, args, threads, row, parallel)
    if crowd is not None:
        b.branch(several, lambda: crowd.leave(threads, start) or (), ())
    b.ret()
    if parallel:
        _share(module)
    return module.text()


def _call(module: Module, b: Builder, args: Value, threads: Value, row: Value, parallel: bool) -> None:
    """Write the call of one loop nest: all units by this thread, or a share by each of several."""
    function, units, numbers, most = (b.load(type, b.address(row, "i64", i), align=8) for i, type in enumerate(("ptr", "i64", "ptr", "i64")))

    def alone() -> Sequence[Value]:
        b.line(f"call void {function.name}({args}, i64 0, {units}, {numbers})")
        return ()

    def together() -> Sequence[Value]:
        b.store(args, job, align=8)
        b.store(row, b.address(job, "ptr", 1), align=8)
        count = b.call("llvm.smin.i32", "i32", threads, b.cast("trunc", most, "i32"))
        b.line(f"call void @GOMP_parallel(ptr @{SHARE}, {job}, {count}, i32 0)")
        return ()

    if not parallel:
        alone()
        return
    job = b.alloca("ptr", 2, align=8)
    module.declare("GOMP_parallel", "void", ["ptr", "ptr", "i32", "i32"])
    pays = b.and_(b.compare("gt", threads, 1), b.compare("gt", most, 1))
    b.branch(pays, together, alone)


def _share(module: Module) -> None:
    """Write the function of one thread: its share of the units."""
    b = module.function(SHARE, "void", [("job", "ptr")], linkage="internal ")
    args, row = (b.load("ptr", b.address(b.params[0], "ptr", i), align=8) for i in range(2))
    function, units, numbers = (b.load(type, b.address(row, "i64", i), align=8) for i, type in enumerate(("ptr", "i64", "ptr")))
    low, high = share_of(b, units)
    b.line(f"call void {function.name}({args}, {low}, {high}, {numbers})")
    b.ret()
