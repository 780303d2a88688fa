"""Devices, without torch.  One object per device: compare them with `is`."""

from __future__ import annotations

from functools import cache


class Device:
    """A kind of hardware and, for some kinds, its index.  Created by `device("cuda:0")`."""

    __slots__ = ("index", "type")

    def __init__(self, type: str, index: int | None):
        self.type, self.index = type, index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f'devices.device("{self}")'

    def __reduce__(self) -> tuple:
        return device, (str(self),)


@cache
def device(name: str) -> Device:
    """Return the device called `name`: "cpu", "cuda:1", "meta"."""
    type, _, index = name.partition(":")
    return Device(type, int(index) if index else None)


cpu = device("cpu")
meta = device("meta")
