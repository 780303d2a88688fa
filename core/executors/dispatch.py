"""Give every line of a pure trace to an executor.

Executors are asked in priority order and at the highest level: a line that nobody takes is replaced by its decomposition.  Then the
lines of each fusion executor are gathered into regions over the data-flow graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dovetail.errors import Unclaimed
from dovetail.executors.executor import Executor, FusionExecutor, Implementation, OperatorExecutor, Verdict
from dovetail.prims import Symbol
from dovetail.trace import BoundSymbol, Proxy, Trace, brief, proxies, recording, rename
from dovetail.trace.dce import needed


class Note(NamedTuple):
    """What became of one offer."""

    line: BoundSymbol
    executor: str
    verdict: Verdict


class Placed(NamedTuple):
    """A line and who runs it."""

    line: BoundSymbol
    executor: Executor


def dispatch(trace: Trace, executors: Sequence[Executor]) -> Trace:
    """The trace with an implementation at every line; `notes` hold every offer and its verdict."""
    new = trace.derive("dispatch")
    claims = _Claims(new, executors)
    placed = [p for line in trace.lines for p in claims.place(line)]
    new.outputs = claims.renamed_outputs(trace)
    live = {id(line) for line in needed([p.line for p in placed], new.outputs)}
    new.lines = _schedule(new, [p for p in placed if id(p.line) in live])
    new.notes = claims.notes
    return new


def claimant(trace: Trace, executors: Sequence[Executor]) -> Callable[[BoundSymbol], Executor | None]:
    """A function that says which executor would take a line whole; None when none would."""
    claims, asked = _Claims(trace, executors), []

    def claim(line: BoundSymbol) -> Executor | None:
        asked.append(line)  # verdicts are remembered by the identity of lines
        return next((ex for ex in executors if claims.verdict(ex, line) is True), None)

    return claim


class _Claims:
    """Offers lines to executors, and remembers what they said."""

    def __init__(self, new: Trace, executors: Sequence[Executor]):
        self.new, self.executors = new, executors
        self.notes: list[Note] = []
        self.env: dict[Proxy, Proxy] = {}  # results that an execution transform computed in place of a line's
        self.whole: dict[tuple[int, int], Verdict] = {}

    def place(self, line: BoundSymbol) -> list[Placed]:
        """The line with its executor, or what it decomposes to with theirs."""
        line = rename(line, self.env)
        if line.symbol.python_rule is not None:
            return [Placed(line, _PYTHON)]
        start = len(self.notes)
        for ex in self.executors:
            verdict = self.verdict(ex, line)
            self.notes.append(Note(line, ex.name, verdict))
            if verdict is True:
                return self._taken(line, ex)
        if line.body:
            return [p for inner in line.body for p in self.place(inner)]
        said = "".join(f"\n  {note.executor}: {note.verdict}" for note in self.notes[start:]) or "\n  no executor is installed"
        words = ", ".join(map(brief, line.args))
        raise Unclaimed(f"no executor runs {line.symbol}({words}){said}\n  install one that does, or name it in executors=[...]")

    def verdict(self, ex: Executor, line: BoundSymbol) -> Verdict:
        """What `ex` says to an offer of `line`."""
        return self._fusible(ex, line) if isinstance(ex, FusionExecutor) else ex.verdict(line)

    def _taken(self, line: BoundSymbol, ex: Executor) -> list[Placed]:
        if isinstance(ex, FusionExecutor):
            return [Placed(line, ex)]
        found = ex.implementation(line.symbol)
        if found.execution_transform is None:
            return [Placed(line.replace(implementation=found), ex)]
        return self._transformed(line, ex, found)

    def _transformed(self, line: BoundSymbol, ex: OperatorExecutor, found: Implementation) -> list[Placed]:
        """The lines that the execution transform records instead, run by the same executor."""
        aside = self.new.derive("dispatch")
        with recording(aside):
            out = found.execution_transform(*line.args, **line.kwargs)
        self.env.update((a, b) for a, b in zip(proxies(line.out), proxies(out), strict=True) if a is not b)
        return [p for inner in aside.lines for p in _Claims.place(self, inner)]

    def _fusible(self, ex: FusionExecutor, line: BoundSymbol) -> Verdict:
        """A composite is fusible when all of its decomposition is; each line is asked once."""
        key = (id(ex), id(line))
        if key not in self.whole:
            if line.body:
                self.whole[key] = next((said for inner in line.body if (said := self._fusible(ex, inner)) is not True), True)
            else:
                self.whole[key] = ex.can_fuse(line) or "gave no reason"
        return self.whole[key]

    def renamed_outputs(self, trace: Trace) -> object:
        """The trace's outputs, after what execution transforms put in their place."""
        if not self.env:
            return trace.outputs
        ends = BoundSymbol(_ENDS, (trace.outputs,), {}, None, proxies(trace.outputs))
        return rename(ends, self.env).args[0]


_ENDS = Symbol("dispatch", "ends", lambda outputs: None)
_PYTHON = OperatorExecutor("python")


def _schedule(trace: Trace, placed: list[Placed]) -> list[BoundSymbol]:
    """Lines in an order that lets regions be whole.

    A value's level is that of its line; a line's level is the highest of what it reads, plus one where the executor changes.  Two lines
    of one fusion executor at one level cannot depend on each other through another executor's line, which would have raised the level;
    so any set of them is convex, and running the levels in order is a schedule.  Lines with effects keep their order: each starts at
    the level of the one before it.  Linear in the number of lines.
    """
    if not any(isinstance(p.executor, FusionExecutor) for p in placed):
        return [p.line for p in placed]
    levels: dict[Proxy, tuple[int, Executor | None]] = dict.fromkeys([*trace.inputs, *trace.constants], (0, None))
    slots: dict[tuple, list[BoundSymbol]] = {}
    effect_level = 0
    for i, (line, ex) in enumerate(placed):
        at = max((n + (maker is not None and maker is not ex) for n, maker in (levels[p] for p in line.reads if p in levels)), default=0)
        if line.effects:
            at = effect_level = max(at, effect_level)
        levels.update(dict.fromkeys(line.writes, (at, ex)))
        slots.setdefault((at, 0, id(ex)) if isinstance(ex, FusionExecutor) else (at, 1, i), []).append(line)
    by_id = {id(p.executor): p.executor for p in placed}
    readers = _readers(trace, placed)
    lines: list[BoundSymbol] = []
    for (_, kind, key), members in sorted(slots.items(), key=lambda slot: slot[0][0]):
        lines += [_region(trace, part, by_id[key], readers) for part in _connected(members)] if kind == 0 else members
    return lines


def _connected(lines: list[BoundSymbol]) -> list[list[BoundSymbol]]:
    """`lines` in groups that share no value, by union and find; each group keeps its order."""
    parent = list(range(len(lines)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    seen: dict[Proxy, int] = {}
    for i, line in enumerate(lines):
        for p in (*line.reads, *line.writes):
            parent[find(i)] = find(seen.setdefault(p, i))
    groups: dict[int, list[BoundSymbol]] = {}
    for i, line in enumerate(lines):
        groups.setdefault(find(i), []).append(line)
    return list(groups.values())


def _readers(trace: Trace, placed: list[Placed]) -> dict[Proxy, set[int]]:
    readers: dict[Proxy, set[int]] = {p: {0} for p in proxies(trace.outputs)}
    for line, _ in placed:
        for p in line.reads:
            readers.setdefault(p, set()).add(id(line))
    return readers


def _region(trace: Trace, lines: list[BoundSymbol], ex: FusionExecutor, readers: dict[Proxy, set[int]]) -> BoundSymbol:
    """`lines` as one line, whose subsymbols they are."""
    made = dict.fromkeys(p for line in lines for p in line.writes)
    inside = {id(line) for line in lines}
    inputs = list(dict.fromkeys(p for line in lines for p in line.reads if p not in made))
    outputs = tuple(p for p in made if readers.get(p, set()) - inside)
    name = f"fusion_{next(iter(made)).name}"
    region = trace.derive("dispatch", name=name, inputs=inputs, outputs=outputs, constants={})
    region.lines = lines
    symbol = Symbol(ex.name, name, ex.fuse, is_prim=False)
    found = Implementation(ex.name, name, ex.fuse(region))
    return BoundSymbol(symbol, tuple(inputs), {}, outputs, inputs, body=tuple(lines), implementation=found)
