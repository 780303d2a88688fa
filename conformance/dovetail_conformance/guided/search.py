"""The search: seeds, constants one at a time, then what is nearest to a branch that went one way only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from time import process_time
from typing import Any

from dovetail_conformance.axes.covering import Row
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Outcome
from dovetail_conformance.guided.corpus import BASES, Candidate, Entry, Mutations, key_of
from dovetail_conformance.guided.probes import Direct, Probe, judge
from dovetail_conformance.guided.recorder import Recorder

IDLE = 60  # candidates without a new branch after which a search ends where no branch is left
SIZE = 4096  # of a dimension that is as large as an argument
LARGER = 4  # of the calls from which constants are tried, those of which there is one with larger sizes
SYSTEMATIC = 0.6  # of the budget, for constants one at a time
EACH = 15  # more for each path
SHARE = 40  # of the candidates without a new branch, one in so many is judged
REFUSED = 0.25  # the cost of a candidate that eager refuses
ELEMENTS = 200_000  # that cost as much as a candidate
WIDEST = 3  # entries that a comparison is solved from
NEARER = (Row(grad="first"), Row(grad="last"), Row(size="odd"))
NEAR = (
    *(Row(size=size) for size in ("odd", "rows", "block", "equal", "one")),
    *(Row(layout=layout) for layout in ("column-major", "gapped", "offset", "repeated")),
    *(Row(values=values) for values in ("kinks", "moderate", "wide", "extreme")),
    *(Row(same="yes"), Row(size="odd", values="shifted"), Row(broadcast="inner")),
)


@dataclass
class Budget:
    """How much a search may try: candidates, calls that are judged, and seconds of all processors, a limit that ought not to be reached."""

    candidates: float
    judged: int
    seconds: float


@dataclass
class Search:
    """A search for calls that take new branches; `failure` is the first that is wrong."""

    probe: Callable[[Candidate, Case], Probe | None]
    recorder: Recorder
    mutations: Mutations
    budget: Budget
    trains: bool  # whether what is judged is also called in training
    corpus: list[Entry] = field(default_factory=list)
    bases: list[Candidate] = field(default_factory=list)  # the calls from which constants were tried
    tried: int = 0
    failure: Outcome | None = None
    late: bool = False  # whether the limit of time ended it

    def __post_init__(self) -> None:
        self._edges: set[int] = set()
        self._paths: set[frozenset[int]] = set()
        self._sides: dict[Any, dict[int, tuple[float, float]]] = {}  # of the comparisons of each candidate that was tried
        self._spent, self._judged, self._idle = 0.0, 0, 0
        self._fresh: list[Candidate] = []  # calls that took new paths and have not been varied
        self._until = process_time() + self.budget.seconds
        self._values = isinstance(self.probe, Direct)

    def run(self, seeds: Iterable[Candidate]) -> Outcome | None:
        """Try the seeds, then calls made from them, until the budget is spent or nothing is left; return the first failure."""
        first: list[Candidate] = []
        for candidate in seeds:
            if self._over():
                return self.failure
            if self._try(candidate) is not None:
                first.append(candidate)
        if not first:
            return self.failure
        self._fresh.clear()  # variants of what is sampled are another check
        self.bases = self._bases(first)
        self.bases += [each for base in self.bases[:LARGER] for each in self.mutations.around(base, (Row(size="odd"),))]
        for candidate in self.mutations.systematic(self.bases):
            if self._over() or self._spent > SYSTEMATIC * self.budget.candidates:
                break
            self._try(candidate)
            self._neighbours()
        self._idle = 0
        for candidate in self._endless(first):
            if self._over() or (self._idle > IDLE + EACH * len(self.corpus) and not self.open):
                break
            self._try(candidate)
            self._neighbours()
        return self.failure

    @property
    def open(self) -> bool:
        """Whether a branch that this search reaches went one way only."""
        return any(site.one_way and {2 * site.index, 2 * site.index + 1} & self._edges for site in self.recorder.one_way)

    def _over(self) -> bool:
        self.late = self.late or process_time() > self._until
        return self.failure is not None or self.late or self._spent > self.budget.candidates

    def _bases(self, first: list[Candidate]) -> list[Candidate]:
        """Return the calls from which constants are tried: those that took new branches, and others of each number of dimensions."""
        ranks: dict[Any, Candidate] = {}
        styles: dict[Any, Candidate] = {}
        for candidate in first:
            ranks.setdefault((tuple(x.ndim for x in self.mutations.tensors(candidate)), candidate.of.dtype), candidate)
            styles.setdefault(self.mutations.style(candidate), candidate)
        paths = [entry.candidate for entry in self.corpus]
        chosen = [*islice(ranks.values(), BASES), *islice(styles.values(), BASES // 2), *paths[: BASES // 2]]
        return list({id(candidate): candidate for candidate in chosen}.values())

    def _try(self, candidate: Candidate) -> Probe | None:
        """Try one candidate, unless a like one was tried; keep it where it took a new branch."""
        key = key_of(candidate, values=True)
        if key in self._sides:
            self._spent += REFUSED / 4
            self._idle += 1
            return None
        self._sides[key] = {}
        case = candidate.of.accepted(candidate.sample, candidate.row)
        probe = self.probe(candidate, case) if case is not None else None
        if probe is None:
            self._spent += REFUSED
            self._idle += 1
            return None
        self.tried += 1
        self._sides[key] = probe.sides
        self._spent += 1 + sum(x.numel() for x in case.program.inputs) / ELEMENTS
        if probe.outcome is not None:
            self.failure = self._explained(probe)
            return probe
        new = probe.path not in self._paths
        self._idle = 0 if probe.path - self._edges else self._idle + 1
        if self._values and self._judged < self.budget.judged and (new or candidate.judged or self.tried % SHARE == 0):
            self._judged += 1
            probe.outcome = judge(self.probe.cell, candidate, case, trained=self.trains)
            if probe.outcome is not None:
                self.failure = self._explained(probe)
        self._edges |= probe.path
        if new:
            self._paths.add(probe.path)
            self.corpus.append(Entry(candidate, probe.path, probe.sides))
            self._fresh.append(candidate)
        return probe

    def _neighbours(self) -> None:
        """Try what is near each call that took a new path, along every axis that may matter."""
        while self._fresh:
            for candidate in self.mutations.around(self._fresh.pop(0), NEAR if self._values else NEARER):
                if self._over():
                    return
                self._try(candidate)

    def _explained(self, probe: Probe) -> Outcome:
        """Return the failure, with the conditions that no call before met."""
        new = sorted(probe.path - self._edges)
        sites = {site.index: site for site in self.recorder.sites}
        met = [site.met(bool(edge % 2)) for edge in new if (site := sites.get(edge // 2)) is not None]
        outcome = probe.outcome
        if met:
            outcome.message = f"{outcome.message}; it is the first call with {' and '.join(met[:3])}"
        return outcome

    def _endless(self, first: list[Candidate]) -> Iterator[Candidate]:
        """Yield calls near a branch that went one way only, and others at random."""
        draw = self.mutations.draw
        dead: set[tuple] = set()
        while True:
            sites = [site for site in self.recorder.one_way if {2 * site.index, 2 * site.index + 1} & self._edges]
            known = [entry.candidate for entry in self.corpus]
            if sites and draw.random() < 0.7:
                site = draw.choice(sites)
                near = [entry for entry in self.corpus if {2 * site.index, 2 * site.index + 1} & entry.path]
                measured = sorted((e for e in near if site.index in e.sides), key=lambda e: abs(e.sides[site.index][0] - e.sides[site.index][1]))
                if measured and draw.random() < 0.6:
                    yield from self._solved(site.index, draw.choice(measured[:WIDEST]), dead)
                elif near:
                    yield from self.mutations.changed(draw.choice(near).candidate, first)
            base = draw.choice(known if known and draw.random() < 0.6 else first)
            once = list(self.mutations.changed(base, first))
            yield from once
            if once and draw.random() < 0.4:
                yield from self.mutations.changed(once[0], first)
            self._spent += REFUSED / 4

    def _solved(self, index: int, entry: Entry, dead: set[tuple]) -> Iterator[Candidate]:
        """Yield calls in which a knob is turned so far that both sides of a comparison should be equal."""
        knobs = [k for k in self.mutations.knobs(entry.candidate.sample) if (index, k) not in dead]
        if not knobs:
            return
        knob = self.mutations.draw.choice(knobs)
        now = knob.read(entry.candidate.sample)
        if now is None:
            return
        step = 1
        for moved in self.mutations.turned(entry.candidate, knob, now + step):
            yield moved
            after = self._sides.get(key_of(moved, values=True), {}).get(index)
            if after is None:
                continue
            numbers = self.mutations.toward(knob, entry.sides[index], now, after, step)
            if not numbers:
                dead.add((index, knob))
            for number in numbers:
                yield from self.mutations.turned(entry.candidate, knob, number)
                for size in [k for k in knobs if k.kind == "size" and knob.kind in ("argument", "named") and 0 < number <= SIZE]:
                    yield from self.mutations.paired(entry.candidate, size, knob, number)
