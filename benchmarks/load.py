"""The time of a small kernel while other processes use all cores: Dovetail beside eager.

One busy process for each core runs beside the calls.  A mean says more than a median here: threads that wait for one that is not running
make a few calls take milliseconds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import mean, median

import torch
from costs import Costs, script
from workloads import SUITE

import dovetail

CALLS = {"eager": 100, "Dovetail": 1000}
BUSY = "while True: sum(range(100_000))"


def milliseconds(call: Callable[[], object], calls: int) -> list[float]:
    """Return the time of each of `calls` calls, after three for warming up."""
    times = []
    for _ in range(calls + 3):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    return times[3:]


def measured() -> dict[str, list[float]]:
    """Return the milliseconds of each call by the state of the cores and the subject."""
    case = SUITE.workloads["chain-256"].build()
    subjects = {"eager": case.call(case.fn), "Dovetail": case.call(dovetail.jit(case.fn))}
    times_by_state = {}
    for state, count in (("quiet", 0), ("busy", torch.get_num_threads())):
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
        try:
            time.sleep(0.5 * bool(others))
            times_by_state |= {f"{name}, cores {state}": milliseconds(call, CALLS[name]) for name, call in subjects.items()}
        finally:
            for other in others:
                other.kill()
                other.wait()
    return times_by_state


@script
def main() -> Iterator[Costs]:
    """Time a small kernel on quiet and on busy cores."""
    times_by_state = measured()
    rows = [(name, *(f"{of(times):.3f} ms" for of in (mean, median, max))) for name, times in times_by_state.items()]
    figures = {name: mean(times) / 1e3 for name, times in times_by_state.items()}
    how = f"An elementwise chain of 256 x 256, {torch.get_num_threads()} threads; cores are busy with one other process for each thread."
    yield Costs("load", "A small kernel under load", how, ("", "mean", "median", "longest"), rows, figures)


if __name__ == "__main__":
    main()
