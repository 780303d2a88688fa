"""What all tests share: traces are checked; disagreements with the reference are kept in a folder of the run, and are errors (pyproject.toml)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from zlib import crc32

import pytest

from dovetail.trace import pass_runner

HERE = str(Path(__file__).parent)
sys.path[:0] = [HERE] if HERE not in sys.path else []
if "DOVETAIL_TRIAL_FOLDER" not in os.environ:
    FOLDER = tempfile.TemporaryDirectory(prefix="dovetail-trial-", ignore_cleanup_errors=True)
    os.environ["DOVETAIL_TRIAL_FOLDER"] = FOLDER.name


@pytest.fixture(autouse=True)
def checked_traces(request, monkeypatch):
    """Check in a third of the tests the trace that each pass makes, as DOVETAIL_DEBUG=2 does: an invalid one may compute the right values, too."""
    if crc32(request.node.nodeid.encode()) % 3 == 0:
        monkeypatch.setattr(pass_runner, "checks", lambda: True)
