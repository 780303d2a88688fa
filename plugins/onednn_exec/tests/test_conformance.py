"""A small part of the conformance suite; `dovetail conformance onednn` runs all of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("dovetail_conformance", reason="the conformance suite is not installed")

PROGRAM = """
import dovetail_onednn_exec.opinfos
from dovetail_conformance import check
from onednn_against_eager import ALWAYS

report = check(ALWAYS, level="smoke", operations=["onednn.linear_epilogue", "torch.nn.functional.linear", "prims.matmul", "prims.convolution"])
print("\\n".join(f"{row}: {row.message}" for row in report.failures), sum(row.state == "pass" for row in report.rows), sep="\\n")
"""


@pytest.mark.slow
def test_the_operations_that_gain_most():
    """In a process of its own: the samples of our operation are for no other test."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=1200)

    assert ran.returncode == 0, ran.stderr
    *failures, passed = ran.stdout.splitlines()
    assert not any(failures) and int(passed) > 20, ran.stdout
