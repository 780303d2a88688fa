"""The conformance suite of executors: samples, checks and reports, as a command, as one line of a test file, as a Python call.

`check(executor)` gives a Report; `test_executor = suite("name")` in a test file makes a test of each operation; `OpInfo` describes an
operation of your own, for `OPINFOS`.  Names are looked up when they are used: pytest imports this package in every run.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    **dict.fromkeys(("check",), "dovetail_conformance.run"),
    **dict.fromkeys(("suite",), "dovetail_conformance.pytest_plugin"),
    **dict.fromkeys(("Report", "Row", "STATES"), "dovetail_conformance.report"),
    **dict.fromkeys(("OPINFOS", "Directive", "ErrorSample", "Maker", "OpInfo", "SampleInput", "by_numpy"), "dovetail_conformance.opinfo"),
}
__all__ = [
    "OPINFOS",
    "STATES",
    "Directive",
    "ErrorSample",
    "Maker",
    "OpInfo",
    "Report",
    "Row",
    "SampleInput",
    "by_numpy",
    "check",
    "suite",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
