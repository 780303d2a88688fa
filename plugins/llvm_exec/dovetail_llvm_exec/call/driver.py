"""One function that runs every kernel: it calls the loop nests that a table names, in threads where that pays.

The words of a table are those of FIELDS, then a row of those of ROW for each loop nest; a kernel of many sizes has rows of SIZED_ROW, and where the
others have a number of units, of elements, or a limit, the place of that among the words of the call.  The loop nests are functions without
their numbers (`ir/lift.py`), so kernels of one structure share their code, and a kernel of known loop nests needs no compiler.

The loop nests of a short kernel are drafts at first, which LLVM has not optimized.  The table counts its runs, of which the last but few let Python
compile them again: a program that is called once or twice does not wait for that.
"""

from __future__ import annotations

import _thread
import ctypes
import warnings
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from dovetail.extend.advanced import ExecutorWarning
from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir.module import Builder, Module
from dovetail_llvm_exec.ir.sizes import SizeWords
from dovetail_llvm_exec.ir.target import Target
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.crowd import CLOCK, Crowd
from dovetail_llvm_exec.loops.program import pays
from dovetail_llvm_exec.loops.stage import Phase
from dovetail_llvm_exec.scalars.costs import GRAIN

FIELDS = ("limit", "counters", "nests", "left")  # cycles that a call with threads may take, 0 for kernels without; two counters of `Crowd`
ROW = ("function", "numbers", "units", "threads")
SIZED_ROW = ("function", "numbers", "units", "elements", "enough", "grain")  # threads from `enough` elements on, one for each `grain` of them
NAME, SHARE = "run", "share"
MOST_THREADS = 1 << 16
NEVER = 1 << 62  # as `enough`
SHORT = 250_000.0  # nanoseconds that a kernel of drafts may take
RUNS = 6  # of a draft, for each line that runs it: the first trial of a line takes five
FINISH = "dovetail_finish"


class NestCall(NamedTuple):
    """One loop nest of a kernel: the key of its object on disk, its numbers, and the words of its row behind those."""

    key: str
    numbers: Sequence[int]
    words: Sequence[int]


class DrivenKernel:
    """A kernel that is a table: `address` is the driver's, `table` what that gets."""

    def __init__(self, compiler: jit.Compiler, driver: jit.Kernel, functions: Sequence[jit.Kernel], calls: Sequence[NestCall], limit: int):
        self.compiler, self.functions, self.calls, self.driver = compiler, tuple(functions), tuple(calls), driver
        self.drafts = tuple([function for function in functions if function.draft])  # they live as long: another thread may run them
        self.address, self.limit = driver.address, limit
        self._numbers = [(ctypes.c_int64 * max(len(call.numbers), 1))(*call.numbers) for call in calls]
        words = [limit, 0, len(calls), 0]
        for function, call, numbers in zip(functions, calls, self._numbers, strict=True):
            words += [function.address, ctypes.addressof(numbers), *call.words]
        self._words = (ctypes.c_int64 * len(words))(*words)
        self.table: int = ctypes.addressof(self._words)
        if self.drafts:
            _WITH_DRAFTS[self.table] = self
            self.allow_runs()

    def allow_runs(self) -> None:
        """Let drafts run some more times, for another line that runs them."""
        if any([function.draft for function in self.functions]):
            self._words[LEFT] += RUNS

    def finish(self) -> None:
        """Put optimized code in the place of drafts; calls that are running go on in these."""
        functions = [self.compiler.finished(function) if function.draft else function for function in self.functions]
        at = len(FIELDS)
        for function, call in zip(functions, self.calls, strict=True):
            self._words[at] = function.address
            at += 2 + len(call.words)
        self.functions, self._words[LEFT] = tuple(functions), 0

    @property
    def cached(self) -> bool:
        """Whether all of its code was known."""
        return all([function.cached for function in self.functions])

    def facts(self) -> dict[str, Any]:
        """Return what makes an equal kernel in another process."""
        return {"limit": self.limit, "calls": [list(call) for call in self.calls]}


LEFT = FIELDS.index("left")
_WITH_DRAFTS: weakref.WeakValueDictionary[int, DrivenKernel] = weakref.WeakValueDictionary()  # kernels by the address of their table


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _finish(table: int) -> None:
    """Finish a kernel, from its driver: an error cannot leave here, and the drafts compute the same."""
    kernel = _WITH_DRAFTS.get(table)
    try:
        if kernel is not None:
            kernel.finish()
    except KeyboardInterrupt:
        _thread.interrupt_main()
    except Exception as error:
        warnings.warn(f"a kernel stays a draft, since LLVM does not optimize it: {error}", ExecutorWarning, stacklevel=2)


def row_of(phase: Phase, parallel: bool) -> tuple[int, int]:
    """Return the units of a loop nest of known size, and how many threads may share them."""
    threads = min(phase.units, max(phase.cost.now / GRAIN * 2, 2), MOST_THREADS) if parallel and pays(phase) else 1
    return phase.units, int(threads)


def sized_row_of(phase: Phase, parallel: bool, sizes: SizeWords) -> tuple[int, ...]:
    """Return the same for a loop nest of many sizes."""
    each = max(phase.cost.each, 1e-6)
    enough = int(GRAIN / each) + 1 if parallel and pays(phase) else NEVER
    return sizes.place(phase.units), sizes.place(phase.cost.elements), enough, max(int(GRAIN / 2 / each), 1)


def recalled(compiler: jit.Compiler, facts: dict[str, Any], parallel: bool) -> DrivenKernel | None:
    """Return the kernel of what `facts` returned; None where code of it is no longer on disk."""
    calls = [NestCall(*call) for call in facts["calls"]]
    functions = [function for call in calls if (function := compiler.known(call.key)) is not None]
    return DrivenKernel(compiler, driver(compiler, parallel), functions, calls, facts["limit"]) if len(functions) == len(calls) else None


def driver(compiler: jit.Compiler, parallel: bool, *, sized: bool = False) -> jit.Kernel:
    """Return the driver; `parallel`: one that shares units among threads, `sized`: for kernels of many sizes."""
    compiler.provide(FINISH, ctypes.cast(_finish, ctypes.c_void_p).value or 0)
    return compiler.shared(written(compiler.target, parallel, sized), NAME)


@cache
def written(target: Target, parallel: bool, sized: bool) -> str:
    """Return the driver's module: run(args, threads, table)."""
    module = Module(target)
    b = module.function(NAME, "void", [("args", "ptr"), ("threads", "i32"), ("table", "ptr")])
    args, threads, table = b.params
    _count(module, b, table)
    limit, start = b.load("i64", table, align=8), b.constant(0, "i64")
    several = b.compare("ne", limit, 0)
    if sized:
        limit = b.load("i64", b.address(args, "i64", limit), align=8)
    crowd = Crowd(b, limit, b.address(table, "i64", FIELDS.index("counters"))) if parallel and target.clock else None
    if crowd is not None:
        threads, start = b.branch(several, lambda: [crowd.enter(threads), b.call(CLOCK, "i64")], [threads, start])
    rows = b.address(table, "i64", len(FIELDS))
    with b.loop(0, b.load("i64", b.address(table, "i64", FIELDS.index("nests")), align=8)) as loop:
        row = b.address(rows, "i64", b.mul(loop.index, len(SIZED_ROW if sized else ROW)))
        _call(module, b, args, threads, row, parallel, sized)
    if crowd is not None:
        b.branch(several, lambda: crowd.leave(threads, start) or (), ())
    b.ret()
    if parallel:
        _share(module, sized)
    return module.text()


def _count(module: Module, b: Builder, table: Value) -> None:
    """Write the count of the runs that drafts have left; behind the last of them they are finished."""
    module.declare(FINISH, "void", ["ptr"])
    place = b.address(table, "i64", LEFT)
    left = b.load("i64", place, align=8)

    def count() -> Sequence[Value]:
        less = b.sub(left, 1)
        b.store(less, place, align=8)
        b.branch(b.compare("eq", less, 0), finish, (), rarely=True)
        return ()

    def finish() -> Sequence[Value]:
        b.line(f"call void @{FINISH}({table})")
        return ()

    b.branch(b.compare("gt", left, 0), count, (), rarely=True)


def _call(module: Module, b: Builder, args: Value, threads: Value, row: Value, parallel: bool, sized: bool) -> None:
    """Write the call of one loop nest: all units by this thread, or a share by each of several."""
    function, numbers, units = _work(b, args, row, sized)

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
    most = _most_threads(b, args, row, units) if sized else b.load("i64", b.address(row, "i64", ROW.index("threads")), align=8)
    b.branch(b.and_(b.compare("gt", threads, 1), b.compare("gt", most, 1)), together, alone)


def _work(b: Builder, args: Value, row: Value, sized: bool) -> tuple[Value, Value, Value]:
    """Return the function of a row, its numbers, and how many units it has."""
    function, numbers, units = (b.load(type, b.address(row, "i64", i), align=8) for i, type in enumerate(("ptr", "ptr", "i64")))
    return function, numbers, b.load("i64", b.address(args, "i64", units), align=8) if sized else units


def _most_threads(b: Builder, args: Value, row: Value, units: Value) -> Value:
    """Return how many threads may share the units of a row of SIZED_ROW."""
    elements, enough, grain = (b.load("i64", b.address(row, "i64", SIZED_ROW.index(name)), align=8) for name in SIZED_ROW[3:])
    elements = b.load("i64", b.address(args, "i64", elements), align=8)
    grains = b.call("llvm.smax.i64", "i64", b.udiv(elements, grain), b.constant(2, "i64"))
    most = b.call("llvm.smin.i64", "i64", b.call("llvm.smin.i64", "i64", units, grains), b.constant(MOST_THREADS, "i64"))
    return b.select(b.compare("ge", elements, enough), most, b.constant(1, "i64"))


def _share(module: Module, sized: bool) -> None:
    """Write the function of one thread: its share of the units."""
    b = module.function(SHARE, "void", [("job", "ptr")], linkage="internal ")
    args, row = (b.load("ptr", b.address(b.params[0], "ptr", i), align=8) for i in range(2))
    function, numbers, units = _work(b, args, row, sized)
    here, all = (b.cast("sext", b.call(name, "i32"), "i64") for name in ("omp_get_thread_num", "omp_get_num_threads"))
    low, high = (b.udiv(b.mul(n, units), all) for n in (here, b.add(here, 1)))
    b.line(f"call void {function.name}({args}, {low}, {high}, {numbers})")
    b.ret()
