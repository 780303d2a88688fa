"""The plan of a run: its tasks, each done by one process."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from packaging.version import Version

import dovetail_conformance.prims
import dovetail_conformance.torch  # noqa: F401
from dovetail import dtypes as all_dtypes
from dovetail.dtypes import DType
from dovetail_conformance import environment
from dovetail_conformance.checks import CHECKS, Check
from dovetail_conformance.collectives import COLLECTIVES, CollectiveInfo
from dovetail_conformance.levels import LEVELS, Level
from dovetail_conformance.opinfo import OPINFOS, OpInfo
from dovetail_conformance.programs import PROGRAMS
from dovetail_conformance.subject import Subject
from dovetail_conformance.twins import twins

CLAIM_CHECKS = ("claims", "refusals", "checkers")
FIRST = "0.1"  # cases of this version are never reported as new
WHOLE = ("declaration", "random")  # checks of the executor as a whole
PROCESSES = "processes"  # that of new processes, of an executor of few operations
OVERRUNS = "overruns"  # that of writes behind allocated memory, of such an executor


@dataclass(frozen=True)
class Task:
    """One operation with one dtype on one kind of device; or a check of the whole executor, or a program, where `dtype` is None."""

    operation: str
    dtype: DType | None = None
    device: str = "cpu"

    def __str__(self) -> str:
        return "-".join(part for part in (self.operation, self.dtype.name.removesuffix("_") if self.dtype else "", self.device) if part)


@cache
def opinfos() -> dict[str, OpInfo]:
    """Return the OpInfo of every operation by its id, those in place among them."""
    return {info.symbol.id: info for info in (*OPINFOS, *twins())}


@cache
def collectives() -> dict[str, CollectiveInfo]:
    """Return the CollectiveInfo of every collective by its id."""
    return {info.symbol.id: info for info in COLLECTIVES}


def described() -> dict[str, OpInfo | CollectiveInfo]:
    """Return the OpInfo or CollectiveInfo of every operation by its id."""
    return {**opinfos(), **collectives()}


def tasks(subject: Subject, level: Level, wanted: Wanted) -> list[Task]:
    """Return the tasks of an executor in order: whole-executor checks, programs, operations."""
    kinds = [kind for kind in subject.devices() if wanted.device(kind)]
    all_tasks = [Task(name) for name in WHOLE if wanted.operation(name)]
    all_tasks += [Task(program.name) for program in PROGRAMS if wanted.operation(program.name)]
    for id, info in described().items():
        if wanted.operation(id):
            chosen = [d for d in info.dtypes if wanted.dtype(d)] if wanted.dtypes is not None else _dtypes(subject, level, id, info)
            all_tasks += [Task(id, dtype, kind) for kind in kinds if kind == "cpu" or id not in collectives() for dtype in chosen]
    if level.calls and subject.few and subject.source is not None and any(_is_own(task, subject) for task in all_tasks):
        all_tasks += [Task(PROCESSES), Task(OVERRUNS)]
    return all_tasks


def _dtypes(subject: Subject, level: Level, id: str, info: OpInfo | CollectiveInfo) -> list[DType]:
    """Return the dtypes that a level runs an operation with, and declared ones of which it has none of the kind, such as int8 alone."""
    chosen = list(level.dtypes_run(id, info.dtypes))
    declared = [d for d in info.dtypes if subject.coverage(id, d, "cpu") == "yes"]
    kinds = {d.kind for d in level.dtypes if d in declared}
    return chosen + [d for d in declared if d.kind not in kinds and d not in chosen and not d.storage_only]


def _is_own(task: Task, subject: Subject) -> bool:
    """Return whether the executor declares the operation, and the task runs on the CPU."""
    return task.dtype is not None and task.device == "cpu" and subject.names(task.operation)


@dataclass(frozen=True)
class Wanted:
    """The restrictions of a run: patterns of operations, names of checks, dtypes, devices; None for all."""

    operations: tuple[str, ...] | None = None
    checks: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is left out, but for devices."""
        return self.operations is self.checks is self.dtypes is None

    def operation(self, id: str) -> bool:
        """Return whether a pattern matches the operation: "softmax" any with it in its name, "prims" all of a module, "torch.*max" what matches."""
        last = id.rpartition(".")[2]
        return self.operations is None or any(
            [p in last or id.startswith(f"{p}.") or fnmatch.fnmatchcase(id, p) or fnmatch.fnmatchcase(last, p) for p in self.operations]
        )

    def parts(self, level: Level) -> bool:
        """Return whether operations that an executor does not name are examined: those that are requested always are."""
        return level.parts or self.operations is not None

    def check(self, name: str) -> bool:
        return self.checks is None or name in self.checks

    def dtype(self, dtype: DType) -> bool:
        return self.dtypes is None or {dtype.name, dtype.name.removesuffix("_"), dtype.short} & set(self.dtypes) != set()

    def device(self, kind: str) -> bool:
        return self.devices is None or kind in self.devices

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each name and pattern that matches nothing."""
        known = {"declaration", "random", PROCESSES, OVERRUNS, "programs", "composition", *CLAIM_CHECKS, *(check.name for check in CHECKS)}
        for name in self.checks or ():
            if name not in known:
                yield f"unknown check {name}; the checks are {', '.join(sorted(known))}"
        names = {word for d in all_dtypes.ALL for word in (d.name, d.name.removesuffix("_"), d.short)}
        for name in self.dtypes or ():
            if name not in names:
                yield f"unknown dtype {name}; write it as torch does: float32"
        for kind in self.devices or ():
            try:
                torch.device(kind)
            except (RuntimeError, TypeError):
                yield f"unknown kind of device {kind!r}; write it as torch does: cpu, cuda"
        ids = [*described(), *WHOLE, *(program.name for program in PROGRAMS)]
        for pattern in self.operations or ():
            if not any(Wanted(operations=(pattern,)).operation(id) for id in ids):
                yield f"no operation matches {pattern}"


def is_new(operation: str, check: str) -> bool:
    """Return whether a case came with this minor version of the suite: until the next one it is reported, and fails no run."""
    since = [each.since for each in (opinfos().get(operation), *CHECKS) if each is not None and (not isinstance(each, Check) or each.name == check)]
    return any(version != FIRST and _minor(version) == _minor(environment.suite_version()) for version in since)


@cache
def _minor(version: str) -> tuple[int, ...]:
    return Version(version).release[:2]


def mustpass(level: str = "core") -> set[tuple[str, str, str]]:
    """List every (operation, dtype, device) that a complete report has rows for; except in-place operations, which need not take all dtypes."""
    at = LEVELS[level]
    in_place = {info.symbol.id for info in twins()}
    cells = {(id, dtype.name, "cpu") for id, info in described().items() if id not in in_place for dtype in at.dtypes_run(id, info.dtypes)}
    return cells | {(program.name, "", "cpu") for program in PROGRAMS} | {(name, "", "cpu") for name in WHOLE}


def as_words(task: Task) -> dict[str, str]:
    """Convert a task to data."""
    return {"operation": task.operation, "dtype": task.dtype.name if task.dtype else "", "device": task.device}


def task_of(words: dict[str, str]) -> Task:
    """Convert data of `as_words` back to the task."""
    dtype = next((d for d in all_dtypes.ALL if d.name == words["dtype"]), None)
    return Task(words["operation"], dtype, words["device"])
