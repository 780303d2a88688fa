"""Runs a pass, with a clock and, when asked for, a check."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dovetail import options
from dovetail.trace.checking import check
from dovetail.trace.ir import Trace


def timed(step: Callable[[Trace], Any], trace: Trace) -> Any:
    """step(trace), with the seconds it took in the trace that it made, which is checked where DOVETAIL_DEBUG is 2 or more."""
    began = time.perf_counter()
    made = step(trace)
    traces = made if isinstance(made, tuple) else (made,)
    traces[0].took = time.perf_counter() - began
    if options.debug() >= 2:
        for each in traces:
            check(each)
    return made
