"""Lines in an order that holds less memory: what makes values waits for who reads them, unless that keeps other values alive.

>>> def computation(t0, t1):
...     t2 = prims.exp(t0)
...     t3 = prims.sin(t1)
...     t4 = prims.sum(t3, dims=(0, 1))
...     t5 = prims.sum(t2, dims=(0, 1))
...     return (t4, t5)

becomes

>>> def computation(t0, t1):
...     t3 = prims.sin(t1)
...     t4 = prims.sum(t3, dims=(0, 1))
...     t2 = prims.exp(t0)
...     t5 = prims.sum(t2, dims=(0, 1))
...     return (t4, t5)

where t2 and t3 are no longer alive together.  The order stays what it is where the new one would not hold less at its peak.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dovetail.trace.aliases import storage_roots
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.passes.split import BackwardTrace, bytes_of
from dovetail.trace.proxies import Proxy, proxies


def schedule(trace: Trace) -> Trace:
    """Return the trace with its lines in the order that holds less; linear in their number, but for the values that one line frees."""
    new = trace.derive("schedule")
    new.lines = _later(trace)
    if peak_bytes(new) >= peak_bytes(trace):
        new.lines = list(trace.lines)
    return new


def peak_bytes(trace: Trace, outside: Collection[Proxy] = ()) -> int:
    """Return the most bytes that are alive at once, when every value is released after its last use.

    Inputs count where the program is the one who lets them go: in a backward.  A view counts as what it is a view of.  Values that are in
    `outside` do not count.
    """
    root, held = storage_roots(trace, trace.lines), _held(trace)
    last = _last(trace.lines, root)
    uncounted = {root[p] for p in outside if p in root}
    held |= uncounted
    now = most = sum(map(bytes_of, {root[p] for p in trace.inputs} - held))
    for i, line in enumerate(trace.lines):
        allocated = {root[p] for p in line.writes if root[p] is p} - uncounted
        now += sum(map(bytes_of, allocated))
        most = max(most, now)
        now -= sum([bytes_of(p) for p in allocated.union(root[p] for p in line.reads) if p not in held and last[p] == i])
    return most


def _held(trace: Trace) -> set[Proxy]:
    """What stays alive, whatever the program does."""
    root = storage_roots(trace, trace.lines)
    inputs = () if isinstance(trace, BackwardTrace) else trace.inputs
    return {root[p] for p in (*inputs, *trace.constants, *proxies(trace.outputs))}


def _last(lines: list[BoundSymbol], root: dict[Proxy, Proxy]) -> dict[Proxy, int]:
    """The line after which each value with memory of its own is not needed."""
    return {root[p]: i for i, line in enumerate(lines) for p in (*line.reads, *line.writes)}


def _ordered(line: BoundSymbol) -> bool:
    """Whether a line stays behind those like it: it has an effect, or what runs it remembers its calls."""
    return line.in_order or getattr(line.implementation, "stateful", None) is not None


def _later(trace: Trace) -> list[BoundSymbol]:
    """The lines, each that frees nothing right before the first that reads it, or before the last other that reads what it reads."""
    root, held = storage_roots(trace, trace.lines), _held(trace)
    last = _last(trace.lines, root)
    maker = {p: i for i, line in enumerate(trace.lines) for p in line.writes}
    waiting: dict[int, None] = {}
    wanted: dict[Proxy, list[int]] = {}  # value -> the lines that wait and read it
    ordered: list[BoundSymbol] = []

    def bring(numbers: Iterable[int]) -> None:
        stack = [n for n in numbers if n in waiting]
        while stack:
            line = trace.lines[stack[-1]]
            before = [maker[p] for p in line.reads if maker.get(p) in waiting]
            if before:
                stack += before
            elif (n := stack.pop()) in waiting:
                del waiting[n]
                ordered.append(line)

    for i, line in enumerate(trace.lines):
        bases = {root[p] for p in line.reads} - held
        frees = [p for p in bases if last[p] == i]
        if not frees and not _ordered(line):
            waiting[i] = None
            for p in bases:
                wanted.setdefault(p, []).append(i)
            continue
        bring(n for p in frees for n in wanted.get(p, ()))
        bring(maker[p] for p in line.reads if p in maker)
        ordered.append(line)
    bring(sorted(waiting))
    return ordered
