"""Levels: how much of the suite is run."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from dovetail import dtypes
from dovetail.dtypes import DType


@dataclass(frozen=True)
class Level:
    """What is tested at a level: dtypes, how many samples of each operation, how many random programs.

    `first` means the first of `dtypes` alone that an operation takes; `extremes` are the dtypes whose samples also come with large values,
    infinities and NaN.  `dealt` means that an operation runs with its first dtype and with one of the others, which its name chooses; the first
    runs each layout and each style of arguments in a sample, each other dtype and each operation in place a share of all samples (see
    `sampling.py`), and checks that hardly depend on the dtype are made of the first alone.  Collectives run on `ranks` processes.
    Without `parts`, operations that a table executor does not name are left out, even where it runs a line of their decomposition, and programs
    run with the executor in front alone.
    """

    name: str
    rank: int
    dtypes: tuple[DType, ...]
    samples: int
    programs: int
    extremes: tuple[DType, ...] = ()
    first: bool = False
    dealt: bool = False
    rows: tuple[int, int] = (0, 0)
    calls: int = 0
    ranks: int = 2
    parts: bool = True

    def dtypes_for(self, accepted: tuple[DType, ...]) -> tuple[DType, ...]:
        """Return the dtypes of an operation that takes these ones."""
        common = tuple(dtype for dtype in self.dtypes if dtype in accepted)
        return (common[:1] if self.first else common) or accepted[:1]

    def dtypes_run(self, operation: str, accepted: tuple[DType, ...]) -> tuple[DType, ...]:
        """Return those of `dtypes_for` that a run takes where it is not restricted to some."""
        first, *others = self.dtypes_for(accepted)
        if not self.dealt or not others:
            return (first, *others)
        return (first, others[crc32(operation.encode()) % len(others)])


FEW = (dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.complex64)
MANY = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16, dtypes.int64, dtypes.bool_, dtypes.complex64)
LEVELS = {
    "smoke": Level("smoke", 0, FEW, samples=3, programs=10, first=True, parts=False),
    "quick": Level("quick", 1, MANY, samples=10, programs=8, extremes=(dtypes.float32,), dealt=True),
    "core": Level("core", 1, MANY, samples=10, programs=50, extremes=(dtypes.float32, dtypes.float16), rows=(24, 8), calls=1100),
    "full": Level("full", 2, dtypes.ALL, samples=400, programs=300, extremes=dtypes.ALL, rows=(200, 30), calls=2000, ranks=4),
    "stress": Level("stress", 3, dtypes.ALL, samples=400, programs=3000, extremes=dtypes.ALL, rows=(200, 200), calls=2000, ranks=4),
}
