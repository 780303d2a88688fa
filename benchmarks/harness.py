"""How every benchmark here measures and reports: subjects take turns, ratios are taken within a round, results carry date and machine."""

from __future__ import annotations

import datetime
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console(highlight=False)
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Timing:
    """Seconds a call took, over the rounds, and the median of the ratios to the first subject in the same round."""

    name: str
    median: float
    minimum: float
    ratio: float


def seconds(fn: Callable[[], object], times: int = 1) -> float:
    """Seconds that one call takes, over `times` calls."""
    again = range(times)
    began = time.perf_counter()
    for _ in again:
        fn()
    return (time.perf_counter() - began) / times


def interleaved(subjects: dict[str, Callable[[], object]], *, rounds: int = 30, a_round: float = 0.02, what: str = "timing") -> list[Timing]:
    """Time `subjects`, the baseline first, taking turns; each turn lasts about `a_round` seconds."""
    times = {name: calls_in(fn, a_round) for name, fn in subjects.items()}
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    names = list(subjects)
    gc.collect()
    for i in progress(range(rounds), what):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            taken[name].append(seconds(subjects[name], times[name]))
    baseline = taken[names[0]]
    return [
        Timing(name, statistics.median(took), min(took), statistics.median(a / b for a, b in zip(took, baseline, strict=True)))
        for name, took in taken.items()
    ]


def calls_in(fn: Callable[[], object], wanted: float) -> int:
    """How many calls of `fn` last about `wanted` seconds."""
    fn()
    n = 1
    while (took := seconds(fn, n)) * n < wanted / 4:
        n *= 4
    return max(1, round(wanted / took))


def progress(steps: Iterable[Any], what: str) -> Iterable[Any]:
    """`steps`, with a bar on a terminal."""
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield from bar.track(steps)


def machine() -> dict[str, Any]:
    """What the figures depend on; nothing that tells whose machine it is."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@dataclass
class Report:
    """A table with a title and a sentence on how it was measured, shown on the terminal and kept under results/."""

    name: str
    title: str
    how: str
    headings: Sequence[str]
    rows: list[Sequence[str]]
    figures: dict[str, Any]  # the same numbers, unrounded, in seconds

    def write(self) -> None:
        about = {"date": datetime.date.today().isoformat(), **machine()}
        self.show(about)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(
            json.dumps({"benchmark": self.title, "how": self.how, **about, "figures": self.figures}, indent=2) + "\n"
        )
        (RESULTS / f"{self.name}.md").write_text(self.markdown(about))

    def show(self, about: dict[str, Any]) -> None:
        table = Table()
        for i, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if i else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        console.print(f"\n[bold]{self.title}[/bold]", table, f"[dim]{self.how}\n{written(about)}[/dim]", sep="\n")

    def markdown(self, about: dict[str, Any]) -> str:
        lines = [f"# {self.title}", "", self.how, "", written(about), ""]
        lines += [f"| {' | '.join(self.headings)} |", "|---|" + "---:|" * (len(self.headings) - 1)]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, ""])


def written(about: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in about.items())


def span(seconds: float) -> str:
    """A duration with three digits: 1.42 us, 35.0 ms, 11.5 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
