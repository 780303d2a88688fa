"""Ten runs with different seeds give one verdict: of each executor that is installed, on a part of the operations."""

from __future__ import annotations

from zlib import crc32

import pytest

from dovetail.extend.advanced import executors
from dovetail_conformance import check
from dovetail_conformance.plan import opinfos

AVAILABLE = [ex.name for ex in executors() if ex.available() is True]
PARTS = 40  # `make seeds` runs all of them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("executor", AVAILABLE)
def test_ten_seeds_give_one_verdict(executor: str, part: int) -> None:
    operations = [id for id in opinfos() if crc32(id.encode()) % PARTS == part]

    report = check(executor, level="quick", operations=operations, devices=["cpu"], seeds=10)

    assert report.seeds == 10 and {row.operation for row in report if row.operation} == set(operations)
    assert not [str(row) for row in report.failures if row.operation]
