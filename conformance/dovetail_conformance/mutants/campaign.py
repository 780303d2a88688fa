"""A campaign: mutants of a plugin, one after the other, held to the suite until a check fails."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from dovetail.extend import OperatorExecutor
from dovetail.extend.advanced import Implementation, Symbol
from dovetail_conformance import environment
from dovetail_conformance.engine import rows_of
from dovetail_conformance.levels import LEVELS
from dovetail_conformance.mutants.mutations import LEAKS, Mutation, mutations
from dovetail_conformance.mutants.rules import rules
from dovetail_conformance.plan import Wanted, opinfos, tasks
from dovetail_conformance.run import idle
from dovetail_conformance.state import Snapshot
from dovetail_conformance.subject import Subject, executor_of


@dataclass(frozen=True)
class Mutant:
    """One fault in the implementation of one operation."""

    plugin: OperatorExecutor
    symbol: Symbol
    original: Implementation
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.symbol.id}: {self.mutation.family}, {self.mutation.name}"

    def executor(self) -> OperatorExecutor:
        """Make an executor that runs this one operation, with the fault."""
        declared = {"dtypes": self.plugin.dtypes, "devices": self.plugin.devices, "grad": self.plugin.grad}
        ex = OperatorExecutor("mutant", **declared)
        changed = replace(self.mutation.change(self.original), executor="mutant", name=self.symbol.name)
        for symbol, original in [(self.symbol, changed), *getattr(changed.grad, "table", {}).items()]:
            original = replace(original, executor="mutant")
            ex.table[symbol] = ex._named[original.name] = original
        return ex


@dataclass
class Verdict:
    """What became of a mutant: the check that noticed it and what that says, or an empty string.

    `struck` is False where the fault changed no result of any call: then there was nothing to notice; None where that is not known.
    """

    operation: str
    family: str
    name: str
    check: str
    message: str
    seconds: float
    struck: bool | None = None


def mutants(plugin: OperatorExecutor, count: int | None, seed: int = 0, operations: Sequence[str] | None = None) -> list[Mutant]:
    """List mutants of a plugin's operations: all, or `count` of them, one for each operation and family first."""
    wanted = Wanted(operations=None if operations is None else tuple(operations))
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for symbol, implementation in plugin.table.items():
        if implementation.fn is None or symbol.id not in opinfos() or not wanted.operation(symbol.id):
            continue
        for mutation in [*mutations(symbol), *rules(implementation)]:
            groups.setdefault((symbol.id, mutation.family), []).append(Mutant(plugin, symbol, implementation, mutation))
    every = [mutant for group in groups.values() for mutant in group]
    if count is None or count >= len(every):
        return every
    draw = random.Random(seed)
    if count > len(groups):
        return draw.sample(every, count)
    return [draw.choice(groups[key]) for key in draw.sample(list(groups), count)]


def campaign(
    plugin: OperatorExecutor | str, *, level: str = "core", count: int | None = None, seed: int = 0, operations: Sequence[str] | None = None
) -> Iterator[Verdict]:
    """Hold each mutant of an executor, or of the one that a name means, to the suite until a check fails.

    A ValueError tells that the executor has no implementations to put faults into.
    """
    executor = executor_of(plugin)
    chosen = mutants(executor, count, seed, operations) if isinstance(executor, OperatorExecutor) else []
    if not chosen:
        raise ValueError(f"{executor.name} has no implementation of a requested operation; faults are put into those of OperatorExecutor.implements")
    for mutant in chosen:
        yield tried(mutant, level)


def tried(mutant: Mutant, level: str) -> Verdict:
    """Try one mutant; put right afterwards what it did to the process."""
    began, before = perf_counter(), Snapshot()
    check, message = "", ""
    subject = Subject.of(mutant.executor())
    try:
        check, message = _caught(mutant, subject, level)
    finally:
        before.restore()
        for leaked in LEAKS:
            getattr(leaked, "set", getattr(leaked, "close", lambda: None))()
        LEAKS.clear()
    mutated = subject.executor.table[mutant.symbol]
    struck = next((part.struck for part in (mutated.grad, mutated.fn, mutated.checker) if hasattr(part, "struck")), None)
    return Verdict(mutant.symbol.id, mutant.mutation.family, mutant.mutation.name, check, message, round(perf_counter() - began, 2), struck)


def _caught(mutant: Mutant, subject: Subject, level: str) -> tuple[str, str]:
    wanted = Wanted(operations=(mutant.symbol.id,), devices=("cpu",))
    plan = [task for task in tasks(subject, LEVELS[level], wanted) if task.operation == mutant.symbol.id]
    rows = []
    for task in plan:
        for row in rows_of(task, subject, LEVELS[level], wanted, twice=False):
            rows.append(row)
            if row.failed:
                return row.check, row.message[:300]
    nothing = idle(subject, rows)
    return ("claims", nothing[0].message) if nothing else ("", "")


def shares(verdicts: Sequence[Verdict]) -> tuple[int, int]:
    """Count how many mutants were noticed, of how many that changed anything."""
    counted = [each for each in verdicts if each.check or each.struck is not False]
    return sum(bool(each.check) for each in counted), len(counted)


def table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the lines of a summary: the share that was noticed, by family and by check, and the survivors."""
    caught, every = shares(verdicts)
    operations = len({each.operation for each in verdicts})
    yield f"{caught:,} of {every:,} mutants of {operations} operations were noticed ({100 * caught / max(1, every):.1f} %)"
    for title, key in (("family", "family"), ("check", "check")):
        yield ""
        total = Counter(getattr(each, key) for each in verdicts)
        noticed = Counter(getattr(each, key) for each in verdicts if each.check)
        for name, n in total.most_common():
            yield f"  {noticed[name]:5,} of {n:5,}  {title} {name}" if title == "family" else f"  {n:5,}  noticed by {name or 'nothing'}"
    survivors = [each for each in verdicts if not each.check and each.struck is not False]
    if survivors:
        yield ""
        yield "Survivors:"
        yield from (f"  {each.operation}: {each.family}, {each.name}" for each in survivors)
    if idle := len(verdicts) - every:
        yield ""
        yield f"{idle:,} more changed no result of any call, so there was nothing to notice."


def save(verdicts: Sequence[Verdict], path: Path, level: str, explain: Callable[[Verdict], str] = lambda verdict: "") -> None:
    """Write verdicts as JSON, with the date and versions; survivors with what explains them."""
    rows = [{**asdict(each), **({"explained": explain(each)} if not each.check and explain(each) else {})} for each in verdicts]
    about = {"created": datetime.now(UTC).isoformat(timespec="seconds"), "suite": environment.suite(), "machine": environment.machine()}
    path.write_text(json.dumps({"level": level, **about, "mutants": rows}, indent=1) + "\n", encoding="utf-8")
