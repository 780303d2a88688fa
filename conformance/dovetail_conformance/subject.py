"""The executor under test, and its declaration."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from dovetail import use
from dovetail.dtypes import DType
from dovetail.errors import ExecutorError
from dovetail.extend import BoundSymbol, FusionExecutor, Trace
from dovetail.extend.advanced import Executor, executors, get_executor, plugins
from dovetail_conformance.expectations import expectations_of, options_in
from dovetail_conformance.limits import Limits, limits_in
from dovetail_conformance.state import LIBRARIES, watched

FEW = 40  # operations


class UnknownExecutor(ValueError):
    """There is no executor of that name."""


def is_referee(ex: Executor) -> bool:
    """Return whether an executor is right by definition: one of last resort that runs single operations."""
    return ex.last_resort and not isinstance(ex, FusionExecutor)


def executor_of(wanted: Executor | str) -> Executor:
    """Return an executor itself, or by its name, or as "module:attribute" or "file.py:attribute"; a function there is called."""
    if isinstance(wanted, Executor):
        return wanted
    module, colon, attribute = wanted.rpartition(":")
    if not colon:
        return _installed(wanted)
    value = getattr(_module(module), attribute, None)
    try:
        executor = value() if callable(value) and not isinstance(value, Executor) else value
    except Exception as error:
        why = f"{wanted}() raised {type(error).__name__}: {error}; name an executor, or a function without arguments that makes one"
        raise UnknownExecutor(why) from error
    if not isinstance(executor, Executor):
        raise UnknownExecutor(f"{wanted} is {type(executor).__name__}, not an executor; name an executor, or a function that makes one")
    return executor


def _installed(name: str) -> Executor:
    """Return the executor of this name; of one that is not available here, the declaration and the checkers are tested all the same."""
    try:
        return get_executor(name)
    except ExecutorError:
        row = next((row for row in plugins() if row.status == "unavailable" and name in row.executors), None)
        if row is None:
            raise
    module, _, attribute = row.value.partition(":")
    plugin = importlib.import_module(module)
    hook = (getattr(plugin, attribute) if attribute else plugin).dovetail_executors
    return next(ex for ex in hook() if ex.name == name)


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UnknownExecutor(f"{path} is no file of Python; write it as file.py:attribute")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Subject:
    """An executor under test, and the executors of last resort that take what it leaves."""

    executor: Executor
    others: tuple[Executor, ...] = field(default=())
    options: dict[str, Any] = field(default_factory=dict)  # under which it is tested
    limits: Limits = field(default_factory=Limits)
    changed: list[str] = field(default_factory=list)  # settings of the process that importing it changed
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))  # before anything of it ran
    watched: set[str] = field(default_factory=set)  # the operations whose first call in this process was watched
    effects: dict[str, list[str]] = field(default_factory=dict)  # settings of the process that a call of an operation changed
    ran: set[str] = field(default_factory=set)  # the ids of the operations that executed traces showed it to run
    programs: Any = None  # those that runs with several seeds share, a `SharedPrograms`
    source: tuple[str, str | None] | None = None  # what `of` takes in another process; None where the executor exists in this one alone

    @classmethod
    def of(cls, wanted: Executor | str, expectations: str | Path | None = None) -> Subject:
        """Return the subject for an executor; one that is installed is tested under the options in its file of expectations."""
        changed: list[str] = []
        environment = dict(os.environ)
        with watched(changed, whole=True, but=LIBRARIES):
            ex = executor_of(wanted)
        file = expectations_of(ex, expectations)
        options = options_in(file) if wanted == ex.name else {}
        others = tuple(other for other in executors() if is_referee(other) and other.name != ex.name)
        name = wanted if isinstance(wanted, str) else ex.name if ex in executors() else None
        source = None if name is None else (name, None if expectations is None else str(expectations))
        return cls(ex, others, options, limits_in(file), changed, environment, source=source)

    def configured(self) -> AbstractContextManager[None]:
        """Give the executor the options under which it is tested while open, without trials, which would correct what it computes, and drafts."""
        return use(options={self.name: self.options} if self.options else None, trial="off", drafts=False)

    @property
    def name(self) -> str:
        return self.executor.name

    @cached_property
    def declared(self) -> dict[str, Any]:
        """Its declaration, which dispatch reads as well."""
        return self.executor.declaration()

    @cached_property
    def available(self) -> bool | str:
        """True, or why it cannot run on this machine."""
        return self.executor.available()

    def coverage(self, operation: str, dtype: DType, device: str) -> str:
        """Return whether the declaration covers a case: "yes", "no", or "open" where it lists no operations, dtypes or devices."""
        rows = self.declared["operations"]
        row = rows.get(operation) if rows else None
        if row is None:
            return "no" if rows is not None and not self.declared.get("family") and self.declared["kind"] == "operator" else "open"
        for name, declared in ((dtype.name.removesuffix("_"), row["dtypes"]), (device, row["devices"])):
            if declared is not None and name not in declared:
                return "no"
        return "yes" if row["dtypes"] is not None else "open"

    def names(self, operation: str) -> bool:
        """Return whether its declaration lists the operation."""
        return operation in (self.declared["operations"] or ())

    @property
    def few(self) -> bool:
        """Return whether it declares so few operations that checks which take long are made of each."""
        return 0 < len(self.declared["operations"] or ()) <= FEW

    def devices(self) -> tuple[str, ...]:
        """Return the kinds of device that it is tested on: those that it declares, else all that the suite has tests for."""
        declared = self.declared["devices"]
        return KINDS if declared is None else tuple(kind for kind in KINDS if kind in declared)

    def lines(self, *traces: Trace) -> tuple[int, int]:
        """Count the lines of executed traces that the executor runs, of how many that any executor runs."""
        ran = [line for trace in traces for line in trace.lines if line.implementation is not None]
        own = [line for line in ran if line.implementation.executor == self.name]
        self.ran.update(inner.symbol.id for line in own for inner in every([line], whole=not is_fusion(self.executor)))
        return len(own), len(ran)


KINDS = ("cpu", "cuda")


def absent(subject: Subject, kind: str) -> str:
    """Return why nothing can run on this kind of device; empty where something can."""
    if subject.available is not True:
        return f"{subject.name} is not available here: {subject.available}"
    if kind == "cuda" and not torch.cuda.is_available():
        return "there is no CUDA device here"
    return ""


def every(lines: Iterable[BoundSymbol], whole: bool) -> list[BoundSymbol]:
    """List lines, and where not only `whole` ones count, the lines that they decompose to."""
    matches = []
    for line in lines:
        matches.append(line)
        if line.body and not whole:
            matches += every(line.body, whole)
    return matches


def is_fusion(ex: Executor) -> bool:
    return isinstance(ex, FusionExecutor)
