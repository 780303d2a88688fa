"""Counters of loops: integers in which two otherwise equal states differ; as numbers of the program they let the loop close."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail import prims
from dovetail.trace import BoundSymbol, NumberProxy, Proxy

RANGE_ITERATOR = type(iter(range(0)))
_PASSING = frozenset({prims.arithmetic, prims.format_number, prims.join_text})


class CountedRange:
    """What is left of `iter(range(...))` where the next item is a number of the program, and maybe the end; `taken` counts the items before."""

    def __init__(self, at: Any, stop: Any, step: int):
        self.at, self.stop, self.step, self.taken = at, stop, step, 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        at = self.at
        if (at >= self.stop) if self.step > 0 else (at <= self.stop):
            raise StopIteration
        self.at, self.taken = at + self.step, self.taken + 1
        return at


@dataclass(frozen=True)
class Counter:
    """A place in a frame that holds an int, or an iterator over a range: `values[index]`."""

    values: list[Any]
    index: int

    def value(self) -> Any:
        """Return the int, or where the iterator is, with its end and step."""
        x = self.values[self.index]
        if type(x) is int:
            return x
        _, (items,), *done = x.__reduce__()
        return items.start + (done[0] or 0 if done else 0) * items.step, items.stop, items.step

    def widen(self) -> NumberProxy:
        """Put a number of the program there."""
        value = self.value()
        number = prims.integer(value=value if type(value) is int else value[0])
        self.values[self.index] = number if type(value) is int else CountedRange(number, *value[1:])
        return number


def is_counter(x: Any) -> bool:
    """Return whether a value may be the count of a loop."""
    return type(x) is int or type(x) is RANGE_ITERATOR


def differing(before: Sequence[Any], now: Sequence[Any]) -> tuple[int, ...]:
    """Return which counters differ; none where two iterators differ in more than where they are."""
    changed = [i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
    if any([type(before[i]) is tuple and before[i][1:] != now[i][1:] for i in changed]):
        return ()
    return tuple(changed)


def follows(number: Proxy, counters: Collection[Proxy], lines: Iterable[BoundSymbol]) -> bool:
    """Return whether a number, or text, is computed from one of the counters."""
    flowing = set(counters)
    for line in lines if flowing else ():
        if line.symbol in _PASSING and not flowing.isdisjoint(line.reads):
            flowing.update(line.writes)
    return number in flowing
