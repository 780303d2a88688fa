"""Explanations: which executor runs each operation of a compiled function, which others were tried, and why they refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from dovetail.executors.contract.executor import Claim, Executor, FusionExecutor, OperatorExecutor
from dovetail.executors.discovery.plugin_errors import call, distribution
from dovetail.executors.reports.communication import CollectiveRow, collective_rows, communication_html, communication_text
from dovetail.executors.reports.picture import picture
from dovetail.executors.trials.budget import TriedLine
from dovetail.executors.trials.reference import is_region
from dovetail.executors.trials.trial import Trial
from dovetail.trace import BoundSymbol, DispatchRecord, Offer, Trace, printing
from dovetail.trace.dispatch_record import Decision

SCHEMA = "dovetail.explanation.1"  # docs/explain.md says what is in it
PAGE = "explain.html"
RUNS = "runs it"


@dataclass(frozen=True)
class Candidate:
    """One executor in the order for an operation.  `status` is runs, refused or not-offered; `message` is the reason, as a sentence."""

    executor: str
    status: str
    message: str

    @property
    def spoken(self) -> str:
        """The message as a report shows it after the executor's name: `refuses: ...`, or `runs it: ...`."""
        return f"refuses: {self.message}" if self.status == "refused" else self.message


@dataclass(frozen=True)
class Row:
    """One operation.

    Attributes:
        program: the program's name, such as "forward".
        results: the names of its results.
        operation: its id.
        call: the operation with the types of its arguments.
        type: the types of its results.
        where: the user's line.
        requested: the executor that comes first.
        actual: the executor that runs it; None where its decomposition runs instead, which follows as rows of a greater depth.
        candidates: the executors in the order for the operation, with their answers.
        depth: how many operations it is a part of.
        region: the fused line that it is a part of.
        needed: whether a result of the program depends on it.
    """

    program: str
    results: tuple[str, ...]
    operation: str
    call: str
    type: str
    where: str | None
    requested: str | None
    actual: str | None
    candidates: tuple[Candidate, ...]
    depth: int = 0
    region: str | None = None
    needed: bool = True

    @property
    def refusals(self) -> tuple[Candidate, ...]:
        """The executors that refused."""
        return tuple(each for each in self.candidates if each.status == "refused")

    @property
    def reasons(self) -> tuple[Candidate, ...]:
        """The executors that gave a reason: those that refused, and one that claimed with a sentence."""
        return tuple(each for each in self.candidates if each.status == "refused" or (each.status == "runs" and each.message != RUNS))


@dataclass(frozen=True)
class Part:
    """One executor's share: how many lines it was offered and claimed, how many operations it runs, and the seconds it took.

    `run_calls` and `run_seconds` are None until the function was run inside `dovetail.profile`.
    """

    name: str
    version: str
    distribution: tuple[str, str] | None
    kind: str
    last_resort: bool
    offers: int
    claims: int
    operations: int
    claim_seconds: float
    compile_seconds: float
    run_calls: int | None = None
    run_seconds: float | None = None


@dataclass(frozen=True)
class Line:
    """One line of the program that runs, and the rows it came from."""

    text: str
    executor: str | None
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrialRow:
    """The outcome of the trials of one line.

    `message` is "agreed, largest error 2 ulp", "agreed on 64 of 1,000,000 rows, ...", "not tried: over budget" or "disagreed: ...".
    """

    program: str
    results: tuple[str, ...]
    operation: str
    executor: str
    message: str
    tries: int

    def __str__(self) -> str:
        return f"{', '.join(self.results) or '-'} = {self.operation}, by {self.executor}: {self.message}"


@dataclass(frozen=True)
class Program:
    """A program that runs: computation, or forward and backward, and the epilogue."""

    name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class OutcomeRow:
    """What follows an outcome of a decision.

    Attributes:
        outcome: as text; None for the start of a call.
        program: the program of the segment, several of which may be one; None where it has no lines.
        lines: how many lines the segment has.
        count: how many calls went through it.
        guards: what is checked before it, as the sentences of failures.
        target: the decision that follows, "return" or "eager mode".
        loop: whether that is this decision, or an earlier one.
        reason: why calls run in eager mode from here on; None where they do not.
    """

    outcome: str | None
    program: str | None
    lines: int
    count: int
    guards: tuple[str, ...]
    target: str
    loop: bool
    reason: str | None = None

    def __str__(self) -> str:
        what = f"{self.outcome}: " if self.outcome is not None else ""
        if self.reason is not None:
            return f"{what}eager mode, since {self.reason}"
        lines = f"{self.lines} line{'s' * (self.lines != 1)}" + (f" ({self.program})" if self.program else "")
        return f"{what}{lines} -> {self.target}{' (loop)' if self.loop else ''}, {self.count} time{'s' * (self.count != 1)}"


@dataclass(frozen=True)
class DecisionRow:
    """A point at which the function needs a value: its name, what it needs and where, how many values it keeps, and what follows.

    `unmerged` is why it is never the same as another one; None where it may be.
    """

    name: str
    what: str
    where: str | None
    values: int
    unmerged: str | None
    outcomes: tuple[OutcomeRow, ...]

    def text(self) -> Iterator[str]:
        """Yield the lines of a table."""
        place = f" at {_short(self.where)}, keeps {self.values}" if self.where else ""
        yield f"  {self.name}: {self.what}{place}" + (f"; stands alone, since {self.unmerged}" if self.unmerged else "")
        yield from (f"    {each}" for each in self.outcomes)


@dataclass(frozen=True)
class Explanation:
    """What dispatch decided for the last call; str() is a table in plain text.

    Attributes:
        function: the function's name.
        rows: one for each operation.
        executors: one for each executor in the order.
        programs: as they run.
        left_out: the executors that were requested and cannot be used, and why.
        differentiated: why executors refused operations that were differentiated; `rows` has the parts of these, or the lines of a grad rule.
        trials: for each line that is not the reference's own, whether it agreed with the reference.
        decisions: where the function needs values; the first row is the start of a call.  Nothing for a straight line.
        collectives: what the programs send to other ranks.
    """

    function: str
    rows: tuple[Row, ...]
    executors: tuple[Part, ...]
    programs: tuple[Program, ...] = field(repr=False)
    left_out: tuple[str, ...] = ()
    differentiated: tuple[str, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.text())

    def text(self, width: int | None = None) -> Iterator[str]:
        """Yield the lines of the table, not longer than `width` where that is possible."""
        if self.decisions:
            yield f"decisions: {len(self.decisions) - 1}"
            for decision in self.decisions:
                yield from decision.text()
            yield ""
        for program in self.programs:
            rows = [row for row in self.rows if row.program == program.name]
            if not rows:
                continue
            yield f"{program.name}: {counted(rows)}"
            names = min(max(len(_names(row)) + 2 * row.depth for row in rows), 24)
            for row in rows:
                yield from _text(row, names, width)
            yield ""
            tried = [each for each in self.trials if each.program == program.name]
            if tried:
                yield from (f"trials of {program.name}:", *(f"  {each}" for each in tried), "")
        yield from communication_text(self.collectives)
        if self.differentiated:
            yield from ("refusals of operations that were differentiated:", *(f"  {message}" for message in self.differentiated), "")
        for each in self.executors:
            yield one_part(each)
        yield from self.left_out

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold, as docs/explain.md describes it."""
        return {"schema": SCHEMA, **asdict(self)}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict()` as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return one page that needs nothing else: the programs with each line in its executor's colour, and its offers at a click.

        The page is written to `path`, too, unless that is None.
        """
        data = json.dumps(_packed(self), separators=(",", ":")).replace("<", "\\u003c")
        page = (
            files("dovetail.executors.reports")
            .joinpath(PAGE)
            .read_text(encoding="utf-8")
            .replace("{{picture}}", picture(self.decisions))
            .replace("{{communication}}", communication_html(self.collectives))
            .replace("{{data}}", data)
        )
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page


def counted(rows: list[Row]) -> str:
    """Return `4 operations; torch runs 3, mine 1`; an operation that was decomposed counts as its parts."""
    running = [row for row in rows if row.actual is not None and row.needed]
    by: dict[str, int] = {}
    for row in running:
        by[row.actual] = by.get(row.actual, 0) + 1
    shares = ", ".join(f"{name} {'' if i else 'runs '}{n}" for i, (name, n) in enumerate(sorted(by.items(), key=lambda item: -item[1])))
    return f"{len(running)} operation{'s' * (len(running) != 1)}" + (f"; {shares}" if shares else "")


def _names(row: Row) -> str:
    return ", ".join(row.results) or "-"


def _text(row: Row, names: int, width: int | None) -> Iterator[str]:
    indent = "  " * row.depth
    actual = row.actual or "its parts"
    arrow = actual if row.requested in (None, row.actual) else f"{row.requested} -> {actual}"
    more = f", in {row.region}" if row.region else "" if row.needed else ", and nothing needs it"
    head = f"  {(indent + _names(row)).ljust(names)} = {row.operation}: {arrow}{more}"
    place = f"  ({_short(row.where)})" if row.where else ""
    yield head + place if width is None or len(head + place) <= width else head
    for each in row.reasons:
        yield f"    {indent}{each.executor} {each.spoken}"


def _short(where: str) -> str:
    return where.rpartition("/")[2].rpartition("\\")[2]


def one_part(each: Part) -> str:
    """Return the line about one executor."""
    origin = " ".join(filter(None, each.distribution)) if each.distribution else "defined in this process"
    spent = f"claiming {each.claim_seconds * 1e3:.2f} ms, compiling {each.compile_seconds * 1e3:.2f} ms"
    ran = "" if each.run_calls is None else f", running {each.run_calls} calls in {each.run_seconds * 1e3:.2f} ms"
    return f"{each.name} ({origin}): offered {each.offers} line{'s' * (each.offers != 1)}, runs {each.operations}; {spent}{ran}"


def explanation(
    function: str,
    programs: Iterable[tuple[Trace, Trace]],
    ran: dict[str, tuple[int, float]] | None = None,
    before: Iterable[Offer] = (),
    trials: Iterable[tuple[str, Trial]] = (),
    decisions: tuple[DecisionRow, ...] = (),
) -> Explanation:
    """Explain programs.

    Args:
        function: the function's name.
        programs: (as dispatched, as it runs) for each program.
        ran: the calls and seconds of each executor, where they were measured.
        before: the refusals before differentiation.
        trials: those of the programs, each with the name of its program.
        decisions: where the function needs values.
    """
    rows: list[Row] = []
    shown: list[Program] = []
    collectives: list[CollectiveRow] = []
    parts: dict[str, tuple[Executor, list[DispatchRecord]]] = {}
    left_out: dict[str, None] = {}
    for dispatched, running in programs:
        record = dispatched.dispatch_record
        at = _Rows(dispatched, len(rows))
        rows += at.rows
        shown.append(Program(dispatched.name, tuple(_lines(running, at))))
        collectives += collective_rows(running)
        left_out |= dict.fromkeys(record.left_out)
        for ex in record.executors:
            parts.setdefault(ex.name, (ex, []))[1].append(record)
    whole = {(row.operation, row.results) for row in rows}  # what stayed whole has a row that says it all
    earlier = dict.fromkeys(spoken(offer) for offer in before if (str(offer.line.symbol), tuple(p.name for p in offer.line.writes)) not in whole)
    tried = tuple(_tried(name, line) for name, trial in trials for line in trial.tried)
    executors = tuple(_parts(parts, rows, ran))
    return Explanation(function, tuple(rows), executors, tuple(shown), tuple(left_out), tuple(earlier), tried, decisions, tuple(collectives))


def _tried(program: str, line: TriedLine) -> TrialRow:
    """Return the row about one line."""
    operation = str(line.operation.symbol) if not is_region(line.operation) else f"the region {line.operation.symbol.name}"
    operation = f"the gradient of {operation}" if line.gradient else operation
    return TrialRow(program, line.results, operation, line.executor.name, line.outcome, line.tries)


def _parts(parts: dict[str, tuple[Executor, list[DispatchRecord]]], rows: list[Row], ran: dict[str, tuple[int, float]] | None) -> Iterator[Part]:
    runs: dict[str, int] = {}
    for row in rows:
        if row.actual is not None and row.needed:
            runs[row.actual] = runs.get(row.actual, 0) + 1
    for name, (ex, records) in parts.items():
        spent = [record.spent[name] for record in records]
        kind = "fusion" if isinstance(ex, FusionExecutor) else "operator" if isinstance(ex, OperatorExecutor) else "other"
        calls, seconds = (None, None) if ran is None else ran.get(name, (0, 0.0))
        totals = (sum(getattr(s, key) for s in spent) for key in ("claiming", "compiling"))
        counts = (sum(s.offers for s in spent), sum(s.claims for s in spent), runs.get(name, 0))
        yield Part(name, ex.version, distribution(ex), kind, ex.last_resort, *counts, *totals, calls, seconds)


class _Rows:
    """The rows of one dispatch, and which of them each line that runs stands for."""

    def __init__(self, trace: Trace, first: int):
        self.of_line: dict[int, list[int]] = {}
        self.of_result: dict[str, list[int]] = {}
        regions = {id(inner): line.symbol.name for line in trace.lines if is_region(line) for inner in line.body}
        live = {id(line) for line in trace.lines} | set(regions)
        decisions = trace.dispatch_record.decisions
        self.rows = [self._row(trace, decision, regions, live, first + i) for i, decision in enumerate(decisions)]

    def _row(self, trace: Trace, decision: Decision, regions: dict[int, str], live: set[int], index: int) -> Row:
        line = decision.line
        for run in decision.runs:
            self.of_line.setdefault(id(run), []).append(index)
        for p in line.writes:
            self.of_result.setdefault(p.name, []).append(index)
        claimer = decision.offers[-1].executor if decision.runs else None
        candidates = [Candidate(offer.executor, "runs" if offer.claimed else "refused", sentence_of(offer)) for offer in decision.offers]
        candidates += [Candidate(ex.name, "not-offered", f"{claimer} took it first") for ex in decision.order[len(decision.offers) :]]
        known = {each.executor for each in candidates}
        others = [ex.name for ex in trace.dispatch_record.executors if ex.name not in known]
        candidates += [Candidate(name, "not-offered", "configuration leaves it out here") for name in others]
        return Row(
            trace.name,
            tuple(p.name for p in line.writes),
            str(line.symbol),
            call(line),
            printing.typed(line.out),
            decision.where,
            decision.order[0].name if decision.order else None,
            claimer,
            tuple(candidates),
            decision.depth,
            next((regions[id(run)] for run in decision.runs if id(run) in regions), None),
            not decision.runs or any(id(run) in live for run in decision.runs),
        )

    def behind(self, line: BoundSymbol) -> tuple[int, ...]:
        """Return the rows that `line` stands for; for a line that a later pass rewrote, those of its results."""
        if is_region(line):
            return tuple(i for inner in line.body for i in self.behind(inner))
        rows = self.of_line.get(id(line))
        return tuple(rows or [i for p in line.writes for i in self.of_result.get(p.name, ())[-1:]])


def _lines(trace: Trace, rows: _Rows) -> Iterator[Line]:
    """Yield the program's text, line by line."""
    text = trace.python(depth=0).splitlines()
    first = next(i for i, row in enumerate(text) if row.startswith("def ")) + 1
    while first < len(text) and text[first].startswith("    # "):
        first += 1
    yield from (Line(row, None) for row in text[:first])
    for line in trace.lines:
        executor = line.implementation.executor if line.implementation is not None else None
        last = first + printing.statement(line, printing.Scope(), "").count("\n")  # unpacking takes several rows
        yield from (Line(row, executor, rows.behind(line) if executor else ()) for row in text[first : last + 1])
        first = last + 1
    yield from (Line(row, None) for row in text[first:])


def _packed(explained: Explanation) -> dict[str, Any]:
    """The explanation with every distinct string once, since refusals repeat."""
    words: dict[str, int] = {}

    def pack(value: Any) -> Any:
        if isinstance(value, str):
            return words.setdefault(value, len(words))
        return [pack(item) for item in value] if isinstance(value, (list, tuple)) else value

    rows = []
    for row in explained.rows:
        fields = (", ".join(row.results), row.operation, row.call, row.type, row.where or "", row.requested or "", row.actual or "", row.region or "")
        candidates = [[*map(pack, (c.executor, c.status, c.message))] for c in row.candidates]
        rows.append([*map(pack, fields), row.depth, int(row.needed), candidates])
    programs = [[each.name, [[line.text, line.executor, line.rows] for line in each.lines]] for each in explained.programs]
    return {
        "function": explained.function,
        "words": list(words),
        "rows": rows,
        "programs": programs,
        "executors": [asdict(each) | {"line": one_part(each)} for each in explained.executors],
        "left_out": (*explained.left_out, *explained.differentiated),
    }


def sentence_of(offer: Offer) -> str:
    """Return an offer as a sentence: the refusal, `runs it`, or for a Claim `runs it: 0.8 ms, and 1.3 ms without`."""
    if isinstance(offer.verdict, Claim) and offer.verdict.why:
        return f"{RUNS}: {offer.verdict.why}"
    return RUNS if offer.claimed else str(offer.verdict)


def refusals(trace: Trace) -> str:
    """Return a line for each offer of a dispatched trace: `t5 = torch.softmax: llvm refuses: expected rows of at most 1024, got 4096`."""
    return "\n".join(map(spoken, trace.dispatch_record.offers))


def spoken(offer: Offer) -> str:
    """Format a refusal: `t5 = torch.softmax: llvm refuses: expected rows of at most 1024, got 4096`."""
    message = sentence_of(offer) if offer.claimed else f"refuses: {offer.verdict}"
    return f"{', '.join(p.name for p in offer.line.writes) or '-'} = {offer.line.symbol}: {offer.executor} {message}"
