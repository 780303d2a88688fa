"""One compiled call: the programs of the pipeline as functions, joined behind their guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import RLock
from types import FunctionType
from typing import Any

import torch

from dovetail import options, prims
from dovetail.compiler.agreement import agree
from dovetail.compiler.compilation import Compilation, Distribution, Pass
from dovetail.compiler.errors_at_run import before_changes, generators_of, starting_again
from dovetail.compiler.pipeline import ACQUIRE, GENERATE, Programs, compile_programs
from dovetail.compiler.training import training
from dovetail.executors import Priority, fast_call_for
from dovetail.executors.ordering.key import Key
from dovetail.executors.ordering.symbolic import SymbolicOrder
from dovetail.executors.trials.budget import Account
from dovetail.executors.trials.trial import Trial, trial_of
from dovetail.frontend.autocast import autocast_off, off
from dovetail.frontend.autograd.nested_grad import compiling_with
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.environment import Acquired
from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
from dovetail.frontend.shards import Layout, distributing, local_parts
from dovetail.torch_internals import set_grad_enabled
from dovetail.trace import Offer, Trace, requires_grad
from dovetail.trace.collector import without_collector

Call = Callable[[tuple, dict], Any]  # of positional and keyword arguments; returns the result, or a Miss where a guard fails
Run = Callable[..., Any]  # of the inputs that the prologue unpacked


def _as_it_is(call: Call) -> Call:
    return call


@dataclass(frozen=True)
class Entry:
    """One compiled call.

    Attributes:
        call: runs the program, or returns a Miss where a guard fails.
        key: the executors with their versions, options and order; None for an order that no configuration resolved.
        traces: the steps from the traced program to the computation or forward that runs.
        prologue_traces: the guards.
        backward_traces: the steps of the backward, none where nothing requires grad.
        epilogue_traces: the steps of the epilogue, none where it does nothing.
        trials: those of the computation, or of forward and backward.
        refusals: why executors did not differentiate lines that they implement.
        trial_call: the same call with its program beside the reference, None where nothing is tried.
        symbolic: whether sizes of the program are symbols.
        graph: its decisions, where the function needs values; None for a straight line.
        restarting: makes a call of one whose program may end unfinished.
    """

    call: Call
    key: Key | None
    traces: tuple[Trace, ...]
    prologue_traces: tuple[Trace, ...]
    backward_traces: tuple[Trace, ...] = ()
    epilogue_traces: tuple[Trace, ...] = ()
    trials: Sequence[Trial] = ()
    refusals: Sequence[Offer] = ()
    trial_call: TrialCall | None = None
    symbolic: bool = False
    graph: Graph | None = None
    restarting: Callable[[Call], Call] = _as_it_is

    @cached_property
    def fits(self) -> Call:
        """Check the guards alone: a function of the arguments that returns a Miss where one fails, else None."""
        return GENERATE(bound(self.prologue_traces[-1], lambda *inputs, objects=(): None))


class TrialCall:
    """A call that runs its program beside the reference, behind the same guards, and the number of calls until the next one."""

    def __init__(self, trial: Trial, prologue: Trace, run: Run, restarting: Callable[[Call], Call]):
        self.trial, self.prologue, self.run, self.restarting = trial, prologue, run, restarting
        self.calls: dict[bool, Call] = {}  # with and without guards

    def follow(self, call: FunctionType) -> None:
        """Run the guards by the code of `call`, which does so for the program alone."""
        scope = call.__globals__ | {self.prologue.lines[-1].args[0].name: self.run}
        self.calls[True] = self.restarting(FunctionType(call.__code__, scope, call.__name__))

    @property
    def left(self) -> int:
        """The number of calls to the next trial, that one included."""
        return max(self.trial.due - self.trial.count, 1)

    @left.setter
    def left(self, calls: int) -> None:
        self.trial.count = self.trial.due - calls

    def __call__(self, args: tuple, kwargs: dict, *, guarded: bool = True) -> Any:
        """Return the result, or a Miss where a guard fails; without guards where `guarded` is False."""
        if guarded not in self.calls:
            prologue = bound(self.prologue, self.run)
            self.calls[guarded] = self.restarting(GENERATE(prologue if guarded else unguarded(prologue)))
        return self.calls[guarded](args, kwargs)


@dataclass(frozen=True)
class CallToCompile:
    """A call that needs a program.

    Attributes:
        args, kwargs: its arguments.
        executors: who runs operations, in priority order.
        passes: run last on the computation, or on forward and backward.
        account: the budget of trials; None where nothing is tried.
        entries: the programs of the function that are kept.
    """

    args: tuple
    kwargs: dict[str, Any]
    executors: Priority
    passes: tuple[Pass, ...]
    account: Account | None
    entries: tuple[Entry, ...]


def compile_call(
    fn: Callable,
    args: tuple,
    kwargs: dict,
    executors: Priority,
    passes: tuple[Pass, ...] = (),
    *,
    recompute: str = "balanced",
    interpretation: str | None = None,
    account: Account | None = None,
    sizes: SymbolicSizes | None = None,
    stage_bytes: int | None = None,
    distribution: Distribution | None = None,
) -> Entry:
    """Compile `fn` for calls like this one.

    Args:
        executors: the resolved order; `Priority(executors)` makes a fixed one.
        passes: run last on the computation, or on forward and backward; transforms among them get the pure programs, too.
        recompute: what the backward recomputes rather than saves: "none", "balanced" (what is cheap) or "all".
        interpretation: how `fn` is traced, "bytecode" or "native"; None is the option of that name.
        account: the budget of trials; without one nothing is tried.
        sizes: which sizes are symbols; None where all are ints.
        stage_bytes: how many bytes of gradients the backward hands over at once while it runs; None where it returns all at its end.
        distribution: how parameters lie on the ranks of a mesh.
    """
    with compiling_with(executors), distributing(distribution), without_collector(keeps=True):
        acquired = ACQUIRE[interpretation or options.INTERPRETATION.read()](fn, args, kwargs, sizes)
        try:
            with autocast_off():
                if acquired.trace.relations is not None:
                    executors = SymbolicOrder(executors)
                switched = any([requires_grad(p) for line in acquired.trace.lines for p in line.writes])  # it may switch grad mode on itself
                history = torch.is_grad_enabled() or switched
                compilation = Compilation(executors, passes, recompute, account, history=history, stage_bytes=stage_bytes, distribution=distribution)
                return _entry(fn, acquired, compile_programs(acquired, compilation), switched)
        finally:
            acquired.forget()


def _entry(fn: Callable, acquired: Acquired, programs: Programs, switched: bool) -> Entry:
    """Generate code for all programs of `fn`; `switched` says that the function switches grad mode on."""
    executors = programs.compilation.executors
    compute, compute_in_trial, trials = _computation(programs)
    restarting: Callable[[Call], Call] = _as_it_is
    if (generators := generators_of(acquired, programs)) is not None:
        compute, compute_in_trial = before_changes(compute), compute_in_trial and before_changes(compute_in_trial)
        restarting = partial(starting_again, fn, generators)
    if acquired.owns_generators:
        restarting = partial(_one_at_a_time, RLock(), restarting)
    finish = GENERATE(programs.epilogue[-1]) if programs.epilogue and _sole_result(programs) is None else None
    if finish is not None and switched and not torch.is_grad_enabled():
        finish = torch.enable_grad()(finish)  # values written with grad mode off go to detached tensors
    prologue = bound(programs.prologue, _joined(acquired, compute, finish))
    trial_call = TrialCall(trials[0], prologue, _joined(acquired, compute_in_trial, finish), restarting) if compute_in_trial is not None else None
    backward = programs.trained.backward if programs.trained is not None else []
    agree([programs.computation[-1], *backward[-1:]])
    unrecorded = programs.trained is None and not programs.recorded
    alone = unrecorded and programs.compilation.distribution is None and finish is None and acquired.build is None and not acquired.casts
    whole = programs.computation[-1] if alone else None
    slow = _deferred(prologue)
    call = fast_call_for(slow, prologue, whole, [programs.computation[-1], *backward[-1:]], executors)
    if call is slow:
        call = GENERATE(prologue)
        if trial_call is not None:
            trial_call.follow(call)
    refusals = programs.trained.rules.refusals if programs.trained is not None else []
    groups = (tuple(programs.computation), (prologue,), tuple(backward), tuple(programs.epilogue))
    return Entry(restarting(call), executors.key, *groups, trials, refusals, trial_call, acquired.trace.relations is not None, restarting=restarting)


def _one_at_a_time(lock: AbstractContextManager, restarting: Callable[[Call], Call], call: Call) -> Call:
    """Return `restarting(call)` such that one thread at a time is in it."""
    whole = restarting(call)

    def alone(args: tuple, kwargs: dict) -> Any:
        with lock:
            return whole(args, kwargs)

    return alone


def _deferred(prologue: Trace) -> Call:
    """Return a prologue that is compiled when it is first called: where an executor checks guards by itself, that is when one fails."""
    generated: list[Call] = []

    def call(args: tuple, kwargs: dict) -> Any:
        if not generated:
            generated.append(GENERATE(prologue))
        return generated[0](args, kwargs)

    return call


def _computation(programs: Programs) -> tuple[Run, Run | None, list[Trial]]:
    """Return the function that computes the results, the same beside the reference if it is tried, and the trials."""
    compilation, steps = programs.compilation, programs.computation
    if programs.trained is not None:
        built, result = training(programs.trained, compilation), _sole_result(programs)
        run_trial = built.run_trial.selecting(result) if built.run_trial is not None else None
        return built.run.selecting(result), run_trial, built.trials
    run, trial = GENERATE(steps[-1]), trial_of(steps, compilation.executors, compilation.account)
    run_trial = trial.run if trial is not None else None
    if compilation.layouts:
        run, run_trial = _of_local_parts(run, compilation.layouts), _of_local_parts(run_trial, compilation.layouts)
    as_it_is = programs.recorded or not torch.is_grad_enabled() or not any(map(requires_grad, steps[-1].inputs))
    if not as_it_is:  # no result has a gradient, as under a no_grad of the user's own
        run, run_trial = without_grad(run), without_grad(run_trial) if run_trial is not None else None
    return run, run_trial, [trial] if trial is not None else []


def without_grad(run: Run) -> Run:
    """Return a function that calls `run` with grad mode off, as `torch.no_grad()(run)` does at several times the cost."""

    def call(*inputs: Any) -> Any:
        before = torch.is_grad_enabled()
        set_grad_enabled(False)
        try:
            return run(*inputs)
        finally:
            set_grad_enabled(before)

    return call


def _sole_result(programs: Programs) -> int | None:
    """Return which result of a trained computation the function returns, where its epilogue does nothing else; None for other epilogues."""
    if programs.trained is None or (epilogue := programs.epilogue[-1]).lines:
        return None
    results = epilogue.inputs[-len(programs.trained.joint.outputs[0]) :]
    return next((i for i, p in enumerate(results) if p is epilogue.outputs), None)


def _of_local_parts(run: Run | None, layouts: Mapping[int, Layout]) -> Run | None:
    """Return a function that calls `run` with the local parts of inputs that are DTensors."""
    return run and (lambda *inputs: run(*local_parts(inputs, layouts)))


def _joined(acquired: Acquired, compute: Run, finish: Run | None) -> Run:
    """Return a function from the inputs to what the user's function returns."""
    if finish is None:
        run = compute
    else:

        def run(*inputs: Any) -> Any:
            return finish(*inputs, *compute(*inputs))

    if acquired.casts:
        run = off(run)
    if (build := acquired.build) is None:
        return run
    return lambda *inputs, objects=(): build(run(*inputs), objects)


def bound(prologue: Trace, run: Run) -> Trace:
    """Return a prologue that calls `run` with the inputs it finds."""
    return replace(prologue, constants=prologue.constants | {prologue.lines[-1].args[0]: run})


def unguarded(prologue: Trace) -> Trace:
    """Return a prologue that unpacks its inputs and checks torch's modes alone."""
    lines = [inner for line in prologue.lines for inner in (line.body if line.symbol is prims.unpack_state else (line,))]
    return replace(prologue, lines=[line for line in lines if not line.symbol.name.startswith("check_") or line.symbol is prims.check_modes])
