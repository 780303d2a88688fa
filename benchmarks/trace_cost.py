"""What tracing costs: per prim, per torch operation, and how printing, checking and the passes grow with the size of a program."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator

import models
import torch
from costs import Costs, progress, script, seconds
from machine import span

import dovetail
from dovetail import prims
from dovetail.prims import TensorSpec
from dovetail.trace import Trace, check, cse, dce, recording, release, to_callable

REPEATS = 5
SIZES = (1_000, 10_000, 40_000)


def program(lines: int) -> Trace:
    """Return a chain of `lines` prims, each line read by the next."""
    trace = Trace("computation")
    x = trace.tensor(TensorSpec((8, 8), dovetail.dtypes.float32))
    trace.inputs = [x]
    one_of = (prims.sin, prims.cos, prims.neg, lambda t: prims.mul(t, t))
    with recording(trace):
        for i in range(lines):
            x = one_of[i % len(one_of)](x)
    trace.outputs = x
    return trace


def growth() -> tuple[list[tuple], dict[str, dict[int, float]]]:
    """Return a row for each pass over a program, with its time per line at each size."""
    steps: dict[str, Callable[[Trace], object]] = {"record": lambda t: program(len(t.lines)), "print": str, "compile": to_callable}
    steps |= {"check": check, "dce": dce, "cse": cse, "release": release}
    programs = {size: program(size) for size in SIZES}
    figures = {name: {} for name in steps}
    for name, step in progress(list(steps.items()), "growing programs"):
        for size, trace in programs.items():
            figures[name][size] = statistics.median(seconds(lambda step=step, trace=trace: step(trace)) for _ in range(REPEATS)) / size
    rows = [(name, *(span(per[size]) for size in SIZES), f"{per[SIZES[-1]] / per[SIZES[0]]:.2f}x") for name, per in figures.items()]
    return rows, figures


def model() -> tuple[list[tuple], dict[str, float]]:
    """Measure tracing of the 6-layer GPT, per torch operation and per prim."""
    gpt, tokens = models.six_layers().eval().requires_grad_(False), models.tokens()
    dovetail.make_trace(gpt)(tokens)
    took = statistics.median(seconds(lambda: dovetail.make_trace(gpt)(tokens)) for _ in range(REPEATS))
    trace = dovetail.make_trace(gpt)(tokens)
    every = sum(1 for _ in prim_lines(trace.lines))
    figures = {"trace": took, "torch operations": len(trace.lines), "prims": every}
    rows = [
        ("traced whole", took),
        (f"each of {len(trace.lines)} torch operations", took / len(trace.lines)),
        (f"each of {every} prims", took / every),
    ]
    return [(what, span(spent)) for what, spent in rows], figures


def prim_lines(lines: list) -> list:
    return [inner for line in lines for inner in (prim_lines(line.body) if line.body else [line])]


@script
def main() -> Iterator[Costs]:
    """Measure the cost of tracing, for a model and for programs of growing size."""
    torch.set_grad_enabled(False)
    gc.disable()  # as it is while dovetail.jit compiles: the collector walks growing programs again and again
    rows, figures = model()
    yield Costs("trace_model", "Tracing the 6-layer GPT", f"Medians of {REPEATS}.", ("", "takes"), rows, figures)
    rows, figures = growth()
    headings = ("a line", *(f"of {size:,}" for size in SIZES), "growth")
    how = (
        f"Time for one line of a program of that many lines, medians of {REPEATS}, the garbage collector off as in a compilation. "
        "A growth near 1 means that the whole is linear in its size."
    )
    yield Costs("trace_cost", "What a line costs", how, headings, rows, figures)


if __name__ == "__main__":
    main()
