"""What all tests share: disagreements with the reference are kept in a folder of the run, and each is an error (pyproject.toml)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

HERE = str(Path(__file__).parent)
sys.path[:0] = [HERE] if HERE not in sys.path else []
if "DOVETAIL_TRIAL_FOLDER" not in os.environ:
    FOLDER = tempfile.TemporaryDirectory(prefix="dovetail-trial-", ignore_cleanup_errors=True)
    os.environ["DOVETAIL_TRIAL_FOLDER"] = FOLDER.name
