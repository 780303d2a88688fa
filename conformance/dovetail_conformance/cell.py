"""One operation with one dtype on one kind of device: its samples, and the outcomes of checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.extend import BoundSymbol
from dovetail_conformance.case import Case, cases, chosen
from dovetail_conformance.levels import Level
from dovetail_conformance.opinfo import OpInfo
from dovetail_conformance.sampling import covering, dealt
from dovetail_conformance.subject import Subject
from dovetail_conformance.twins import is_in_place

FEW = 2


@dataclass
class Outcome:
    """The outcome of a check: a state of `report.STATES`, and values for the fields of a Row."""

    state: str = "pass"
    message: str = ""
    ran: int = 0
    samples: int = 0
    lines: tuple[int, int] = (0, 0)
    replay: str = ""
    against: float | None = None
    one_way: tuple[str, ...] = ()


class Cell:
    """One operation with one dtype on one kind of device, for one executor.

    `there` is the device of the samples' tensors: `device`, or the CPU where that is missing and only checkers run.
    """

    def __init__(self, subject: Subject, info: OpInfo, dtype: DType, device: Device, level: Level, there: Device | None = None, seed: int = 0):
        self.subject, self.info, self.dtype, self.device, self.level = subject, info, dtype, device, level
        self.there, self.seed = there or device, seed
        self.first_call: Case | None = None  # a large sample that ran before all others
        self.verdicts: list[tuple[BoundSymbol, Any]] = []  # on lines that checkers were offered at first

    @cached_property
    def cases(self) -> list[Case]:
        """The samples; of an operation that the executor does not name, a few, unless it runs a part of those."""
        if self.subject.coverage(self.info.symbol.id, self.dtype, self.device.type) == "no":
            few = cases(self.subject, self.info, self.dtype, self.there, lambda all_cases: chosen(all_cases, FEW), False)
            if not any(case.claimed for case in few):
                return few
        extremes = self.dtype in self.level.extremes
        all_cases = cases(self.subject, self.info, self.dtype, self.there, self._choose, extremes)
        if self.level.dealt and not any(case.claimed for case in all_cases):  # others may be what the executor takes
            return cases(self.subject, self.info, self.dtype, self.there, lambda all: chosen(all, self.level.samples), extremes)
        return all_cases

    @cached_property
    def all_cases(self) -> list[Case]:
        """The samples that the OpInfo has, of which the level chooses some."""
        return cases(self.subject, self.info, self.dtype, self.there, lambda all_of: all_of, False)

    def _choose(self, candidates: list[Case]) -> list[Case]:
        """Choose the samples that the level runs with this dtype."""
        if not self.level.dealt:
            return chosen(candidates, self.level.samples)
        if not self.first:
            return dealt(candidates, self._dtypes.index(self.dtype) - 1, len(self._dtypes) - 1)
        return dealt(candidates, 0, 1) if is_in_place(self.info.symbol.id) else covering(candidates)

    @property
    def first(self) -> bool:
        """Whether the dtype is the first of those that the level runs the operation with and the executor does not exclude."""
        return self.dtype is self._dtypes[0] or self.dtype not in self.level.dtypes

    @cached_property
    def _dtypes(self) -> list[DType]:
        """The dtypes that the level runs the operation with; those that the executor's declaration excludes are the last."""
        accepted = self.level.dtypes_for(self.info.dtypes)
        return sorted(accepted, key=lambda dtype: self.subject.coverage(self.info.symbol.id, dtype, self.device.type) == "no")

    @cached_property
    def claimed(self) -> list[Case]:
        """The cases with lines of the executor under test in their executed trace."""
        return [case for case in self.cases if case.claimed]

    def each(self, judge: Callable[[Case], str | None], check: str, chosen: list[Case] | None = None, *, grad: bool = False) -> Outcome:
        """Judge every case by `judge`, which returns a sentence or None; report the first that fails."""
        judged_cases = self.claimed if chosen is None else chosen
        for case in judged_cases:
            try:
                problem = judge(case)
            except Broke as error:
                return Outcome("error", f"{case}: {error}", len(self.claimed), len(self.cases), replay=case.replay(check, grad=grad))
            if problem is not None:
                return Outcome("fail", f"{case}: {problem}", len(self.claimed), len(self.cases), replay=case.replay(check, grad=grad))
        return self.right()

    def right(self) -> Outcome:
        """Pass: whole where the executor ran every line, else in part."""
        own, every = (sum(each) for each in zip(*(case.ran.lines for case in self.claimed))) if self.claimed else (0, 0)
        return Outcome("pass" if own == every else "partly", "", len(self.claimed), len(self.cases), (own, every))


class Broke(Exception):
    """The executor under test raised an error where a result is expected."""


def whole(error: BaseException) -> str:
    """Format an error in one sentence, with its notes."""
    words = " ".join([str(error), *getattr(error, "__notes__", [])]).strip()
    return f"{type(error).__name__}: {words[:600]}" if words else type(error).__name__
