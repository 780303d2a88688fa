"""Ranks that tests share: starting one takes as long as importing torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rank_processes import Ranks


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
