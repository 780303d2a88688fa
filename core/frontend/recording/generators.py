"""torch.Generator in a tracked run: its state is set and read by lines of the program, at every call and in order with the draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import EagerCall
from dovetail.langs.torch import host_line
from dovetail.trace import user_line

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


class TracedGenerators:
    """The generators that a program draws from: those from outside, which are the same at each call, and its own.

    Its own are those that it creates, and those that stand in for generators from outside that are others at other calls.  A stand-in begins each
    call in the state of the generator of that call, which gets the state of the stand-in at the end: until then nothing outside has changed.

    Attributes:
        recorder: the TorchRecorder of the run.
        owns: whether the program has generators of its own.
    """

    def __init__(self, recorder: Any):
        self.recorder = recorder
        self.owns = False
        self.stand_ins: dict[int, tuple[torch.Generator, torch.Generator]] = {}  # id of an outside generator: itself, and what stands in for it

    def create(self, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Generator:
        """Create a generator once for all calls, and let each call begin with it as it is when it is new."""
        new = torch.Generator(*args, **kwargs)
        generator = self._own(new)
        host_line(torch.Generator.manual_seed, (generator, new.initial_seed()))
        return generator

    def drawn_from(self, tracker: Tracker, generator: torch.Generator) -> torch.Generator:
        """Return the generator that lines of the program draw from."""
        if id(generator) in self.stand_ins:
            return self.stand_ins[id(generator)][1]
        source, sizes = tracker.source(generator), self.recorder.changing.sizes
        is_outside = source is not None and source.kind != "const" and _can_be_another(generator)
        if not is_outside or sizes is None or tracker.later is not None or not sizes.moves(generator, source):
            guard_same(tracker, generator)
            return generator
        stand_in = self._own(torch.Generator())
        self.stand_ins[id(generator)] = generator, stand_in
        guard, sources = tracker.guard, tracker.sources
        guard("type", source, torch.Generator)
        guard("equal", sources.attr(source, "device"), generator.device)
        guard("notsame", source, sources.const(torch.default_generator))
        state = sources.call(sources.attr(source, "get_state"))
        guard("type", state, torch.Tensor)
        host_line(torch.Generator.set_state, (stand_in, self.recorder.add_input(state, generator.get_state())))
        return stand_in

    def call_method(self, tracker: Tracker, function: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Record a call of a method of a generator."""
        generator, *args = [function.__self__, *args] if type(function) is BuiltinFunctionType else args
        own, values = self.drawn_from(tracker, generator), (*args, *kwargs.values())
        if name in ("manual_seed", "set_state") and len(values) == 1:
            host_line(getattr(torch.Generator, name), (own, *values))
            return generator
        if name == "get_state" and not values:
            return host_line(torch.Generator.get_state, (own,), like=own.get_state())
        raise EagerCall(
            f"torch.Generator.{name} is not traced, only manual_seed, get_state and set_state; call it outside\n  called at {user_line()}"
        )

    def finish(self, tracker: Tracker) -> None:
        """Record that the generators of a call get the states of what stood in for them."""
        for generator, stand_in in self.stand_ins.values():
            source = tracker.source(generator)
            for other, at in list(tracker.known.values()):
                if other is not generator and type(other) is torch.Generator:
                    tracker.guard("notsame", source, at)
            state = host_line(torch.Generator.get_state, (stand_in,), like=generator.get_state())
            tracker.effects.call(torch.Generator.set_state, [generator, state], {})

    def _own(self, new: torch.Generator) -> torch.Generator:
        """Return the generator of the program in the place of a new one, the same on all ways through it."""
        self.owns, session = True, self.recorder.environment.session
        return new if session is None else session.created(new)


def _can_be_another(generator: torch.Generator) -> bool:
    """Return whether another generator may stand in for one: the default one also draws what no generator is passed for."""
    return generator.device.type == "cpu" and generator is not torch.default_generator


def generator_method(function: Any) -> str | None:
    """Return the name of a C function that is a method of torch.Generator, else None."""
    kind = type(function)
    if kind is BuiltinFunctionType and isinstance(function.__self__, torch.Generator):
        return function.__name__
    if kind is MethodDescriptorType and function.__objclass__ is torch.Generator:
        return function.__name__
    return None


def copy_of(generator: torch.Generator) -> torch.Generator:
    """Return another generator in the same state."""
    return torch.Generator(generator.device).set_state(generator.get_state())


def guard_same(tracker: Tracker, value: Any) -> None:
    """Guard that a function or generator from outside, which is not traced into, is the same one at every call."""
    source = tracker.source(value)
    if source is not None and source.kind != "const":
        tracker.guard("is", source, value)


def manual_seed(seed: Any) -> torch.Generator:
    """Seed the generators of all devices when the program runs."""
    host_line(torch.manual_seed, (seed,))
    return torch.default_generator


def get_rng_state() -> Any:
    """Read the state of the default generator when the program runs."""
    return host_line(torch.get_rng_state, (), like=torch.get_rng_state())


def set_rng_state(new_state: Any) -> None:
    """Set the state of the default generator when the program runs."""
    host_line(torch.set_rng_state, (new_state,))


TRACED: dict[Any, Callable] = {  # Python functions of torch -> what records them
    torch.manual_seed: manual_seed,
    torch.get_rng_state: get_rng_state,
    torch.set_rng_state: set_rng_state,
}
