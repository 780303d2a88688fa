"""Dead code elimination: `t1 = sin(t0)` goes when nothing reads t1.

>>> def computation(t0):
...     t1 = prims.sin(t0)
...     t2 = prims.cos(t0)
...     return t2

becomes

>>> def computation(t0):
...     t2 = prims.cos(t0)
...     return t2

A line that writes memory, draws a random number or talks to the host stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.proxies import Proxy, proxies


def needed(lines: list[BoundSymbol], outputs: Any, known: Iterable[Proxy] = ()) -> list[BoundSymbol]:
    """Return the lines that compute `outputs` or have effects, where the values in `known` need no computing."""
    known = set(known)
    live = set(proxies(outputs)) - known
    kept = []
    for line in reversed(lines):
        if line.effects or not live.isdisjoint(line.writes):
            kept.append(line)
            live.update([p for p in line.reads if p not in known] if known else line.reads)
    return kept[::-1]


def dce(trace: Trace) -> Trace:
    """Return the trace without the lines that nothing needs."""
    new = trace.derive("dce")
    new.lines = needed(trace.lines, trace.outputs)
    return new
