"""A region as one module: the functions of its loop nests, and for many sizes `run`, which calls them in order, in threads where that pays.

run(args, threads) gets an array of 64-bit words: the status, the workspace, the addresses of the inputs, those of the outputs.
`threads` is how many may work at most.  Where sizes are known, `call/driver.py` calls the functions, by a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail.prims.sizes import Size
from dovetail_llvm_exec.ir.lift import LiftedFunction, lifted
from dovetail_llvm_exec.ir.module import Builder, Module
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.crowd import Crowd
from dovetail_llvm_exec.loops.elements import Elements
from dovetail_llvm_exec.loops.rows import Rows
from dovetail_llvm_exec.loops.stage import Cost, Phase, Workspace
from dovetail_llvm_exec.loops.verifier import verify_phases, verify_plan
from dovetail_llvm_exec.loops.wide import Wide
from dovetail_llvm_exec.region.graph import Graph, Node
from dovetail_llvm_exec.region.groups import Group, Plan
from dovetail_llvm_exec.scalars.costs import GRAIN


class Program(NamedTuple):
    """A module whose functions compute the nodes of a plan; bytes of workspace; nanoseconds, by estimate.

    `phases` are the functions that are called, in order, and `rooms` what lies where in the workspace.
    """

    module: Module
    workspace: int
    costs: list[Cost]
    groups: int
    parallel: bool
    plan: Plan
    phases: list[Phase]
    rooms: Workspace

    @property
    def text(self) -> str:
        """The module as LLVM reads it."""
        return self.module.text()

    @property
    def cost(self) -> float:
        """The cost where sizes are as in the call that is compiled."""
        return sum(cost.now for cost in self.costs)

    def nests(self) -> list[tuple[LiftedFunction, int, int]]:
        """Return each function without its numbers, how many units it has, and how many threads may share them."""
        builders = {b.name: b for b in self.module.builders}
        return [(lifted(builders[p.name], p.units), p.units, most_threads(p) if self.parallel and _pays(p) else 1) for p in self.phases]


def program(
    graph: Graph,
    stored: Sequence[Node],
    target: Any,
    *,
    parallel: bool = True,
    fresh: bool = True,
    symbols: Sequence[str] = (),
    streamed: bool = False,
) -> Program:
    """Return the program that computes `stored` from the graph's inputs; `fresh`: into memory of its own, which starts at a cache line.

    `symbols` are the sizes that `run` gets as words behind all addresses.  `streamed`: results with such sizes are expected to be large.

    Raises `Broken` where the verifier refuses it.
    """
    plan = Plan(graph, stored)
    verify_plan(plan)
    if fresh:
        plan.stream(symbolic=streamed)
    module, workspace = Module(target), Workspace()
    module.sizes = {name: 2 + len(graph.inputs) + len(plan.stored) + i for i, name in enumerate(symbols)}
    last = plan.last_reads()
    for node in plan.temporaries:
        buffer = plan.memory[node]
        workspace.take(buffer, node.numel, plan.written[node], last.get(buffer, plan.written[node]))
    phases = [phase for g in plan.groups for phase in written(module, g, workspace, len(graph.inputs))]
    verify_phases(phases, workspace, plan.outputs.values())
    several = parallel and any(_pays(p) for p in phases)
    if symbols:
        _write_run(module, phases, parallel, several)
    return Program(module, workspace.size, [p.cost for p in phases], len(plan.groups), several, plan, phases, workspace)


def written(module: Module, group: Group, workspace: Workspace, inputs: int) -> list[Phase]:
    """Return the functions of one loop nest."""
    name, reduces = f"nest{group.index}", any(item.kind != "store" for item in group.items)
    stage = (Rows if reduces else Elements)(module, name, group, workspace, inputs)
    if group.wide and len(stage.columns) == 1:
        stage = Wide(module, name, group, workspace, inputs)
    stage.write()
    return stage.phases


def _write_run(module: Module, phases: Sequence[Phase], parallel: bool, several: bool) -> None:
    """Write the function that calls those of the loop nests."""
    b = module.function("run", "void", [("args", "ptr"), ("threads", "i32")])
    crowd = Crowd(b, total_cost(b, [p.cost for p in phases])) if several and module.target.clock else None
    threads = b.params[1] if crowd is None else crowd.enter(b.params[1])
    for phase in phases:
        _call(module, b, phase, parallel, threads)
    if crowd is not None:
        crowd.leave(threads)
    b.ret()


def _pays(phase: Phase) -> bool:
    """Return whether a second thread is worth its start."""
    return type(phase.units) is Size or type(phase.cost.elements) is Size or (phase.units > 1 and phase.cost.now >= GRAIN)


def _call(module: Module, b: Builder, phase: Phase, parallel: bool, threads: Value) -> None:
    """Write the calls of the phases, one after the other; each is done by one thread where a second does not pay."""
    args, sized = b.params[0], type(phase.units) is Size or type(phase.cost.elements) is Size

    def alone() -> Sequence[Any]:
        b.call(phase.name, "void", args, b.constant(0, "i64"), b.constant(phase.units, "i64"))
        return ()

    def together() -> Sequence[Any]:
        several = b.call("llvm.smin.i32", "i32", threads, _most_threads(b, phase))
        b.line(f"call void @GOMP_parallel(ptr @{_slice(module, phase)}, {args}, {several}, i32 0)")
        return ()

    if not parallel or not _pays(phase):
        alone()
        return
    module.declare("GOMP_parallel", "void", ["ptr", "ptr", "i32", "i32"])
    pays = b.compare("gt", threads, 1)
    if sized:
        enough = b.compare("ge", b.constant(phase.cost.elements, "i64"), int(GRAIN / max(phase.cost.each, 1e-6)) + 1)
        pays = b.and_(pays, b.and_(enough, b.compare("gt", b.constant(phase.units, "i64"), 1)))
    b.branch(pays, together, alone)


def most_threads(phase: Phase) -> int:
    """Return how many threads a phase of known size may be shared by."""
    return int(min(phase.units, max(phase.cost.now / GRAIN * 2, 2), 1 << 16))


def _most_threads(b: Builder, phase: Phase) -> Value:
    """Return how many threads a phase may be shared by."""
    units, (each, elements) = phase.units, phase.cost
    if type(units) is int and type(elements) is int:
        return b.constant(most_threads(phase), "i32")
    grains = b.udiv(b.constant(elements, "i64"), max(int(GRAIN / 2 / max(each, 1e-6)), 1))
    most = b.call("llvm.smin.i64", "i64", b.constant(units, "i64"), b.call("llvm.smax.i64", "i64", grains, b.constant(2, "i64")))
    return b.cast("trunc", b.call("llvm.smin.i64", "i64", most, b.constant(1 << 16, "i64")), "i32")


def total_cost(b: Builder, costs: Sequence[Cost]) -> float | Value:
    """Return the cost of all phases, as a double where it is known when the kernel runs."""
    if all(type(cost.elements) is int for cost in costs):
        return sum(cost.now for cost in costs)
    total = b.constant(sum(cost.now for cost in costs if type(cost.elements) is int), "double")
    for each, elements in costs:
        if type(elements) is Size:
            total = b.add(total, b.mul(b.cast("sitofp", b.constant(elements, "i64"), "double"), each))
    return total


def _slice(module: Module, phase: Phase) -> str:
    """Return the function of one thread: its share of the units."""
    b = module.function(f"{phase.name}_slice", "void", [("args", "ptr")], linkage="internal ")
    here, all = (b.cast("sext", b.call(name, "i32"), "i64") for name in ("omp_get_thread_num", "omp_get_num_threads"))
    low = b.udiv(b.mul(here, phase.units), all)
    high = b.udiv(b.mul(b.add(here, 1), phase.units), all)
    b.call(phase.name, "void", b.params[0], low, high)
    b.ret()
    return b.name
