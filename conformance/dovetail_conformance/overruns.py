"""The check of overruns: an executor writes nothing behind the memory that it allocates.

No Python code sees such a write: the memory behind a result is another's.  With `MALLOC_CHECK_`, the C library of GNU puts a mark
behind every block that it hands out, and ends the process where the mark is gone when the block is freed.  So samples run in a process
of their own: `overrun_worker.py`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

from dovetail_conformance.cell import Outcome
from dovetail_conformance.subject import Subject

LIBRARY = "libc_malloc_debug.so.0"
CHECKED = {"LD_PRELOAD": LIBRARY, "MALLOC_CHECK_": "3"}  # 3: end the process, with a message
PATIENCE = 600.0  # seconds
EAGER, OWN = "eager", "own"  # what computes, as the worker prints it before each call


@cache
def missing() -> str:
    """Return why the C library cannot check its blocks here; "" where it can."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"blocks of memory are checked by {LIBRARY}, a part of the GNU C library, which is not here"
    return ""


def overruns(subject: Subject, operations: Sequence[str], seed: int = 0) -> Outcome:
    """Check that samples of these operations write nothing behind their results, in a process that checks each block of memory it frees."""
    if missing():
        return Outcome("not-run", missing())
    name, expectations = subject.source
    command = [sys.executable, "-m", "dovetail_conformance.overrun_worker", name, expectations or "", str(seed), *operations]
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
