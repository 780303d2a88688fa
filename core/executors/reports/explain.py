"""Who runs each operation of a compiled function, who else was asked, and what they said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from dovetail.executors.contract.executor import Claim, Executor, FusionExecutor, OperatorExecutor
from dovetail.executors.discovery.plugin_errors import call, distribution
from dovetail.executors.trials.budget import TriedLine
from dovetail.executors.trials.reference import is_region
from dovetail.executors.trials.trial import Trial
from dovetail.prims import SYMBOLS
from dovetail.trace import BoundSymbol, DispatchRecord, Offer, Trace, printing
from dovetail.trace.dispatch_record import Decision

SCHEMA = "dovetail.explanation.1"  # docs/explain.md says what is in it
PAGE = "explain.html"
RUNS = "runs it"


@dataclass(frozen=True)
class Candidate:
    """One executor that was to be asked for an operation.  `status` is runs, refused or not-asked; `said` is the sentence."""

    executor: str
    status: str
    message: str

    @property
    def spoken(self) -> str:
        """What it said after its name: `refuses: ...`, or `runs it: ...`."""
        return f"refuses: {self.message}" if self.status == "refused" else self.message


@dataclass(frozen=True)
class Row:
    """One operation.

    `requested` is the executor that is asked first, `actual` the one that runs it; None where its parts run instead, which follow as rows
    of a greater `depth`.  `region` is the fused line that it became a part of.  `needed` is False where nothing needs what it computes.
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
        """Those who said no."""
        return tuple(each for each in self.candidates if each.status == "refused")

    @property
    def reasons(self) -> tuple[Candidate, ...]:
        """Those who gave a sentence: who said no, and who runs it and says why."""
        return tuple(each for each in self.candidates if each.status == "refused" or (each.status == "runs" and each.message != RUNS))


@dataclass(frozen=True)
class Part:
    """One executor's part in it: how often it was asked and took something, and the seconds it took.

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
    """What trials showed of one line.  `said` is "agreed, largest error 2 ulp", "agreed on 64 of 1,000,000 rows, ...", "not tried: over budget"
    or "disagreed: ...".
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
class Explanation:
    """What dispatch decided for the last call: `rows`, one for each operation; `executors`; `programs`, as they run.

    `trials` says for each line that is not the reference's own whether it agreed with the reference.
    `left_out` says who was asked for and takes no part, and why; `differentiated` what executors said of operations that were differentiated,
    whose rows are those of their parts or of a grad rule.  str() is a table in plain text.
    """

    function: str
    rows: tuple[Row, ...]
    executors: tuple[Part, ...]
    programs: tuple[Program, ...] = field(repr=False)
    left_out: tuple[str, ...] = ()
    differentiated: tuple[str, ...] = ()
    trials: tuple[TrialRow, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.text())

    def text(self, width: int | None = None) -> Iterator[str]:
        """The lines of the table; no line is longer than `width` where that can be."""
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
        if self.differentiated:
            yield from ("said of operations that were differentiated:", *(f"  {message}" for message in self.differentiated), "")
        for each in self.executors:
            yield one_part(each)
        yield from self.left_out

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, as docs/explain.md describes it."""
        return {"schema": SCHEMA, **asdict(self)}

    def to_json(self, *, indent: int | None = None) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self, path: str | Path | None = None) -> str:
        """One page that needs nothing else: the programs with each line in its executor's colour, and who said what at a click.

        It is also written to `path` where one is given.
        """
        data = json.dumps(_packed(self), separators=(",", ":")).replace("<", "\\u003c")
        page = files("dovetail.executors.reports").joinpath(PAGE).read_text(encoding="utf-8").replace("{{data}}", data)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page


def counted(rows: list[Row]) -> str:
    """`4 operations; torch runs 3, mine 1`, with the parts of what was taken apart in place of the whole."""
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
    """The line about one executor."""
    origin = " ".join(filter(None, each.distribution)) if each.distribution else "made in this process"
    spent = f"claiming {each.claim_seconds * 1e3:.2f} ms, compiling {each.compile_seconds * 1e3:.2f} ms"
    ran = "" if each.run_calls is None else f", running {each.run_calls} calls in {each.run_seconds * 1e3:.2f} ms"
    return f"{each.name} ({origin}): asked {each.offers} time{'s' * (each.offers != 1)}, runs {each.operations}; {spent}{ran}"


def explanation(
    function: str,
    programs: Iterable[tuple[Trace, Trace]],
    ran: dict[str, tuple[int, float]] | None = None,
    before: Iterable[Offer] = (),
    trials: Iterable[Trial] = (),
) -> Explanation:
    """The explanation of (dispatched, running) pairs of traces: what dispatch made, and what the passes after it made of that.

    `ran` has the calls and seconds of each executor, where they were measured; `before` are the offers before differentiation,
    `trials` those of the programs.
    """
    rows: list[Row] = []
    shown: list[Program] = []
    parts: dict[str, tuple[Executor, list[DispatchRecord]]] = {}
    left_out: dict[str, None] = {}
    for dispatched, running in programs:
        record = dispatched.dispatch_record
        at = _Rows(dispatched, len(rows))
        rows += at.rows
        shown.append(Program(dispatched.name, tuple(_lines(running, at))))
        left_out |= dict.fromkeys(record.left_out)
        for ex in record.executors:
            parts.setdefault(ex.name, (ex, []))[1].append(record)
    whole = {(row.operation, row.results) for row in rows}  # what stayed whole has a row that says it all
    message = dict.fromkeys(spoken(offer) for offer in before if (str(offer.line.symbol), tuple(p.name for p in offer.line.writes)) not in whole)
    tried = tuple(_tried(each.trace.name, line) for each in trials for line in each.tried)
    return Explanation(function, tuple(rows), tuple(_parts(parts, rows, ran)), tuple(shown), tuple(left_out), tuple(message), tried)


def _tried(program: str, line: TriedLine) -> TrialRow:
    """The row about one line; a region is named so."""
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
    """The rows of one dispatch, and which of them each line that runs came from."""

    def __init__(self, trace: Trace, first: int):
        self.of_line: dict[int, list[int]] = {}
        self.of_result: dict[str, list[int]] = {}
        regions = {id(inner): line.symbol.name for line in trace.lines if line.symbol.id not in SYMBOLS for inner in line.body}
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
        candidates = [Candidate(offer.executor, "runs" if offer.claimed else "refused", said_of(offer)) for offer in decision.offers]
        candidates += [Candidate(ex.name, "not-asked", f"{claimer} took it first") for ex in decision.order[len(decision.offers) :]]
        known = {each.executor for each in candidates}
        others = [ex.name for ex in trace.dispatch_record.executors if ex.name not in known]
        candidates += [Candidate(name, "not-asked", "configuration leaves it out here") for name in others]
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
        """The rows that `line` came from; of one that a later pass rewrote, those that made its results."""
        if line.symbol.id not in SYMBOLS and line.body:
            return tuple(i for inner in line.body for i in self.behind(inner))
        found = self.of_line.get(id(line))
        return tuple(found or [i for p in line.writes for i in self.of_result.get(p.name, ())[-1:]])


def _lines(trace: Trace, rows: _Rows) -> Iterator[Line]:
    """The program's text, line by line."""
    text = trace.python(depth=0).splitlines()
    first = next(i for i, row in enumerate(text) if row.startswith("def ")) + 1
    while first < len(text) and text[first].startswith("    # "):
        first += 1
    yield from (Line(row, None) for row in text[:first])
    for row, line in zip(text[first:], trace.lines):
        executor = line.implementation.executor if line.implementation is not None else None
        yield Line(row, executor, rows.behind(line) if executor else ())
    yield from (Line(row, None) for row in text[first + len(trace.lines) :])


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
        message = [[*map(pack, (c.executor, c.status, c.message))] for c in row.candidates]
        rows.append([*map(pack, fields), row.depth, int(row.needed), message])
    programs = [[each.name, [[line.text, line.executor, line.rows] for line in each.lines]] for each in explained.programs]
    return {
        "function": explained.function,
        "words": list(words),
        "rows": rows,
        "programs": programs,
        "executors": [asdict(each) | {"line": one_part(each)} for each in explained.executors],
        "left_out": (*explained.left_out, *explained.differentiated),
    }


def said_of(offer: Offer) -> str:
    """The sentence of an offer: a refusal as it stands, `runs it`, or with a Claim `runs it: 0.8 ms, and 1.3 ms without`."""
    if isinstance(offer.verdict, Claim) and offer.verdict.why:
        return f"{RUNS}: {offer.verdict.why}"
    return RUNS if offer.claimed else str(offer.verdict)


def refusals(trace: Trace) -> str:
    """A line for each offer that dispatch made: `t5 = torch.softmax: llvm refuses: expected rows of at most 1024, got 4096`."""
    return "\n".join(map(spoken, trace.dispatch_record.offers))


def spoken(offer: Offer) -> str:
    """`t5 = torch.softmax: llvm refuses: expected rows of at most 1024, got 4096`."""
    message = said_of(offer) if offer.claimed else f"refuses: {offer.verdict}"
    return f"{', '.join(p.name for p in offer.line.writes) or '-'} = {offer.line.symbol}: {offer.executor} {message}"
