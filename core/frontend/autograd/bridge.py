"""The bridge to eager autograd: one torch.autograd.Function per call of a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import torch

from dovetail.errors import NoGradRule
from dovetail.executors import Executor, FusionExecutor, blame, dispatch, grad_rules, prepared
from dovetail.executors.trials.budget import Account
from dovetail.executors.trials.trial import Trial, trial_of
from dovetail.frontend.autocast import autocast_off
from dovetail.frontend.autograd.pullback import Build, Pullback
from dovetail.frontend.environment import Acquired, compiling
from dovetail.torch_internals import any_autocast
from dovetail.trace import (
    BackwardTrace,
    Environment,
    JointTrace,
    Proxy,
    TensorProxy,
    Trace,
    compiled,
    constants_of,
    dce,
    drop_cotangents,
    grad,
    release,
    schedule,
    split,
    take_saved,
    timed,
)
from dovetail.trace.passes.grad import registered

TWICE = (
    "the gradient of a compiled function was differentiated, and its backward has no history here: {}. Compile a function that takes gradients "
    "inside, dovetail.grad(dovetail.grad(fn)), or call the function that dovetail.jit was given without compiling it"
)


@dataclass
class Bridge:
    """A forward, and the backwards for the sets of cotangents that calls come with.

    `forward` takes the inputs and gives (results, saved tensors, saved numbers).  `pulled` are the positions of the results that have a
    cotangent, `constant` those of the other tensors.  `backward_of(absent)` makes the program for calls in which the cotangents at
    these positions, counted among `pulled`, are None; it takes a list of what is saved and the other cotangents.  `pullback` computes the
    same with a history.
    """

    forward: Callable[..., tuple]
    pulled: Sequence[int]
    constant: Sequence[int]
    pullback: Pullback
    backward_of: Callable[[tuple[int, ...]], Callable[..., Sequence[Any]]]
    backwards: dict[tuple[int, ...], Callable[..., Sequence[Any]]] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)

    def __call__(self, *inputs: Any) -> tuple:
        """The results, with a history."""
        if torch.is_grad_enabled():
            return Call.apply(self, *inputs)
        with torch.enable_grad():  # the program switches it on
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
        extra = bridge.pullback.extra
        ctx.save_for_backward(*saved, *[inputs[i] for i in extra]) if extra else ctx.save_for_backward(*saved)
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
        saved, extra = _saved(ctx, len(bridge.pullback.saved))
        if torch.is_grad_enabled():
            return (None, *_with_history(bridge, absent, saved, ctx.numbers, extra, cotangents))
        program = bridge.backward(absent)
        kept = [*saved, *ctx.numbers]
        del saved, extra
        ctx.maybe_clear_saved_tensors()  # the program lets each value go after its last use, unless the graph is retained
        return (None, *_run(program, kept, cotangents))


def _run(program: Callable[..., Sequence[Any]], kept: list[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
    """Return the gradients that a backward program computes, without a history."""
    try:
        with torch.no_grad(), autocast_off() if any_autocast() else nullcontext():
            return program(kept, *[g.contiguous() for g in cotangents if g is not None])
    except Exception as error:
        blame(error)
        raise


def _saved(ctx: Any, count: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the first `count` of the tensors that a call saved, and the others: none where one of those was overwritten since."""
    try:
        tensors = ctx.saved_tensors
    except RuntimeError as error:
        parts = getattr(ctx, "_raw_saved_tensors", ())
        if torch.is_grad_enabled() or len(parts) <= count or _OVERWRITTEN not in str(error):
            raise
        return _unpacked(parts[:count], error), ()
    return (tensors[:count], tensors[count:]) if len(tensors) > count else (tensors, ())


_OVERWRITTEN = "modified by an inplace operation"


def _unpacked(parts: Sequence[Any], error: RuntimeError) -> list[torch.Tensor]:
    """Return saved tensors one by one; raises where one of them was overwritten, or may have been: torch does not say it of results."""
    try:
        return [part.unpack() for part in parts]
    except (AttributeError, RuntimeError):
        raise error from None


def _with_history(
    bridge: Bridge, absent: tuple[int, ...], saved: Sequence[Any], numbers: Sequence[Any], extra: Sequence[Any], cotangents: list[Any]
) -> Sequence[Any]:
    """Return the gradients with a history: that of a program of their own, else one that raises when it is differentiated."""
    pullback = bridge.pullback
    values = pullback.values(saved, numbers, extra)
    with autocast_off() if any_autocast() else nullcontext():
        grads = pullback(values, [g if g is None else g.contiguous() for g in cotangents])
    if grads is not None:
        return grads
    if pullback.overwritten:
        raise RuntimeError(TWICE.format(pullback.problem))
    plain = _run(bridge.backward(absent), [*saved, *numbers], cotangents)
    standing = [g.detach() for g in plain if g is not None]
    before = [x for x in (*values, *saved, *cotangents) if isinstance(x, torch.Tensor)]
    refused = iter(_RefuseBackward.apply(pullback.problem, len(standing), *before, *standing) if standing else ())
    return [None if g is None else next(refused) for g in plain]


class _RefuseBackward(torch.autograd.Function):
    """The last tensors as they are, with a backward that raises."""

    @staticmethod
    def forward(ctx: Any, why: str, count: int, *tensors: Any) -> tuple[torch.Tensor, ...]:
        ctx.why = why
        return tuple([x.view_as(x) for x in tensors[-count:]])

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> tuple:
        raise RuntimeError(TWICE.format(ctx.why))


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
    constant = constants_of(acquired.trace)
    rules = grad_rules(pure, executors)

    def joint_of(program: Trace, environment: Environment | None, rules: Any = registered) -> JointTrace:
        with torch.no_grad():  # what rules record is no part of any graph
            return timed(lambda t: grad(t, rules, constant=constant, environment=environment), program)

    def again(program: Trace) -> Callable[..., tuple]:
        """What runs a backward, with a history."""
        with compiling():
            joint = joint_of(program, None)
            if not joint.cotangents:
                return compiled(_executed(program, executors, passes, schedule, release)[-1])
            return _training(joint, again, executors, written=(), recompute=recompute, passes=passes, account=None).run

    joint = joint_of(pure, acquired.trace.environment, rules)
    if not joint.cotangents:
        return None
    differentiated = joint
    if rules.own:  # the lines of executors' rules may have no rules of their own
        with suppress(NoGradRule):  # an operation that only its executor can differentiate
            differentiated = joint_of(pure, acquired.trace.environment)
    return _training(
        joint, again, executors, written=written, recompute=recompute, passes=passes, account=account, own=rules.own, differentiated=differentiated
    )


def _executed(
    program: Trace, executors: Sequence[Executor], passes: Sequence[Callable[[Trace], Trace]], *steps: Callable[[Trace], Trace]
) -> list[Trace]:
    """`program`, and what each step on the way to what runs makes of it."""
    made = [program, *prepared(program, executors)]
    for step in (lambda t: dispatch(t, executors), *steps, *passes):
        made.append(timed(step, made[-1]))
    return made


def _training(
    joint: JointTrace,
    again: Build,
    executors: tuple[Executor, ...],
    *,
    written: Sequence[Proxy],
    recompute: str,
    passes: Sequence[Callable[[Trace], Trace]],
    account: Account | None,
    own: Sequence[tuple[Any, Executor]] = (),
    differentiated: JointTrace | None = None,
) -> Training:
    """A joint trace as two programs that run, and what differentiates the second: `again` makes it, from `differentiated` if that is given.

    `own` are the lines that executors differentiate by rules of their own.
    """
    live = timed(dce, joint)
    fused = any([isinstance(ex, FusionExecutor) for ex in executors])
    forward, backward = timed(lambda t: split(t, recompute=recompute, written=written, fused=fused), live)
    traces = [joint, live, *_executed(forward, executors, passes, schedule, release)]

    def executed(plain: BackwardTrace) -> list[Trace]:
        return _executed(plain, executors, passes, schedule, take_saved, release)

    trials: list[Trial] = []

    def tried(made: list[Trace]) -> Callable[..., Any]:
        trial = trial_of(made, executors, account)
        if trial is None:
            return compiled(made[-1])
        trials.append(trial)
        return Backward(compiled(made[-1]), trial)

    def backward_of(absent: tuple[int, ...]) -> Callable:
        with compiling():
            return tried(executed(drop_cotangents(backward, [backward.cotangents[i] for i in absent])))

    pulled, constant = _positions(joint)
    backward_traces = executed(backward)
    if account is not None:
        account.programs = 2
    pullback = Pullback(differentiated or live, forward.outputs[1], forward.outputs[2], written, again)
    bridge = Bridge(compiled(traces[-1]), pulled, constant, pullback, backward_of, {(): tried(backward_traces)})
    beside = trial_of(traces, executors, account, [(line, ex) for line, ex in own if not ex.last_resort])
    if beside is not None:
        trials.insert(0, beside)
    return Training(bridge, traces, backward_traces, trials, bridge.beside(beside.run) if beside is not None else None)


def _positions(joint: JointTrace) -> tuple[list[int], list[int]]:
    """Where among the results are those that have a cotangent, and the other tensors."""
    position = {p: i for i, p in enumerate(joint.outputs[0])}
    pulled = [position[p] for p in joint.pulled]
    return pulled, [i for p, i in position.items() if isinstance(p, TensorProxy) and i not in set(pulled)]
