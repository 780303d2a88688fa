"""Programs that need values, compiled: the segments of their graphs go through the pipeline one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import torch

from dovetail.compiler.compilation import Compilation, Pass
from dovetail.compiler.entry import CallToCompile, Entry, without_grad
from dovetail.compiler.gradient_trial import gradients_differ
from dovetail.compiler.passes import has_transforms
from dovetail.compiler.pipeline import EPILOGUE, GENERATE, infer, lower, train
from dovetail.compiler.training import training
from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.executors import Priority, fast_call_for
from dovetail.executors.ordering.symbolic import SymbolicOrder
from dovetail.executors.trials.budget import Account
from dovetail.executors.trials.trial import trial_of
from dovetail.frontend import bytecode
from dovetail.frontend.arrays.detection import arrays_in, has_arrays
from dovetail.frontend.autocast import autocast_off, off
from dovetail.frontend.autograd.nested_grad import compiling_with
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.decisions.requests import Need, NeedsDecisions, Probe
from dovetail.frontend.decisions.segments import Segment
from dovetail.frontend.decisions.session import explore
from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
from dovetail.frontend.interpreter.tracking import PendingWrites
from dovetail.prims.sizes import Facts
from dovetail.torch_internals import any_autocast
from dovetail.trace import Proxy, Trace, requires_grad


class SegmentCompiler:
    """Runs the passes of the pipeline over the parts of a graph.

    Attributes:
        tries: whether segments are tried beside the reference.
        retire: called with the reason where one disagreed.
    """

    def __init__(self, executors: Priority, passes: tuple[Pass, ...], recompute: str, tries: bool):
        self.executors, self.passes, self.recompute, self.tries = executors, passes, recompute, tries
        self.retire: Callable[[str], Any] = lambda reason: None

    def segment(self, program: Trace, acquired: Trace, written: Sequence[Proxy], constant: Collection[Proxy]) -> Segment:
        """Compile a pure program.

        Args:
            program: the segment.
            acquired: the trace that it is a part of.
            written: those inputs that the epilogue writes later.
            constant: values of the trace through which no gradient flows.
        """
        began, casts, relations, facts = perf_counter(), any_autocast(), program.relations, list[Facts]()

        def settled() -> AbstractContextManager[None]:
            """Forget what later segments assume of symbolic sizes."""
            return nullcontext() if relations is None or not facts else relations.as_of(facts[0])

        account = Account(retire=lambda reason: self.retire(reason), gradients=gradients_differ, settled=settled) if self.tries else None
        with compiling_with(self.executors), autocast_off():
            compilation = Compilation(self.order(program), self.passes, self.recompute, account, history=torch.is_grad_enabled(), settled=settled)
            followed = replace(compilation, written=tuple(written), constant=constant, environment=acquired.environment)
            segment = _trained(program, followed) or _inferred(program, compilation)
        if relations is not None:
            facts.append(relations.facts())
        if account is not None:
            account.seconds = perf_counter() - began
        if casts:
            segment.run, segment.run_beside = off(segment.run), segment.run_beside and off(segment.run_beside)
        return segment

    def order(self, program: Trace) -> Priority:
        """Return the executors of a program: where sizes are symbols, those that support them."""
        return self.executors if program.relations is None else SymbolicOrder(self.executors)

    def epilogue(self, program: Trace) -> tuple[Callable[..., Any], Sequence[Trace]]:
        """Compile the program that writes inputs and creates views at the end of a path."""
        casts = any_autocast()
        with autocast_off():
            steps = lower(EPILOGUE, program, Compilation(self.order(program), self.passes, self.recompute))
        run = GENERATE(steps[-1])
        return off(run) if casts else run, steps

    def prologue(self, program: Trace) -> Callable[[tuple, dict], Any]:
        """Generate code for the checks of a segment; an executor may have its own."""
        return fast_call_for(GENERATE(program), program, None, (), self.executors)


def _trained(program: Trace, compilation: Compilation) -> Segment | None:
    """Compile a segment with its backward; None where no result needs a gradient."""
    trained = train(program, compilation) if compilation.history and any(map(requires_grad, program.inputs)) else None
    if trained is None:
        return None
    built = training(trained, compilation)
    trial = built.trials[0] if built.run_trial is not None else None
    return Segment(built.run, trained.forward, trained.backward, built.trials, trial, built.run_trial)


def _inferred(program: Trace, compilation: Compilation) -> Segment:
    """Compile a segment without gradients."""
    steps = infer(program, compilation)
    run, trial = GENERATE(steps[-1]), trial_of(steps, compilation.executors, compilation.account)
    beside: Callable[..., Any] | None = trial.run if trial is not None else None
    if compilation.history and any(map(requires_grad, program.inputs)):
        run, beside = without_grad(run), beside and without_grad(beside)
    return Segment(run, steps, trials=[trial] if trial is not None else [], trial=trial, run_beside=beside)


def needed_value(fn: Callable, args: tuple, kwargs: dict, executors: Priority) -> Need | None:
    """Return where a function first needs a value; None where it is refused for another reason.

    Raises the errors that the function itself raises before that, and EagerCall where the call has to run in eager mode.
    """
    try:
        with compiling_with(executors):
            bytecode.acquire(fn, args, kwargs, session=Probe()).forget()
    except NeedsDecisions as needed:
        return needed.need
    except EagerCall:
        raise
    except (TracedValueError, Unsupported):
        return None
    return None


def compile_graph(
    fn: Callable,
    call: CallToCompile,
    *,
    recompute: str,
    need: Need | None,
    on_explore: Callable[[str], Any],
    on_pin: Callable[[str], Any],
    sizes: SymbolicSizes,
    goes_on: bool,
) -> Entry | None:
    """Compile a function for calls like `call` up to the first value that it needs; None where it needs none.

    The rest follows when calls get there; where compiling `goes_on`, it begins with the call at hand.  `need` is the first value where that is known.
    `sizes` says which sizes of arguments are symbols, and remembers those of this call.

    Raises TracedValueError where it cannot be cut there, and PendingWrites where the function raises an error of its own before that.
    """
    args, kwargs, executors = call.args, call.kwargs, call.executors
    if need is None and (has_transforms(call.passes) or has_arrays(fn, args, kwargs)):  # what functions of arrays do is known to `acquire` alone
        need = needed_value(fn, args, kwargs, executors)
        if need is None:
            return None
    if has_transforms(call.passes):
        raise need.error
    compiler = SegmentCompiler(executors, call.passes, recompute, tries=call.account is not None)
    graph = Graph(fn, compiler, explore, torch.is_grad_enabled(), on_explore, on_pin)
    graph.arrays_in = partial(arrays_in, written=True)
    graph.arguments = sizes.history, sizes.dynamic, sizes.plain
    why = graph.begin(args, kwargs, goes_on=goes_on)
    if why is not None and why.raised is not None:
        raise PendingWrites from why.raised
    if why is not None and not why.lasting:
        raise EagerCall(str(why))
    need = need or graph.need or needed_value(fn, args, kwargs, executors)
    if need is None:
        graph.forget_begun()
        return None
    sizes.history.seen |= graph.seen
    graph.own_sizes()
    if why is not None and (need.handled or graph.assumptions.marks):
        raise EagerCall(f"{need.error}\n  it cannot be cut there: {why}")
    if why is not None:
        raise TracedValueError(f"{need.error}\n  it cannot be cut there: {why}", need.error.proxy) from None
    root = graph.root
    if root.eager is not None:
        graph.warn(f"it runs eagerly, since {root.eager} before the value at {need.where}: ranks whose calls start again would wait for each other")
    return Entry(graph.call, executors.key, root.segment.steps if root.segment is not None else (root.trace,), (root.prologue,), graph=graph)
