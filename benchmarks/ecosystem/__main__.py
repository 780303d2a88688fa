"""Try models and functions of other libraries, compiled and beside eager mode.

`make ecosystem` runs it in an environment of its own, with the libraries of requirements.txt; `make ecosystem ONLY=REGEX` tries a part.

Each case runs in a process of its own with one thread and an empty cache of kernels, so its first call is that of a new user.  The processes
are forks of one that has imported the libraries and compiled nothing.  First calls that were slow are timed again at the end, one at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import click
from rich.console import Console

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.append(str(Path(__file__).parents[1]))

from cases import FAMILIES, load, names
from machine import cpu_model
from page import SLOW
from pebble import ProcessExpired, ProcessFuture, ProcessPool
from trial import Outcome, attempt, first_call, in_folder

AT_ONCE = 5  # outcomes that are written together
TIMES_AGAIN = 2  # that a slow first call is timed
console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.argument("families", nargs=-1, type=click.Choice(FAMILIES))
@click.option("--only", default="", help="A regular expression that LIBRARY NAME MODE has to contain.")
@click.option("--workers", default=2, show_default=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="A JSON file that gets the outcomes; it keeps those of other cases.")
@click.option("--commit", default="", help="What is kept with the outcomes as the commit that was tried.")
def main(families: tuple[str, ...], only: str, workers: int, output: Path | None, commit: str) -> None:
    """Try the cases of these files, all by default, and print what did not go right."""
    listed = [(family, *each) for family in families or FAMILIES for each in names(family) if re.search(only, " ".join(each))]
    began, outcomes, written = time.monotonic(), [], 0
    for outcome in trials(listed, workers):
        outcomes.append(outcome)
        if output and (len(outcomes) - written == AT_ONCE or len(outcomes) == len(listed)):
            write(output, outcomes[written:], commit)
            written = len(outcomes)
    timed = [timed_again(family, outcome) for (family, *_), outcome in zip(listed, outcomes) if (outcome.first or 0.0) > SLOW]
    if output and timed:
        write(output, timed, commit)
    console.print(summary(outcomes), f"in {time.monotonic() - began:.0f} s")
    sys.exit(any(each.verdict in ("wrong", "crashed") for each in outcomes))


def trials(listed: list[tuple[str, str, str, str]], workers: int) -> Iterator[Outcome]:
    """Yield the outcome of each case, in order, and print it as it comes."""
    with processes(workers, [family for family, *_ in listed]) as schedule:
        futures = [schedule(attempt, *case) for case in listed]
        for (_, *case), future in zip(listed, futures):
            try:
                outcome = future.result()
            except TimeoutError:
                outcome = Outcome(*case, "stopped", "out of time")
            except ProcessExpired as error:
                outcome = Outcome(*case, "stopped", f"the process ended with {error.exitcode}")
            first = f"{outcome.first:6.2f} s first" if outcome.first else ""
            settled = f"{outcome.settled / outcome.eager:5.2f} settled" if outcome.settled else ""
            console.print(f"{outcome.verdict:9} {first:14} {settled:13} {' '.join(case)} {outcome.reason}", markup=False)
            yield outcome


def timed_again(family: str, outcome: Outcome) -> Outcome:
    """Return the outcome with its quickest first call, of those with nothing beside it too."""
    case = outcome.library, outcome.name, outcome.mode
    with processes(1, [family]) as schedule:
        again = [schedule(first_call, family, *case).result() for _ in range(TIMES_AGAIN)]
    console.print(f"{outcome.first:6.2f} s first, then {', '.join(f'{each:.2f}' for each in again)} alone: {' '.join(case)}", markup=False)
    return dataclasses.replace(outcome, first=min(outcome.first, *again))


@contextlib.contextmanager
def processes(workers: int, families: list[str]) -> Iterator[Callable[..., ProcessFuture]]:
    """Give what calls a function of a case in a process of its own, with an empty cache of kernels."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])  # for the forks' parent
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trial", *dict.fromkeys(families)])
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as folder, ProcessPool(max_workers=workers, max_tasks=1, context=context) as pool:

        def schedule(function: Callable, family: str, library: str, name: str, mode: str) -> ProcessFuture:
            caches, seconds = os.path.join(folder, str(next(numbers))), load(family)[library, name].seconds
            return pool.schedule(in_folder, args=(caches, function, family, library, name, mode), timeout=seconds)

        yield schedule


def write(output: Path, outcomes: list[Outcome], commit: str) -> None:
    """Put outcomes into a file, in the order of the cases; those of other versions of libraries and of former cases are dropped.

    Each row has the date, the commit and the processor of its run, since a part can be renewed; `at_first` is the first verdict that a case ever had.
    """
    now, kept = about(), json.loads(output.read_text()) if output.exists() else {"about": {}, "outcomes": []}
    same = all(now.get(name) == version for name, version in kept["about"].items() if name != "date")
    rows = {(each["library"], each["name"], each["mode"]): each for each in (kept["outcomes"] if same else ())}
    of_run = {"date": now["date"], "commit": commit, "processor": cpu_model()}
    for outcome in outcomes:
        key = outcome.library, outcome.name, outcome.mode
        before = rows.get(key, {}).get("at_first", "unusable")
        at_first = outcome.verdict if before == "unusable" else before
        rows[key] = dataclasses.asdict(outcome) | of_run | {"at_first": at_first}
    order = [key for family in FAMILIES for key in names(family)]
    output.write_text(json.dumps({"about": now, "outcomes": [rows[key] for key in order if key in rows]}, indent=1) + "\n")


def summary(outcomes: list[Outcome]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in Counter(each.verdict for each in outcomes).most_common())


def about() -> dict[str, str]:
    libraries = sorted({case.library for family in FAMILIES for case in load(family).values()} | {"torch", "dovetail"})
    versions = {name: metadata.version(name) for name in libraries}
    return {"date": datetime.now(UTC).date().isoformat(), "python": sys.version.partition(" ")[0]} | versions


if __name__ == "__main__":
    main()
