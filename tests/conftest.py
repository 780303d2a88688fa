"""What all tests share: disagreements with the reference are kept in a folder of the run, and each is an error (pyproject.toml)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

HERE = str(Path(__file__).parent)
sys.path[:0] = [HERE] if HERE not in sys.path else []
os.environ.setdefault("DOVETAIL_TRIAL_FOLDER", tempfile.mkdtemp(prefix="dovetail-trial-"))
