"""The harness is imported from its folder, as its scripts import one another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
sys.path[:0] = [str(folder) for folder in (HERE, BENCHMARKS, BENCHMARKS / "ecosystem") if str(folder) not in sys.path]


@pytest.fixture
def row():
    """row("gpt", "dovetail", [1.0, 3.0], eager=2.0) is a row of two rounds, in each of which eager took two seconds."""
    from rows import Row

    def make(workload, subject, rounds, *, eager, firsts=(1.0,), peak=1 << 20):
        return Row(workload, subject, firsts=list(firsts), rounds=list(rounds), speeds=[eager / each for each in rounds], calls=1, peak=peak)

    return make


@pytest.fixture
def report(row):
    """Two workloads; Dovetail is faster than eager in one and slower in the other, and torch.compile crashed in one."""
    from rows import Report, Row

    rows = [
        row("add", "eager", [1.0, 1.0, 1.0], eager=1.0, firsts=[2.0]),
        row("add", "torch.compile", [2.0, 2.0, 2.0], eager=1.0, firsts=[10.0], peak=None),
        row("add", "dovetail", [0.5, 0.25, 0.2], eager=1.0, firsts=[0.1, 0.2, 0.3]),
        row("mlp", "eager", [0.002], eager=0.002),
        Row("mlp", "torch.compile", "crash", "died of SIGSEGV"),
        row("mlp", "dovetail", [0.004], eager=0.002),
    ]
    about = {"date": "2026-11-21", "commit": "abc", "cpu": "a processor", "cores": 2, "threads": 2, "torch": "2.13.0", "python": "3.11.7"}
    return Report(
        about | {"executors": {"llvm": "0.1.0", "torch": "0.1.0"}},
        {"rounds": 3, "a_round": 0.2, "firsts": 3, "timeout": 300.0},
        {"add": "x + y", "mlp": "a network", "gpt": "not measured"},
        ["eager", "torch.compile", "lightning-thunder", "dovetail"],
        {"lightning-thunder": "not installed"},
        rows,
    )
