"""Every executor that is installed is held to the suite: `pytest -k unfold` runs that operation, over executors, dtypes and devices."""

from __future__ import annotations

from zlib import crc32

import pytest
import torch

from dovetail.extend.advanced import executors
from dovetail_conformance import suite
from dovetail_conformance.plan import opinfos

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FEWER = {  # dtypes at level core, of which each operation has the first and one more; `make conformance` has all
    "llvm": ["float32", "bfloat16", "int64", "bool"],  # a kernel is compiled for each sample
    "torch": ["float32", "int64", "complex64"],  # hundreds of operations, most of them eager's own functions
}

WHOLE = ("declaration-", "random-", "program.", "dist.")  # what every executor runs in every run


def parts(name: str) -> tuple[str, str, str]:
    """Return the executor of a test, its cell, and the dtype."""
    executor, _, cell = name.partition("[")[2].rstrip("]").partition("-")
    return executor, cell, cell.rpartition("-")[0].rpartition("-")[2]


def turn(name: str) -> int:
    """Return 0 where this executor has its turn: llvm, which compiles kernels, runs an eighth of all cells, torch a quarter, others the rest."""
    executor, cell, _ = parts(name)
    share = crc32(cell.encode()) % 8
    return 0 if cell.startswith(WHOLE) else int(share not in {"llvm": (0,), "torch": (1, 2)}.get(executor, (3, 4, 5, 6, 7)))


def is_dealt(name: str) -> bool:
    """Return whether a cell runs at level core: it has the first dtype that the operation takes, or the one that its name chooses."""
    executor, cell, dtype = parts(name)
    operation = cell.partition("-")[0]
    if cell.startswith(WHOLE) or operation not in opinfos():
        return True
    accepted = {d.name for d in opinfos()[operation].dtypes}
    wanted = [d for d in FEWER[executor] if d in accepted]
    return len(wanted) < 2 or dtype in (wanted[0], wanted[1 + crc32(operation.encode()) % (len(wanted) - 1)])


def is_left(name: str) -> bool:
    """Return whether a cell of level quick does not run at level core."""
    executor, _, dtype = parts(name)
    return dtype not in FEWER[executor]


available = [ex.name for ex in executors() if ex.available() is True]
test_executors = pytest.mark.one_in(2, key=turn)(suite(*(name for name in available if name not in FEWER), devices=DEVICES))
for name in [name for name in FEWER if name in available]:
    globals()[f"test_{name}"] = pytest.mark.one_in(2, key=turn, rest=is_left)(suite(name, level="quick", devices=DEVICES))
    whole = suite(name, dtypes=FEWER[name], devices=DEVICES)
    globals()[f"test_{name}_whole"] = pytest.mark.slow(pytest.mark.one_in(2, key=lambda name: 1 - is_dealt(name), rest=lambda _: False)(whole))
