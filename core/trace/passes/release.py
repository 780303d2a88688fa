"""Values are let go after their last use, so that memory is held no longer than eager holds it.

>>> def computation(t0):
...     t1 = prims.sin(t0)
...     t2 = prims.cos(t1)
...     return t2

becomes

>>> def computation(t0):
...     t1 = prims.sin(t0)
...     t2 = prims.cos(t1)
...     del t1
...     return t2
"""

from __future__ import annotations

from dovetail import prims
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.proxies import proxies


def release(trace: Trace) -> Trace:
    """Return the trace with a `del` after the last use of each value it computes."""
    new = trace.derive("release")
    kept = {*trace.inputs, *trace.constants, *proxies(trace.outputs)}
    backwards: list[BoundSymbol] = []
    for line in reversed(trace.lines):
        last = [p for p in dict.fromkeys([*line.reads, *line.writes]) if p not in kept]
        if last:
            kept.update(last)
            backwards.append(BoundSymbol(prims.delete, tuple(last), {}, None, last))
        backwards.append(line)
    new.lines = backwards[::-1]
    return new
