"""A region as one module: the functions of its loop nests, which `call/driver.py` calls in order, in threads where that pays.

Each gets the words of the call: the status, the workspace, the addresses of the inputs, those of the outputs, and then sizes that were not known
when the kernel was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail.prims.sizes import Size
from dovetail_llvm_exec.ir.lift import LiftedFunction, lifted
from dovetail_llvm_exec.ir.module import Module
from dovetail_llvm_exec.ir.sizes import SizeWords
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

    def nests(self) -> list[tuple[LiftedFunction, Phase]]:
        """Return each function without its numbers, and what there is to do."""
        builders = {b.name: b for b in self.module.builders}
        return [(lifted(builders[p.name], p.units if type(p.units) is int else None), p) for p in self.phases]


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

    `symbols` are the sizes that are words of the call.  `streamed`: results with such sizes are expected to be large.

    Raises `Broken` where the verifier refuses it.
    """
    plan = Plan(graph, stored)
    verify_plan(plan)
    if fresh:
        plan.stream(symbolic=streamed)
    module, workspace = Module(target), Workspace()
    module.sizes = SizeWords(2 + len(graph.inputs) + len(plan.stored), symbols)
    last = plan.last_reads()
    for node in plan.temporaries:
        buffer = plan.memory[node]
        workspace.take(buffer, node.numel, plan.written[node], last.get(buffer, plan.written[node]))
    phases = [phase for g in plan.groups for phase in written(module, g, workspace, len(graph.inputs))]
    verify_phases(phases, workspace, plan.outputs.values())
    several = parallel and any(pays(p) for p in phases)
    return Program(module, workspace.size, [p.cost for p in phases], len(plan.groups), several, plan, phases, workspace)


def written(module: Module, group: Group, workspace: Workspace, inputs: int) -> list[Phase]:
    """Return the functions of one loop nest."""
    name, reduces = f"nest{group.index}", any(item.kind != "store" for item in group.items)
    stage = (Rows if reduces else Elements)(module, name, group, workspace, inputs)
    if group.wide and len(stage.columns) == 1:
        stage = Wide(module, name, group, workspace, inputs)
    stage.write()
    return stage.phases


def pays(phase: Phase) -> bool:
    """Return whether a second thread is worth its start, in some call."""
    return type(phase.units) is Size or type(phase.cost.elements) is Size or (phase.units > 1 and phase.cost.now >= GRAIN)
