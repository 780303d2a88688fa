"""Every executor that is installed is held to the suite: `pytest -k unfold` runs that operation, over executors, dtypes and devices."""

from __future__ import annotations

from zlib import crc32

import pytest
import torch

from dovetail.extend.advanced import executors
from dovetail_conformance import suite

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FEWER = {  # dtypes at level core; level quick has one more of each operation, and `make conformance` has all
    "llvm": ["float32", "bfloat16", "int64", "bool"],  # a kernel is compiled for each sample
    "torch": ["float32", "int64", "complex64"],  # hundreds of operations, most of them eager's own functions
}

WHOLE = ("declaration-", "random-", "program.", "dist.")  # what every executor runs in every run


def turn(name: str) -> int:
    """Return 0 where this executor has its turn: llvm, which compiles kernels, runs an eighth of all cells, torch a quarter, others the rest."""
    executor, _, cell = name.partition("[")[2].partition("-")
    share = crc32(cell.encode()) % 8
    return 0 if cell.startswith(WHOLE) else int(share not in {"llvm": (0,), "torch": (1, 2)}.get(executor, (3, 4, 5, 6, 7)))


SHARE = pytest.mark.one_in(2, key=turn)

available = [ex.name for ex in executors() if ex.available() is True]
test_executors = SHARE(suite(*(name for name in available if name not in FEWER), devices=DEVICES))
for name in [name for name in FEWER if name in available]:
    globals()[f"test_{name}"] = SHARE(suite(name, level="quick", devices=DEVICES))
    globals()[f"test_{name}_whole"] = pytest.mark.slow(suite(name, dtypes=FEWER[name], devices=DEVICES))
