"""Give every line of a pure trace to an executor.

Lines are offered in priority order and at the highest level: a line that no executor claims is replaced by its decomposition.  Then the
lines of each fusion executor are gathered into regions over the data-flow graph; those that it finds not worth a kernel are offered, line
by line, to the executors behind it.  `dispatch_record` of the resulting trace holds every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import partial
from time import perf_counter

from dovetail import options, prims
from dovetail.errors import ExecutorError, Unclaimed
from dovetail.executors.contract.declaration import as_verdict, is_claim
from dovetail.executors.contract.executor import CannotFuse, Claim, Executor, FusionExecutor, Implementation, OperatorExecutor, Verdict
from dovetail.executors.discovery.plugin_errors import BY_NAME, ask, call, guarded, named
from dovetail.executors.dispatching.distrust import DISTRUST
from dovetail.executors.dispatching.regions import FusedRegion, Group, Placed, as_line, grouped
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.prims import Tag
from dovetail.trace import BoundSymbol, DispatchRecord, Offer, Proxy, TensorProxy, Trace, brief, prims_of, proxies, recording, substitute, tree_map
from dovetail.trace.aliases import is_view
from dovetail.trace.dispatch_record import Decision, Spent
from dovetail.trace.passes.dce import needed


def dispatch(trace: Trace, executors: Priority, updates: Collection[Proxy] = ()) -> Trace:
    """Return the trace with an implementation at every line, and a record of the decisions.

    Each line is offered to the executors in the order that `executors` has for its operation.  The lines that compute `updates` change few
    places of large inputs, and are no parts of regions.  Raises Unclaimed where no executor runs a line, and ExecutorError where one fails.
    """
    new = trace.derive("dispatch")
    claims = _Claims(new, executors, updates)
    lines = [
        part for line in trace.lines for part in (line.body if Tag.HISTORY in line.symbol.tags else (line,))
    ]  # what else it reads is for gradients
    placed = [p for line in lines for p in claims.place(line)]
    while True:
        new.outputs = claims.renamed_outputs(trace)
        live = set(needed([p.line for p in placed], new.outputs))
        groups = grouped(new, [p for p in placed if p.line in live])
        unwanted = {line: refusal for group in groups if not is_claim(refusal := claims.worth(group)) for line in group.lines}
        unwanted = unwanted or claims.fuse(groups)
        if not unwanted:
            break
        placed = claims.offer_again(placed, unwanted)
    claims.keep_reasons(groups)
    new.lines = [line for group in groups for line in claims.lines(group)]
    new.dispatch_record = claims.record
    return new


def claimants(trace: Trace, executors: Priority) -> Callable[[BoundSymbol], Iterator[Executor]]:
    """Return a function that yields the executors that would claim a line whole, in order; each is tried when it is its turn."""
    claims = _Claims(trace, executors)

    def claim(line: BoundSymbol) -> Iterator[Executor]:
        return (ex for ex in executors.for_symbol(line.symbol) if is_claim(claims.verdict(ex, line, line.where)))

    return claim


class _Claims:
    """Offers lines to executors, and remembers their verdicts."""

    def __init__(self, new: Trace, executors: Priority, updates: Collection[Proxy] = ()):
        self.new, self.executors, self.updates = new, executors, updates
        self.record = DispatchRecord(executors, executors.notes, spent={ex.name: Spent() for ex in executors})
        self.replaced = self.record.replaced
        self.whole: dict[tuple[str, BoundSymbol], Verdict] = {}
        self.worths: dict[Hashable, Verdict] = {}
        self.fused: dict[Hashable, Callable[..., tuple]] = {}
        self.strict = options.forbids("not-claimed")
        self.distrusted = DISTRUST.executors()
        BY_NAME.update({ex.name: ex for ex in executors})

    def spent(self, ex: Executor) -> Spent:
        """Return the costs of `ex`; it may be tried without being in the order, as an override's."""
        return self.record.spent.setdefault(ex.name, Spent())

    def place(self, line: BoundSymbol, depth: int = 0, where: str | None = None) -> list[Placed]:
        """Return the line with its executor, or its decomposition with theirs."""
        line, where = substitute(line, self.replaced), line.where or where
        if line.symbol.python_rule is not None:
            self.record.decisions.append(Decision(line, depth, where, (_PYTHON,), [Offer(line, _PYTHON.name, True)], [line]))
            return [Placed(line, _PYTHON, where)]
        decision = Decision(line, depth, where, self.executors.for_symbol(line.symbol))
        self.record.decisions.append(decision)
        return self._offer(decision)

    def _offer(self, decision: Decision) -> list[Placed]:
        """Offer the line to the executors that were not tried yet, until one claims it."""
        line, depth, where = decision.line, decision.depth, decision.where
        for ex in decision.order[len(decision.offers) :]:
            offer = Offer(line, ex.name, self.verdict(ex, line, where))
            decision.offers.append(offer)
            if offer.claimed:
                placed = self._claimed(line, ex, depth, where)
                decision.runs += [p.line for p in placed]
                return placed
            if self.strict and _implements(ex, line):
                raise ExecutorError(f"{named(ex)} implements {line.symbol} and refuses {call(line)}: {offer.verdict}\n  {STRICT}")
        if line.body:
            return [p for inner in line.body for p in self.place(inner, depth + 1, where)]
        raise Unclaimed(_unclaimed(decision, self.record.left_out))

    def worth(self, group: Group) -> Verdict:
        """Return a fusion executor's verdict on a region of lines that it claimed; each region is offered once."""
        if group.region is None:
            return True
        if group.key not in self.worths:
            spent, began = self.spent(group.executor), perf_counter()
            ex, whole = group.executor, as_line(group)
            verdict = self.distrust(ex, whole) or guarded("worth", ex, whole, group.where, lambda: as_verdict(ex.worth(group.region)))
            spent.claiming += perf_counter() - began
            self.worths[group.key] = verdict
        return self.worths[group.key]

    def offer_again(self, placed: list[Placed], unwanted: dict[BoundSymbol, Verdict]) -> list[Placed]:
        """Offer the lines in `unwanted` to the executors behind those that first claimed and then refused them."""
        decisions, self.record.decisions = self.record.decisions, []
        decision_of = {line: decision for decision in decisions for line in decision.runs}
        parts: dict[int, list[Decision]] = {}  # the decisions about the decomposition of lines that no executor behind claims whole
        again: list[Placed] = []
        for p in placed:
            decision, refusal, line = decision_of[p.line], unwanted.get(p.line), substitute(p.line, self.replaced)
            if refusal is None:
                decision.runs = [line if run is p.line else run for run in decision.runs]
                again.append(p._replace(line=line))
                continue
            self._refuse(p.executor, line, refusal)
            decision.line, decision.runs, decision.offers[-1] = line, [], Offer(line, p.executor.name, refusal)
            self.spent(p.executor).claims -= 1
            again += self._offer(decision)
            parts[id(decision)], self.record.decisions = self.record.decisions, []
        self.record.decisions = [each for decision in decisions for each in (decision, *parts.get(id(decision), ()))]
        return again

    def keep_reasons(self, groups: Iterable[Group]) -> None:
        """Record the sentences with which executors claimed regions, at the lines of each region."""
        claims = {line: claim for group in groups if isinstance(claim := self.worth(group), Claim) for line in group.lines}
        for decision in self.record.decisions if claims else ():
            if (claim := next((claims[run] for run in decision.runs if run in claims), None)) is not None:
                decision.offers[-1] = decision.offers[-1]._replace(verdict=claim)

    def _refuse(self, ex: Executor, line: BoundSymbol, refusal: Verdict) -> None:
        self.whole[ex.name, line] = refusal
        for inner in line.body:
            self._refuse(ex, inner, refusal)

    def fuse(self, groups: Iterable[Group]) -> dict[BoundSymbol, str]:
        """Compile every region; return the lines of those that their executors refuse to fuse, with the sentences."""
        refused: dict[BoundSymbol, str] = {}
        for group in groups:
            try:
                if group.region is not None:
                    self._function(group)
            except CannotFuse as refusal:
                refused.update(dict.fromkeys(group.lines, str(refusal)))
        return refused

    def _function(self, group: Group) -> Callable[..., tuple]:
        """Return the function of a region; each region is compiled once."""
        key = (*group.key, *group.region.inputs, *group.region.outputs)
        if key not in self.fused:
            ex, began = group.executor, perf_counter()
            try:
                self.fused[key] = guarded("fuse", ex, as_line(group), group.where, _kernel, ex, group.region)
            finally:
                self.spent(ex).compiling += perf_counter() - began
        return self.fused[key]

    def lines(self, group: Group) -> list[BoundSymbol]:
        """Return the lines of a group as they run: a region is one line."""
        if group.region is None:
            return group.lines
        fused = FusedRegion(group.executor.name, group.region.name, self._function(group), region=group.region)
        return [as_line(group).replace(implementation=fused)]

    def distrust(self, ex: Executor, line: BoundSymbol) -> str | None:
        """Return why `ex` may not run `line` although it claims it: it disagreed with the reference there."""
        return DISTRUST.of(ex, line) if ex.name in self.distrusted else None

    def verdict(self, ex: Executor, line: BoundSymbol, where: str | None) -> Verdict:
        """Return the verdict of `ex` on `line`."""
        spent, began = self.spent(ex), perf_counter()
        verdict = self._fusible(ex, line, where) if isinstance(ex, FusionExecutor) else ask(ex, line, ex.verdict, where)
        if is_claim(verdict):
            distrust = None if isinstance(ex, FusionExecutor) else self.distrust(ex, line)
            verdict = distrust or verdict
            spent.claims += not distrust
        spent.claiming += perf_counter() - began
        spent.offers += 1
        return verdict

    def _claimed(self, line: BoundSymbol, ex: Executor, depth: int, where: str | None) -> list[Placed]:
        if isinstance(ex, FusionExecutor):
            return [Placed(line, ex, where)]
        implementation = ex.implementation(line.symbol)
        if implementation.execution_transform is None:
            return [Placed(line.replace(implementation=ex.choose_variant(implementation, line), where=where), ex)]
        return self._transformed(line, ex, implementation, depth, where)

    def _transformed(self, line: BoundSymbol, ex: OperatorExecutor, implementation: Implementation, depth: int, where: str | None) -> list[Placed]:
        """Return the lines that the execution transform records instead, run by the same executor."""
        aside, began = self.new.derive("dispatch"), perf_counter()
        with recording(aside):
            out = guarded("the execution transform", ex, line, where, implementation.execution_transform, *line.args, **line.kwargs)
            if not any(map(is_view, prims_of([line]))):
                out = tree_map(partial(_computed, {p for inner in aside.lines for p in inner.writes}), out)
        self.spent(ex).compiling += perf_counter() - began
        self.replaced.update(guarded("the execution transform", ex, line, where, _stands_for, line, out))
        return [p for inner in aside.lines for p in self.place(inner, depth + 1, where)]

    def _fusible(self, ex: FusionExecutor, line: BoundSymbol, where: str | None) -> Verdict:
        """Return whether a composite is fusible: when all of its decomposition is, and `ex` claims it whole.  Each line is offered once."""
        key = ex.name, line
        if key not in self.whole:
            if line.writes and line.writes[0] in self.updates:
                self.whole[key] = UPDATE
            elif line.body:
                refusal = next((verdict for inner in line.body if not is_claim(verdict := self._fusible(ex, inner, where))), None)
                self.whole[key] = ask(ex, line, ex.claims_whole, where) if refusal is None else refusal
            else:
                self.whole[key] = ask(ex, line, ex.verdict, where)
        return self.whole[key]

    def renamed_outputs(self, trace: Trace) -> object:
        """Return the trace's outputs, with the results that execution transforms compute in their place."""
        return substitute(trace.outputs, self.replaced)


def _implements(ex: Executor, line: BoundSymbol) -> bool:
    """Whether `ex` would have run this operation, had the call been another."""
    return isinstance(ex, OperatorExecutor) and ex.implementation(line.symbol) is not None


UPDATE = "a region would go over all of an input of which few places change; an operation of its own writes these alone"
STRICT = "the option `strict` makes that an error; without it the next executor is tried"


def _computed(computed: set[Proxy], x: object) -> object:
    """Return x, a result of an execution transform, or a copy where it is an argument: results have memory of their own, and trials compare lines."""
    return prims.clone(x) if isinstance(x, TensorProxy) and x not in computed else x


def _stands_for(line: BoundSymbol, out: object) -> dict[Proxy, Proxy]:
    """Return the results that were computed in place of those of `line`, by the latter."""
    old, new = proxies(line.out), proxies(out)
    if len(old) != len(new):
        raise ExecutorError(f"it returned {out}, and the operation has the results {line.out}")
    for a, b in zip(old, new):
        if isinstance(a, TensorProxy) and not (isinstance(b, TensorProxy) and a.spec.agrees(b.spec)):
            raise ExecutorError(f'it returned {b.name}: "{b.spec}" where the operation gives {a.name}: "{a.spec}"')
    return {a: b for a, b in zip(old, new) if a is not b}


def _unclaimed(decision: Decision, left_out: Iterable[str]) -> str:
    """Return the text of the error for a line that no executor runs."""
    line = decision.line
    reasons = "".join(f"\n  {each}" for each in (*(f"{offer.executor}: {offer.verdict}" for offer in decision.offers), *left_out))
    reasons = reasons or "\n  no executor is installed"
    at = f"\n  called at {decision.where}" if decision.where else ""
    words = ", ".join(map(brief, line.args))
    return f"no executor runs {line.symbol}({words}){reasons}{at}\n  install one that does, or name it in executors=[...]"


_PYTHON = OperatorExecutor("python")


def _kernel(ex: FusionExecutor, region: Trace) -> Callable[..., tuple]:
    """Return what `ex` compiles of a region.  Raises TypeError where that is no function."""
    kernel = ex.fuse(region)
    if not callable(kernel):
        raise TypeError(f"it returned {kernel!r}; return a function of the region's inputs that returns the tuple of its outputs")
    return kernel
