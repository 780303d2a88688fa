"""Tests here share helpers, the scripts that fit polynomials, and networks with those of models; the plugin is the installed one."""

import sys
from pathlib import Path

import pytest

from dovetail_llvm_exec.ir import jit

HERE = Path(__file__).parent
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent / "fit", HERE.parents[2] / "tests" / "models")]


@pytest.fixture(autouse=True)
def written_anew(request, monkeypatch):
    """Write the IR of every region, since tests change the code that does; those that ask for `recalled` may take kernels from disk."""
    if "recalled" not in request.fixturenames:
        monkeypatch.setattr(jit.Compiler, "recall", lambda compiler, mark: None)


@pytest.fixture
def recalled():
    """Let kernels of equal regions come from disk, as outside of tests."""
