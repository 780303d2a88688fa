"""torch.Generator in a tracked run: its state is set and read by lines of the program, at every call and in order with the draws."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import Unsupported
from dovetail.langs.torch import host_line
from dovetail.trace import user_line

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


def generator_method(function: Any) -> str | None:
    """Return the name of a C function that is a method of torch.Generator, else None."""
    kind = type(function)
    if kind is BuiltinFunctionType and isinstance(function.__self__, torch.Generator):
        return function.__name__
    if kind is MethodDescriptorType and function.__objclass__ is torch.Generator:
        return function.__name__
    return None


def call_method(tracker: Tracker, function: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Record a call of a method of a generator."""
    generator, *args = [function.__self__, *args] if type(function) is BuiltinFunctionType else args
    guard_same(tracker, generator)
    values = (*args, *kwargs.values())
    if name in ("manual_seed", "set_state") and len(values) == 1:
        host_line(getattr(torch.Generator, name), (generator, *values))
        return generator
    if name == "get_state" and not values:
        return host_line(torch.Generator.get_state, (generator,), like=generator.get_state())
    raise Unsupported(f"torch.Generator.{name} is not traced, only manual_seed, get_state and set_state; call it outside\n  called at {user_line()}")


def create(session: Any, args: list[Any], kwargs: dict[str, Any]) -> torch.Generator:
    """Create a generator once for all calls, and let each call begin with it as it is when it is new."""
    new = torch.Generator(*args, **kwargs)
    generator = new if session is None else session.created(new)
    host_line(torch.Generator.manual_seed, (generator, new.initial_seed()))
    return generator


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
