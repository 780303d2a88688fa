"""Gradients with a history: the joint trace as a program from inputs and cotangents to gradients, which can be differentiated again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import DovetailError
from dovetail.executors import dispatch, resolve_executors
from dovetail.executors.trials.reference import referees
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail.trace import JointTrace, Proxy, TensorProxy, Trace, proxies, recording, substitute, to_callable
from dovetail.trace.passes.dce import needed

Build = Callable[[Trace], Callable[..., tuple]]  # compiles a program to a function whose results have a history


@dataclass
class Pullback:
    """Gradients as a function of inputs and cotangents, compiled by the first backward that needs a history.

    Attributes:
        joint: results and gradients in one program.
        saved: the tensors that the forward saves.
        numbers: the numbers that it saves.
        written: the inputs that are overwritten after it.
        build: compiles the program.
        extra: the positions of inputs that only this program needs, so that the forward has to save them, too.
        extra_numbers: the positions of such inputs that are numbers.
        problem: why there is no such program; None where there is one.
        overwritten: whether an input that the program needs is overwritten.
    """

    joint: JointTrace
    saved: Sequence[Proxy]
    numbers: Sequence[Proxy]
    written: Collection[Proxy]
    build: Build
    extra: list[int] = field(init=False)
    extra_numbers: list[int] = field(init=False)
    problem: str | None = field(init=False, default=None)
    run: Callable[..., tuple] | None = None
    lock: Any = field(default_factory=Lock)

    def __post_init__(self) -> None:
        joint, cotangents = self.joint, self.joint.cotangents
        self.inputs = joint.inputs[: len(joint.inputs) - len(cotangents)]
        self.gradients = joint.outputs[1]
        self.lines = needed([line for line in joint.lines if not line.effects], self.gradients)
        computed = {p for line in self.lines for p in line.writes}
        known = {*cotangents, *joint.constants}
        reads = dict.fromkeys([p for line in self.lines for p in line.reads] + proxies(self.gradients))
        self.needs = [p for p in reads if p not in computed and p not in known]
        kept = {*self.saved, *self.numbers}
        wanted, written = set(self.needs), set(self.written)
        extra = [i for i, p in enumerate(self.inputs) if p in wanted and p not in kept and p not in written]
        self.extra = [i for i in extra if isinstance(self.inputs[i], TensorProxy)]
        self.extra_numbers = [i for i in extra if not isinstance(self.inputs[i], TensorProxy)]
        available = {*kept, *(self.inputs[i] for i in extra)}
        self.overwritten = not written.isdisjoint(wanted)
        if self.overwritten:
            self.problem = "it writes into an argument that its gradient depends on"
        elif any([p not in available for p in self.needs]):
            self.problem = "its gradient depends on a random number, or on what the host computed, that is not kept"
        self.flows = self._sources()

    def _sources(self) -> list[set[Proxy]]:
        """Return for each gradient the cotangents that it depends on."""
        sources: dict[Proxy, set[Proxy]] = {p: {p} for p in self.joint.cotangents}
        for line in self.lines:
            read = set().union(*[sources.get(p, ()) for p in line.reads])
            if read:
                sources.update(dict.fromkeys(line.writes, read))
        return [sources.get(p, set()) if p is not None else set() for p in self.gradients]

    def values(self, saved: Sequence[Any], numbers: Sequence[Any], extra: Sequence[Any]) -> list[Any]:
        """Return the inputs of the program among what a call saved; `extra` has the tensors first."""
        held = dict(zip(self.saved, saved, strict=True)) | dict(zip(self.numbers, numbers, strict=True))
        held |= dict(zip([self.inputs[i] for i in (*self.extra, *self.extra_numbers)], extra, strict=True))
        return [held[p] for p in self.needs if p in held]

    def __call__(self, values: list[Any], cotangents: Sequence[Any]) -> list[Any] | None:
        """Return the gradients, None where nothing flows; None in all where they cannot have a history.  A cotangent may be None."""
        if self.run is None and self.problem is None:
            with self.lock:
                self._compile()
        if self.problem is not None:
            return None
        with torch.enable_grad():
            full = [_zeros(p) if g is None else g for p, g in zip(self.joint.cotangents, cotangents, strict=True)]
            results = iter(self.run(*values, *full))
            gradients = [None if p is None else next(results) for p in self.gradients]
        absent = {p for p, g in zip(self.joint.cotangents, cotangents, strict=True) if g is None}
        return [None if sources <= absent else g for g, sources in zip(gradients, self.flows, strict=True)]

    def transformed(self, values: list[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the gradients for cotangents of a transform, such as those of `is_grads_batched=True`: operations of torch compute them."""
        if self.problem is not None:
            raise RuntimeError(
                f"the backward of a compiled function runs under a transform, such as vmap, and {self.problem}; call it without compiling it"
            )
        program = self._program()
        with recording(program):
            run = to_callable(dispatch(program, referees(resolve_executors())))
        full = [_zeros(p) if g is None else g for p, g in zip(self.joint.cotangents, cotangents, strict=True)]
        results = iter(run(*values, *full))
        return [None if p is None else next(results) for p in self.gradients]

    def _compile(self) -> None:
        try:
            self.run = self.run or self.build(self._program())
        except (DovetailError, RecursionError) as error:
            self.problem = str(error)

    def _program(self) -> Trace:
        joint = self.joint
        program = Trace("pullback", names=joint.names, relations=joint.relations, constants=dict(joint.constants), made_by="pullback")
        cotangents = {p: program.tensor(p.spec.like(requires_grad=True)) for p in joint.cotangents}
        program.inputs = [*self.needs, *cotangents.values()]
        program.lines = [substitute(line, cotangents) for line in self.lines]
        aliased = {*program.inputs, *program.constants}  # a result that is one of these, or another result, is a copy
        results: list[Proxy] = []
        with recording(program):
            for p in [cotangents.get(p, p) for p in self.gradients if p is not None]:
                results.append(prims.clone(p) if p in aliased else p)
                aliased.add(p)
        program.outputs = tuple(results)
        return program


def _zeros(p: TensorProxy) -> torch.Tensor:
    """Return a cotangent that is zero."""
    return torch.zeros(p.spec.shape, dtype=TO_TORCH[p.spec.dtype], device=torch_device(p.spec.device))
