"""Regions: which lines a fusion executor compiles together, and the one line that they become."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from dovetail.errors import DovetailError
from dovetail.executors.contract.executor import Executor, FusionExecutor, Implementation
from dovetail.executors.discovery.registry import get_executor
from dovetail.prims import Symbol
from dovetail.prims.sizes import symbols_in
from dovetail.trace import BackwardTrace, BoundSymbol, Proxy, TensorProxy, Trace, prims_of, proxies
from dovetail.trace.aliases import is_view, storage_roots
from dovetail.trace.passes.sizes import shown_symbols
from dovetail.trace.passes.split import bytes_of

SLACK = 1.25  # how much more memory a line may hold where it is read than where it could be computed first
SMALL = 1 << 16  # bytes that a line may hold longer in any case: another kernel costs more than so little memory
MANY = 8  # values that a line is computed from, beyond which the lines before it are taken to stay where they are
PATIENCE = 4  # how much more memory than what it waits for a line may hold that waits for a region


Readers: TypeAlias = dict[Proxy, set[BoundSymbol | None]]


class Placed(NamedTuple):
    """A line and who runs it."""

    line: BoundSymbol
    executor: Executor
    where: str | None = None


@dataclass
class Group:
    """Lines that run one after the other: a region of `executor`, `region` as a program, or where that is None one line of another."""

    lines: list[BoundSymbol]
    executor: Executor
    region: Trace | None = None
    where: str | None = None

    @property
    def key(self) -> tuple[str | BoundSymbol, ...]:
        """Return the executor's name and the lines, as a key."""
        return (self.executor.name, *self.lines)


def grouped(trace: Trace, placed: Sequence[Placed]) -> list[Group]:
    """Sort lines so that regions can be whole.

    A value's level is that of its line; a line's level is at least that of what it reads, plus one where the executor changes.  Two lines
    of one fusion executor at one level cannot depend on each other through another executor's line, which would have raised the level;
    so any set of them is convex, and running the levels in order is a schedule.  Lines with effects keep their order: each starts at
    the level of the one before it.  Linear in the number of lines.
    """
    if not any(isinstance(p.executor, FusionExecutor) for p in placed):
        return [Group([p.line], p.executor) for p in placed]
    slots: dict[tuple, list[Placed]] = {}
    for i, (p, at) in enumerate(zip(placed, _levels(trace, placed))):
        slots.setdefault((at, 0, p.executor.name) if isinstance(p.executor, FusionExecutor) else (at, 1, i), []).append(p)
    readers = _readers(trace, placed)
    groups: list[Group] = []
    for (_, kind, _), members in sorted(slots.items(), key=lambda slot: slot[0][0]):
        if kind:
            groups += [Group([p.line], p.executor) for p in members]
        else:
            where = {p.line: p.where for p in members}
            parts = [part for lines in _without_outer_views([p.line for p in members]) for part in _connected(lines)]
            groups += [_region(trace, part, members[0].executor, readers, where) for part in parts]
    return groups


def _levels(trace: Trace, placed: Sequence[Placed]) -> list[int]:
    """The level of each line: as low as the rule lets it be, but for what `_Later` moves."""
    levels: dict[Proxy, tuple[int, Executor | None]] = dict.fromkeys([*trace.inputs, *trace.constants], (0, None))
    lowest, effect_level = [], 0
    for line, ex, _ in placed:
        at = max((n + (maker is not None and maker is not ex) for n, maker in (levels[p] for p in line.reads if p in levels)), default=0)
        if line.in_order:
            at = effect_level = max(at, effect_level)
        levels.update(dict.fromkeys(line.writes, (at, ex)))
        lowest.append(at)
    if not any(line.mutates for line, *_ in placed):
        later = _Later(trace, placed, lowest)
        later.wait()
        later.sink()
    return lowest


class _Later:
    """Moves lines to higher levels than the lowest, so that regions which belong together become one.

    What a backward computes again depends on nothing but what is saved, so its lowest level is the first: it would be computed long before
    it is read, by a kernel of its own, and lie in memory meanwhile.
    """

    def __init__(self, trace: Trace, placed: Sequence[Placed], levels: list[int]):
        self.placed, self.levels, self.root = placed, levels, storage_roots(trace, [p.line for p in placed])
        self.escaping = set(proxies(trace.outputs))
        self.held = {*self.escaping, *trace.constants, *(() if isinstance(trace, BackwardTrace) else trace.inputs)}
        self.maker = {p: i for i, (line, *_) in enumerate(placed) for p in line.writes}
        self.readers: dict[Proxy, list[int]] = {}
        self.first: dict[Proxy, int] = {}  # the lowest level that computes with a value, or with a view of it
        self.last: dict[Proxy, int] = {}  # the highest level that reads a value, or a view of it
        for i, (line, *_) in enumerate(placed):
            for p in line.reads:
                self.readers.setdefault(p, []).append(i)
                self.last[self.root[p]] = max(levels[i], self.last.get(self.root[p], 0))
                if not is_view(line):
                    self.first[self.root[p]] = min(levels[i], self.first.get(self.root[p], levels[i]))

    def fuses(self, i: int) -> bool:
        """Whether line i may be part of a region."""
        return isinstance(self.placed[i].executor, FusionExecutor) and not self.placed[i].line.effects

    def uses(self, i: int) -> list[int]:
        """The lines that read what line i computes."""
        return [j for p in self.placed[i].line.writes for j in self.readers.get(p, ())]

    def move(self, i: int, level: int, of: Iterable[Proxy]) -> None:
        """Put line i, which is computed from `of`, on a higher level."""
        self.levels[i] = level
        self.last.update({self.root[p]: max(level, self.last.get(self.root[p], 0)) for p in of})

    def longer(self, of: Iterable[Proxy], level: int) -> int:
        """The bytes that are held longer if something that reads `of` moves to `level`."""
        return sum(bytes_of(p) for p in {self.root[p] for p in of} if p not in self.held and self.last.get(p, 0) < level)

    def wait(self) -> None:
        """Move up what only leaves the program and reads a region that another region of a higher level reads too.

        The gradient of a weight is a product with an activation that is computed again; one level above the backward of what computed that
        activation, both are one region.
        """
        met = self._meetings()
        for i, (line, ex, _) in enumerate(self.placed):
            if isinstance(ex, FusionExecutor) or line.effects or self.uses(i):
                continue
            alone = [p for p in line.reads if self.first.get(self.root[p], 0) >= self.levels[i]]  # nothing computes with it before
            early = {p: j for p in alone if (j := self.maker.get(self.root[p])) in met and self.levels[j] < self.levels[i]}
            level = max((met[j] + 1 for j in early.values()), default=0)
            if level > self.levels[i] and self.longer(set(line.reads) - set(early), level) <= PATIENCE * sum(map(bytes_of, early)):
                self.move(i, level, line.reads)

    def _meetings(self) -> dict[int, int]:
        """For lines of regions, the next level at which their executor reads something that they are computed from."""
        met: dict[int, int] = {}
        reading = {p: {(self.levels[j], self.placed[j].executor) for j in readers} for p, readers in self.readers.items()}
        for i, (line, ex, _) in enumerate(self.placed):
            if not self.fuses(i):
                continue
            here = self.levels[i]
            meetings = [level for p in line.reads for level, reader in reading[p] if level > here and reader is ex]
            makers = [self.maker[p] for p in line.reads if p in self.maker]
            meetings += [met[j] for j in makers if j in met and self.levels[j] == here and self.placed[j].executor is ex]
            if meetings:
                met[i] = min(meetings)
        return met

    def sink(self) -> None:
        """Move lines of regions, and views, up to the level of their first readers, where that is nearer to them.

        A line stays where it is if moving it would hold more memory, what it is computed from, than staying does, its results; SMALL is none.
        """
        sources = self._sources()
        for i in reversed(range(len(self.placed))):
            line, ex, _ = self.placed[i]
            uses = self.uses(i)
            if not (self.fuses(i) or is_view(line)) or not uses or not self.escaping.isdisjoint(line.writes):
                continue
            level = min(self.levels[j] - (self.placed[j].executor is not ex) for j in uses)
            kept = sum(bytes_of(p) for p in {self.root[p] for p in line.writes})
            if level > self.levels[i] and self.longer(sources[i], level) <= max(SLACK * kept, SMALL):
                self.move(i, level, sources[i])

    def _sources(self) -> list[Collection[Proxy]]:
        """What each line is computed from by lines of its own level and executor, which could move with it; what it reads if that is much."""
        sources: list[Collection[Proxy]] = []
        for i, (line, ex, _) in enumerate(self.placed):
            near = {p: j for p in line.reads if (j := self.maker.get(p)) is not None and self.levels[j] == self.levels[i] and self.fuses(j)}
            mine = {q for p in line.reads for q in (sources[near[p]] if p in near and self.placed[near[p]].executor is ex else (p,))}
            sources.append(mine if len(mine) <= MANY else line.reads)
        return sources


def _without_outer_views(lines: list[BoundSymbol]) -> tuple[list[BoundSymbol], list[BoundSymbol]]:
    """Return `lines` but for views of what they read that none of them computes with, and those: a kernel would only hand them on."""
    computed = {p for line in lines if not is_view(line) for p in line.writes}
    outer: list[BoundSymbol] = []
    for line in lines:
        if is_view(line) and computed.isdisjoint(line.reads):
            outer.append(line)
        else:
            computed.update(line.writes)
    read = {p for line in lines if not is_view(line) for p in line.reads}
    views = set(outer)
    for line in reversed(lines):
        if line not in views or not read.isdisjoint(line.writes):
            views.discard(line)
            read.update(line.reads)
    return [line for line in lines if line not in views], [line for line in outer if line in views]


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


def _readers(trace: Trace, placed: Sequence[Placed]) -> Readers:
    """Return the lines that read each value; None stands for the caller of the program."""
    readers: Readers = {p: {None} for p in proxies(trace.outputs)}
    for line, *_ in placed:
        for p in line.reads:
            readers.setdefault(p, set()).add(line)
    return readers


def _hidden(line: BoundSymbol, constants: dict[Proxy, object]) -> list[Proxy]:
    """Return the constants that a composite reads without taking them as arguments, as `torch.tensor(array)` does."""
    return [p for inner in line.body for p in (*(q for q in inner.reads if q in constants), *_hidden(inner, constants))] if constants else []


def _region(trace: Trace, lines: list[BoundSymbol], ex: Executor, readers: Readers, where: dict[BoundSymbol, str | None]) -> Group:
    """`lines` as a program of their own."""
    computed = dict.fromkeys(p for line in lines for p in line.writes)
    inside = set(lines)
    inputs = list(dict.fromkeys(p for line in lines for p in (*line.reads, *_hidden(line, trace.constants)) if p not in computed))
    inputs += _numbers(trace, lines, inputs) if ex.symbolic else []
    outputs = tuple(p for p in computed if readers.get(p, set()) - inside)
    region = trace.derive("dispatch", name=f"fusion_{next(iter(computed or inputs)).name}", inputs=inputs, outputs=outputs, constants={})
    region.lines = lines
    return Group(lines, ex, region, next((w for line in lines if (w := where[line])), None))


def _numbers(trace: Trace, lines: list[BoundSymbol], inputs: Sequence[Proxy]) -> list[Proxy]:
    """Return the symbols of sizes that a region names and can read off none of its inputs, but the program can off its own: they are inputs, too."""
    if trace.relations is None:
        return []
    parts = list(prims_of(lines))
    tensors = [p for p in (*inputs, *(p for line in parts for p in line.writes)) if isinstance(p, TensorProxy)]
    named = symbols_in([*[(line.args, line.kwargs) for line in parts], *[(p.spec.shape, p.spec.strides) for p in tensors]])
    read, known, numbers = shown_symbols(inputs), shown_symbols(trace.inputs), set(trace.inputs)
    return [atom.proxy for atom in named if atom not in read and (atom in known or atom.real is not None or atom.proxy in numbers)]


def as_line(group: Group) -> BoundSymbol:
    """Return a region as one line with the region's lines as its subsymbols; nothing runs it yet."""
    region, symbol = group.region, RegionSymbol(group.executor.name, group.region.name)
    return BoundSymbol(symbol, tuple(region.inputs), {}, region.outputs, region.inputs, body=tuple(region.lines), where=group.where)


class RegionSymbol(Symbol):
    """What the line of a region calls.  It is in no registry: what it means is its line's subsymbols."""

    __slots__ = ()

    def __init__(self, executor: str, name: str):
        super().__init__(executor, name, _nothing_else)

    def __reduce__(self) -> tuple:
        return RegionSymbol, (self.module, self.name)


def _nothing_else(*inputs: Any) -> None:
    """A region means what its subsymbols mean."""
    raise DovetailError("a fused region is a line of one program and cannot be called by itself; call its subsymbols")


@dataclass(frozen=True)
class FusedRegion(Implementation):
    """What runs a region.

    It is pickled as the region, which the executor fuses again where it is read, when it is first called.
    """

    region: Trace | None = None

    def __reduce__(self) -> tuple:
        return _read, (self.executor, self.name, self.region)


def _read(executor: str, name: str, region: Trace) -> FusedRegion:
    compiled: list[Callable[..., tuple]] = []

    def run(*inputs: Any) -> tuple:
        if not compiled:
            compiled.append(get_executor(executor).fuse(region))
        return compiled[0](*inputs)

    return FusedRegion(executor, name, run, region=region)
