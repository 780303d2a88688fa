"""CPython's own tests, each method under `interpret`: nearly all pass, and each that does not has a reason.

This takes the modules that the interpreter has to run; `python tests/interpreter/cpython.py` takes all of `cpython.MODULES`, in any of the
supported Pythons, with or without torch.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LEAST = 0.985
pytestmark = pytest.mark.xdist_group("cpython")  # one worker, so that CPython's tests run once


def _load(name):
    spec = importlib.util.spec_from_file_location(f"interpreter_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REASONS = _load("not_passing").REASONS


@pytest.fixture(scope="session")
def results():
    modules = _load("cpython").REQUIRED
    if importlib.util.find_spec("test.test_grammar") is None:
        pytest.skip("this Python was installed without its test suite")
    command = [sys.executable, str(HERE / "cpython.py"), "--json", *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
def test_nearly_all_methods_pass(results):
    count, failing = sum(r["count"] for r in results), sum(len(r["failing"]) for r in results)
    assert count > 1000
    assert (count - failing) / count >= LEAST, {name: message for r in results for name, message in r["failing"].items()}


@pytest.mark.slow
def test_each_that_does_not_pass_has_a_reason(results):
    unknown = {name: message for r in results for name, message in r["failing"].items() if name not in REASONS}
    assert not unknown, unknown


def test_the_interpreter_runs_without_torch():
    program = f"import sys; sys.path.insert(0, {str(HERE)!r}); import cpython; cpython.load_interpreter(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
