"""Runs with several seeds: one task after another with each of them, and the rows of all as one, `flaky` where the seeds disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dovetail_conformance.engine import Doing, rows_of
from dovetail_conformance.levels import Level
from dovetail_conformance.plan import OVERRUNS, PROCESSES, Task, Wanted
from dovetail_conformance.report import Row
from dovetail_conformance.subject import Subject

INDEPENDENT = ("declaration", PROCESSES, OVERRUNS)  # tasks that draw nothing, or run in other processes, and take one seed


class SharedPrograms:
    """Compiled functions that the runs of one task with several seeds share: programs are alike, and compiling takes longest.

    The n-th function that a run compiles of a program is that of the n-th in the next run, so that within a run none is shared.
    """

    def __init__(self) -> None:
        self.functions: dict[Hashable, Callable[..., Any]] = {}
        self.uses: Counter[Hashable] = Counter()

    def start_run(self) -> None:
        """Begin the run with the next seed."""
        self.uses.clear()

    def compiled(self, key: Hashable, compile: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Return the function of a program, compiled in this run or in one before."""
        numbered = (key, self.uses[key])
        self.uses[key] += 1
        if numbered not in self.functions:
            self.functions[numbered] = compile()
        return self.functions[numbered]


def rows_by_seed(
    task: Task, subject: Subject, level: Level, wanted: Wanted, seeds: Sequence[int], doing: Doing = lambda check: None
) -> Iterator[Row]:
    """Yield the rows of a task, run with each of the seeds."""
    if len(seeds) == 1 or task.operation in INDEPENDENT:
        yield from rows_of(task, subject, level, wanted, seeds[0], doing)
        return
    subject.programs = SharedPrograms()
    try:
        runs = []
        for seed in seeds:
            subject.programs.start_run()
            runs.append(list(rows_of(task, subject, level, wanted, seed, doing)))
    finally:
        subject.programs = None
    yield from merged(runs, seeds)


def merged(runs: Sequence[Sequence[Row]], seeds: Sequence[int]) -> list[Row]:
    """Return one row for each of those that the runs have in common, or that one of them has."""
    by_key: dict[tuple[str, ...], dict[int, Row]] = {}
    for seed, rows in zip(seeds, runs, strict=True):
        for row in rows:
            by_key.setdefault(row.key, {})[seed] = row
    return [_one(rows, seeds) for rows in by_key.values()]


def _one(rows: dict[int, Row], seeds: Sequence[int]) -> Row:
    """Return the row of one check with every seed: `flaky` where it fails with some, else the state with the first seed that has it."""
    first = next(iter(rows.values()))
    seconds = sum(row.seconds for row in rows.values())
    failing = {seed: row for seed, row in rows.items() if row.failed}
    if not failing:
        return replace(first, seconds=seconds)
    row = next(iter(failing.values()))
    if len(failing) == len(seeds):
        return replace(row, seconds=seconds)
    words = ", ".join(map(str, failing))
    message = f"with seed{'s' * (len(failing) > 1)} {words} of {seeds[0]} to {seeds[-1]} alone, {row.state}: {row.message}"
    return replace(row, state="flaky", message=message, seconds=seconds)
