"""The random generators that a graph draws from, torch's, Python's and NumPy's: a call that starts again in eager mode finds them as they were."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterable
from typing import Any

import torch

from dovetail import prims
from dovetail.devices import Device, cpu, device
from dovetail.langs.torch import CHECKS
from dovetail.prims import Tag
from dovetail.trace import BoundSymbol, TensorProxy, leaves

_SEEDS = frozenset(
    {
        *("torch.manual_seed", "torch.get_rng_state", "torch.set_rng_state"),
        *("torch.Generator.manual_seed", "torch.Generator.get_state", "torch.Generator.set_state"),
    }
)
States = dict[Any, Any]  # a device, or a generator -> its state


class Generators:
    """torch's default generators of those devices that the segments of a graph draw on."""

    def __init__(self) -> None:
        self.devices: frozenset[Any] = frozenset()
        self.hosts: dict[int, Any] = {}  # id -> a generator of Python's or NumPy's, or one of torch's that the program passes to operations
        self.first: States = {}  # their states before the first draw, of those that were seen since this was emptied

    def note_host(self, generator: Any) -> None:
        """Remember a generator that the function draws from next."""
        if id(generator) not in self.hosts and (state := host_state(generator)) is not None:
            self.hosts[id(generator)] = generator
            self.first[generator] = state

    def note_all(self) -> None:
        """Remember the generators that code in Python may draw from: torch's default ones, Python's, and NumPy's where it is there."""
        self.devices |= {*self.everything()}
        draws = [random.random, numpy.random.rand] if (numpy := sys.modules.get("numpy")) is not None else [random.random]
        for draw in draws:
            self.note_host(draw.__self__)

    def note(self, lines: Iterable[BoundSymbol]) -> str | None:
        """Remember the devices that lines draw on; return why a call could not start again after they have run, None where it could."""
        for line in effects(lines):
            if line.symbol in (prims.item, prims.evaluate) or line.symbol in CHECKS:
                continue
            if Tag.RANDOM not in line.symbol.tags and not seeds(line):
                return f"{line.symbol} has an effect of its own"
            own = [x for x in leaves((line.args, line.kwargs)) if isinstance(x, torch.Generator)]
            for generator in own:
                self.note_host(generator)
            if own:
                continue
            if seeds(line):
                self.devices |= {*self.everything()}
            elif (why := self.note_devices({p.spec.device for p in line.writes if isinstance(p, TensorProxy)})) is not None:
                return why
        return None

    @staticmethod
    def communicate(lines: Iterable[BoundSymbol]) -> bool:
        """Return whether what lines do more than compute is to communicate with other ranks."""
        return all([line.symbol.module == "dist" or line.symbol is prims.item for line in effects(lines)])

    def note_devices(self, devices: Collection[Device]) -> str | None:
        """Remember devices that are drawn on; return why a call could not start again after that, None where it could."""
        if any([device.type not in ("cpu", "cuda") for device in devices]):
            return f"it draws random numbers on {', '.join(map(str, devices))}"
        self.devices |= set(devices)
        return None

    def state(self) -> States:
        """Return the states of the generators."""
        return {place: _read(place) for place in self.devices} | {each: host_state(each) for each in self.hosts.values()}

    @property
    def any(self) -> bool:
        """Whether the graph draws from any generator."""
        return bool(self.devices or self.hosts)

    @staticmethod
    def everything() -> States:
        """Return the states of all generators of torch."""
        places = [cpu, *[device(f"cuda:{i}") for i in range(torch.cuda.device_count())]] if torch.cuda.is_initialized() else [cpu]
        return {place: _read(place) for place in places}

    @staticmethod
    def restore(states: States) -> None:
        """Set generators to the states that they had."""
        for place, state in states.items():
            if not isinstance(place, Device):
                set_host_state(place, state)
            elif place.type == "cpu":
                torch.default_generator.set_state(state)
            else:
                torch.cuda.set_rng_state(state, place.index or 0)


def seeds(line: BoundSymbol) -> bool:
    """Return whether a line sets or reads the state of a generator of torch's, or of the default ones."""
    return line.symbol.path in _SEEDS


def host_state(generator: Any) -> Any:
    """Return the state of a generator; None where it has none, as one of the system."""
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    read = getattr(generator, "get_state", None) or getattr(generator, "getstate", None)
    try:
        return read() if read is not None else None
    except NotImplementedError:
        return None


def set_host_state(generator: Any, state: Any) -> None:
    """Set a generator to a state that it had."""
    if hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        (getattr(generator, "set_state", None) or generator.setstate)(state)


def _read(device: Any) -> torch.Tensor:
    return torch.default_generator.get_state() if device.type == "cpu" else torch.cuda.get_rng_state(device.index or 0)


def is_check(line: BoundSymbol) -> bool:
    """Return whether a line may raise, and does nothing else."""
    return line.symbol in CHECKS or any(map(is_check, line.body))


def effects(lines: Iterable[BoundSymbol]) -> Iterable[BoundSymbol]:
    """Yield the lines, and parts of lines, that do more than compute their results."""
    for line in lines:
        if line.symbol.path.startswith("untraced") or line.symbol.module == "dist":  # of the user, or of all ranks
            yield line
        elif line.body:
            yield from effects(line.body)
        elif line.effects:
            yield line
