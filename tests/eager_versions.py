"""Which results of eager PyTorch depend on its version."""

from __future__ import annotations

import pytest
import torch
from packaging.version import Version

RELEASE = Version(torch.__version__).release[:2]
OLDEST = RELEASE < (2, 11)  # torch 2.10, the oldest that is supported


def later(why: str) -> pytest.MarkDecorator:
    """Skip a case with torch 2.10, with the reason."""
    return pytest.mark.skipif(OLDEST, reason=f"torch 2.10 {why}")
