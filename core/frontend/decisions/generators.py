"""The random generators that a graph draws from: a call that starts again in eager mode finds them as it found them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dovetail import prims
from dovetail.devices import Device, cpu, device
from dovetail.prims import Tag
from dovetail.trace import BoundSymbol, TensorProxy, leaves

States = dict[Device, torch.Tensor]


class Generators:
    """torch's default generators of those devices that the segments of a graph draw on."""

    def __init__(self) -> None:
        self.devices: frozenset[Any] = frozenset()

    def note(self, lines: Iterable[BoundSymbol]) -> str | None:
        """Remember the devices that lines draw on; return why a call could not start again after they have run, None where it could."""
        for line in _effects(lines):
            if line.symbol is prims.item:
                continue
            if Tag.RANDOM not in line.symbol.tags:
                return f"{line.symbol} has an effect of its own"
            if any([isinstance(x, torch.Generator) for x in leaves((line.args, line.kwargs))]):
                return "it draws from a generator of its own"
            devices = {p.spec.device for p in line.writes if isinstance(p, TensorProxy)}
            if any([device.type not in ("cpu", "cuda") for device in devices]):
                return f"it draws random numbers on {', '.join(map(str, devices))}"
            self.devices |= devices
        return None

    def state(self) -> States:
        """Return the states of the generators."""
        return {place: _read(place) for place in self.devices}

    @staticmethod
    def everything() -> States:
        """Return the states of all generators of torch."""
        places = [cpu, *[device(f"cuda:{i}") for i in range(torch.cuda.device_count())]] if torch.cuda.is_initialized() else [cpu]
        return {place: _read(place) for place in places}

    @staticmethod
    def restore(states: States) -> None:
        """Set generators to the states that they had."""
        for place, state in states.items():
            if place.type == "cpu":
                torch.default_generator.set_state(state)
            else:
                torch.cuda.set_rng_state(state, place.index or 0)


def _read(device: Any) -> torch.Tensor:
    return torch.default_generator.get_state() if device.type == "cpu" else torch.cuda.get_rng_state(device.index or 0)


def _effects(lines: Iterable[BoundSymbol]) -> Iterable[BoundSymbol]:
    for line in lines:
        if line.symbol.path.startswith("untraced") or line.symbol.module == "dist":  # of the user, or of all ranks
            yield line
        elif line.body:
            yield from _effects(line.body)
        elif line.effects:
            yield line
