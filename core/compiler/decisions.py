"""Programs that need values, compiled: the segments of their graphs go through the pipeline one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from dovetail.compiler.compilation import Compilation, Pass
from dovetail.compiler.entry import Entry
from dovetail.compiler.passes import has_transforms
from dovetail.compiler.pipeline import EPILOGUE, GENERATE, infer, lower, train
from dovetail.compiler.training import training
from dovetail.errors import TracedValueError
from dovetail.executors import Priority
from dovetail.frontend.autocast import autocast_off, off
from dovetail.frontend.autograd.nested_grad import compiling_with
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.decisions.requests import NeedsDecisions
from dovetail.frontend.decisions.session import explore
from dovetail.torch_internals import any_autocast
from dovetail.trace import Proxy, Trace, requires_grad


class SegmentCompiler:
    """Runs the passes of the pipeline over the parts of a graph."""

    def __init__(self, executors: Priority, passes: tuple[Pass, ...], recompute: str):
        self.executors, self.passes, self.recompute = executors, passes, recompute

    def segment(
        self, program: Trace, acquired: Trace, written: Sequence[Proxy], constant: Collection[Proxy]
    ) -> tuple[Callable[..., tuple], Sequence[Trace]]:
        """Compile a pure program.

        Args:
            program: the segment.
            acquired: the trace that it is a part of.
            written: those inputs that the epilogue writes later.
            constant: values of the trace through which no gradient flows.
        """
        grad, casts = torch.is_grad_enabled(), any_autocast()
        with compiling_with(self.executors), autocast_off():
            compilation = Compilation(self.executors, self.passes, self.recompute, history=grad)
            followed = replace(compilation, written=tuple(written), constant=constant, environment=acquired.environment)
            run: Callable[..., Any]
            trained = train(program, followed) if grad and any(map(requires_grad, program.inputs)) else None
            if trained is not None:
                run, steps = training(trained, followed).run, trained.forward
            else:
                steps = infer(program, compilation)
                run = GENERATE(steps[-1])
                run = torch.no_grad()(run) if grad and any(map(requires_grad, program.inputs)) else run
        return off(run) if casts else run, steps

    def epilogue(self, program: Trace) -> tuple[Callable[..., Any], Sequence[Trace]]:
        """Compile what writes inputs and makes views at the end of a path."""
        casts = any_autocast()
        with autocast_off():
            steps = lower(EPILOGUE, program, Compilation(self.executors, self.passes, self.recompute))
        run = GENERATE(steps[-1])
        return off(run) if casts else run, steps

    def prologue(self, program: Trace) -> Callable[[tuple, dict], Any]:
        """Generate code for the checks of a segment."""
        return GENERATE(program)


def compile_graph(
    fn: Callable, args: tuple, kwargs: dict, executors: Priority, passes: tuple[Pass, ...], recompute: str, needed: NeedsDecisions, on_explore: Any
) -> Entry:
    """Compile a function for calls like this one up to the first value that it needs; the rest follows when calls get there.

    Raises TracedValueError where it cannot be cut there.
    """
    if has_transforms(passes):
        raise needed.error
    graph = Graph(fn, SegmentCompiler(executors, passes, recompute), explore, torch.is_grad_enabled(), on_explore)
    why = graph.begin(args, kwargs)
    if why is not None:
        raise TracedValueError(f"{needed.error}\n  it cannot be cut there: {why}", needed.error.proxy) from None
    root = graph.root
    return Entry(graph.call, executors.key, tuple(root.steps) or (root.trace,), (root.prologue,), graph=graph)
