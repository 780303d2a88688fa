"""The suite as tests: one for each operation, dtype and device, for each executor.

    from dovetail_conformance import suite

    test_executor = suite("mine")

`pytest -k unfold` runs one operation, `pytest -rs` shows what an executor refuses and why, `pytest -n 4` uses four processes.
Cells that an executor's declaration excludes are not collected; the summary counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dovetail_conformance.requested import PROPERTY, Requested


def suite(*executors: Any, level: str | None = None, **options: Any) -> Callable[..., None]:
    """Return a test of each operation, dtype and device, for each of `executors`, or for all installed ones where none is named.

    `executors` and `options` (operations, checks, dtypes, devices, expectations, lock, seed, timeout) are what `check` takes.
    """

    def test(conformance_task: Any, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue("conformance_runs").test(conformance_task, request.node)

    test.requested = Requested(executors, level, options)  # type: ignore[attr-defined]
    return test


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance of Dovetail's executors")
    group.addoption("--conformance-level", choices=("smoke", "quick", "core", "full", "stress"), default="core", help="how much is tested (core)")
    group.addoption("--conformance-inline", action="store_true", help="test in pytest's own process, for a debugger: a crash ends the run")
    group.addoption("--conformance-json", metavar="FILE", help="write the report of each executor there")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    requested = getattr(metafunc.function, "requested", None)
    if not isinstance(requested, Requested):
        return
    from dovetail_conformance.session import cases  # lazily, here and below: it imports torch, and every pytest loads this plugin

    level = requested.level or metafunc.config.getoption("--conformance-level")
    metafunc.parametrize("conformance_task", [_parameter(case, metafunc.config) for case in cases(requested, level)])


def _parameter(case: Any, config: pytest.Config) -> Any:
    """Return the parameter of a test; with pytest-xdist, `--dist loadgroup` sends all collectives to one process, which has the ranks."""
    grouped = case.task.operation.startswith("dist.") and config.pluginmanager.hasplugin("xdist")
    return pytest.param(case, id=str(case), marks=[pytest.mark.xdist_group("collectives")] if grouped else ())


@pytest.fixture(scope="session")
def conformance_runs(request: pytest.FixtureRequest) -> Any:
    """Return the runs of a session, one process for each executor; they end with the session."""
    from dovetail_conformance.session import Runs

    runs = Runs(inline=request.config.getoption("--conformance-inline"))
    yield runs
    runs.close()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # with pytest-xdist the controller alone hears of every test
        config.pluginmanager.register(Collected(config), "dovetail conformance reports")


class Collected:
    """The rows of all tests; at the end of a complete run they are compared with the lock and written to a report."""

    def __init__(self, config: pytest.Config):
        self.config, self.rows, self.message, self.left_out = config, {}, [], []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and report.when == "call":
                self.rows.setdefault(value["run"], []).append(value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.rows:
            return
        from dovetail_conformance.session import finished, left_out

        self.left_out = [line for run, values in self.rows.items() if (line := left_out(run, values))]
        for run, values in self.rows.items():
            self.message += finished(run, values, self.config.getoption("--conformance-json"), len(self.rows) == 1)
        if self.message and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self.left_out:
            terminalreporter.write_line(f"conformance: {line}")
        for line in self.message:
            terminalreporter.write_line(f"conformance: {line}", red=True)
