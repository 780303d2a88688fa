"""Dead code elimination: `t1 = sin(t0)` goes when nothing reads t1.

>>> def computation(t0):
...     t1 = prims.sin(t0)
...     t2 = prims.cos(t0)
...     return t2

becomes

>>> def computation(t0):
...     t2 = prims.cos(t0)
...     return t2

A line that writes memory, draws a random number or talks to the host stays.  So does one that raises an error for some values, as the
factorization that tells whether a matrix is positive definite: `prims.evaluate` reads its result.  Of more than MOST such lines, as a loop of
a thousand turns leaves them, the last stay: to compute all of them would take longer than the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail import prims
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.passes.grad import JointTrace
from dovetail.trace.proxies import Proxy, proxies
from dovetail.trace.raising import may_raise

MOST = 64  # lines that nothing reads and that may raise an error


def unread_but_raising(line: BoundSymbol) -> BoundSymbol:
    """Return the line that reads the first result of a line which may raise an error, so that it stays."""
    return BoundSymbol(prims.evaluate, (line.writes[0],), {}, None, [line.writes[0]])


def needed(lines: list[BoundSymbol], outputs: Any, known: Iterable[Proxy] = (), *, errors: bool = False) -> list[BoundSymbol]:
    """Return the lines that compute `outputs` or have effects, where the values in `known` need no computing.

    `errors`: lines that may raise an error have that effect, too.
    """
    known = set(known)
    live = set(proxies(outputs)) - known
    kept, left = [], MOST if errors else 0
    for line in reversed(lines):
        unread = line.writes and live.isdisjoint(line.writes) and not line.effects
        raises = left > 0 and unread and may_raise(line.symbol, (line.args, line.kwargs))
        if raises:
            kept.append(unread_but_raising(line))
            left -= 1
        if raises or line.effects or not live.isdisjoint(line.writes):
            kept.append(line)
            live.update([p for p in line.reads if p not in known] if known else line.reads)
    return kept[::-1]


def dce(trace: Trace) -> Trace:
    """Return the trace without the lines that nothing needs."""
    new = trace.derive("dce")
    new.lines = needed(trace.lines, trace.outputs, errors=not isinstance(trace, JointTrace))  # what gradients add raises nothing of its own
    return new
