"""Reports as the tests of this folder use them: made by hand, no executor is run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dovetail_conformance.report import STATES, Report, Row

SUITE = {"version": "0.1.0", "hash": "0123456789abcdef" * 4}


@pytest.fixture
def report() -> Callable[..., Report]:
    """report(row, ..., name="mine") is the report with these rows."""

    def make(*rows: Row, name: str = "mine", level: str = "core", **more) -> Report:
        executor = {"name": name, "version": "1.2", "distribution": f"dovetail-{name}", "distribution_version": "1.2"}
        executor |= {"declaration": {"devices": None}}
        defaults = {"suite": SUITE, "environment": {"torch": "2.13.0"}, "source": {"commit": "c0ffee", "clean": True}, "seconds": 65.0}
        return Report(**{"executor": executor, "level": level, "created": "2026-11-21T02:45:00+00:00", "rows": list(rows), **defaults, **more})

    return make


@pytest.fixture
def every_state() -> list[Row]:
    """A row in each state, each of an operation of its own; what needs a sentence, a script or a reason has one."""
    rows = []
    for state, (fails, _) in STATES.items():
        message = f"what {state} says" if state != "pass" else ""
        script = f"print('{state}')\nprint('again')" if fails else ""
        ran = 4 if fails or state in ("pass", "partly") else 0
        reason = f"why {state}" if state in ("xfail", "waived") else ""
        rows.append(Row(f"torch.{state}", "forward", "float32", "cpu", state, ran, 4, (ran, 4), message, script, reason, 0.25))
    return rows
