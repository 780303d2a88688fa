"""Which way of computing something is faster: they run in turns on the same tensors, so that what disturbs one disturbs all.

On Linux the kernel says how long threads that could run had to wait for a core, so a round in which other processes were in the way is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dovetail.extend import torch_internals

BUDGET = 0.008  # seconds of rounds that count, after the first few
PATIENCE = 0.06  # seconds of rounds, counted or not
FEWEST_ROUNDS, MOST_ROUNDS = 5, 60
SAMPLE = 30e-6  # seconds that a sample takes at least; shorter calls are repeated
MOST_REPEATS = 20
LONGEST_WAIT = 0.03  # of a round that counts
USUAL = "torch"
BESIDE = "beside"  # ways whose names begin so give something else: they are what a way is compared with, besides the usual one
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # of the largest result


@dataclass(frozen=True)
class Row:
    """What was measured of one class: the microseconds of each way, the best of all rounds, and in which share of rounds it beat the usual one.

    `lost` says why a way is not there.  `disturbed` is why the row says nothing, "" where it does.
    """

    times: dict[str, float]
    wins: dict[str, float] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    disturbed: str = ""


def race(ways: dict[str, Callable[[], Tensor]], waited: Callable[[], float] | None = None) -> Row:
    """The row of these ways; the usual one is "torch".  A way that raises, or gives something else and is not BESIDE, does not take part.

    `waited` gives the seconds that threads of this process have waited for a core, all in all.
    """
    waited = waited or seconds_waited
    with _undisturbed():
        running, lost = _agreeing(ways)
        repeats = {name: _repeats(way) for name, way in running.items()}
        rounds: list[dict[str, float]] = []
        tried, began = 0, perf_counter()
        while _goes_on(len(rounds), perf_counter() - began):
            before, start = waited(), perf_counter()
            found = {name: _time(way, repeats[name]) for name, way in running.items()}
            tried += 1
            if waited() - before <= LONGEST_WAIT * (perf_counter() - start):
                rounds.append(found)
    if len(rounds) < FEWEST_ROUNDS:
        return Row({}, {}, lost, f"other processes were in the way in {tried - len(rounds)} of {tried} rounds")
    times = {name: round(min(each[name] for each in rounds) * 1e6, 2) for name in running}
    wins = {name: round(sum(each[name] < each[USUAL] for each in rounds) / len(rounds), 2) for name in running if name != USUAL}
    return Row(times, wins, lost)


def speed(work: int, way: Callable[[], Tensor]) -> float:
    """How much of `work` is done in a second."""
    with _undisturbed():
        way()
        return work / min(_time(way, 1) for _ in range(3))


def _goes_on(counted: int, seconds: float) -> bool:
    """Whether there is to be another round: those that count are few, or cost little; in a crowd it ends without."""
    return seconds < PATIENCE if counted < FEWEST_ROUNDS else counted < MOST_ROUNDS and seconds < BUDGET


def seconds_waited() -> float:
    """How long the threads of this process that could run have waited for a core; 0 where the system does not say."""
    total = 0
    with suppress(OSError, ValueError, IndexError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
    return total * 1e-9


def _undisturbed() -> ExitStack:
    """Neither the user's modes nor gradients reach what is measured, and it changes none of them."""
    stack = ExitStack()
    for each in (torch_internals.no_modes(), torch_internals.no_torch_function(), torch.autocast("cpu", enabled=False), torch.no_grad()):
        stack.enter_context(each)
    return stack


def _agreeing(ways: dict[str, Callable[[], Tensor]]) -> tuple[dict[str, Callable[[], Tensor]], dict[str, str]]:
    """The ways that give what the usual one gives, after a first call of each, and why the others do not count."""
    expected, found, lost = ways[USUAL](), {USUAL: ways[USUAL]}, {}
    for name, way in ways.items():
        if name == USUAL:
            continue
        try:
            got = way()
        except RuntimeError as error:
            lost[name] = str(error).partition("\n")[0]
            continue
        if name.startswith(BESIDE) or (said := differs(got, expected)) is None:
            found[name] = way
        else:
            lost[name] = said
    return found, lost


def differs(got: Tensor, expected: Tensor) -> str | None:
    """How a result is another one: shape, dtype, strides, numbers; None when it is not."""
    for name in ("shape", "dtype"):
        if getattr(got, name) != getattr(expected, name):
            return f"it gives {name} {getattr(got, name)}, and PyTorch {getattr(expected, name)}"
    if got.stride() != expected.stride():
        return f"it gives strides {got.stride()}, and PyTorch {expected.stride()}"
    distance, largest = (got - expected).abs().max().item(), expected.abs().max().item()
    return None if distance <= CLOSE[expected.dtype] * (1 + largest) else f"it is off by {distance:.1e} where PyTorch gives up to {largest:.1e}"


def _repeats(way: Callable[[], Any]) -> int:
    return max(1, min(MOST_REPEATS, round(SAMPLE / max(_time(way, 1), 1e-7))))


def _time(way: Callable[[], Any], repeats: int) -> float:
    """Seconds of one call."""
    began = perf_counter()
    for _ in range(repeats):
        way()
    return (perf_counter() - began) / repeats
