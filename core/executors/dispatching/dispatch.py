"""Give every line of a pure trace to an executor.

Executors are asked in priority order and at the highest level: a line that nobody takes is replaced by its decomposition.  Then the
lines of each fusion executor are gathered into regions over the data-flow graph; those that it finds not worth a kernel are offered, line
by line, to the executors behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from dovetail import options
from dovetail.errors import ExecutorError, Unclaimed
from dovetail.executors.contract.declaration import as_verdict, is_claim
from dovetail.executors.contract.executor import CannotFuse, Claim, Executor, FusionExecutor, Implementation, OperatorExecutor, Verdict
from dovetail.executors.discovery.plugin_errors import ASKED, ask, call, guarded, named
from dovetail.executors.dispatching.distrust import DISTRUST
from dovetail.executors.dispatching.regions import FusedRegion, Group, Placed, as_line, grouped
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.prims import Symbol
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, brief, proxies, recording, rename
from dovetail.trace.passes.dce import needed


class Note(NamedTuple):
    """What became of one offer."""

    line: BoundSymbol
    executor: str
    verdict: Verdict

    @property
    def taken(self) -> bool:
        """Whether the executor said yes."""
        return is_claim(self.verdict)


@dataclass
class Decision:
    """What became of one line: who was to be asked, what they said as far as they were asked, and the lines that run in its place.

    `depth` counts the lines around it that it is a part of, which stand before it; `runs` is empty where its decomposition runs.
    """

    line: BoundSymbol
    depth: int
    where: str | None
    order: tuple[Executor, ...]
    offers: list[Note] = field(default_factory=list)
    runs: list[BoundSymbol] = field(default_factory=list)


@dataclass
class Spent:
    """What one executor was asked in a dispatch, and the seconds it took: its checkers, then its transforms and fusion."""

    offers: int = 0
    claims: int = 0
    claiming: float = 0.0
    compiling: float = 0.0


class Notes(list):
    """Every offer of a dispatch as a Note, and beside them every decision, what was spent, and who took part."""

    def __init__(self, executors: Priority):
        super().__init__()
        self.executors = executors
        self.left_out = executors.notes  # who was asked for and is not there, and why
        self.decisions: list[Decision] = []
        self.spent: dict[str, Spent] = {ex.name: Spent() for ex in self.executors}
        self.env: dict[Proxy, Proxy] = {}  # results that an execution transform computed in place of a line's
        ASKED.update({ex.name: ex for ex in self.executors})

    def complete(self) -> Notes:
        """The same with every offer, now that all is decided."""
        self[:] = [note for made in self.decisions if made.order != (_PYTHON,) for note in made.offers]
        return self


def dispatch(trace: Trace, executors: Priority) -> Trace:
    """The trace with an implementation at every line; `notes` hold every offer and its verdict.

    Each line is offered to the executors in the order that `executors` has for its operation.
    """
    new = trace.derive("dispatch")
    claims = _Claims(new, executors)
    placed = [p for line in trace.lines for p in claims.place(line)]
    while True:
        new.outputs = claims.renamed_outputs(trace)
        live = {id(line) for line in needed([p.line for p in placed], new.outputs)}
        groups = grouped(new, [p for p in placed if id(p.line) in live])
        unwanted = {id(line): said for group in groups if not is_claim(said := claims.worth(group)) for line in group.lines}
        unwanted = unwanted or claims.fuse(groups)
        if not unwanted:
            break
        placed = claims.given_back(placed, unwanted)
    claims.why(groups)
    new.lines = [line for group in groups for line in claims.lines(group)]
    new.notes = claims.notes.complete()
    return new


def claimants(trace: Trace, executors: Priority) -> Callable[[BoundSymbol], Iterator[Executor]]:
    """A function that says which executors would take a line whole, in order; each is asked when it is its turn."""
    claims, asked = _Claims(trace, executors), []

    def claim(line: BoundSymbol) -> Iterator[Executor]:
        asked.append(line)  # verdicts are remembered by the identity of lines
        return (ex for ex in executors.for_symbol(line.symbol) if is_claim(claims.verdict(ex, line, line.where)))

    return claim


class _Claims:
    """Offers lines to executors, and remembers what they said."""

    def __init__(self, new: Trace, executors: Priority):
        self.new, self.executors = new, executors
        self.notes = Notes(executors)
        self.env = self.notes.env
        self.whole: dict[tuple[int, int], Verdict] = {}
        self.worths: dict[tuple[int, ...], tuple[Verdict, Group]] = {}
        self.fused: dict[tuple[int, ...], tuple[Callable[..., tuple], Group]] = {}
        self.strict = options.forbids("not-claimed")

    def place(self, line: BoundSymbol, depth: int = 0, where: str | None = None) -> list[Placed]:
        """The line with its executor, or what it decomposes to with theirs."""
        line, where = rename(line, self.env), line.where or where
        if line.symbol.python_rule is not None:
            self.notes.decisions.append(Decision(line, depth, where, (_PYTHON,), [Note(line, _PYTHON.name, True)], [line]))
            return [Placed(line, _PYTHON, where)]
        made = Decision(line, depth, where, self.executors.for_symbol(line.symbol))
        self.notes.decisions.append(made)
        return self._offered(made)

    def _offered(self, made: Decision) -> list[Placed]:
        """The line of `made` with the first who takes it of those who were not asked yet."""
        line, depth, where = made.line, made.depth, made.where
        for ex in made.order[len(made.offers) :]:
            note = Note(line, ex.name, self.verdict(ex, line, where))
            made.offers.append(note)
            if not note.taken and self.strict and _implements(ex, line):
                raise ExecutorError(f"{named(ex)} implements {line.symbol} and refuses {call(line)}: {note.verdict}\n  {STRICT}")
            if note.taken:
                placed = self._taken(line, ex, depth, where)
                made.runs += [p.line for p in placed]
                return placed
        if line.body:
            return [p for inner in line.body for p in self.place(inner, depth + 1, where)]
        raise Unclaimed(_unclaimed(made, self.notes.left_out))

    def worth(self, group: Group) -> Verdict:
        """What a fusion executor says to a region of lines that it took; each region is asked about once."""
        if group.region is None:
            return True
        if group.key not in self.worths:
            spent, began = self.notes.spent.setdefault(group.executor.name, Spent()), perf_counter()
            ex, whole = group.executor, as_line(group)
            said = DISTRUST.of(ex, whole) or guarded("worth", ex, whole, group.where, lambda: as_verdict(ex.worth(group.region)))
            spent.claiming += perf_counter() - began
            self.worths[group.key] = (said, group)
        return self.worths[group.key][0]

    def given_back(self, placed: list[Placed], unwanted: dict[int, Verdict]) -> list[Placed]:
        """`placed` with those lines whose executor does not want them after all, by id, offered to whoever stands behind it."""
        decisions, self.notes.decisions = self.notes.decisions, []
        of = {id(line): made for made in decisions for line in made.runs}
        after: dict[int, list[Decision]] = {}  # the decisions on the parts of what nobody behind takes whole
        found: list[Placed] = []
        for p in placed:
            made, said, line = of[id(p.line)], unwanted.get(id(p.line)), rename(p.line, self.env)
            if said is None:
                made.runs = [line if run is p.line else run for run in made.runs]
                found.append(p._replace(line=line))
                continue
            self._refuse(p.executor, line, said)
            made.line, made.runs, made.offers[-1] = line, [], Note(line, p.executor.name, said)
            self.notes.spent[p.executor.name].claims -= 1
            found += self._offered(made)
            after[id(made)], self.notes.decisions = self.notes.decisions, []
        self.notes.decisions = [each for made in decisions for each in (made, *after.get(id(made), ()))]
        return found

    def why(self, groups: Iterable[Group]) -> None:
        """Put what an executor said of a region that is worth it, where that is more than True, down with the region's lines."""
        said = {id(line): found for group in groups if isinstance(found := self.worth(group), Claim) for line in group.lines}
        for made in self.notes.decisions if said else ():
            if (found := next((said[id(run)] for run in made.runs if id(run) in said), None)) is not None:
                made.offers[-1] = made.offers[-1]._replace(verdict=found)

    def _refuse(self, ex: Executor, line: BoundSymbol, said: Verdict) -> None:
        self.whole[id(ex), id(line)] = said
        for inner in line.body:
            self._refuse(ex, inner, said)

    def fuse(self, groups: Iterable[Group]) -> dict[int, str]:
        """Have every region compiled; return the lines of those that their executors refuse to fuse, by id, with the sentences."""
        refused: dict[int, str] = {}
        for group in groups:
            try:
                if group.region is not None:
                    self._function(group)
            except CannotFuse as refusal:
                refused.update(dict.fromkeys(map(id, group.lines), str(refusal)))
        return refused

    def _function(self, group: Group) -> Callable[..., tuple]:
        """The function of a region; each region is compiled once."""
        key = (*group.key, *map(id, (*group.region.inputs, *group.region.outputs)))
        if key not in self.fused:
            ex, began = group.executor, perf_counter()
            try:
                self.fused[key] = guarded("fuse", ex, as_line(group), group.where, ex.fuse, group.region), group
            finally:
                self.notes.spent.setdefault(ex.name, Spent()).compiling += perf_counter() - began
        return self.fused[key][0]

    def lines(self, group: Group) -> list[BoundSymbol]:
        """The lines of a group as they run: a region is one line."""
        if group.region is None:
            return group.lines
        made = FusedRegion(group.executor.name, group.region.name, self._function(group), region=group.region)
        return [as_line(group).replace(implementation=made)]

    def verdict(self, ex: Executor, line: BoundSymbol, where: str | None) -> Verdict:
        """What `ex` says to an offer of `line`."""
        spent, began = self.notes.spent.setdefault(ex.name, Spent()), perf_counter()
        said = self._fusible(ex, line, where) if isinstance(ex, FusionExecutor) else ask(ex, line, ex.verdict, where)
        if is_claim(said) and not isinstance(ex, FusionExecutor):
            said = DISTRUST.of(ex, line) or said
        spent.claiming += perf_counter() - began
        spent.offers += 1
        spent.claims += is_claim(said)
        return said

    def _taken(self, line: BoundSymbol, ex: Executor, depth: int, where: str | None) -> list[Placed]:
        if isinstance(ex, FusionExecutor):
            return [Placed(line, ex, where)]
        found = ex.implementation(line.symbol)
        if found.execution_transform is None:
            return [Placed(line.replace(implementation=found.placed(line), where=where), ex)]
        return self._transformed(line, ex, found, depth, where)

    def _transformed(self, line: BoundSymbol, ex: OperatorExecutor, found: Implementation, depth: int, where: str | None) -> list[Placed]:
        """The lines that the execution transform records instead, run by the same executor."""
        aside, began = self.new.derive("dispatch"), perf_counter()
        with recording(aside):
            out = guarded("the execution transform", ex, line, where, found.execution_transform, *line.args, **line.kwargs)
        self.notes.spent[ex.name].compiling += perf_counter() - began
        self.env.update(guarded("the execution transform", ex, line, where, _stands_for, line, out))
        return [p for inner in aside.lines for p in self.place(inner, depth + 1, where)]

    def _fusible(self, ex: FusionExecutor, line: BoundSymbol, where: str | None) -> Verdict:
        """A composite is fusible when all of its decomposition is; each line is asked once."""
        key = (id(ex), id(line))
        if key not in self.whole:
            if line.body:
                self.whole[key] = next((said for inner in line.body if not is_claim(said := self._fusible(ex, inner, where))), True)
            else:
                self.whole[key] = ask(ex, line, ex.verdict, where)
        return self.whole[key]

    def renamed_outputs(self, trace: Trace) -> object:
        """The trace's outputs, after what execution transforms put in their place."""
        if not self.env:
            return trace.outputs
        ends = BoundSymbol(_ENDS, (trace.outputs,), {}, None, proxies(trace.outputs))
        return rename(ends, self.env).args[0]


def _implements(ex: Executor, line: BoundSymbol) -> bool:
    """Whether `ex` would have run this operation, had the call been another."""
    return isinstance(ex, OperatorExecutor) and ex.implementation(line.symbol) is not None


STRICT = "the option `strict` makes that an error; without it the next executor is asked"


def _stands_for(line: BoundSymbol, out: object) -> dict[Proxy, Proxy]:
    """The results of `line`, and what was computed in their place."""
    old, new = proxies(line.out), proxies(out)
    if len(old) != len(new):
        raise ExecutorError(f"it returned {out}, and the operation has the results {line.out}")
    for a, b in zip(old, new):
        if isinstance(a, TensorProxy) and not (isinstance(b, TensorProxy) and a.spec.agrees(b.spec)):
            raise ExecutorError(f'it returned {b.name}: "{b.spec}" where the operation gives {a.name}: "{a.spec}"')
    return {a: b for a, b in zip(old, new) if a is not b}


def _unclaimed(made: Decision, left_out: Iterable[str]) -> str:
    """The error for a line that nobody runs."""
    line = made.line
    said = "".join(f"\n  {each}" for each in (*(f"{note.executor}: {note.verdict}" for note in made.offers), *left_out))
    said = said or "\n  no executor is installed"
    at = f"\n  called at {made.where}" if made.where else ""
    words = ", ".join(map(brief, line.args))
    return f"no executor runs {line.symbol}({words}){said}{at}\n  install one that does, or name it in executors=[...]"


_ENDS = Symbol("dispatch", "ends", lambda outputs: None)
_PYTHON = OperatorExecutor("python")
