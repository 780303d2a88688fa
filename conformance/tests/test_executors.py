"""Every executor that is installed is held to the suite: `pytest -k unfold` runs that operation, over executors, dtypes and devices."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from zlib import crc32

import pytest
import torch

from dovetail import dtypes
from dovetail.extend.advanced import executors
from dovetail_conformance import suite
from dovetail_conformance.levels import LEVELS
from dovetail_conformance.plan import Task, opinfos

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FEWER = {  # dtypes at level core, of which each operation has the first, and one more with llvm; `make conformance` has all
    "llvm": (dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_),  # a kernel is compiled for each sample
    "torch": (dtypes.float32, dtypes.int64, dtypes.complex64),  # hundreds of operations, most of them eager's own functions
}

WHOLE = ("declaration-", "random-", "program.", "dist.")  # what every executor runs in every run


def executor_and_cell(name: str) -> tuple[str, str]:
    """Return the executor of a test, and its cell."""
    executor, _, cell = name.partition("[")[2].rstrip("]").partition("-")
    return executor, cell


def turn(name: str) -> int:
    """Return 0 where this executor has its turn: llvm, which compiles kernels, runs an eighth of all cells, torch a quarter, others the rest."""
    executor, cell = executor_and_cell(name)
    share = crc32(cell.encode()) % 8
    return 0 if cell.startswith(WHOLE) else int(share not in {"llvm": (0,), "torch": (1, 2)}.get(executor, (3, 4, 5, 6, 7)))


@cache
def core_cells(executor: str) -> frozenset[str]:
    """Return the cells at level core, without their devices."""
    level = replace(LEVELS["core"], dtypes=FEWER[executor], dealt=executor == "llvm", first=executor == "torch")
    cells = [Task(id, dtype, "") for id, info in opinfos().items() for dtype in level.dtypes_run(id, info.dtypes)]
    return frozenset(str(cell) for cell in cells if cell.dtype in level.dtypes)


def runs_at_core(name: str) -> bool:
    """Return whether the cell of a test runs at level core."""
    executor, cell = executor_and_cell(name)
    return cell.startswith(WHOLE) or cell.rpartition("-")[0] in core_cells(executor)


available = [ex.name for ex in executors() if ex.available() is True]
SHARE = pytest.mark.one_in(2, key=turn)
test_executors = SHARE(suite(*(name for name in available if name not in FEWER), devices=DEVICES))
for name in [name for name in FEWER if name in available]:
    quick = SHARE(suite(name, level="quick", devices=DEVICES))
    globals()[f"test_{name}"] = pytest.mark.covered(when=lambda test: turn(test) != 0 and runs_at_core(test))(quick)
    whole = pytest.mark.slow(suite(name, dtypes=[dtype.name for dtype in FEWER[name]], devices=DEVICES))
    globals()[f"test_{name}_whole"] = pytest.mark.covered(when=lambda test: not runs_at_core(test))(whole)
