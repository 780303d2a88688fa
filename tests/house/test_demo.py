"""The demo, run briefly as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_demo_trains_compiles_and_samples(root, tmp_path):
    command = [sys.executable, str(root / "examples" / "gpt.py"), "--steps", "4", "--no-compile"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"COLUMNS": "120"}, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "Losses of all 4 steps equal to eager's" in done.stdout
    assert f"Loss curves: {Path('out', 'gpt_loss.png')}" in done.stdout
    assert (tmp_path / "out" / "gpt_loss.png").read_bytes().startswith(b"\x89PNG")
    assert "Logits equal to eager's" in done.stdout
    assert "def computation(...):" in done.stdout and "torch.nn.functional.layer_norm(" in done.stdout
    assert "prims.var_mean(" in done.stdout
    assert "left out with --no-compile" in done.stdout
