"""The bridge to eager autograd: one torch.autograd.Function per call of a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import torch

from dovetail.executors import Executor, FusionExecutor, blame, dispatch, grad_rules, prepared
from dovetail.executors.trial import Account, Trial, trial_of
from dovetail.frontend.autocast import autocast_off
from dovetail.frontend.tracing import Acquired, compiling
from dovetail.torch_internals import any_autocast
from dovetail.trace import (
    BackwardTrace,
    JointTrace,
    Proxy,
    TensorProxy,
    Trace,
    compiled,
    constants_of,
    dce,
    grad,
    release,
    schedule,
    split,
    taken,
    timed,
    without,
)

TWICE = (
    "a compiled function was differentiated twice: its backward has no history. For higher derivatives compile a function that takes them "
    "inside, dovetail.grad(dovetail.grad(fn)), or call the function that dovetail.jit was given without compiling it"
)


@dataclass
class Bridge:
    """A forward, and the backwards for the sets of cotangents that calls come with.

    `forward` takes the inputs and gives (results, saved tensors, saved numbers).  `pulled` are the positions of the results that have a
    cotangent, `constant` those of the other tensors.  `backward_of(absent)` makes the program for calls in which the cotangents at
    these positions, counted among `pulled`, are None; it takes a list of what is saved and the other cotangents.
    """

    forward: Callable[..., tuple]
    pulled: Sequence[int]
    constant: Sequence[int]
    backward_of: Callable[[tuple[int, ...]], Callable[..., Sequence[Any]]]
    backwards: dict[tuple[int, ...], Callable[..., Sequence[Any]]] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)

    def __call__(self, *inputs: Any) -> tuple:
        """The results, with a history."""
        return Call.apply(self, *inputs)

    def beside(self, forward: Callable[..., tuple]) -> Bridge:
        """The same with another forward program, and the backwards of this one."""
        return replace(self, forward=forward)

    def backward(self, absent: tuple[int, ...]) -> Callable[..., Sequence[Any]]:
        """The program for calls without these cotangents; made once."""
        found = self.backwards.get(absent)
        if found is None:
            with self.lock:
                found = self.backwards.get(absent) or self.backwards.setdefault(absent, self.backward_of(absent))
        return found


class Call(torch.autograd.Function):
    """One call: `forward` runs the forward program, `backward` the backward program that fits the cotangents."""

    @staticmethod
    def forward(ctx: Any, bridge: Bridge, *inputs: Any) -> tuple:
        results, saved, numbers = bridge.forward(*inputs)
        ctx.bridge, ctx.numbers = bridge, numbers
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        if bridge.constant:
            ctx.mark_non_differentiable(*[results[i] for i in bridge.constant])
        return results

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> tuple:
        bridge = ctx.bridge
        cotangents = [gs[i] for i in bridge.pulled]
        absent = tuple([i for i, g in enumerate(cotangents) if g is None])
        if len(absent) == len(cotangents):
            return (None,) * len(ctx.needs_input_grad)
        program = bridge.backward(absent)
        kept = [*ctx.saved_tensors, *ctx.numbers]
        ctx.maybe_clear_saved_tensors()  # the program lets each value go after its last use, unless the graph is retained
        try:
            with torch.no_grad(), autocast_off() if any_autocast() else nullcontext():
                grads = program(kept, *[g.contiguous() for g in cotangents if g is not None])
        except Exception as error:
            blame(error)
            raise
        return (None, *(_refusing_more(grads) if torch.is_grad_enabled() else grads))


class _RefuseBackward(torch.autograd.Function):
    """The identity, whose backward raises: what it is applied to has no history of its own."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([x.view_as(x) for x in tensors])

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> tuple:
        raise RuntimeError(TWICE)


def _refusing_more(grads: Sequence[Any]) -> list[Any]:
    """Return `grads` with a history that raises when it is differentiated."""
    standing = [g.detach().requires_grad_() for g in grads if g is not None]
    refused = iter(_RefuseBackward.apply(*standing) if standing else ())
    return [None if g is None else next(refused) for g in grads]


@dataclass
class Training:
    """A computation compiled to run with a history: what runs, the programs of each step on the way there, and the trials of both programs."""

    run: Callable[..., tuple]
    traces: list[Trace]
    backward_traces: list[Trace]
    trials: list[Trial]
    run_beside: Callable[..., tuple] | None


class Backward:
    """A backward program that counts its calls, and runs those that are its trials beside the reference."""

    def __init__(self, run: Callable[..., Sequence[Any]], trial: Trial):
        self.run, self.trial = run, trial

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        self.trial.count += 1
        return self.run(*inputs) if self.trial.count < self.trial.due else self.trial.run(*inputs)


def differentiable(
    acquired: Acquired,
    pure: Trace,
    executors: tuple[Executor, ...],
    *,
    written: Sequence[Proxy],
    recompute: str,
    passes: Sequence[Callable[[Trace], Trace]],
    account: Account | None,
) -> Training | None:
    """`pure`, the computation of an acquired trace, with a backward; None when no result needs one.

    `written` are the inputs that the epilogue writes into, `passes` run last on each of the two programs.
    """
    rules = grad_rules(pure, executors)
    with torch.no_grad():  # what rules record is no part of any graph
        joint = timed(lambda t: grad(t, rules, constant=constants_of(acquired.trace), environment=acquired.trace.environment), pure)
    if not joint.cotangents:
        return None
    live = timed(dce, joint)
    fused = any([isinstance(ex, FusionExecutor) for ex in executors])
    forward, backward = timed(lambda t: split(t, recompute=recompute, written=written, fused=fused), live)
    traces = [joint, live, forward, *prepared(forward, executors)]
    for step in (lambda t: dispatch(t, executors), schedule, release, *passes):
        traces.append(timed(step, traces[-1]))

    def executed(plain: BackwardTrace) -> list[Trace]:
        made = [plain, *prepared(plain, executors)]
        for step in (lambda t: dispatch(t, executors), schedule, taken, release, *passes):
            made.append(timed(step, made[-1]))
        return made

    trials: list[Trial] = []

    def tried(made: list[Trace]) -> Callable[..., Any]:
        trial = trial_of(made, executors, account)
        if trial is None:
            return compiled(made[-1])
        trials.append(trial)
        return Backward(compiled(made[-1]), trial)

    def backward_of(absent: tuple[int, ...]) -> Callable:
        with compiling():
            return tried(executed(without(backward, [backward.cotangents[i] for i in absent])))

    pulled, constant = _positions(joint)
    backward_traces = executed(backward)
    if account is not None:
        account.programs = 2
    bridge = Bridge(compiled(traces[-1]), pulled, constant, backward_of, {(): tried(backward_traces)})
    beside = trial_of(traces, executors, account, [(line, ex) for line, ex in rules.own if not ex.last_resort])
    if beside is not None:
        trials.insert(0, beside)
    return Training(bridge, traces, backward_traces, trials, bridge.beside(beside.run) if beside is not None else None)


def _positions(joint: JointTrace) -> tuple[list[int], list[int]]:
    """Where among the results are those that have a cotangent, and the other tensors."""
    position = {p: i for i, p in enumerate(joint.outputs[0])}
    pulled = [position[p] for p in joint.pulled]
    return pulled, [i for p, i in position.items() if isinstance(p, TensorProxy) and i not in set(pulled)]
