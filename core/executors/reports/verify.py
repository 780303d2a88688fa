"""Each claimed operation beside the reference, on the values that a program really computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from dovetail.errors import DovetailError
from dovetail.executors.contract.declaration import is_claim
from dovetail.executors.contract.executor import Executor, FusionExecutor
from dovetail.executors.discovery.plugin_errors import BY_NAME, call
from dovetail.executors.dispatching.check_contract import broken, copies, paired
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.executors.trials.compare import LineComparison, Result, restore_written
from dovetail.executors.trials.reference import draws, generators, is_region, own_copy, program, referees, restore, uninitialized
from dovetail.executors.trials.tolerance import differs
from dovetail.prims import Symbol
from dovetail.trace import BoundSymbol, Proxy, Trace, is_proxy, leaves, tree_map

SLACK = 100  # a whole program may be that much further off than one operation


@dataclass(frozen=True)
class Difference:
    """One operation whose executor does not compute what the reference computes.

    Attributes:
        program: the program's name, such as "forward".
        executor: the executor that claimed the operation.
        operation: its id.
        results: the names of its results in the program.
        call: the operation with the types of its arguments.
        where: the user's line.
        message: the figures.
    """

    program: str
    executor: str
    operation: str
    results: tuple[str, ...]
    call: str
    where: str | None
    message: str

    def __str__(self) -> str:
        at = f"\n  called at {self.where}" if self.where else ""
        head = f"{self.program}, {', '.join(self.results) or '-'}: {self.executor} runs {self.operation} otherwise than the reference"
        return f"{head}: {self.message}\n  in {self.call}{at}"


@dataclass(frozen=True)
class Verification:
    """The result of `dovetail.verify`; true where nothing differs.

    Attributes:
        compared: how many operations were compared.
        differences: the operations that differ, in program order.
        skipped: the operations that could not be compared, with the reasons.
        end: how the results of the whole program differ from the reference's; empty where they do not.
        culprit: the executor and the claim that make them differ, where no single operation does.
        executors: those whose operations were compared.
    """

    compared: int
    differences: tuple[Difference, ...] = ()
    skipped: tuple[str, ...] = ()
    end: str = ""
    culprit: str = ""
    executors: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return not self.differences and not self.end

    @property
    def first(self) -> Difference | None:
        """The first operation that differs."""
        return self.differences[0] if self.differences else None

    def __str__(self) -> str:
        executors = ", ".join(self.executors) or "no executor but the reference"
        n, wrong = self.compared, len(self.differences)
        rows = [f"compared {n} operation{'s' * (n != 1)} of {executors} with the reference: {wrong or 'none'} differ{'s' * (wrong == 1)}"]
        rows += [f"the first: {self.first}"] if self.differences else []
        rows += [f"and {len(self.differences) - 1} more"] if len(self.differences) > 1 else []
        rows += [f"the results of the whole differ: {self.end}"] if self.end else []
        rows += [self.culprit] if self.culprit else []
        rows += [f"not compared: {message}" for message in self.skipped]
        return "\n".join(rows)


class Comparison:
    """Runs a dispatched program line by line, and each claimed line by the reference, too."""

    def __init__(self, trace: Trace, reference: Priority):
        self.trace, self.reference = trace, reference
        self.trusted = {ex.name for ex in self.reference}
        self.values: dict[Proxy, Any] = dict(trace.constants)
        self.differences: list[Difference] = []
        self.skipped: list[str] = []
        self.compared = 0
        self.random = False  # whether an executor draws random numbers, so that whole programs cannot be compared
        self.unwritten = uninitialized(trace.lines)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs, computed by the executors that claimed the lines."""
        self.values |= dict(zip(self.trace.inputs, inputs, strict=True))
        units, last = _units(self.trace), {}
        for i, (_, lines) in enumerate(units):
            last.update(dict.fromkeys([p for line in lines for p in (*line.reads, *line.writes)], i))
        kept = {*self.trace.inputs, *self.trace.constants, *[p for p in leaves(self.trace.outputs) if is_proxy(p)]}
        for i, (operation, lines) in enumerate(units):
            self._unit(operation, lines)
            for p in [p for line in (operation, *lines) for p in (*line.reads, *line.writes)]:
                if last.get(p, i) <= i and p not in kept:
                    self.values.pop(p, None)
        return tree_map(self._value, self.trace.outputs)

    def _value(self, leaf: Any) -> Any:
        return self.values[leaf] if is_proxy(leaf) else leaf

    def _unit(self, operation: BoundSymbol, lines: list[BoundSymbol]) -> None:
        """Run `lines`, which run in place of `operation`, and compare where an executor other than the reference runs them."""
        executor = lines[0].implementation.executor
        if executor in self.trusted:
            for line in lines:
                self._run(line)
            return
        inputs = {p: self.values[p] for p in operation.reads}
        state = generators()
        expected = self._expected(operation, inputs, executor)
        restore(state)
        message = next((message for message in [self._run(line) for line in lines] if message is not None), None)
        if expected is None:
            if message is not None:
                self._differs(executor, operation, lines, message)
            return
        self.compared += 1
        if message is None and not draws(operation):
            message = self._compared(operation, expected, inputs)
        self.random |= draws(operation)
        if message is not None:
            self._differs(executor, operation, lines, message, inputs)

    def _run(self, line: BoundSymbol) -> str | None:
        """Run one line; return how it breaks its contract, None where it keeps it."""
        args, kwargs = tree_map(self._value, line.args), tree_map(self._value, line.kwargs)
        before = copies(line, args, kwargs)
        try:
            result = line.implementation.fn(*args, **kwargs)
        except Exception as error:
            error.add_note(f"raised by {line.implementation.executor} as dovetail.verify ran {call(line)}")
            raise
        message = broken(line, args, kwargs, result, before)
        restore_written(message, args, kwargs, before)
        self.values.update({p: x for p, x in paired(line.out, result) if is_proxy(p)})
        return message

    def _expected(self, operation: BoundSymbol, inputs: dict[Proxy, Any], executor: str) -> list[Any] | None:
        """Return what the reference computes for `operation`; None where it cannot."""
        try:
            return program(operation, list(inputs), self.reference, self.trace.constants)(*inputs.values())
        except DovetailError as error:
            reason = str(error).partition("\n")[0]
            self.skipped.append(f"{call(operation)}, which {executor} runs: {reason}")
            return None

    def _compared(self, operation: BoundSymbol, expected: list[Any], inputs: dict[Proxy, Any]) -> str | None:
        """Return how results differ from what is expected; None where they do not."""
        replaced = self.trace.dispatch_record.replaced
        results = []
        for i, p in enumerate(operation.writes):
            now = replaced.get(p, p)
            if now in self.values and p not in self.unwritten and now not in self.unwritten:  # else nothing needs it, or nothing wrote it
                results.append(Result(i, p.name, self.values[now], expected[i]))
        return LineComparison(operation, self.trace.constants | inputs, self.reference).difference(results)

    def _differs(self, executor: str, operation: BoundSymbol, lines: list[BoundSymbol], message: str, inputs: dict[Proxy, Any] | None = None) -> None:
        where = operation.where or next((line.where for line in lines if line.where), None)
        ex = BY_NAME.get(executor)
        look = not self.differences and inputs and isinstance(ex, FusionExecutor)
        if look and (line := _first_inside(ex, self.trace, operation, inputs, self.reference)) is not None:
            message += f"; in the region, {call(line)} is the first to differ"
        names = tuple(p.name for p in operation.writes)
        self.differences.append(Difference(self.trace.name, executor, str(operation.symbol), names, call(operation), where, message))


def _units(trace: Trace) -> list[tuple[BoundSymbol, list[BoundSymbol]]]:
    """Return the operations of a dispatched trace, in order, each with the lines that run in its place."""
    operation_of: dict[int, BoundSymbol] = {}
    for decision in trace.dispatch_record.decisions:
        for line in decision.runs:
            operation_of.setdefault(id(line), decision.line)  # the outermost comes first
    units: list[tuple[BoundSymbol, list[BoundSymbol]]] = []
    for line in trace.lines:
        operation = line if is_region(line) else operation_of.get(id(line), line)
        if units and units[-1][0] is operation and operation is not line:
            units[-1][1].append(line)
        else:
            units.append((operation, [line]))
    return units


def _first_inside(ex: FusionExecutor, trace: Trace, region: BoundSymbol, inputs: dict[Proxy, Any], reference: Priority) -> BoundSymbol | None:
    """Return the last line of the shortest prefix of `region` for which `ex` computes something else than the reference."""

    unwritten = uninitialized(region.body)

    def wrong(n: int) -> bool:
        lines = region.body[:n]
        results = list(dict.fromkeys(p for line in lines for p in line.writes))
        read = {p: x for p, x in inputs.items() if any([p in set(line.reads) for line in lines])}
        part = trace.derive("dispatch", name="part", inputs=list(read), outputs=tuple(results), constants={})
        part.lines = list(lines)
        whole = BoundSymbol(region.symbol, tuple(read), {}, tuple(results), list(read), body=tuple(lines))
        pairs = zip(ex.fuse(part)(*read.values()), program(whole, list(read), reference)(*read.values()), strict=True)
        return any([differs(got, expected) is not None for p, (got, expected) in zip(results, pairs, strict=True) if p not in unwritten])

    low, high = 0, len(region.body)  # the first `low` lines are right, the first `high` wrong
    try:
        if not wrong(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if wrong(middle) else (middle, high)
    except Exception:  # an executor may refuse a region that it would not have been offered
        return None
    return region.body[high - 1]


def ends_differ(got: Any, expected: Any) -> str | None:
    """Return how the results of two programs differ, for the first that does; None where they agree."""
    pairs = zip(leaves(got), leaves(expected), strict=True)
    return next((f"result {i}: {message}" for i, (a, b) in enumerate(pairs) if (message := differs(a, b, slack=SLACK)) is not None), None)


def private(inputs: Iterable[Any]) -> list[Any]:
    """Return the inputs with copies of the tensors among them, in the same layout."""
    return [own_copy(x) for x in inputs]


@contextmanager
def same_numbers() -> Iterator[Callable[[], None]]:
    """Yield a function that restores the random generators; they are restored at the end, too."""
    state = generators()
    try:
        yield lambda: restore(state)
    finally:
        restore(state)


class Limited(Priority):
    """A priority in which some executors claim only so many of the lines that they would; `counts` and `last` say what each has claimed."""

    def __new__(cls, executors: Priority, limits: dict[str, int]) -> Limited:
        """Return `executors` with limits by name; the others claim what they want."""
        reference, counts, last = referees(executors), dict[str, int](), dict[str, BoundSymbol]()

        def limited(ex: Executor) -> Executor:
            own, verdict_of = copy(ex), ex.verdict

            def verdict(line: BoundSymbol) -> Any:
                answer = verdict_of(line)
                if not is_claim(answer):
                    return answer
                if not line.body and not any([is_claim(other.verdict(line)) for other in reference]):
                    return answer  # its own prim, which nothing else runs
                if counts.get(ex.name, 0) >= limits[ex.name]:
                    return "has claimed as many lines as it may, to find out which one is wrong"
                counts[ex.name], last[ex.name] = counts.get(ex.name, 0) + 1, line
                return answer

            own.verdict = verdict
            return own

        replaced = {id(ex): limited(ex) if ex.name in limits else ex for ex in executors}
        limited = super().__new__(cls, replaced.values())
        limited.counts, limited.last, limited._replaced, limited._unlimited = counts, last, replaced, executors
        return limited

    def for_symbol(self, symbol: Symbol) -> tuple[Executor, ...]:
        """Return the order for one operation."""
        return tuple([self._replaced[id(ex)] for ex in self._unlimited.for_symbol(symbol) if id(ex) in self._replaced])


def bisect(claimers: Sequence[Executor], wrong: Callable[[dict[str, int]], tuple[str | None, Limited]]) -> str:
    """Return a sentence with the executor, and its claim, that makes a program differ from the reference.

    `wrong(limits)` runs the program with executors that claim at most so many lines; it returns how the results differ, or None, and the
    limited executors.
    """
    limits = {ex.name: 0 for ex in claimers}
    if wrong(limits)[0] is not None:
        return "no executor brings that in: it differs without them, too"
    for ex in claimers:
        limits[ex.name] = MANY
        difference, limited = wrong(limits)
        if difference is not None:
            break
    else:
        return "it does not differ when it is run again"
    low, high = 0, limited.counts.get(ex.name, 0)  # with `low` claims it is right, with `high` wrong
    while high - low > 1:
        middle = (low + high) // 2
        limits[ex.name] = middle
        low, high = (low, middle) if wrong(limits)[0] is not None else (middle, high)
    limits[ex.name] = high
    _, limited = wrong(limits)
    line = limited.last.get(ex.name)
    claim = f"{call(line)}" + (f", called at {line.where}" if line.where else "") if line is not None else "no single line"
    return f"{ex.name} brings it in, with its claim {high} of that program: {claim}"


MANY = 1 << 30
