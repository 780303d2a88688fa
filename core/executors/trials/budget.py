"""What trials may cost: which calls are trials, the state of each line that is tried, and the lines whose turn it is in one trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from dovetail import options
from dovetail.executors.contract.executor import Executor
from dovetail.executors.trials.reference import parts
from dovetail.executors.trials.rows import RowWise, Sample, row_wise
from dovetail.prims import Tag
from dovetail.prims.sizes import hint_of
from dovetail.trace import BoundSymbol, Proxy, TensorProxy
from dovetail.trace.passes.split import bytes_of

FIRST = (1, 2, 3, 5, 8, 13, 21, 34, 64)  # the calls of a program that are trials
RARER = 8  # how many times as far apart they are after these
NEVER = 1 << 62
SMALL = 1 << 23  # bytes of results up to which a line is tried whatever the clock says: on a busy machine it says little of little work
FREE = 16  # lines of that kind in one trial
SAMPLED = 1 << 22  # bytes of results that a sample of a line's rows may have
FLOPS = 10  # products that take as long as writing a byte
RATE = 2e9  # bytes that the reference is expected to write in a second
UNTRIED = "not tried yet"
OVER = "not tried: over budget"
MEMORY = "not tried: the reference would need too much memory"


@dataclass
class Account:
    """What the trials of one compiled program may cost: `seconds` its compilation took, and `share` of them each trial may take."""

    seconds: float = 0.0
    share: float = field(default_factory=options.TRIAL_BUDGET.read)
    programs: int = 1  # forward and backward share a trial's time
    retire: Callable[[str], None] | None = None  # called with the reason when lines disagreed
    gradients: Callable[..., str | None] | None = None  # how an executor differentiates a line otherwise than the reference

    def budget(self) -> float:
        """Return the seconds that a trial of one program may take."""
        return self.seconds * self.share / self.programs


@dataclass
class TriedLine:
    """What trials showed of one line, or of the lines that stand for one operation.

    Attributes:
        operation: the line as it was dispatched.
        outcome: the sentence that `dovetail.explain` shows.
        seconds: what the next trial of the whole line is expected to take; `sample_seconds` that of a sample of its rows.
        excluded: whether the reference runs it from now on.
        gradient: whether its gradient is tried.
        complete: whether all of it was compared once, not only a sample of its rows.
    """

    operation: BoundSymbol
    executor: Executor
    where: str | None
    always: bool
    outcome: str = UNTRIED
    tries: int = 0
    ulps: float = 0.0
    seconds: float = 0.0
    sample_seconds: float = 0.0
    excluded: bool = False
    gradient: bool = False
    complete: bool = False
    reference: Callable[..., list[Any]] | None = None
    sample_reference: Callable[..., list[Any]] | None = None
    work: int = 0  # bytes that the reference writes, with the time of products as bytes
    _rows: RowWise | bool | None = False  # False until it is known
    _sample: Sample | None = None

    def __post_init__(self) -> None:
        self.work = work(self.operation)

    @property
    def results(self) -> tuple[str, ...]:
        """The names of what it computes."""
        return tuple(p.name for p in self.operation.writes)

    @property
    def rows(self) -> RowWise | None:
        """The line by rows; None where it is not row-wise."""
        if self._rows is False:
            self._rows = None if self.gradient else row_wise(self.operation)
        return self._rows

    @property
    def sample(self) -> Sample | None:
        """The line for few rows."""
        if self._sample is None and self.rows is not None:
            self._sample = self.rows.sample(SAMPLED, work)
        return self._sample


@dataclass
class Round:
    """One trial: the lines whose turn it is, and the time that is left.

    Attributes:
        chosen: the lines that the time is meant for.
        free: the lines that are tried whatever the time, if they are small.
        left: the seconds that are left.
        first: the seconds that the first line may take, if they are more.
    """

    chosen: set[int]
    free: set[int]
    left: float
    first: float
    used: bool = False

    def affords(self, tried: TriedLine, seconds: float = 0.0) -> bool:
        """Return whether it is the turn of a line that is expected to take so long, and there is time."""
        if tried.always or self.is_free(tried, tried.work):
            return True
        left = self.left if self.used else max(self.left, self.first)
        return id(tried) in self.chosen and max(tried.seconds, seconds) <= left

    def affords_sample(self, tried: TriedLine, sample: Sample) -> bool:
        """Return whether there is time for a sample of the rows of a line."""
        size = work(sample.line)
        return self.is_free(tried, size) or max(tried.sample_seconds, size / RATE) <= self.left

    def is_free(self, tried: TriedLine, size: int) -> bool:
        """Return whether a trial of `size` bytes of results costs a line nothing in this round."""
        return size <= SMALL and id(tried) in self.free

    def spend(self, seconds: float) -> None:
        """Subtract what the trial of a line took."""
        self.left, self.used = self.left - seconds, True


def next_round(tried: Iterable[TriedLine], account: Account) -> Round:
    """Choose the lines that were tried least, as many as there is time for; one at least, where compilation took as long."""
    left, chosen, free = account.budget(), set[int](), set[int]()
    for each in sorted(tried, key=lambda each: each.tries):
        if each.seconds <= left or (not chosen and each.seconds <= account.seconds):
            chosen.add(id(each))
            left -= each.seconds
        if len(free) < FREE and (each.work <= SMALL or each.rows is not None):
            free.add(id(each))
    return Round(chosen, free, account.budget(), account.seconds)


def following(count: int) -> int:
    """Return the call that is the next trial after call `count`."""
    first = next((n for n in FIRST if n > count), None)
    if first is not None:
        return first
    n = FIRST[-1]
    while n <= count:
        n *= RARER
    return n


def work(line: BoundSymbol) -> int:
    """Estimate the bytes that the operations of a line write, and the time of its products as bytes."""
    return sum(map(_work, parts(line)))


def _work(line: BoundSymbol) -> int:
    if line.body:
        return sum(map(_work, line.body))
    written = sum(map(bytes_of, line.writes))
    if Tag.MATMUL not in line.symbol.tags:
        return written
    sizes = [hint_of(p.spec.numel) for p in (*line.reads, *line.writes) if isinstance(p, TensorProxy)]
    return written + int(math.prod(sizes[:3]) ** 0.5) // FLOPS  # of (n, k), (k, m) and (n, m) that is n k m


def size_of(values: dict[Proxy, Any]) -> int:
    """Count the memory of the tensors among `values`."""
    return sum(x.numel() * x.element_size() for x in values.values() if isinstance(x, torch.Tensor))
