"""Trials: no executor but the reference is believed before it agreed with the reference on the user's own data.

On some calls of a program (the first, the second, then ever more rarely) each line that is not the reference's own is also run by the
reference, on the same inputs, and compared.  Where they disagree the call goes on with what the reference computes, the executor is not
offered that line again, and a warning names a script that replays it.

    t5 = mine_exec.fusion_t5(t0, t1)

runs on a trial call as a function that computes t5 as before, then as the reference does, and returns the one that is right.  `budget` says
which lines have their turn, `judge` compares, and of a line that is too large `rows` computes some rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from types import GeneratorType
from typing import Any

from dovetail import options, prims
from dovetail.executors.contract.executor import Executor, Implementation
from dovetail.executors.dispatching.regions import RegionSymbol
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.executors.trials.budget import Account, TriedLine, following, next_round
from dovetail.executors.trials.judge import ROUND, GradientDisagreement, Judge
from dovetail.executors.trials.reference import draws, generators, interpreted, is_region, referees, restore
from dovetail.prims.spec import TensorSpec
from dovetail.trace import BoundSymbol, Proxy, Trace, release, renamed
from dovetail.trace.collector import without_collector


class Trial:
    """The trials of one program.

    `trace` is the program as it runs, `dispatched` as it was dispatched; `by_rules` are the lines that executors differentiate by own rules.
    """

    def __init__(self, trace: Trace, dispatched: Trace, executors: Priority, account: Account, by_rules: Sequence[tuple[BoundSymbol, Executor]] = ()):
        self.trace, self.account, self.by_rules = trace, account, by_rules
        self.reference = referees(executors)
        self.judge = Judge(self.reference, trace.constants, account)
        self.stands_for = _stands_for(dispatched)
        self.replaced = dispatched.dispatch_record.replaced
        self.modes = options.trial_modes()
        self.executors = {ex.name: ex for ex in executors}
        self.tried: list[TriedLine] = []
        self.trace_run = self._program()
        self.run_lines: Callable[..., Any] | None = None
        self.lock = Lock()
        self.count, self.due = 0, 1  # calls so far, and the call that is the next trial

    def __bool__(self) -> bool:
        return bool(self.tried)

    def run(self, *inputs: Any) -> Any:
        """Run the program; lines whose turn it is also run by the reference.  Raises GradientDisagreement where a grad rule is wrong."""
        with self.account.settled(), without_collector():
            return self._run(inputs)

    def _run(self, inputs: tuple) -> Any:
        with self.lock:
            if self.run_lines is None:
                self.run_lines = interpreted(self.trace_run)
            turn = next_round(self.tried, self.account, self.due)
        token, before = ROUND.set(turn), generators() if self.by_rules else None
        try:
            result = self.run_lines(*inputs)
            return iter(Stages(result)) if type(result) is GeneratorType else result  # the round ends with this call
        except GradientDisagreement:
            restore(before)
            raise
        finally:
            ROUND.reset(token)
            self._counted()

    def _counted(self) -> None:
        self.count = max(self.count, self.due)
        always = self.judge.disagreed or any([each.always for each in self.tried])
        self.due = self.count + 1 if always else following(self.count)

    # --- the program of a trial

    def _program(self) -> Trace:
        """Return the trace with every tried line run by a function that compares."""
        new = self.trace.derive("trial")
        units = self._units()
        lines: list[BoundSymbol] = []
        known = {*self.trace.inputs, *self.trace.constants}
        for line in self.trace.lines:
            known.update(line.writes)
            unit = units.get(_mark(line))
            if line.symbol is prims.delete:
                continue
            if unit is None:
                lines.append(line)
            elif unit.left == 1:
                lines.append(self._beside(line, unit, len(self.tried)))
            else:
                unit.left -= 1
                lines.append(line)
                if unit.left == 1:
                    lines += self._behind(unit, line.where, known, len(self.tried))
        new.lines = lines + [
            self._gradient(line, ex, i) for i, (line, ex) in enumerate(self.by_rules) if known.issuperset(line.reads) and self._mode(ex.name)
        ]
        return release(new)

    def _gradient(self, operation: BoundSymbol, ex: Executor, number: int) -> BoundSymbol:
        """Return a line that compares the gradients of an operation by an executor's own rule with the reference's."""
        tried, reads = self._new(operation, ex.name, operation.where), list(dict.fromkeys(operation.reads))
        tried.gradient = True

        def run(*values: Any) -> None:
            self.judge.check_gradients(tried, dict(zip(reads, values)))

        line = BoundSymbol(RegionSymbol(ex.name, f"gradient_{number}"), tuple(reads), {}, None, reads)
        line.implementation = Implementation(ex.name, f"gradient_trial_{number}", run)
        return line

    def _units(self) -> dict[Any, Unit]:
        """Return, for each tried line, what it is compared as."""
        shown = {_mark(line) for line in self.trace.lines}
        units: dict[Any, Unit] = {}
        several: dict[int, Unit] = {}
        for line in self.trace.lines:
            if line.implementation is None:
                continue
            alone = Unit(line, line.implementation.executor)
            unit, marks = (alone, ()) if is_region(line) else self.stands_for.get(_mark(line), (alone, ()))
            transformed = not self.replaced.keys().isdisjoint(unit.operation.writes) and not draws(unit.operation)  # its kernel may draw others
            whole = renamed(unit.operation, {p: _now(p, self.replaced) for p in unit.operation.writes}) if transformed else line
            if transformed and len(marks) == 1 and whole.out is line.out and set(whole.reads) <= set(line.reads):
                alone = Unit(whole, unit.executor)
            elif (transformed or len(marks) > 1) and all([mark in shown for mark in marks]):
                alone = several.setdefault(id(unit.operation), Unit(unit.operation, unit.executor))
                alone.left += 1
            if self._mode(alone.executor):
                units[_mark(line)] = alone
        return units

    def _mode(self, executor: str) -> str | None:
        """Return how an executor is tried; None where it is not."""
        ex = self.executors.get(executor)
        if ex is None or ex in self.reference:
            return None
        mode = self.modes.get(executor, self.modes["*"])
        return None if mode == "off" else mode

    def _new(self, operation: BoundSymbol, executor: str, where: str | None) -> TriedLine:
        tried = TriedLine(operation, self.executors[executor], operation.where or where, self._mode(executor) == "always")
        self.tried.append(tried)
        return tried

    def _beside(self, line: BoundSymbol, unit: Unit, number: int) -> BoundSymbol:
        """Return `line`, run by a function that compares."""
        implementation = line.implementation
        tried = self._new(unit.operation, unit.executor, line.where)
        specs = [p.spec for p in line.reads]
        if is_region(line) and not any([isinstance(spec, TensorSpec) and spec.dtype.kind == "int" for spec in specs]):
            tried.kernel = id(implementation.fn), *specs  # without indices, the layout alone says where it reads and writes

        def run(*args: Any, **kwargs: Any) -> Any:
            return self.judge.run_line(tried, line, implementation.fn, args, kwargs, implementation.writes)

        return line.replace(implementation=replace(implementation, name=f"{implementation.name}_trial_{number}", fn=run, path=None))

    def _behind(self, unit: Unit, where: str | None, known: set[Proxy], number: int) -> list[BoundSymbol]:
        """Return a line that compares the results of an operation that other lines stand for, after the last of them, which is at `where`."""
        operation, executor = unit.operation, unit.executor
        tried = self._new(operation, executor, where)
        results = [_now(p, self.replaced) for p in operation.writes]
        reads = list(dict.fromkeys(operation.reads))
        if not all([p in known for p in (*reads, *results)]):
            tried.outcome = "not tried: parts of it are computed elsewhere"
            return []

        def run(*values: Any) -> tuple:
            inputs, got = values[: len(reads)], list(values[len(reads) :])
            return tuple(self.judge.judged(tried, dict(zip(reads, inputs)), got))

        args = (*reads, *results)
        line = BoundSymbol(RegionSymbol(executor, f"trial_{number}"), args, {}, tuple(results), list(args))
        line.writes = results
        line.implementation = Implementation(executor, f"trial_{number}", run)
        return [line]


@dataclass(eq=False)
class Unit:
    """What lines are compared as: the operation that they stand for, by the executor that claimed it.

    `left` is 1 for a line alone, else one more than how many of the lines have not run.
    """

    operation: BoundSymbol
    executor: str
    left: int = 1


class Stages:
    """What a generator yields and returns, computed at once."""

    def __init__(self, run: Generator[Any, None, Any]):
        self.yielded: list[Any] = []
        while True:
            try:
                self.yielded.append(next(run))
            except StopIteration as end:
                self.returned = end.value
                return

    def __iter__(self) -> Generator[Any, None, Any]:
        yield from self.yielded
        return self.returned


def trial_of(
    traces: Sequence[Trace], executors: Priority, account: Account | None, by_rules: Sequence[tuple[BoundSymbol, Executor]] = ()
) -> Trial | None:
    """Return the trials of a program, of which `traces` are the steps; None where there is nothing to try."""
    modes = options.trial_modes()
    if account is None or set(modes.values()) == {"off"}:
        return None
    trace = traces[-1]
    dispatched = next(trace for trace in traces if trace.dispatch_record is not None)
    running = {line.implementation.executor for line in trace.lines if line.implementation is not None}
    running |= {decision.offers[-1].executor for decision in dispatched.dispatch_record.decisions if decision.runs}
    reference = referees(executors)
    names = {ex.name for ex in executors if ex not in reference and modes.get(ex.name, modes["*"]) != "off"}
    if not reference or not (running & names or by_rules):
        return None
    return Trial(trace, dispatched, executors, account, by_rules) or None


def _stands_for(dispatched: Trace) -> dict[Any, tuple[Unit, tuple[Any, ...]]]:
    """Return, for each line, the outermost operation that it stands for, and all lines that do so."""
    stands_for: dict[Any, tuple[Unit, tuple[Any, ...]]] = {}
    for decision in dispatched.dispatch_record.decisions:
        marks = tuple(_mark(line) for line in decision.runs)
        for mark in marks:
            stands_for.setdefault(mark, (Unit(decision.line, decision.offers[-1].executor), marks))
    return stands_for


def _mark(line: BoundSymbol) -> Any:
    """Return what identifies a line across passes: its results."""
    return tuple(line.writes) or line


def _now(p: Proxy, env: dict[Proxy, Proxy]) -> Proxy:
    """Return what replaces a result in the program that runs."""
    while p in env:
        p = env[p]
    return p
