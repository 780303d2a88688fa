"""The check of threads: each gets its own results."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

import dovetail
from dovetail_conformance.case import Case, Ran
from dovetail_conformance.cell import Cell, Outcome, whole
from dovetail_conformance.grown import large
from dovetail_conformance.program import calm, fresh, rolled
from dovetail_conformance.random_calls import in_threads

THREADS, ROUNDS, FEW = 4, 12, 8  # threads, and calls in each, of a small sample, four times as many from level core on, and of a large one
PATIENCE = 0.01  # seconds for which a thread waits for its turn
OTHERS = (*[str(Path(module.__file__).parent) for module in (torch, dovetail)], threading.__file__, __file__)  # than a plugin's own code
SLICE = 2e-6  # seconds after which threads take turns, so that they do within a kernel of several steps


def threads(cell: Cell) -> Outcome | None:
    """Threads that call one compiled function get their own results, of a small sample and from level core on of a large one."""
    alike = [c for c in cell.claimed if c.ran.error is None and (cell.info.random or sum(x.numel() for x in c.program.inputs) > 1)]
    case = next((c for c in alike if c.draws), None) if cell.info.random else next(iter(alike), None)
    if case is None or case.reference is None:
        return None
    sizes = [(case, ROUNDS if cell.level.dealt else 4 * ROUNDS)]
    if cell.level.calls and cell.first and (many := large(cell)) is not None:
        sizes.append((many, FEW))
    for each, rounds in sizes:
        difference = _by_threads(each, rounds)
        if difference is None and each is case and not cell.level.dealt and cell.subject.few:
            difference = _by_threads(each, FEW, turns=True)
        if difference is not None:
            return cell.each(lambda _, difference=difference: difference, "threads", [each])
    return cell.right()


def _by_threads(case: Case, rounds: int, *, turns: bool = False) -> str | None:
    """Call a compiled function from several threads, each with other values than the others and than before; describe the first wrong result.

    With `turns`, another thread goes on after each line of the plugin's Python.
    """
    input_sets = [case.program.inputs]
    while len(input_sets) < THREADS:
        input_sets.append(input_sets[-1] if case.draws else rolled(input_sets[-1]))
    expected = [case.eager(fresh(each)) for each in input_sets]
    if any(each.error is not None for each in expected):
        return None
    function = case.function
    function(*fresh(case.program.inputs))
    results_by_thread: list[tuple[int, Ran]] = []

    together, installing, baton = threading.Barrier(THREADS), threading.Lock(), _Baton(THREADS)

    def work(i: int) -> None:
        if turns:
            with installing:  # Python 3.11 installs one trace function at a time
                sys.settrace(partial(_passing, baton, i))
        together.wait()
        for turn in range(rounds):
            at = (i + turn) % THREADS
            mine = fresh(input_sets[at])
            try:
                results_by_thread.append((at, Ran(function(*mine), mine)))
            except Exception as error:
                results_by_thread.append((at, Ran(inputs=mine, error=error)))
        baton.leave(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    slice_before = sys.getswitchinterval()
    sys.setswitchinterval(SLICE)
    try:
        with calm():
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    finally:
        sys.setswitchinterval(slice_before)
    if case.draws:
        return in_threads(case, [ran for _, ran in results_by_thread])
    return next((wrong for i, ran in results_by_thread if (wrong := _threaded(case, ran, expected[i], input_sets[i])) is not None), None)


class _Baton:
    """Threads that take turns: one goes on when all others have had theirs, or after a while, since another may wait for a lock that it holds."""

    def __init__(self, count: int):
        self.gates = [threading.Semaphore(0) for _ in range(count)]
        self.running = list(range(count))

    def pass_on(self, i: int) -> None:
        """Let the next thread go on, and wait for the turn of this one."""
        others = [k for k in self.running if k != i]
        if others:
            self.gates[min(others, key=lambda k: (k - i) % len(self.gates))].release()
            self.gates[i].acquire(timeout=PATIENCE)

    def leave(self, i: int) -> None:
        """Take no more turns."""
        self.running.remove(i)
        for k in self.running:
            self.gates[k].release()


def _passing(baton: _Baton, i: int, frame: FrameType, event: str, argument: Any) -> Any:
    """Pass the baton on at each line of the plugin's own code."""
    if frame.f_code.co_filename.startswith(OTHERS):
        return None
    baton.pass_on(i)
    return partial(_passing, baton, i)


def _threaded(case: Case, ran: Ran, expected: Ran, inputs: Sequence[Tensor]) -> str | None:
    return f"in one of {THREADS} threads, {whole(ran.error)}" if ran.error is not None else case.wrong(ran, expected, fresh(inputs))
