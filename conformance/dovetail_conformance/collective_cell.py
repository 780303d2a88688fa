"""One collective with one dtype, for one executor: its samples run on processes of this machine, which are the ranks of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from dovetail.devices import device as named
from dovetail.dtypes import DType
from dovetail_conformance import one_rank
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Cell, Outcome
from dovetail_conformance.claims import first_refusal
from dovetail_conformance.collectives import CollectiveInfo, CollectiveSample
from dovetail_conformance.levels import Level
from dovetail_conformance.one_rank import Seen, Stopped, has_gradient
from dovetail_conformance.ranks import Answer, end_shared_ranks, shared_ranks
from dovetail_conformance.subject import Subject

SECONDS = 600.0  # that a sample may take: long enough for the processes to start, and a collective that hangs fails within a minute
ELSEWHERE = "the executor exists in this process alone, and collectives run in others; pass its name, or file.py:name, to run them"


@dataclass
class Failure:
    """A sample that raised an error, died or hung on a rank; the other ranks stop comparing."""

    sample: CollectiveSample
    check: str
    state: str
    message: str


@dataclass
class Measured:
    """The results of all ranks for the samples, up to the first failure."""

    seen: list[tuple[CollectiveSample, list[Seen]]] = field(default_factory=list)
    failure: Failure | None = None


class CollectiveCell(Cell):
    """Like `Cell`; the checks of claims take its samples as rank 0 runs them."""

    info: CollectiveInfo

    def __init__(self, subject: Subject, info: CollectiveInfo, dtype: DType, level: Level, checks: tuple[str, ...] | None, seed: int):
        super().__init__(subject, info, dtype, named("cpu"), level, seed=seed)
        self.wanted = tuple([name for name in one_rank.CHECKS if checks is None or name in checks or name == "reference"])

    @cached_property
    def samples(self) -> list[CollectiveSample]:
        every = list(self.info.samples(self.dtype, self.level.ranks))
        return every[: self.level.samples]

    @cached_property
    def cases(self) -> list[Case]:
        """The samples, as rank 0 runs them."""
        return [one_rank.case_of(self.subject, self.info, sample, self.dtype, 0, self.seed) for sample in self.samples]

    @cached_property
    def measured(self) -> Measured:
        """Run the samples on the ranks, up to the first that raises an error, dies or hangs."""
        measured = Measured()
        for i, sample in enumerate(self.samples):
            arguments = (self.subject.source, self.info.symbol.id, self.dtype, i, self.wanted, self.seed)
            answers = shared_ranks(self.level.ranks).answers(one_rank.run_sample, *arguments, seconds=SECONDS)
            seen = [_seen(answer) for answer in answers.values()]
            measured.seen.append((sample, seen))
            self.subject.ran.update(*[each.ran for each in seen])
            if any([answer.state != "result" for answer in answers.values()]):
                measured.failure = _failure(sample, answers)
                end_shared_ranks()
                break
        return measured

    @property
    def claimed(self) -> list[CollectiveSample]:
        """The samples with a line that the executor ran on some rank, and the one that failed."""
        failed = self.measured.failure.sample if self.measured.failure is not None else None
        return [sample for sample, seen in self.measured.seen if sample is failed or any([each.lines[0] for each in seen])]

    def claims(self) -> Outcome:
        """Check that what is declared is taken and nothing else."""
        coverage, samples = self.subject.coverage(self.info.symbol.id, self.dtype, "cpu"), len(self.samples)
        if not self.claimed:
            refusal = first_refusal(self)
            if coverage == "yes":
                return Outcome("fail", f"it declares {self.dtype.name} and takes none of {samples} samples: {refusal}", 0, samples)
            return Outcome("unsupported" if refusal else "not-claimed", refusal or "no line of the programs that ran was its own", 0, samples)
        taken = next((sample for sample, seen in self.measured.seen if any([each.taken for each in seen])), None)
        if coverage == "no" and taken is not None:
            return Outcome("fail", f"it took {taken}, and declares neither this operation with this dtype nor this device", 1, samples)
        return self.right()

    def right(self) -> Outcome:
        """Pass: whole where the executor ran every line, else in part."""
        lines = [each.lines for _, seen in self.measured.seen for each in seen]
        own, every = sum([line[0] for line in lines]), sum([line[1] for line in lines])
        return Outcome("pass" if own == every else "partly", "", len(self.claimed), len(self.samples), (own, every))

    def checks(self) -> Iterator[tuple[str, Callable[[], Outcome | None]]]:
        """Yield the checks of what the ranks computed."""
        differentiable = any([has_gradient(self.info, sample, self.dtype) for sample in self.samples])
        for name in one_rank.CHECKS:
            if name in self.wanted and (name != "backward" or differentiable):
                yield name, lambda name=name: self.outcome(name)

    def outcome(self, check: str) -> Outcome | None:
        """Return the outcome of a check: the first problem on any rank; None where no sample got as far as this check."""
        failure, ran, samples = self.measured.failure, len(self.claimed), len(self.samples)
        for sample, seen in self.measured.seen:
            for rank, each in enumerate(seen):
                if (problem := each.problems.get(check)) is not None:
                    return Outcome("fail", f"{sample}: on rank {rank} of {len(seen)}, {problem}", ran, samples)
        if failure is not None and failure.check == check:
            return Outcome(failure.state, failure.message, ran, samples)
        return self.right() if any([check in each.problems for _, seen in self.measured.seen for each in seen]) else None


def _seen(answer: Answer) -> Seen:
    """Return the results of a rank, up to its error where it raised one."""
    if answer.state == "result":
        return answer.value
    return answer.error.seen if isinstance(answer.error, Stopped) else Seen()


def _failure(sample: CollectiveSample, answers: dict[int, Answer]) -> Failure:
    """Describe the rank that failed: one that ended or raised an error, before one that waited for it in vain."""
    order = {"ended": 0, "error": 1, "late": 2}
    rank, answer = min([(rank, answer) for rank, answer in answers.items() if answer.state in order], key=lambda each: order[each[1].state])
    where = f"{sample}: on rank {rank} of {len(answers)}, "
    if isinstance(answer.error, Stopped):
        return Failure(sample, answer.error.check, "error", where + answer.error.problem)
    state = {"error": "error", "ended": "crash", "late": "timeout"}[answer.state]
    return Failure(sample, "reference", state, where + str(answer.value))
