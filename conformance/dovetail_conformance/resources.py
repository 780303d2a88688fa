"""The checks of resources: memory, threads, open files, time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from dovetail_conformance.case import Case
from dovetail_conformance.cell import Cell, Outcome
from dovetail_conformance.grown import grown
from dovetail_conformance.grown import large as large_sample
from dovetail_conformance.limits import Limits
from dovetail_conformance.memory import PAGE, STATM, allocated, peak, trim
from dovetail_conformance.oracle import tensors
from dovetail_conformance.program import calm, fresh

WARM, CALLS, BYTES = 4, 24, 100_000
TASKS, FILES = Path("/proc/self/task"), Path("/proc/self/fd")


def resources(cell: Cell) -> Outcome | None:
    """Calls leak nothing: no memory, input, result, thread or open file; and stay within the limits of memory and time."""
    if cell.level.dealt or not cell.claimed or not cell.first:
        return None
    plain = next((case for case in cell.claimed if case.ran.error is None and case.program.inputs and case.program.eager), None)
    if plain is None:
        return None
    limits = cell.subject.limits
    outcome = cell.each(lambda case: _slow(case, limits) or _kept(case), "resources", [plain])
    if outcome.state in ("fail", "error"):
        return outcome
    peaks = cell.level.rank > 1 or cell.subject.few
    large = [large_sample(cell) or plain]
    outcome = cell.each(lambda case: _slow(case, limits) or _growth(case) or (_peak(case, limits, cell) if peaks else None), "resources", large)
    if not peaks or outcome.state in ("fail", "error"):
        return outcome
    square: dict[tuple[int, ...], Case] = {}  # no size is small in these, by their numbers of dimensions
    for case in grown(cell, "square"):
        if (ranks := tuple(x.ndim for x in case.program.inputs)) not in square and case.claimed:
            square[ranks] = case
    return cell.each(lambda case: _peak(case, limits, cell), "resources", list(square.values()))


def _slow(case: Case, limits: Limits) -> str | None:
    """Compare the shortest of a few calls with eager's: a busy machine makes calls longer, not shorter."""
    times = {}
    for name, fn in (("ours", case.function), ("eager", case.program.fn)):
        input_sets = [fresh(case.program.inputs) for _ in range(WARM)]
        with calm(), torch.no_grad():
            times[name] = min(_seconds(lambda fn=fn, input_sets=each: fn(*input_sets)) for each in input_sets)
    allowed = limits.call + limits.slower * times["eager"]
    if times["ours"] <= allowed:
        return None
    return f"a call takes {times['ours'] * 1e3:.3g} ms at least, where eager takes {times['eager'] * 1e3:.3g} and {allowed * 1e3:.3g} are allowed"


def _seconds(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


def _kept(case: Case) -> str | None:
    """Return whether an input or a result stays alive when nothing else refers to it."""
    inputs = fresh(case.program.inputs)
    with calm(), torch.no_grad():
        result = case.function(*inputs)
        watched = [("an input", weakref.ref(x)) for x in inputs] + [("a result", weakref.ref(x)) for x in tensors(result) if isinstance(x, Tensor)]
        del inputs, result
        for values in [fresh(case.program.inputs) for _ in range(2)]:  # the program may keep the inputs and results of its last call
            case.function(*values)
            del values
    if any(reference() is not None for _, reference in watched):
        gc.collect()
    leaked = next((name for name, reference in watched if reference() is not None), None)
    return f"{leaked} of a call is kept alive after it" if leaked else None


def _growth(case: Case) -> str | None:
    """Measure memory, threads and open files that calls leave behind; growth in two batches of calls is a leak."""
    if not STATM.exists():
        return None
    small = [x.detach().clone() for x in case.program.inputs]

    def batch() -> tuple[float, int, int]:
        before = _memory(), allocated(), len(list(TASKS.iterdir())), len(list(FILES.iterdir()))
        for _ in range(CALLS):
            case.function(*(x.clone() for x in small))
        return max(_memory() - before[0], allocated() - before[1]), len(list(TASKS.iterdir())) - before[2], len(list(FILES.iterdir())) - before[3]

    with calm(), torch.no_grad():
        for _ in range(WARM):
            case.function(*fresh(case.program.inputs))
        trim()
        first, second = batch(), batch()
        if _is_much(first, second):
            gc.collect()
            first, second = batch(), batch()
    memory, tasks, files = (min(pair) for pair in zip(first, second))
    if not _is_much(first, second):
        return None
    if memory > CALLS * BYTES:
        return f"{CALLS} calls keep {memory / 1e6:.3g} MB"
    return f"{CALLS} calls leave {tasks} threads running" if tasks > CALLS // 4 else f"{CALLS} calls leave {files} files open"


def _is_much(first: tuple[float, int, int], second: tuple[float, int, int]) -> bool:
    """Return whether both batches of calls grew by more than caches explain."""
    return any(min(pair) > limit for pair, limit in zip(zip(first, second), (CALLS * BYTES, CALLS // 4, CALLS // 4)))


def _memory() -> int:
    """Measure address space and memory in use, in bytes; the larger of the two after free memory was returned."""
    size, resident = (int(word) for word in STATM.read_text().split()[:2])
    return PAGE * (size + resident) // 2


def _peak(case: Case, limits: Limits, cell: Cell) -> str | None:
    """Compare the most memory that a call takes at once with eager's and with what it reads and writes."""
    inputs = fresh(case.program.inputs)
    with calm(), torch.no_grad():
        ours, theirs = (peak(lambda fn=fn: fn(*inputs), cell.device.type) for fn in (case.function, case.program.fn))
    floor = sum(x.nbytes for x in inputs) + sum(x.nbytes for x in tensors(case.expected.result))
    allowed = limits.memory * max(theirs, floor) + (1 << 20)
    return (
        None
        if ours <= allowed
        else f"a call takes {ours / 1e6:.3g} MB at once, where eager takes {theirs / 1e6:.3g} and {allowed / 1e6:.3g} are allowed"
    )
