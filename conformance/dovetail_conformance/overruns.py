"""The check of overruns: an executor writes nothing behind the memory that it allocates.

No Python code sees such a write: the memory behind a result is another's.  With `MALLOC_CHECK_`, the C library of GNU puts a mark
behind every block that it hands out, and ends the process where the mark is gone when the block is freed.  So samples run in a process
of their own, with sizes of one element more than whole vectors, which is where kernels handle a remainder.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

import torch
from torch import Size, Tensor

from dovetail.devices import cpu
from dovetail_conformance.axes.sizes import grown, mapped
from dovetail_conformance.axes.values import within
from dovetail_conformance.case import Case, cotangents
from dovetail_conformance.cell import Cell, Outcome
from dovetail_conformance.draws import generator, seeded
from dovetail_conformance.levels import LEVELS
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.oracle import tensors
from dovetail_conformance.plan import opinfos
from dovetail_conformance.program import fresh, message, program_of
from dovetail_conformance.subject import Subject

LIBRARY = "libc_malloc_debug.so.0"
CHECKED = {"LD_PRELOAD": LIBRARY, "MALLOC_CHECK_": "3"}  # 3: end the process, with a message
SIZE = 65  # whole vectors of 8, 16, 32 or 64 elements and one more, and so are its powers
MOST = 1 << 20  # elements of a tensor
PATIENCE = 600.0  # seconds
EAGER, OWN = "eager", "own"  # what computes


@cache
def missing() -> str:
    """Return why the C library cannot check its blocks here; "" where it can."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"blocks of memory are checked by {LIBRARY}, a part of the GNU C library, which is not here"
    return ""


def overruns(subject: Subject, operations: Sequence[str], seed: int = 0) -> Outcome:
    """Check that samples of these operations write nothing behind their results, in a process whose C library checks each block it frees."""
    if subject.source is None or missing():
        return Outcome("not-run", missing() or "an executor that is passed as an object exists in this process alone")
    name, expectations = subject.source
    command = [sys.executable, "-P", "-m", "dovetail_conformance.overruns", name, expectations or "", str(seed), *operations]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **CHECKED})
    lines = run.stdout.splitlines()
    if run.returncode == 0:
        return Outcome("pass", "", int(lines[-1]), int(lines[-1]))
    who, _, call = next((line for line in reversed(lines) if line.startswith((EAGER, OWN))), f"{OWN} its start").partition(" ")
    words = run.stderr.strip().rpartition("\n")[2][-300:]
    if who == EAGER:
        return Outcome("not-run", f"eager mode itself fails in {call}: {words}")
    if run.returncode == -signal.SIGABRT:
        return Outcome("fail", f"{call}: it wrote behind memory that it allocated, as the C library noticed when that was freed: {words}")
    return Outcome("error", f"the process ended with code {run.returncode} in {call}: {words}")


def _run(subject: Subject, operations: Sequence[str], seed: int) -> int:
    """Run samples of every operation, each after eager mode's; print what runs, and return how many eager mode took."""
    with subject.configured(), seeded(seed):
        infos = [opinfos()[id] for id in operations]
        cells = [Cell(subject, info, dtype, cpu, LEVELS["smoke"], seed=seed) for info in infos for dtype in info.dtypes if not dtype.storage_only]
        declared = [cell for cell in cells if subject.coverage(cell.info.symbol.id, cell.dtype, "cpu") != "no"]
        return sum(_called(cell, sample) for cell in declared for sample in _samples(cell))


def _samples(cell: Cell) -> Iterator[SampleInput]:
    """Yield the claimed samples of a cell with all sizes replaced, and with the last one alone."""
    values = generator(8)
    for base in {case.program.template: case for case in cell.claimed if case.sample is not None}.values():
        sizes = [n for x in base.program.inputs for n in reversed(x.shape) if n > 1]
        for replaced in {frozenset(sizes), frozenset(sizes[:1])}:

            def shape(x: Tensor, replaced: frozenset[int] = replaced) -> tuple[int, ...]:
                return tuple(SIZE if n in replaced else n for n in x.shape)

            if sizes and max(Size(shape(x)).numel() for x in base.program.inputs) <= MOST:
                yield within(mapped(base.sample, lambda x, shape=shape: grown(x, shape(x), values)), cell.info)


def _called(cell: Cell, sample: SampleInput) -> bool:
    """Run a sample, and its backward; what they allocate is freed when this returns.  Return whether eager mode takes the sample."""
    case = Case(cell.subject, cell.info, program_of(cell.info.symbol, sample), message(sample), sample)
    called = f"{cell.info.symbol.id} of {cell.dtype.name} {case}"
    print(EAGER, called, flush=True)
    if case.eager(fresh(case.program.inputs)).error is not None:
        return False
    print(OWN, called, flush=True)
    case.call(case.function, fresh(case.program.inputs))
    inputs = fresh(case.program.inputs, grad=cell.info.grad)
    leaves = [x for x in inputs if x.requires_grad]
    results = [x for x in tensors(case.call(case.differentiated, inputs, grad=True).result) if x.requires_grad] if leaves else []
    if results:
        with suppress(Exception):  # other checks report it
            torch.autograd.grad(results, leaves, cotangents(results), allow_unused=True)
    return True


if __name__ == "__main__":
    wanted, file, number, *names = sys.argv[1:]
    print(_run(Subject.of(wanted, file or None), names, int(number)), flush=True)
