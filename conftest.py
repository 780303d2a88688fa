"""What holds for every test: the same random numbers in any order, a process of its own where `alone` asks for one, shares of many alike."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

HERE = str(Path(__file__).parent / "tests")
sys.path[:0] = [HERE] if HERE not in sys.path else []

ALONE = "TEST_RUNS_ALONE"  # set in the process of a test that runs alone

os.environ.setdefault("DOVETAIL_UNSUPPORTED", "error")  # a test of what a program computes does not pass in eager mode

MODES = {
    torch.is_grad_enabled: (torch.set_grad_enabled, True),
    torch.get_default_dtype: (torch.set_default_dtype, torch.float32),
}

BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a busy machine draws slowly
settings.register_profile("repeatable", derandomize=True, database=None, **BUSY)
settings.register_profile("searching", print_blob=True, **BUSY)
settings.load_profile("repeatable")


def seed_generators() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test slow that is not in the share of its parameters that `one_in` leaves: the same ones in every run."""
    marker = item.get_closest_marker("one_in")
    if marker is None:
        return
    key = marker.kwargs.get("key", lambda name: crc32(name.encode()))
    if key(item.name) % marker.args[0]:
        item.add_marker(pytest.mark.slow)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the parameters that another test covers, as the marker `covered` says."""
    covered = {item for item in items if (marker := item.get_closest_marker("covered")) and marker.kwargs["when"](item.name)}
    if covered:
        config.hook.pytest_deselected(items=list(covered))
        items[:] = [item for item in items if item not in covered]


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Seed the generators before a file is imported, so that its constants do not depend on the files before it."""
    if isinstance(collector, pytest.Module):
        seed_generators()


def pytest_collection_finish() -> None:
    """Leave the modules and tests that are there now out of collections of garbage, which would visit them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed the generators, so that what a test draws does not depend on the tests before it; switch trials off but where `trials` asks for them.

    A trial runs each line of a program twice, and calls are counted in many tests.  Kernels are optimized at once, as they are after some calls.
    """
    seed_generators()
    os.environ["DOVETAIL_TRIAL"] = "off" if item.get_closest_marker("trials") is None else "first"
    os.environ["DOVETAIL_DRAFTS"] = "false"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """Fail a test that leaves a mode of torch changed, and change it back: tests after it would fail in its place.

    What is alive after the last test of a file is left out of collections of garbage, too.
    """
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    left = {read.__name__: read() for read, (_, usual) in MODES.items() if read() != usual}
    for write, usual in MODES.values():
        write(usual)
    assert not left, f"the test left a mode of torch changed, which the tests after it see: {left}"
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked `alone` as the only one of a new process."""
    if pyfuncitem.get_closest_marker("alone") is None or ALONE in os.environ:
        return None
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS" and not name.startswith("PYTEST_XDIST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-m", "", pyfuncitem.nodeid]
    done = subprocess.run(command, cwd=pyfuncitem.config.rootpath, env=environment | {ALONE: "1"}, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"in a process of its own:\n{done.stdout}{done.stderr}", pytrace=False)
    return True


@pytest.fixture(scope="session")
def new_process() -> Any:
    """new_process(["-c", "print(1)"], env=..., cwd=...) runs Python, or the command `dovetail`, in a process that has not imported Dovetail."""
    import forked

    return forked.run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the order of a shuffled run, which the header does and -q hides."""
    asked = terminalreporter.config.getoption
    bucket, seed = (str(asked(name, "default:")) for name in ("random_order_bucket", "random_order_seed"))
    if asked("random_order_enabled", False) or not bucket.startswith("default:") or not seed.startswith("default:"):
        words = (bucket.removeprefix("default:"), seed.removeprefix("default:"))
        terminalreporter.write_line("shuffled: --random-order-bucket={} --random-order-seed={}".format(*words))
