"""The bridge to eager autograd: one torch.autograd.Function per call of a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from types import GeneratorType
from typing import Any
from weakref import ref

import torch

from dovetail.errors import EagerCall
from dovetail.executors import blame
from dovetail.frontend.autocast import autocast_off
from dovetail.frontend.autograd.later_backwards import Independent, Kept, kept
from dovetail.frontend.autograd.pullback import Pullback
from dovetail.frontend.shards import Layout, local_parts, wrapped
from dovetail.langs.torch.binding.bridge import in_order
from dovetail.torch_internals import any_autocast, direct_apply, has_changing_hooks, has_storage, saved_hooks

PARTIAL = (
    "result {} of a compiled function has a hook or retain_grad(), and would miss the part of its gradient that comes from result {}, which the "
    "same call computed from it; compile the function that takes the gradient, too, or call the original function without compiling it"
)
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
        independent: which cotangents share no operation with others.
        orders: of the dimensions of each cotangent in memory, slowest first, as programs take them; None for row-major.
        backwards: those that are compiled; each takes a list of the saved values and the other cotangents.
        layouts: of the inputs that are DTensors; programs take and return what lies on this rank.
        check: raises where a backward of the user's would read other data now than when it was compiled.
        saves: whether to raise EagerCall where the caller's hooks may change what a call saves.
        stages: for each stage of gradients but the last the inputs that they belong to; none where the backward returns all at its end.
        unreached: the positions of inputs that require a gradient and that no result has a history of, as those read for their size alone.
        later: for the position of each result that others are computed from, the positions of those.
    """

    forward: Callable[..., tuple]
    pulled: Sequence[int]
    constant: Sequence[int]
    pullback: Pullback
    backward_without: Callable[[tuple[int, ...]], Callable[..., Sequence[Any]]]
    independent: Independent
    orders: Sequence[tuple[int, ...] | None]
    backwards: dict[tuple[int, ...], Callable[..., Sequence[Any]]] = field(default_factory=dict)
    stages: Sequence[Sequence[int]] = ()
    layouts: Mapping[int, Layout] = field(default_factory=dict)
    check: Callable[[], None] | None = None
    saves: bool = False
    unreached: frozenset[int] = frozenset()
    later: Mapping[int, Sequence[int]] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)
    takes_all: bool = field(init=False)  # whether the backward program takes what autograd passes, one cotangent for each result
    is_plain: bool = field(init=False)  # whether all cotangents are row-major

    def __post_init__(self) -> None:
        self.takes_all = not self.constant and not self.layouts and list(self.pulled) == list(range(len(self.pulled)))
        self.is_plain = not any(self.orders)

    def __call__(self, *inputs: Any) -> tuple:
        """Return the results, with a history."""
        if self.saves and has_changing_hooks():
            raise EagerCall("the caller has hooks on saved tensors, which may change what eager mode saves")
        if torch.is_grad_enabled():
            return self.apply(inputs)
        with torch.enable_grad():  # the program switches it on
            return self.apply(inputs)

    def apply(self, inputs: Sequence[Any]) -> tuple:
        """Return the results with a history of one node, or of one for each stage: autograd accumulates what a stage returns before the next.

        Autograd would go on from the node through the history of an input that no result depends on: it may be freed by then, or have hooks.
        """
        if self.unreached:
            inputs = [x.detach() if i in self.unreached else x for i, x in enumerate(inputs)]
        if not self.stages:
            return Call.apply(self, None, *inputs)
        running, handed = Running(), {i for stage in self.stages for i in stage}
        late = [i for i, x in enumerate(inputs) if i not in handed and isinstance(x, torch.Tensor) and x.requires_grad]
        link = None
        for numbers in (late, *reversed(self.stages[1:])):
            link = Stage.apply(running, tuple(numbers), link, *[inputs[i] for i in numbers])
        return Call.apply(self, (running, len(inputs)), *inputs, link)

    def selecting(self, result: int | None) -> Callable[..., Any]:
        """Return a function that does what a call does, and returns one result or all; in fewer steps, since a prologue has checked torch's modes."""
        if self.stages or self.unreached:
            return self if result is None else lambda *inputs: self(*inputs)[result]
        apply, grad_enabled, saves = direct_apply(Call), torch.is_grad_enabled, self.saves

        def call(*inputs: Any) -> Any:
            if not grad_enabled() or (saves and saved_hooks(True) is not None):
                return self(*inputs) if result is None else self(*inputs)[result]
            results = apply(self, None, *inputs)
            return results if result is None else results[result]

        return call

    def beside(self, forward: Callable[..., tuple]) -> Bridge:
        """Return a bridge with another forward program and the backwards of this one."""
        return replace(self, forward=forward)

    def dense(self, cotangents: Sequence[Any]) -> list[Any]:
        """Return cotangents as programs take them, None where one is absent."""
        return [g if g is None else in_order(g, order) for g, order in zip(cotangents, self.orders, strict=True)]

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
    def forward(ctx: Any, bridge: Bridge, staged: Any, *inputs: Any) -> tuple:
        if staged is not None:
            inputs = inputs[: staged[1]]
        if bridge.layouts:
            inputs = local_parts(inputs, bridge.layouts)
        results, saved, numbers = bridge.forward(*inputs)
        ctx.call = bridge, staged, numbers
        ctx.set_materialize_grads(False)
        extra = bridge.pullback.extra
        ctx.save_for_backward(*saved, *[inputs[i] for i in extra]) if extra else ctx.save_for_backward(*saved)
        if bridge.pullback.extra_numbers:
            ctx.extra_numbers = [inputs[i] for i in bridge.pullback.extra_numbers]
        if bridge.constant:
            ctx.mark_non_differentiable(*[results[i] for i in bridge.constant])
        if bridge.later:
            ctx.earlier = [(ref(results[i]), i) for i in bridge.later]
        return results

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> tuple:
        bridge, staged, numbers = ctx.call
        if bridge.later:
            _check_whole(ctx.earlier, bridge.later, gs)
        if staged is None and bridge.takes_all:
            for g in gs:  # a loop: a comprehension is a call, and there are a few microseconds in all
                if g is None or not has_storage(g):
                    break
            else:
                if not torch.is_grad_enabled() and not any_autocast():
                    return None, None, *_gradients(ctx, bridge, numbers, gs)
        return _backward(ctx, bridge, staged, numbers, gs)


def _check_whole(earlier: Sequence[tuple[Any, int]], later: Mapping[int, Sequence[int]], gs: Sequence[Any]) -> None:
    """Refuse a backward in which someone looks at the gradient of a result, and a result that is computed from that one adds to it.

    Autograd has shown what comes from outside of the call by then; the rest is a value within the backward program.
    """
    for tensor, i in earlier:
        result = tensor()
        if result is not None and _is_watched(result) and (parts := [j for j in later[i] if gs[j] is not None]):
            raise RuntimeError(PARTIAL.format(i, parts[0]))


def _is_watched(result: torch.Tensor) -> bool:
    """Return whether someone looks at the gradient of a result.

    Hooks of torch.distributed do not, as FSDP's on the results of a module: they act when a backward arrives.
    """
    if result.retains_grad:
        return True
    hooks = [getattr(hook, "func", hook) for hook in (result._backward_hooks or {}).values()]
    return not all([str(getattr(hook, "__module__", "")).startswith("torch.distributed") for hook in hooks])


def _gradients(ctx: Any, bridge: Bridge, numbers: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
    """Return the gradients where each result has a cotangent, and nothing else is special."""
    if bridge.check is not None:
        bridge.check()
    saved, _ = _saved(ctx, len(bridge.pullback.saved))
    kept = [*saved, *numbers]
    del saved, _
    ctx.maybe_clear_saved_tensors()  # the program lets each value go after its last use, unless the graph is retained
    program = bridge.backwards.get(()) or bridge.backward(())
    try:
        gradients = program(kept, *(map(_CONTIGUOUS, cotangents) if bridge.is_plain else bridge.dense(cotangents)))
        return _together(gradients) if type(gradients) is GeneratorType else gradients
    except Exception as error:
        blame(error)
        raise


_CONTIGUOUS = torch.Tensor.contiguous


def _backward(ctx: Any, bridge: Bridge, staged: Any, numbers: Sequence[Any], gs: Sequence[Any]) -> tuple:
    """Return the gradients for any cotangents: some absent, those of a transform, with a history, in stages."""
    cotangents = [gs[i] for i in bridge.pulled]
    absent, present = ([i for i, g in enumerate(cotangents) if (g is None) is none] for none in (True, False))
    if not present:
        return (None,) * len(ctx.needs_input_grad)
    if bridge.check is not None:
        bridge.check()
    saved, extra, before = _saved_for(ctx, len(bridge.pullback.saved), present)
    if not all([g is None or has_storage(g) for g in cotangents]):
        values = bridge.pullback.values(saved, numbers, [*extra, *getattr(ctx, "extra_numbers", ())])
        return (None, None, *bridge.pullback.transformed(values, cotangents), *([None] * (staged is not None)))
    if torch.is_grad_enabled():
        if bridge.layouts:
            raise RuntimeError(TWICE.format("its parameters are DTensors"))
        if bridge.pullback.extra_numbers:
            extra = [*extra, *ctx.extra_numbers]
        return (None, None, *_with_history(bridge, tuple(absent), saved, numbers, extra, cotangents), *([None] * (staged is not None)))
    program = bridge.backward(tuple(absent))
    if absent:
        ctx.kept = kept(bridge.independent, before, absent, present, saved)
    values = [*saved, *numbers]
    del saved, extra, before
    ctx.maybe_clear_saved_tensors()
    if staged is None or absent:
        return (None, None, *wrapped(_run(bridge, program, values, cotangents), bridge.layouts), *([None] * (staged is not None)))
    with _plainly():
        staged[0].begin(program(values, *bridge.dense(cotangents)), staged[1])
    return (None, None, *staged[0].stage(), _LINK)


def _run(bridge: Bridge, program: Callable[..., Sequence[Any]], kept: list[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
    """Return the gradients that a backward program computes, without a history."""
    try:
        with _plainly():
            gradients = program(kept, *[g for g in bridge.dense(cotangents) if g is not None])
            return _together(gradients) if type(gradients) is GeneratorType else gradients
    except Exception as error:
        blame(error)
        raise


def _together(stages: Iterator[Sequence[Any]]) -> Sequence[Any]:
    """Return the gradients of all stages of a backward."""
    running = Running()
    running.begin(stages, 0)
    gradients = list(running.stage())
    while running.program is not None:
        gradients = [g if g is not None else late for g, late in zip(gradients, running.stage(), strict=True)]
    return gradients


_UNCHANGED = nullcontext()


def _plainly() -> AbstractContextManager[None]:
    """Return a context in which a backward program runs as it was compiled: without grad mode and autocast, which rarely are on there."""
    if torch.is_grad_enabled() or any_autocast():
        return _switched_off()
    return _UNCHANGED


@contextmanager
def _switched_off() -> Iterator[None]:
    with torch.no_grad(), autocast_off():
        yield


_LINK = torch.zeros(())  # the cotangent of what links stages


class Running:
    """A backward that hands over its gradients in stages."""

    def __init__(self) -> None:
        self.program: Iterator[Any] | None = None
        self.count = 0

    def begin(self, program: Any, count: int) -> None:
        """Take a backward with gradients of `count` inputs: a generator, or all its gradients."""
        self.program, self.count = program if isinstance(program, GeneratorType) else iter([program]), count

    def stage(self) -> Sequence[Any]:
        """Return the gradients of the next stage."""
        if self.program is None:
            return [None] * self.count
        try:
            with _plainly():
                return next(self.program)
        except StopIteration as end:
            self.program = None
            return end.value
        except Exception as error:
            blame(error)
            raise


class Stage(torch.autograd.Function):
    """The gradients of the inputs with these numbers, from a later stage of a backward."""

    @staticmethod
    def forward(ctx: Any, running: Running, numbers: tuple[int, ...], link: torch.Tensor | None, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.running, ctx.numbers, ctx.linked = running, numbers, link is not None
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        gradients = ctx.running.stage()
        return (None, None, _LINK if ctx.linked else None, *[gradients[i] for i in ctx.numbers])


def _saved(ctx: Any, count: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the first `count` of the tensors that a call saved, and the others: none where one of those was overwritten since."""
    try:
        tensors = ctx.saved_tensors
    except RuntimeError as error:
        if not count and not torch.is_grad_enabled():  # an earlier backward has freed nothing that this one reads
            return (), ()
        parts = getattr(ctx, "_raw_saved_tensors", ())
        if torch.is_grad_enabled() or len(parts) <= count or _OVERWRITTEN not in str(error):
            raise
        return _unpacked(parts[:count], error), ()
    return (tensors[:count], tensors[count:]) if len(tensors) > count else (tensors, ())


def _saved_for(ctx: Any, count: int, present: Sequence[int]) -> tuple[Sequence[Any], Sequence[Any], Kept | None]:
    """Return the same for a backward of these cotangents, and what an earlier one has kept for it where the tensors are freed."""
    try:
        return *_saved(ctx, count), None
    except RuntimeError:
        before = getattr(ctx, "kept", None)
        tensors = before.take(present, count) if before is not None and not torch.is_grad_enabled() else None
        if tensors is None:
            raise
        return tensors, (), before


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
        grads = pullback(values, bridge.dense(cotangents))
    if grads is not None:
        return grads
    if pullback.overwritten:
        raise RuntimeError(TWICE.format(pullback.problem))
    plain = _run(bridge, bridge.backward(absent), [*saved, *numbers], cotangents)
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
