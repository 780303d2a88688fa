"""Run one pass with a clock and, at DOVETAIL_DEBUG=2 and higher, a check of its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dovetail import options
from dovetail.trace.checking import check


def run_pass(step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return step(*args, **kwargs): a trace, or a tuple of traces, the first of which gets the seconds that the pass took.

    A pass that has nothing to do may return the trace it got, which keeps its seconds; a list of traces comes from passes that were run
    one by one.  Raises InvalidTrace where DOVETAIL_DEBUG is 2 or more and a trace does not pass `check`.
    """
    began = time.perf_counter()
    result = step(*args, **kwargs)
    if isinstance(result, list) or (args and result is args[0]):
        return result
    traces = result if isinstance(result, tuple) else (result,)
    traces[0].took = time.perf_counter() - began
    if checks():
        for trace in traces:
            check(trace)
    return result


def checks() -> bool:
    """Return whether the trace that a pass makes is checked; the tests check those of many programs."""
    return options.debug() >= 2
