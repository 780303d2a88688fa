"""A forward and a backward as one function with a history: the functions that eager autograd calls, and those compiled on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from operator import or_
from typing import Any

from dovetail.compiler.compilation import Compilation
from dovetail.compiler.pipeline import BACKWARD, COMPUTATION, GENERATE, Trained, cut, differentiate, lower
from dovetail.executors.trials.trial import Trial, trial_of
from dovetail.frontend.autograd.bridge import Bridge
from dovetail.frontend.autograd.later_backwards import Independent
from dovetail.frontend.autograd.pullback import Pullback
from dovetail.trace import JointTrace, TensorProxy, Trace, apart, drop_cotangents, requires_grad
from dovetail.trace.collector import without_collector
from dovetail.trace.passes.deliver import stages
from dovetail.trace.passes.grad import registered


@dataclass
class Training:
    """A trained computation: `run`, the same with its forward beside the reference, and the trials of both programs."""

    run: Bridge
    run_trial: Bridge | None
    trials: list[Trial]


def counted(program: Trace, trial: Trial) -> Callable[..., Sequence[Any]]:
    """Return a backward that counts its calls, and runs those that are trials beside the reference: the first ones, which need no code of its own."""
    run: Callable[..., Sequence[Any]] | None = None

    def backward(*inputs: Any) -> Sequence[Any]:
        nonlocal run
        count = trial.count = trial.count + 1
        if count >= trial.due:
            return trial.run(*inputs)
        if run is None:
            with trial.account.settled(), without_collector():
                run = GENERATE(program)
        return run(*inputs)

    return backward


class Backwards:
    """The backward programs of a trained computation: those for calls in which some cotangents are None are compiled when they are first needed.

    Attributes:
        cut_off: the backward as it was cut off the joint program, with all cotangents.
        tensors, numbers: the values that the forward saves.
        trials: those of the backwards that are compiled.
    """

    def __init__(self, trained: Trained, compilation: Compilation):
        self.cut_off, self.later = trained.backward[0], compilation.later()
        self.tensors = [p for p in self.cut_off.saved if isinstance(p, TensorProxy)]
        self.numbers = [p for p in self.cut_off.saved if not isinstance(p, TensorProxy)]
        self.trials: list[Trial] = []

    def generate(self, steps: list[Trace]) -> Callable[..., Sequence[Any]]:
        """Generate code for a backward, which counts its calls where it is tried."""
        trial = trial_of(steps, self.later.executors, self.later.account)
        if trial is None:
            return GENERATE(steps[-1])
        self.trials.append(trial)
        return counted(steps[-1], trial)

    def without(self, absent: tuple[int, ...]) -> Callable[..., Sequence[Any]]:
        """Compile the backward for calls in which the cotangents at these positions are None."""
        with self.later.settled(), without_collector():
            present = drop_cotangents(self.cut_off, [self.cut_off.cotangents[i] for i in absent])
            return self.generate(lower(BACKWARD, present, self.later))

    def reads(self, group: frozenset[int]) -> list[int]:
        """Return the positions of the saved tensors that the gradients of these cotangents alone read."""
        with self.later.settled(), without_collector():
            program = drop_cotangents(self.cut_off, [p for i, p in enumerate(self.cut_off.cotangents) if i not in group])
        read = {p for line in program.lines for p in line.reads}
        return [i for i, p in enumerate(self.tensors) if p in read]


def training(trained: Trained, compilation: Compilation) -> Training:
    """Generate code for a forward and a backward, and connect them to eager autograd; gradients of gradients are compiled when first needed."""
    account, later, environment = compilation.account, compilation.later(), compilation.environment
    if account is not None:
        account.programs = 2
    backwards = Backwards(trained, compilation)
    by_executors = [] if trained.rules is None else trained.rules.by_executors
    pulled, constant = _positions(trained.joint)
    bridge = Bridge(
        forward=GENERATE(trained.forward[-1]),
        pulled=pulled,
        constant=constant,
        pullback=Pullback(
            trained.joint,
            backwards.tensors,
            backwards.numbers,
            compilation.written,
            build=lambda program: with_history(program, later),
            twice=trained.twice,
            by_executors=[line for line, _ in by_executors],
        ),
        backward_without=backwards.without,
        independent=Independent(cache(partial(apart, backwards.cut_off)), cache(backwards.reads)),
        orders=[None if p.spec.strides is None else p.spec.order for p in backwards.cut_off.cotangents],
        backwards={(): backwards.generate(trained.backward)},
        stages=stages(trained.backward[-1]) if compilation.stage_bytes is not None else [],
        layouts=compilation.layouts,
        check=environment.check_backward() if environment is not None else None,
        saves=environment is not None and bool(backwards.cut_off.saved),
        unreached=_unreached(trained.joint),
        later=_later(trained.joint),
    )
    by_rules = [(line, ex) for line, ex in by_executors if not ex.last_resort]
    tried = trial_of(trained.forward, compilation.executors, account, by_rules)
    if tried is not None:
        backwards.trials.insert(0, tried)
    return Training(bridge, bridge.beside(tried.run) if tried is not None else None, backwards.trials)


def with_history(program: Trace, compilation: Compilation) -> Callable[..., tuple]:
    """Compile a pure program, such as a backward, to a differentiable function."""
    compilation = replace(compilation, written=(), rules=registered, account=None, stage_bytes=None, layouts={})
    with compilation.settled(), without_collector():
        joint = differentiate(program, compilation)
        if joint is None:
            return GENERATE(lower(COMPUTATION, program, compilation)[-1])
        return training(cut(joint, compilation), compilation).run


def _positions(joint: JointTrace) -> tuple[list[int], list[int]]:
    """Return where among the results those with a cotangent are, and where the other tensors."""
    position = {p: i for i, p in enumerate(joint.outputs[0])}
    pulled = [position[p] for p in joint.pulled]
    return pulled, [i for p, i in position.items() if isinstance(p, TensorProxy) and i not in set(pulled)]


def _unreached(joint: JointTrace) -> frozenset[int]:
    """Return where among the inputs those are that require a gradient and that no result depends on, but by lines without a gradient."""
    reached = set(joint.pulled)
    for line in reversed(joint.lines):
        if not reached.isdisjoint(line.writes):
            reached.update([p for p in line.reads if requires_grad(p)])
    pairs = enumerate(zip(joint.inputs, joint.outputs[1]))
    return frozenset([i for i, (p, gradient) in pairs if gradient is None and requires_grad(p) and p not in reached])


def _later(joint: JointTrace) -> dict[int, list[int]]:
    """Return where among the results those are that others are computed from, with a gradient, and where these are."""
    pulled, later = set(joint.pulled), dict[int, list[int]]()
    position = {p: i for i, p in enumerate(joint.outputs[0]) if p in pulled}
    behind = {p: 1 << i for p, i in position.items()}  # the results that a value is computed from, each a bit
    for line in joint.lines if len(position) > 1 else ():
        if bits := reduce(or_, [behind.get(p, 0) for p in line.reads], 0):
            behind.update([(p, behind.get(p, 0) | bits) for p in line.writes if requires_grad(p)])
    for result, j in position.items():
        for i in position.values():
            if i != j and behind[result] >> i & 1:
                later.setdefault(i, []).append(j)
    return later
