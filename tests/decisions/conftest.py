"""What all tests of decisions share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def decisions_alone(monkeypatch):
    """Keep conditions decisions: whether selects are faster is another answer at each run; test_selects.py is about them."""
    monkeypatch.setenv("DOVETAIL_SELECTS", "never")
