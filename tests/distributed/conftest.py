"""Ranks that tests share: starting one takes as long as importing torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [folder for folder in map(str, (HERE, HERE.parent, HERE.parent / "models")) if folder not in sys.path]

from dovetail_conformance.ranks import Ranks  # noqa: E402


@pytest.fixture(scope="session")
def two() -> Iterator[Ranks]:
    """Two ranks on this machine."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def four() -> Iterator[Ranks]:
    """Four ranks on this machine."""
    ranks = Ranks(4)
    yield ranks
    ranks.close()
