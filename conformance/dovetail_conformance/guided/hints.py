"""Hints: the constants of a plugin's own code, from which sizes, arguments and elements are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from types import CodeType
from typing import Any

from dovetail_conformance.guided.own import Own, nested

LONGEST, DEEPEST, MOST = 16, 3, 40  # items of a collection, collections in each other, constants of a kind
LARGEST = 1 << 40  # of whole numbers that are hints
USUAL = (0, 1, -1)  # whole numbers that every code has


@dataclass
class Hints:
    """Numbers and strings; `whole` and `real` are sorted by how often they occur, then by size."""

    whole: list[int] = field(default_factory=list)
    real: list[float] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    tuples: list[tuple[int, ...]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.whole or self.real)

    def add(self, value: float) -> bool:
        """Add a number that a comparison showed; return whether it is new."""
        number, kept = (int(value), self.whole) if float(value).is_integer() else (float(value), self.real)
        if not isfinite(value) or abs(value) > LARGEST or number in kept or number in USUAL or len(kept) >= 2 * MOST:
            return False
        kept.append(number)
        return True

    def around(self) -> list[int]:
        """Return the whole numbers, each with its neighbours."""
        return list(dict.fromkeys(n + d for n in self.whole for d in (0, 1, -1)))

    def values(self) -> list[float]:
        """Return what an element may be: the numbers, their neighbours and their negatives."""
        chosen: dict[float, None] = {}
        for number in (*self.real, *self.whole):
            steps = (1, 0.125) if isinstance(number, int) else (max(abs(number) * 0.01, 1e-6), max(abs(number) * 1e-3, 1e-7))
            for value in (number, *(number + sign * step for step in steps for sign in (1, -1))):
                chosen.update(dict.fromkeys((value, -value)))
        between = [(a + b) / 2 for a, b in pairwise(sorted({*self.real, *self.whole}))]
        return list(dict.fromkeys([*chosen, *between]))


def hints_of(own: Own) -> Hints:
    """Return the constants of code objects, and the numbers and strings among the values that they read."""
    hints = Hints()
    seen: dict[Any, int] = {}
    for value in _constants(own):
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            seen[value] = seen.get(value, 0) + 1
    for value in sorted((v for v in seen if isinstance(v, (int, float))), key=lambda v: (abs(v), v < 0)):
        if isinstance(value, float) and not value.is_integer():
            if isfinite(value) and len(hints.real) < MOST:
                hints.real.append(value)
        elif isfinite(value) and abs(value) <= LARGEST and value not in USUAL and int(value) not in hints.whole and len(hints.whole) < MOST:
            hints.whole.append(int(value))
    hints.tuples = [t for t in dict.fromkeys(_tuples(own)) if all(abs(n) < LARGEST for n in t)][:LONGEST]
    hints.words = [v for v in seen if isinstance(v, str) and v and len(v) <= 24 and " " not in v and not v.startswith("_")][:MOST]
    return hints


def _constants(own: Own) -> Iterator[Any]:
    for code in own.functions:
        for each in nested(code):
            yield from _items([c for i, c in enumerate(each.co_consts) if not (i == 0 and _is_doc(each))])
    for function in own.functions.values():
        yield from _items([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()])
    yield from _items(own.values)


def _tuples(own: Own) -> Iterator[tuple[int, ...]]:
    """Yield the short tuples of whole numbers among the constants."""
    values = [*(c for code in own.functions for each in nested(code) for c in each.co_consts), *own.values]
    inside = [item for each in values if isinstance(each, (tuple, list, dict, frozenset)) for item in each]
    for value in (*values, *inside):
        if type(value) is tuple and 0 < len(value) <= LONGEST // 2 and all(type(n) is int for n in value):
            yield value


def _is_doc(code: CodeType) -> bool:
    """Return whether the first constant may be a docstring."""
    return isinstance(code.co_consts[0], str) and " " in code.co_consts[0]


def _items(values: Any, depth: int = 0) -> Iterator[Any]:
    """Yield numbers and strings, and those of short collections."""
    for value in values:
        if isinstance(value, (int, float, str)):
            yield value
        elif isinstance(value, (tuple, list, set, frozenset)) and len(value) <= LONGEST and depth < DEEPEST:
            yield from _items(value, depth + 1)
        elif isinstance(value, dict) and len(value) <= LONGEST and depth < DEEPEST:
            yield from _items([*value.keys(), *value.values()], depth + 1)
        elif isinstance(value, slice):
            yield from _items((value.start, value.stop, value.step), DEEPEST)
