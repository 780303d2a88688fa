"""How long each operation runs, measured on request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import torch

from dovetail.trace import BoundSymbol, TensorProxy, Trace


@dataclass
class Run:
    """The calls of one operation by one executor, and the seconds they took together."""

    executor: str
    operation: str
    calls: int = 0
    seconds: float = 0.0


@dataclass
class Profile:
    """What ran inside `with dovetail.profile(fn)`: `rows`, the longest first; `executors`, name -> (calls, seconds)."""

    table: dict[tuple[str, str], Run] = field(default_factory=dict, repr=False)
    lock: Any = field(default_factory=Lock, repr=False)

    @property
    def rows(self) -> list[Run]:
        """One row for each operation of each executor, the longest first."""
        return sorted(self.table.values(), key=lambda row: -row.seconds)

    @property
    def executors(self) -> dict[str, tuple[int, float]]:
        """The calls and the seconds of each executor."""
        totals: dict[str, tuple[int, float]] = {}
        for row in self.rows:
            calls, seconds = totals.get(row.executor, (0, 0.0))
            totals[row.executor] = calls + row.calls, seconds + row.seconds
        return totals

    def __str__(self) -> str:
        rows = [f"{name}: {calls} calls in {seconds * 1e3:.2f} ms" for name, (calls, seconds) in self.executors.items()]
        rows += [f"  {row.seconds * 1e3:10.3f} ms  {row.calls:6d} calls  {row.executor}  {row.operation}" for row in self.rows]
        return "\n".join(rows) or "nothing ran"

    def timing(self, trace: Trace) -> Trace:
        """Time every implementation of a trace: the pass of `profile`."""
        new = trace.derive("profile")
        new.lines = [line if line.implementation is None else self._timed(line, i) for i, line in enumerate(trace.lines)]
        return new

    def _timed(self, line: BoundSymbol, position: int) -> BoundSymbol:
        implementation = line.implementation
        row = self.table.setdefault((implementation.executor, str(line.symbol)), Run(implementation.executor, str(line.symbol)))
        wait = wait_for(line)

        def run(*args: Any, **kwargs: Any) -> Any:
            wait()
            began = time.perf_counter()
            result = implementation.fn(*args, **kwargs)
            wait()
            took = time.perf_counter() - began
            with self.lock:
                row.calls, row.seconds = row.calls + 1, row.seconds + took
            return result

        return line.replace(implementation=replace(implementation, name=f"{implementation.name}_{position}", fn=run, path=None))


def wait_for(line: BoundSymbol) -> Callable[[], Any]:
    """Return a function that waits until the device of `line` has finished."""
    on = {p.spec.device.type for p in (*line.reads, *line.writes) if isinstance(p, TensorProxy)}
    return torch.cuda.synchronize if "cuda" in on else _nothing


def _nothing() -> None:
    """The host processor has finished when the call returns."""
