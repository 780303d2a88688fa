"""A process with one subject and one workload, which answers requests, each and its answer a line of JSON.

    python benchmarks/worker.py WORKLOAD SUBJECT THREADS DEFINITIONS

It reports when it is ready.  Requests: {"do": "first"}, the first call, checked against eager;
{"do": "warm", "seconds": 0.5}, calls until that time is over; {"do": "round", "calls": 10}, the seconds of a call; {"do": "peak"}, bytes.
An exception is answered by {"error": sentence}, and ends the process.  THREADS 0 leaves their number to torch; DEFINITIONS is the module with
the workloads (SUITE) and, where it has one, the subjects (subject).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import memory
import subjects
import torch
from torch import Tensor

Outcome = dict[str, Tensor]


class Work:
    """A workload, built for a subject and once more for eager."""

    def __init__(self, workload: Any, subject: subjects.Subject):
        torch.set_grad_enabled(workload.training)
        self.workload, self.subject = workload, subject
        self.mine = workload.build()
        self.call: Callable[[], Any] | None = None

    def first(self) -> dict[str, Any]:
        """Return the seconds of the first call, compiling included, and what is wrong with its result or the second call's."""
        own = self.mine.eager if self.subject.name == subjects.BASELINE else None
        began = time.perf_counter()
        compiled = own or self.subject.compile(self.mine.fn)
        self.call = self.mine.call(compiled)
        result = self.call()
        took = time.perf_counter() - began
        return {"first": took, "wrong": self.wrong(result), "ran": subjects.ran(compiled)}

    def wrong(self, result: Any) -> str:
        """Describe what is wrong with the result of the first call or of a second; "" where nothing is."""
        eager, tolerance = self.workload.build(), self.workload.tolerance
        for calls, when in enumerate(("", ", in the second call, on other numbers"), 1):
            mine = self.mine.outcome(self.call() if when else result)
            theirs = eager.outcome(eager.call(eager.eager or eager.fn)())
            if difference(mine, theirs, theirs, tolerance):
                right = theirs if eager.eager else self.exact(calls)
                if message := difference(mine, theirs, right, tolerance):
                    return message + when
            self.mine.change(), eager.change()
        return ""

    def exact(self, calls: int) -> Outcome:
        """Return eager's outcome after that many calls, on the same numbers in higher precision."""
        case = self.workload.build(exact=True)
        for _ in range(calls - 1):
            case.call(case.fn)()
            case.change()
        return case.outcome(case.call(case.fn)())

    def warm(self, seconds: float) -> dict[str, float]:
        """Call until `seconds` are over, at least twice; return the fastest time of a call."""
        end, taken, n = time.perf_counter() + seconds, [], 1
        while len(taken) < 2 or time.perf_counter() < end:
            taken.append(self.round(n)["call"])
            n = max(1, min(4 * n, int(seconds / 8 / taken[-1])))
        return {"call": min(taken)}

    def round(self, calls: int) -> dict[str, float]:
        call, again = self.call, range(calls)
        gc.collect()
        gc.disable()
        began = time.perf_counter()
        for _ in again:
            call()
        took = time.perf_counter() - began
        gc.enable()
        return {"call": took / calls}

    def peak(self) -> dict[str, int]:
        for leaf in self.mine.leaves:
            leaf.grad = None
        gc.collect()
        return {"peak": memory.peak(self.call)}


def difference(mine: Outcome, eagers: Outcome, exact: Outcome, tolerance: float) -> str:
    """Describe what is wrong with an outcome, as a sentence; "" where nothing is.

    It may be off by `tolerance` of the largest exact magnitude, plus twice eager's error.
    """
    if alone := mine.keys() ^ eagers.keys():
        name = min(alone)
        return f"{name} is missing" if name in eagers else f"{name} is not among eager's"
    for name, theirs in eagers.items():
        got = mine[name]
        if (got.shape, got.dtype) != (theirs.shape, theirs.dtype):
            return f"{name} is {got.dtype} {list(got.shape)}, and eager's is {theirs.dtype} {list(theirs.shape)}"
        allowed = tolerance * largest(exact[name]) + 2 * largest(theirs - exact[name])
        apart = largest(got - exact[name])
        if not apart <= allowed:  # nan is wrong
            return f"{name} is off by {apart:.1e}; {allowed:.1e} is allowed"
    return ""


def largest(x: Tensor) -> float:
    """Return the largest magnitude; 0 of an empty tensor."""
    return x.abs().max().item() if x.numel() else 0.0


def serve(requests: TextIO, answers: TextIO, workload: str, subject: str, threads: str, definitions: str) -> None:
    """Answer requests until there are none."""

    def answer(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    try:
        if int(threads):
            torch.set_num_threads(int(threads))
        defined = importlib.import_module(definitions)
        chosen = getattr(defined, "subject", subjects.subject)(subject)
        for module in chosen.modules:
            importlib.import_module(module)
        work = Work(defined.SUITE.workloads[workload], chosen)
        answer(ready=True)
        for line in requests:
            request = json.loads(line)
            answer(**getattr(work, request.pop("do"))(**request))
    except Exception as error:
        message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        answer(error=f"{type(error).__name__}: {message}"[:300])


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print to standard output
    sys.path.insert(0, str(Path(__file__).parent))
    serve(sys.stdin, answers, *sys.argv[1:])


if __name__ == "__main__":
    main()
