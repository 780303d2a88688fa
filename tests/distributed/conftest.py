"""Ranks that tests share: starting one takes as long as importing torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [folder for folder in map(str, (HERE, HERE.parent, HERE.parent / "models")) if folder not in sys.path]

from dovetail_conformance.ranks import Ranks, end_shared_ranks, shared_ranks  # noqa: E402


@pytest.fixture
def two() -> Ranks:
    """Two ranks on this machine."""
    return shared_ranks(2)


@pytest.fixture
def four() -> Ranks:
    """Four ranks on this machine."""
    return shared_ranks(4)


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the ranks with the last test of this folder: each holds a third of a gigabyte."""
    if nextitem is None or HERE not in nextitem.path.parents:
        end_shared_ranks()
