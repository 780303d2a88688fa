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
from dovetail_llvm_exec.loops.crowd import CLOCK, written_limit
from dovetail_llvm_exec.loops.elements import Elements
from dovetail_llvm_exec.loops.rows import Rows
from dovetail_llvm_exec.loops.sharing import ENTER, LEAVE, MOST_THREADS, UNITS
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
    threads, counts = b.params[1], several and module.target.clock
    if counts:
        limit, counters = written_limit(b, total_cost(b, [p.cost for p in phases])), module.counters("counters", 2)
        threads, start = b.call(ENTER, "i32", counters, threads), b.call(CLOCK, "i64")
    for phase in phases:
        _call(b, phase, parallel, threads)
    if counts:
        b.call(LEAVE, "void", counters, threads, start, limit)
    b.ret()


def _pays(phase: Phase) -> bool:
    """Return whether a second thread is worth its start."""
    return type(phase.units) is Size or type(phase.cost.elements) is Size or (phase.units > 1 and phase.cost.now >= GRAIN)


def _call(b: Builder, phase: Phase, parallel: bool, threads: Value) -> None:
    """Write the call of a phase: by one thread where a second does not pay."""
    args, units = b.params[0], b.constant(phase.units, "i64")
    if not parallel or not _pays(phase):
        b.call(phase.name, "void", args, b.constant(0, "i64"), units)
        return
    each, elements = max(phase.cost.each, 1e-6), b.constant(phase.cost.elements, "i64")
    sized = type(phase.units) is Size or type(phase.cost.elements) is Size
    enough, grain = (b.constant(n, "i64") for n in (int(GRAIN / each) + 1 if sized else 0, max(int(GRAIN / 2 / each), 1)))
    b.call(UNITS, "void", args, Value(f"@{phase.name}", "ptr"), units, threads, elements, enough, grain)


def most_threads(phase: Phase) -> int:
    """Return how many threads a phase of known size may be shared by."""
    return int(min(phase.units, max(phase.cost.now / GRAIN * 2, 2), MOST_THREADS))


def total_cost(b: Builder, costs: Sequence[Cost]) -> float | Value:
    """Return the cost of all phases, as a double where it is known when the kernel runs."""
    if all(type(cost.elements) is int for cost in costs):
        return sum(cost.now for cost in costs)
    total = b.constant(sum(cost.now for cost in costs if type(cost.elements) is int), "double")
    for each, elements in costs:
        if type(elements) is Size:
            total = b.add(total, b.mul(b.cast("sitofp", b.constant(elements, "i64"), "double"), each))
    return total
