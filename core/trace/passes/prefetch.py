"""Parameters are gathered one step ahead: before the program waits for those that were gathered before them.

>>> def computation(t0, t1):
...     t2 = dist.gather_shards(t0, rows=(2,), group='dp', ranks=2)
...     t3 = dist.wait_shards(t2)
...     t4 = prims.sin(t3)
...     t5 = dist.gather_shards(t1, rows=(2,), group='dp', ranks=2)
...     t6 = dist.wait_shards(t5)
...     t7 = prims.mul(t4, t6)
...     return t7

becomes

>>> def computation(t0, t1):
...     t2 = dist.gather_shards(t0, rows=(2,), group='dp', ranks=2)
...     t5 = dist.gather_shards(t1, rows=(2,), group='dp', ranks=2)
...     t3 = dist.wait_shards(t2)
...     t4 = prims.sin(t3)
...     t6 = dist.wait_shards(t5)
...     t7 = prims.mul(t4, t6)
...     return t7

It runs before executors see the program, so that all ranks start collectives in one order, whichever executors they have.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.prims import collectives
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.proxies import Proxy


def prefetch(trace: Trace) -> Trace:
    """Return the trace with each gathering of parameters before the wait for the one before; the trace itself where it gathers nothing."""
    if not any([line.symbol is collectives.gather_shards for line in trace.lines]):
        return trace
    new = trace.derive("prefetch")
    new.lines = ahead(trace.lines, lambda line: False)
    return new


def ahead(lines: list[BoundSymbol], stops: Callable[[BoundSymbol], bool]) -> list[BoundSymbol]:
    """Return the lines, each gathering right before the wait for the one before it, but behind what `stops` it and what it is computed from."""
    ordered: list[BoundSymbol] = []
    last: int | None = None  # where the wait before stands
    for line in lines:
        at = len(ordered)
        if line.symbol is collectives.gather_shards and last is not None:
            before = ordered[last:]
            needed: set[Proxy] = set(line.reads)
            behind = [i for i, other in enumerate(before) if stops(other) or not needed.isdisjoint(other.writes)]
            at = last + (behind[-1] + 1 if behind else 0)
        ordered.insert(at, line)
        if line.symbol is collectives.wait_shards:
            last = len(ordered) - 1
        elif last is not None and at <= last:
            last += 1
    return ordered
