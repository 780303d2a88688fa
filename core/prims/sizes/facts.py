"""What is known of sizes: intervals of polynomials, and sizes that were needed as plain ints."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dovetail.errors import DovetailError
from dovetail.prims.sizes.size import Atom, Size


class RelationsClosed(DovetailError):
    """A comparison of sizes that is not decided by the guards, after these were generated."""


class Pin(NamedTuple):
    """A size that was needed as a plain int: its text, its value, the user's operation and line, and the symbols in it."""

    text: str
    value: int
    where: str | None
    symbols: tuple[Atom, ...]


@dataclass(eq=False)
class Form:
    """A polynomial without constant, and the interval that its value lies in, but for `excluded` values.

    Attributes:
        size: the polynomial; its coefficients have no common divisor, and the first one is positive.
        low, high: the interval, None where it is open.
        recorded: whether the traced call decided a part of it; else it consists of the bounds with which symbols were created.
        places: the lines of the user's program that recorded something.
    """

    size: Size
    low: int | None = None
    high: int | None = None
    excluded: set[int] = field(default_factory=set)
    recorded: bool = False
    places: list[str] = field(default_factory=list)

    @property
    def restricts(self) -> bool:
        """Return whether some values are not admitted."""
        return self.low is not None or self.high is not None or bool(self.excluded)

    def admits(self, value: int) -> bool:
        """Return whether the value is one that the program was compiled for."""
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high) and value not in self.excluded

    def narrow(self, low: int | None, high: int | None, excluded: Collection[int] = ()) -> None:
        """Add bounds and excluded values; excluding an end of the interval moves it."""
        self.low = low if self.low is None else self.low if low is None else max(self.low, low)
        self.high = high if self.high is None else self.high if high is None else min(self.high, high)
        self.excluded.update(excluded)
        while self.low in self.excluded:
            self.excluded.discard(self.low)
            self.low += 1
        while self.high in self.excluded:
            self.excluded.discard(self.high)
            self.high -= 1
        outside = [v for v in self.excluded if (self.low is not None and v < self.low) or (self.high is not None and v > self.high)]
        self.excluded.difference_update(outside)

    def text(self, names: Mapping[int, str] | None = None) -> str:
        """Return the conditions as a Python expression."""
        words = self.size.text(names)
        if self.low is not None and self.low == self.high:
            return f"{words} == {self.low}"
        left, right = "" if self.low is None else f"{self.low} <= ", "" if self.high is None else f" <= {self.high}"
        interval = [f"{words} >= {self.low}" if left and not right else f"{left}{words}{right}"] if left or right else []
        return " and ".join([*interval, *[f"{words} != {v}" for v in sorted(self.excluded)]])


class Facts(NamedTuple):
    """What was known of symbols at some point: the `version` of their Relations, and the intervals."""

    version: int
    forms: dict[frozenset, Form]
