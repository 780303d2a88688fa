"""The bridge to eager autograd: one torch.autograd.Function per call of a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import torch

from dovetail.executors import blame
from dovetail.frontend.autocast import autocast_off
from dovetail.frontend.autograd.pullback import Pullback
from dovetail.torch_internals import any_autocast

TWICE = (
    "the gradient of a compiled function was differentiated, and its backward has no history: {}. Compile a function that takes both gradients "
    "inside, dovetail.grad(dovetail.grad(fn)), or call the original function without compiling it"
)


@dataclass
class Bridge:
    """A forward program, and a backward program for each set of cotangents that calls come with.

    Attributes:
        forward: takes the inputs and returns (results, saved tensors, saved numbers).
        pulled: the positions of the results that have a cotangent.
        constant: the positions of the other tensors among the results.
        pullback: computes the gradients with a history of their own.
        backward_without: compiles the backward for calls in which the cotangents at these positions, counted among `pulled`, are None.
        backwards: those that are compiled; each takes a list of the saved values and the other cotangents.
    """

    forward: Callable[..., tuple]
    pulled: Sequence[int]
    constant: Sequence[int]
    pullback: Pullback
    backward_without: Callable[[tuple[int, ...]], Callable[..., Sequence[Any]]]
    backwards: dict[tuple[int, ...], Callable[..., Sequence[Any]]] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)

    def __call__(self, *inputs: Any) -> tuple:
        """Return the results, with a history."""
        if torch.is_grad_enabled():
            return Call.apply(self, *inputs)
        with torch.enable_grad():  # the program switches it on
            return Call.apply(self, *inputs)

    def beside(self, forward: Callable[..., tuple]) -> Bridge:
        """Return a bridge with another forward program and the backwards of this one."""
        return replace(self, forward=forward)

    def backward(self, absent: tuple[int, ...]) -> Callable[..., Sequence[Any]]:
        """Return the program for calls without these cotangents, compiled by the first such call."""
        program = self.backwards.get(absent)
        if program is None:
            with self.lock:
                program = self.backwards.get(absent) or self.backwards.setdefault(absent, self.backward_without(absent))
        return program


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
