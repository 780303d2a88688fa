"""The check of branches: calls that take every branch of the plugin's own code are searched for, and judged as variants are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from dovetail.dtypes import DType
from dovetail.extend import OperatorExecutor
from dovetail.extend.advanced import Implementation
from dovetail_conformance.axes.check import maker
from dovetail_conformance.axes.variants import LAST_WINS, Variants
from dovetail_conformance.cell import Cell, Outcome
from dovetail_conformance.guided.corpus import Candidate, Mutations
from dovetail_conformance.guided.hints import hints_of
from dovetail_conformance.guided.own import Own
from dovetail_conformance.guided.probes import Compiled, Direct
from dovetail_conformance.guided.recorder import Recorder, recorder
from dovetail_conformance.guided.search import Budget, Search
from dovetail_conformance.guided.sequences import has_state, sequenced

DIRECT = (Budget(1000, 60, 10.0), Budget(6000, 300, 60.0))  # at level core, and from level full on
COMPILED = (Budget(100, 100, 10.0), Budget(400, 400, 60.0))
OTHERS, SAMPLES = 8, 12  # samples of each other dtype; calls with which a search of compiled calls begins


def branches(cell: Cell) -> Outcome | None:
    """Calls that take new branches of the plugin's own Python code are right: constants of the code and the branches themselves guide a search."""
    implementation = _implementation(cell)
    if implementation is None:
        return None
    own = Own([x for x in (implementation.fn, implementation.checker, implementation.execution_transform, implementation.grad) if x is not None])
    if implementation.stateful is not None:
        own = Own([*own.roots, implementation.stateful])
    if not own.functions:
        return None
    records = recorder(own)
    seeds = list(_seeds(cell))
    outcome, tried, late = None, 0, ""
    with records.open():
        for search in _searches(cell, implementation, records, seeds[0].of if seeds else None):
            chosen = seeds if isinstance(search.probe, Direct) else list(_spread(seeds))
            outcome = search.run(chosen) or _sequenced(search, own)
            tried += search.tried
            late = late or (f"the limit of {search.budget.seconds:.0f} seconds ended a search after {search.tried:,} calls" if search.late else "")
            if outcome is not None:
                outcome.ran = outcome.samples = tried
                return outcome
    return Outcome("pass", late, tried, tried, one_way=tuple(sorted(set(map(str, records.one_way))))) if tried else None


def _sequenced(search: Search, own: Own) -> Outcome | None:
    """Return the failure of calls one after another, where the code keeps something from call to call."""
    if not isinstance(search.probe, Direct) or not has_state(own):
        return None
    return sequenced(search.probe, [*(entry.candidate for entry in search.corpus), *search.bases], search.mutations.hints)


def _implementation(cell: Cell) -> Implementation | None:
    """Return what runs the operation, where the level has this check for the cell; None where it does not, or where nothing is Python."""
    wanted = cell.level.calls and cell.first and (cell.subject.few or cell.level.rank > 1) and cell.subject.names(cell.info.symbol.id)
    if not wanted or not cell.claimed or cell.dtype.storage_only or not cell.cases[0].program.eager:
        return None
    executor = cell.subject.executor
    return executor.implementation(cell.info.symbol) if isinstance(executor, OperatorExecutor) else None


def _seeds(cell: Cell) -> Iterator[Candidate]:
    """Yield the calls that the search begins with: one of each way of passing arguments, and some of the other dtypes."""
    of = maker(cell)
    yield from (Candidate(sample, of) for sample in of.templates)
    for dtype in _other_dtypes(cell):
        samples = list(islice(cell.info.samples(dtype, cell.there), OTHERS))
        of = Variants(cell.subject, cell.info, dtype, samples, cell.seed)
        yield from (Candidate(sample, of) for sample in samples)


def _other_dtypes(cell: Cell) -> list[DType]:
    """Return the other dtypes that the executor takes and whose elements can be computed with."""
    coverage = {d: cell.subject.coverage(cell.info.symbol.id, d, cell.device.type) for d in cell.info.dtypes}
    return [d for d in cell.info.dtypes if d is not cell.dtype and not d.storage_only and coverage[d] != "no"]


def _searches(cell: Cell, implementation: Implementation, records: Recorder, of: Variants | None) -> Iterator[Search]:
    """Yield the searches: of direct calls, of compiled calls where only these run the code, and of training."""
    if of is None:
        return
    full = cell.level.rank > 1 and cell.subject.few  # of many operations, each has the budget of level core
    trains = implementation.grad is not None and cell.info.grad
    unordered = bool(LAST_WINS & set(cell.claimed[0].prims))

    def search(probe: Any, roots: list[Callable], budget: Budget, *, values: bool) -> Search:
        hints = hints_of(Own([root for root in roots if root is not None]))
        mutations = Mutations(cell.info, hints, cell.seed, values=values, unordered=unordered, anything=cell.claimed[0].pointwise)
        return Search(probe, records, mutations, budget, trains)

    fn = implementation.fn if implementation.stateful is None else implementation.stateful()
    if fn is not None:
        roots = [fn, implementation.checker]
        yield search(Direct(cell, records, fn), roots, DIRECT[full], values=True)
    if implementation.execution_transform is not None:
        roots = [implementation.execution_transform, implementation.checker]
        yield search(Compiled(cell, records, trained=False), roots, COMPILED[full], values=False)
    if trains:
        yield search(Compiled(cell, records, trained=True), [implementation.grad], COMPILED[full], values=False)


def _spread(seeds: list[Candidate]) -> Iterator[Candidate]:
    """Yield some of the seeds: of each number of dimensions, and of each way of passing arguments, evenly."""
    ranks: dict[Any, Candidate] = {}
    for seed in seeds:
        ranks.setdefault(tuple(x.ndim for x in Mutations.tensors(seed)), seed)
    chosen = list(ranks.values())[: SAMPLES // 2]
    others = [seed for seed in seeds if all(seed is not each for each in chosen)]
    yield from chosen
    yield from others[:: max(1, len(others) // (SAMPLES // 2))]
