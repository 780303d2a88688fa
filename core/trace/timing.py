"""How long a pass took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dovetail.trace.ir import Trace


def timed(step: Callable[[Trace], Any], trace: Trace) -> Any:
    """step(trace), with the seconds it took in the trace that it made."""
    began = time.perf_counter()
    made = step(trace)
    (made[0] if isinstance(made, tuple) else made).took = time.perf_counter() - began
    return made
