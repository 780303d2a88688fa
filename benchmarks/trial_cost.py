"""What trials cost: the first call of the GPT, forward and training, and a warm call, with and without them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median

import processes
from costs import Costs, progress, script
from machine import span

PAIRS = 7
WORKLOADS = {"gpt": "GPT, inference", "gpt-train": "GPT, training step"}
MODES = ("off", "first")
FIGURES = {"first": "the first call", "call": "a warm call"}
WARM = 1.0  # seconds of calls; the fastest round has no trial in it


def measure(workload: str, mode: str) -> dict[str, float]:
    """Return the seconds of the first and of a warm call in a new process with empty caches."""
    command = [sys.executable, str(processes.HERE / "worker.py"), workload, "dovetail", "0", "workloads"]
    worker = processes.Worker(command, environment={"DOVETAIL_TRIAL": mode})
    try:
        worker.answer()
        first = worker.ask(do="first")
        if first["wrong"]:
            raise processes.Gone("error", first["wrong"])
        return {"first": first["first"], "call": worker.ask(do="warm", seconds=WARM)["call"]}
    finally:
        worker.close()


def pairs(workload: str) -> list[dict[str, dict[str, float]]]:
    """Return the figures of PAIRS pairs of processes: the two of a pair follow each other, and take turns at being first."""
    measured = []
    for i in progress(range(PAIRS), workload):
        order = MODES if i % 2 else MODES[::-1]
        measured.append({mode: measure(workload, mode) for mode in order})
    return measured


@script
def main() -> Iterator[Costs]:
    """Measure in fresh processes what trials add to calls."""
    rows, figures = [], {}
    for workload, title in WORKLOADS.items():
        figures[workload] = pairs(workload)
        for figure, what in FIGURES.items():
            without, with_trials = (median(pair[mode][figure] for pair in figures[workload]) for mode in MODES)
            ratio = median(pair["first"][figure] / pair["off"][figure] for pair in figures[workload])
            rows.append((title, what, span(without), span(with_trials), f"{ratio:.2f}x"))
    how = f"Medians of {PAIRS} pairs of processes with empty caches; the ratio is the median of those of the pairs."
    yield Costs("trial_cost", "What trials cost", how, ("model", "", "without trials", "with", "ratio"), rows, figures)


if __name__ == "__main__":
    main()
