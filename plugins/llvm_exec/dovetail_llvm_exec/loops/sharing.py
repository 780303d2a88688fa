"""What kernels of many sizes call to run their loop nests, in a module of its own that is compiled once.

dovetail_units(args, function, units, threads, elements, enough, grain) calls function(args, lo, hi) for all units: in threads where there are
`enough` elements, one for each `grain` of them; dovetail_enter and dovetail_leave are those of a `Crowd`, with its counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from dovetail_llvm_exec.ir.module import Builder, Module
from dovetail_llvm_exec.ir.target import Target
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.crowd import Crowd

UNITS, ENTER, LEAVE = "dovetail_units", "dovetail_enter", "dovetail_leave"
MOST_THREADS = 1 << 16


@cache
def written(target: Target) -> str:
    """Return the module."""
    module = Module(target)
    _write_units(module)
    _write_share(module)
    b = module.function(ENTER, "i32", [("counters", "ptr"), ("threads", "i32")])
    b.ret(Crowd(b, b.constant(0, "i64"), b.params[0]).enter(b.params[1]))
    if target.clock:
        b = module.function(LEAVE, "void", [("counters", "ptr"), ("threads", "i32"), ("start", "i64"), ("limit", "i64")])
        Crowd(b, b.params[3], b.params[0]).leave(*b.params[1:3])
        b.ret()
    return module.text()


def _write_units(module: Module) -> None:
    """Write the function that calls another for all units."""
    words = [("units", "i64"), ("threads", "i32"), ("elements", "i64"), ("enough", "i64"), ("grain", "i64")]
    b = module.function(UNITS, "void", [("args", "ptr"), ("function", "ptr"), *words])
    args, function, units, threads, elements, enough, grain = b.params
    job = b.alloca("i64", 3, align=8)
    module.declare("GOMP_parallel", "void", ["ptr", "ptr", "i32", "i32"])

    def together() -> Sequence[Value]:
        for i, word in enumerate((args, function, units)):
            b.store(word, b.address(job, "i64", i), align=8)
        grains = b.call("llvm.smax.i64", "i64", b.udiv(elements, grain), b.constant(2, "i64"))
        most = b.call("llvm.smin.i64", "i64", b.call("llvm.smin.i64", "i64", units, grains), b.constant(MOST_THREADS, "i64"))
        count = b.call("llvm.smin.i32", "i32", threads, b.cast("trunc", most, "i32"))
        b.line(f"call void @GOMP_parallel(ptr @share, {job}, {count}, i32 0)")
        return ()

    def alone() -> Sequence[Value]:
        b.line(f"call void {function.name}({args}, i64 0, {units})")
        return ()

    pays = b.and_(b.compare("gt", threads, 1), b.and_(b.compare("gt", units, 1), b.compare("ge", elements, enough)))
    b.branch(pays, together, alone)
    b.ret()


def _write_share(module: Module) -> None:
    """Write the function of one thread: its share of the units."""
    b = module.function("share", "void", [("job", "ptr")], linkage="internal ")
    args, function, units = (b.load(type, b.address(b.params[0], "i64", i), align=8) for i, type in enumerate(("ptr", "ptr", "i64")))
    b.line(f"call void {function.name}({args}, {', '.join(map(str, share_of(b, units)))})")
    b.ret()


def share_of(b: Builder, units: Value) -> tuple[Value, Value]:
    """Return from which unit to which the thread that runs has its share."""
    here, all = (b.cast("sext", b.call(name, "i32"), "i64") for name in ("omp_get_thread_num", "omp_get_num_threads"))
    return b.udiv(b.mul(here, units), all), b.udiv(b.mul(b.add(here, 1), units), all)
