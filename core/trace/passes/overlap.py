"""Collectives run while lines that do not need them compute: each starts as soon as it can, and is waited for right before its first reader.

>>> def computation(t0, t1):
...     t2 = prims.cos(t1)
...     t3 = dist.all_reduce(t0, op='sum', group='dp', ranks=2)
...     t4 = dist.wait(t3)
...     t5 = prims.sin(t1)
...     t6 = prims.mul(t4, t5)
...     t7 = prims.mul(t6, t2)
...     return t7

becomes

>>> def computation(t0, t1):
...     t3 = dist.all_reduce(t0, op='sum', group='dp', ranks=2)
...     t2 = prims.cos(t1)
...     t5 = prims.sin(t1)
...     t4 = dist.wait(t3)
...     t6 = prims.mul(t4, t5)
...     t7 = prims.mul(t6, t2)
...     return t7

Gathered parameters are unpacked where they are read, and gathered one step ahead, so that no more than two sets are held at once.  The order in
which collectives start does not change, so it is the same on all ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from dovetail.prims import Tag, collectives
from dovetail.trace.aliases import is_view
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.passes.prefetch import ahead
from dovetail.trace.proxies import Proxy

WAITS = frozenset({collectives.wait, collectives.wait_shards})
LATE = frozenset({collectives.gather_shards, collectives.unpack_shards, *WAITS})


def overlap(trace: Trace) -> Trace:
    """Return the trace with collectives apart from their waits; the trace itself where it has none."""
    if not any([line.symbol in WAITS for line in trace.lines]):
        return trace
    new = trace.derive("overlap")
    new.lines = ahead(_early(_late(trace.lines)), lambda line: line.in_order)
    return new


def _moves(line: BoundSymbol) -> bool:
    """Return whether a line waits for its first reader."""
    return line.symbol in LATE or (is_view(line) and not line.effects)


def _follows(makers: Collection[int | None], waiting: Collection[int], line: BoundSymbol) -> bool:
    """Return whether a line computes with nothing but what waits, as the mean of gradients does; then it waits, too."""
    return bool(makers) and all([i in waiting for i in makers]) and not line.effects and not line.in_order


def _late(lines: list[BoundSymbol]) -> list[BoundSymbol]:
    """Return the lines, those that move right before the first line that reads them; what is in order keeps its order."""
    waiting: dict[int, None] = {}
    maker = {p: i for i, line in enumerate(lines) for p in line.writes}
    ordered: list[BoundSymbol] = []

    def place(number: int) -> None:
        waiting.pop(number, None)
        line = lines[number]
        before = [maker[p] for p in line.reads if p in maker]
        before += [i for i in waiting if i < number and lines[i].in_order] if line.in_order else []
        for other in before:
            if other in waiting:
                place(other)
        ordered.append(line)

    for number, line in enumerate(lines):
        if _moves(line) or _follows([maker.get(p) for p in line.reads], waiting, line):
            waiting[number] = None
        else:
            place(number)
    while waiting:
        place(next(iter(waiting)))
    return ordered


def _early(lines: list[BoundSymbol]) -> list[BoundSymbol]:
    """Return the lines, each collective right behind the last line that it needs; what is in order keeps its order."""
    uses = Counter([p for line in lines for p in dict.fromkeys(line.reads)])
    ordered: list[BoundSymbol] = []
    for line in lines:
        if Tag.COLLECTIVE not in line.symbol.tags:
            ordered.append(line)
            continue
        group = [*_own_lines(line, ordered, uses), line]  # what joins gradients for one collective moves with it
        inside = {p for each in group for p in each.writes}
        needed = {p for each in group for p in each.reads} - inside
        moving = {id(each) for each in group}
        rest = [each for each in ordered if id(each) not in moving]
        at = next((i + 1 for i in reversed(range(len(rest))) if rest[i].in_order or not needed.isdisjoint(rest[i].writes)), 0)
        ordered = [*rest[:at], *group, *rest[at:]]
    return ordered


def _own_lines(start: BoundSymbol, before: list[BoundSymbol], uses: Mapping[Proxy, int]) -> list[BoundSymbol]:
    """Return the lines that compute what the collective reads, and nothing else."""
    operands = set(start.reads)
    makers = [line for line in before if not operands.isdisjoint(line.writes)]
    return [line for line in makers if not (line.in_order or line.effects) and all([p in operands and uses[p] == 1 for p in line.writes])]


def starts(line: BoundSymbol) -> bool:
    """Return whether a line starts a collective."""
    return Tag.COLLECTIVE in line.symbol.tags or line.symbol is collectives.gather_shards
