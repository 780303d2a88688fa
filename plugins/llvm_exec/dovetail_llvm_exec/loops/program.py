"""A region as one module: the functions of its loop nests, and `run`, which calls them in order, in threads where that pays.

run(args, threads) gets an array of 64-bit words: the status, the workspace, the addresses of the inputs, those of the outputs.
`threads` is how many may work at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail_llvm_exec.ir.module import Builder, Module, Value
from dovetail_llvm_exec.loops.crowd import Crowd
from dovetail_llvm_exec.loops.elements import Elements
from dovetail_llvm_exec.loops.rows import Rows
from dovetail_llvm_exec.loops.stage import Phase, Workspace
from dovetail_llvm_exec.loops.verifier import verify_phases, verify_plan
from dovetail_llvm_exec.loops.wide import Wide
from dovetail_llvm_exec.region.graph import Graph, Node
from dovetail_llvm_exec.region.groups import Group, Plan
from dovetail_llvm_exec.scalars.costs import GRAIN


class Program(NamedTuple):
    """The text of a module whose function `run` computes the nodes of a plan; bytes of workspace; nanoseconds, by estimate.

    `phases` are the functions that `run` calls, in order, and `rooms` what lies where in the workspace.
    """

    text: str
    workspace: int
    cost: float
    groups: int
    parallel: bool
    plan: Plan
    phases: list[Phase]
    rooms: Workspace


def program(graph: Graph, stored: Sequence[Node], target: Any, *, parallel: bool = True, fresh: bool = True) -> Program:
    """Return the program that computes `stored` from the graph's inputs; `fresh`: into memory of its own, which starts at a cache line.

    Raises `Broken` where the verifier refuses it.
    """
    plan = Plan(graph, stored)
    verify_plan(plan)
    if fresh:
        plan.stream()
    module, workspace = Module(target), Workspace()
    last = plan.last_reads()
    for node in plan.temporaries:
        buffer = plan.memory[node]
        workspace.take(buffer, node.numel, plan.written[node], last.get(buffer, plan.written[node]))
    phases = [phase for g in plan.groups for phase in written(module, g, workspace, len(graph.inputs))]
    verify_phases(phases, workspace, plan.outputs.values())
    b = module.function("run", "void", [("args", "ptr"), ("threads", "i32")])
    several = parallel and any(_pays(p) for p in phases)
    crowd = Crowd(b, sum(p.cost for p in phases)) if several and target.clock else None
    threads = b.params[1] if crowd is None else crowd.enter(b.params[1])
    for phase in phases:
        _call(module, b, phase, parallel, threads)
    if crowd is not None:
        crowd.leave(threads)
    b.ret()
    return Program(module.text(), workspace.size, sum(p.cost for p in phases), len(plan.groups), several, plan, phases, workspace)


def written(module: Module, group: Group, workspace: Workspace, inputs: int) -> list[Phase]:
    """Return the functions of one loop nest."""
    name, reduces = f"nest{group.index}", any(item.kind != "store" for item in group.items)
    stage = (Rows if reduces else Elements)(module, name, group, workspace, inputs)
    if group.wide and len(stage.columns) == 1:
        stage = Wide(module, name, group, workspace, inputs)
    stage.write()
    return stage.phases


def _pays(phase: Phase) -> bool:
    """Return whether a second thread is worth its start."""
    return phase.units > 1 and phase.cost >= GRAIN


def _call(module: Module, b: Builder, phase: Phase, parallel: bool, threads: Value) -> None:
    """Write the calls of the phases, one after the other; each is done by one thread where a second does not pay."""
    args = b.params[0]
    most = int(min(phase.units, max(phase.cost / GRAIN * 2, 2), 1 << 16))

    def alone() -> Sequence[Any]:
        b.call(phase.name, "void", args, b.constant(0, "i64"), b.constant(phase.units, "i64"))
        return ()

    def together() -> Sequence[Any]:
        several = b.call("llvm.smin.i32", "i32", threads, b.constant(most, "i32"))
        b.line(f"call void @GOMP_parallel(ptr @{_slice(module, phase)}, {args}, {several}, i32 0)")
        return ()

    if not parallel or not _pays(phase):
        alone()
        return
    module.declare("GOMP_parallel", "void", ["ptr", "ptr", "i32", "i32"])
    b.branch(b.compare("gt", threads, 1), together, alone)


def _slice(module: Module, phase: Phase) -> str:
    """Return the function of one thread: its share of the units."""
    b = module.function(f"{phase.name}_slice", "void", [("args", "ptr")], linkage="internal ")
    here, all = (b.cast("sext", b.call(name, "i32"), "i64") for name in ("omp_get_thread_num", "omp_get_num_threads"))
    low = b.udiv(b.mul(here, phase.units), all)
    high = b.udiv(b.mul(b.add(here, 1), phase.units), all)
    b.call(phase.name, "void", b.params[0], low, high)
    b.ret()
    return b.name
