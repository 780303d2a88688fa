"""Ways to do one thing, timed in turns, so that a disturbance affects all of them; the first is what the others are compared with."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from costs import progress
from machine import span


@dataclass(frozen=True)
class Compared:
    """The least seconds of each way, and its speed as a multiple of the first one's: the median of the ratios within a round."""

    seconds: dict[str, float]
    speeds: dict[str, float]


def in_turns(ways: Mapping[str, Callable[[], float]], rounds: int, name: str) -> Compared:
    """Call each way in each round; it returns the seconds that it took. `name` is what progress shows."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in progress(range(rounds), name):
        for way, spent in ways.items():
            times[way].append(spent())
    first = next(iter(times.values()))
    speeds = {way: statistics.median([usual / mine for mine, usual in zip(seconds, first, strict=True)]) for way, seconds in times.items()}
    return Compared({way: min(seconds) for way, seconds in times.items()}, speeds)


def table(results: Mapping[str, Compared]) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    """Return the rows of a table, seconds and speeds by way, and the figures behind it."""
    rows = []
    for name, compared in results.items():
        (first, *others) = compared.seconds
        factors = [f"{span(compared.seconds[way])}, {compared.speeds[way]:.2f}x" for way in others]
        rows.append((name, span(compared.seconds[first]), *factors))
    return rows, {name: asdict(compared) for name, compared in results.items()}
