"""Every kernel of the programs below is compiled for H100 and A100, here, without a GPU, and none spills."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from triton_helpers import FOLDER, quiet_cache

from dovetail_triton_exec import availability
from dovetail_triton_exec.claims import STORED
from dovetail_triton_exec.ops import KINDS

installed = availability.version()
pytestmark = pytest.mark.skipif(installed is None, reason="triton is not installed, so nothing can be compiled")


def printed(program):
    """What a program of this folder prints, in a process of its own, which does not interpret."""
    environment = quiet_cache() | {"PYTHONPATH": ":".join(p for p in sys.path if p), "TRITON_CACHE_DIR": FOLDER.name}
    command = [sys.executable, str(Path(__file__).parent / program), FOLDER.name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def report():
    """What each kernel takes."""
    return printed("compile_all.py")


@pytest.mark.parametrize("capability", ("80", "90"))
def test_no_kernel_spills(report, capability):
    rows = report[capability]
    assert {"GPT", "Llama", "BERT", "far", "cross_entropy"} <= {row["program"] for row in rows}
    assert [row for row in rows if not row["fits"]] == []


def test_rows_up_to_32768_are_held_in_registers(report):
    rows = [row for row in report["90"] if row["program"].endswith("32768") and row["block"] == 32768]
    assert {row["program"] for row in rows} == {"layer_norm_32768", "rms_norm_32768"}
    assert all(row["registers"] <= 64 for row in rows)


def test_every_operation_compiles_with_every_dtype():
    """What a GPU calls is not what the interpreter calls."""
    kernels = printed("compile_operations.py")
    assert all(kernels.values()), kernels
    assert {name.split()[0] for name in kernels} == {dtype.short for dtype in STORED} | {"draws"}
    assert {op for name in kernels for op in name.split()} >= set(KINDS)
