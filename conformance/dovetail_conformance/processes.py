"""The check of processes: an executor is right in one process after another, whatever an earlier one left on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from dovetail_conformance.cell import Outcome
from dovetail_conformance.subject import Subject

SEEDS = ("1", "2")  # of Python's hashes, in one process after the other
PATIENCE = 600.0  # seconds


def processes(subject: Subject, operations: Sequence[str], seed: int = 0) -> Outcome:
    """Check that samples of these operations are right in two new processes, one after the other, with other seeds of hashes."""
    name, expectations = subject.source
    options = [word for operation in operations for word in ("-k", operation)] + (["--expectations", expectations] if expectations else [])
    command = [sys.executable, "-m", "dovetail_conformance", name, "--level", "smoke", "--check", "forward", "--device", "cpu"]
    command += ["--seed", str(seed), *options]
    for number, hashes in enumerate(SEEDS, 1):
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "PYTHONHASHSEED": hashes})
        if run.returncode:
            last = (run.stdout + run.stderr).strip().splitlines()[-6:]
            return Outcome("fail", f"in process {number} of {len(SEEDS)}: {' '.join(line.strip() for line in last)[-500:]}", 0, len(operations))
    return Outcome("pass", "", len(operations), len(operations))
