"""Measure which way to compute something is faster: the ways take turns on the same tensors, so that a disturbance affects all of them.

Rounds in which threads waited for a core are discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dovetail.extend.advanced import seconds_waited, undisturbed

BUDGET = 0.005  # seconds of rounds that count, after the first few
PATIENCE = 0.06  # seconds of rounds, counted or not
FEWEST_ROUNDS, MOST_ROUNDS = 5, 60
CLEAR_ROUNDS, CLEAR, NEARLY_ALL = 8, 1.1, 0.9  # a race ends early where each way is so many times as fast or slow as PyTorch, in nearly all rounds
SAMPLE = 30e-6  # seconds that a sample takes at least; shorter calls are repeated
MOST_REPEATS = 20
LONGEST_WAIT = 0.03  # of a round that counts
USUAL, PACKED = "torch", "packed"
FLOAT32 = "float32"  # PyTorch's product of bfloat16 in float32, conversions included: what the torch executor runs where that is faster
BESIDE = "beside"  # prefix of ways that compute something else: lower bounds, which take part in the race and are not compared
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # of the largest result


@dataclass(frozen=True)
class Row:
    """The measurement of one class: each way's best time in microseconds, and the share of rounds in which it beat PyTorch.

    `lost` gives the reason why a way is missing, `disturbed` the reason why the measurement is unusable ("" where it is usable).
    """

    times: dict[str, float]
    wins: dict[str, float] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    disturbed: str = ""

    def covers(self, packs: bool) -> bool:
        """Return whether a packed weight was measured, too, where it `packs`."""
        return not packs or bool(self.disturbed) or PACKED in self.times or PACKED in self.lost


def race(ways: dict[str, Callable[[], Tensor]], waited: Callable[[], float] | None = None) -> Row:
    """Return the measurement of these ways. A way that raises, or that computes another result than "torch" without being BESIDE, is left out.

    `waited` returns the total seconds that threads of this process have waited for a core.
    """
    waited = waited or seconds_waited
    with undisturbed():
        running, lost = _agreeing(ways)
        repeats = {name: _repeats(way) for name, way in running.items()}
        rounds: list[dict[str, float]] = []
        tried, began = 0, perf_counter()
        while _goes_on(len(rounds), perf_counter() - began):
            before, start = waited(), perf_counter()
            times = {name: _time(way, repeats[name]) for name, way in running.items()}
            tried += 1
            if waited() - before <= LONGEST_WAIT * (perf_counter() - start):
                rounds.append(times)
                if _is_clear(rounds):
                    break
    if len(rounds) < FEWEST_ROUNDS:
        return Row({}, {}, lost, f"other processes disturbed {tried - len(rounds)} of {tried} rounds")
    times = {name: round(min(each[name] for each in rounds) * 1e6, 2) for name in running}
    wins = {name: round(sum(each[name] < each[USUAL] for each in rounds) / len(rounds), 2) for name in running if name != USUAL}
    return Row(times, wins, lost)


def speed(work: int, way: Callable[[], Tensor]) -> float:
    """Return the amount of `work` done per second."""
    with undisturbed():
        way()
        return work / min(_time(way, 1) for _ in range(3))


def _goes_on(counted: int, seconds: float) -> bool:
    """Return whether to run another round: few rounds count so far, or they are cheap; a busy machine ends the race early."""
    return seconds < PATIENCE if counted < FEWEST_ROUNDS else counted < MOST_ROUNDS and seconds < BUDGET


def _is_clear(rounds: list[dict[str, float]]) -> bool:
    """Return whether more rounds would not change which ways are faster than PyTorch."""
    if len(rounds) < CLEAR_ROUNDS:
        return False
    usual = min([each[USUAL] for each in rounds])
    for way in rounds[0].keys() - {USUAL}:
        best, won = min([each[way] for each in rounds]), sum([each[way] < each[USUAL] for each in rounds]) / len(rounds)
        if not ((won >= NEARLY_ALL and best * CLEAR <= usual) or (won <= 1 - NEARLY_ALL and best >= usual * CLEAR)):
            return False
    return True


def _agreeing(ways: dict[str, Callable[[], Tensor]]) -> tuple[dict[str, Callable[[], Tensor]], dict[str, str]]:
    """Call each way once; return those that agree with PyTorch, and why the others are left out."""
    expected, agreeing, lost = ways[USUAL](), {USUAL: ways[USUAL]}, {}
    for name, way in ways.items():
        if name == USUAL:
            continue
        try:
            got = way()
        except RuntimeError as error:
            lost[name] = str(error).partition("\n")[0]
            continue
        if name.startswith(BESIDE) or (difference := differs(got, expected)) is None:
            agreeing[name] = way
        else:
            lost[name] = difference
    return agreeing, lost


def differs(got: Tensor, expected: Tensor) -> str | None:
    """Return how two results differ in shape, dtype, strides or values; None where they agree."""
    for name in ("shape", "dtype"):
        if getattr(got, name) != getattr(expected, name):
            return f"it returns {name} {getattr(got, name)}, PyTorch {getattr(expected, name)}"
    if got.stride() != expected.stride():
        return f"it returns strides {got.stride()}, PyTorch {expected.stride()}"
    distance, largest = (got - expected).abs().max().item(), expected.abs().max().item()
    return None if distance <= CLOSE[expected.dtype] * (1 + largest) else f"it is off by {distance:.1e} where PyTorch returns up to {largest:.1e}"


def _repeats(way: Callable[[], Any]) -> int:
    return max(1, min(MOST_REPEATS, round(SAMPLE / max(_time(way, 1), 1e-7))))


def _time(way: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of one call."""
    began = perf_counter()
    for _ in range(repeats):
        way()
    return (perf_counter() - began) / repeats
