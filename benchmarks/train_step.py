"""Training steps of the 6-layer GPT, with dropout and without, and of a Llama of its size: the first, the warm ones, the memory they take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from harness import Report, Timing, interleaved, progress, seconds, span
from memory import MIB, peak, saved
from subjects import fresh_caches, subjects, trained

import dovetail

REPEATS = 5
SIZES = "6 layers, d=384, batch 4 x 256, vocabulary 8192, float32; a step is forward, cross-entropy and backward, without an optimiser"


def step(loss: Callable, parameters: list[torch.Tensor], batch: tuple) -> None:
    """One step, with no gradients from before."""
    for p in parameters:
        p.grad = None
    loss(*batch).backward()


def by_step(compiled: Callable) -> dict[str, float]:
    """Seconds for each step that made a program, by name."""
    groups = (dovetail.last_traces, dovetail.last_backward_traces, dovetail.last_epilogue_traces, dovetail.last_prologue_traces)
    taken: dict[str, float] = {}
    for trace in [trace for group in groups for trace in group(compiled)]:
        name = f"{trace.name} {trace.made_by}" if trace.name in ("forward", "backward") else trace.made_by
        taken[name] = taken.get(name, 0.0) + trace.took
    return taken


def first_steps(model: torch.nn.Module, batch: tuple) -> tuple[list[tuple], dict]:
    """Rows and figures on the first step of a compiled model, beside eager steps."""
    parameters, eagers, firsts, steps = list(model.parameters()), [], [], []
    step(model, parameters, batch)
    for _ in progress(range(REPEATS), "first steps"):
        compiled = dovetail.jit(model)
        eagers.append(seconds(partial(step, model, parameters, batch)))
        firsts.append(seconds(partial(step, compiled, parameters, batch)))
        steps.append(by_step(compiled))
    eager, least = min(eagers), {name: min(s[name] for s in steps) for name in steps[0]}
    figures = {"eager": eager, "beyond eager": min(firsts) - eager, "the process's first beyond eager": firsts[0] - eagers[0], "steps": least}
    rows = [("an eager step", span(eager), ""), ("dovetail, first step", span(min(firsts)), span(max(0.0, min(firsts) - eager)))]
    rows += [(f"    {name}", "", span(took)) for name, took in least.items() if took >= 5e-5]
    rows.append(("    all of these", "", span(sum(least.values()))))
    rows.append(("dovetail, the process's first", span(firsts[0]), span(max(0.0, firsts[0] - eagers[0]))))
    torch._dynamo.reset()
    with fresh_caches():
        figures["torch.compile"] = seconds(partial(step, torch.compile(model), parameters, batch))
    rows.append(("torch.compile, first step", span(figures["torch.compile"]), span(figures["torch.compile"] - eager)))
    return rows, figures


def warm(model: torch.nn.Module, batch: tuple, case: str) -> list[tuple[Timing, int, int]]:
    """For each subject the time of a warm step, the peak of what it allocates, and what it saves."""
    parameters = list(model.parameters())
    held = [*parameters, *model.buffers(), *batch]
    there = {name: fn for name, fn in subjects(model, *batch).items() if not isinstance(fn, str)}
    timings = interleaved({name: partial(step, fn, parameters, batch) for name, fn in there.items()}, rounds=15, what=f"{case}, warm steps")
    found = []
    for timing in timings:
        fn = there[timing.name]
        for p in parameters:
            p.grad = None
        found.append((timing, peak(partial(step, fn, parameters, batch)), saved(partial(fn, *batch), held)))
    return found


def main() -> None:
    cases = trained()
    rows, figures = first_steps(*cases["GPT"])
    how = (
        f"The GPT: {SIZES}. The least of {REPEATS} compilations in one process, and of the eager steps beside them; "
        "torch.compile once, with empty caches."
    )
    Report("train_first_step", "The first training step of the 6-layer GPT", how, ("", "takes", "beyond eager"), rows, figures).write()
    rows, figures = [], {}
    for case, (model, batch) in cases.items():
        for t, most, kept in warm(model, batch, case):
            rows.append((case, t.name, span(t.median), span(t.minimum), f"{t.ratio:.2f}x", f"{most / MIB:.1f} MiB", f"{kept / MIB:.1f} MiB"))
            figures.setdefault(case, {})[t.name] = {"median": t.median, "minimum": t.minimum, "ratio": t.ratio, "peak": most, "saved": kept}
    how = (
        f"{SIZES}. 15 rounds; ratios to eager within a round. Peak: the most that a step holds at once of what it allocates. "
        "Saved: what it keeps between forward and backward, parameters and arguments aside."
    )
    headings = ("case", "", "median", "minimum", "beside eager", "peak", "saved")
    Report("train_step", "A warm training step", how, headings, rows, figures).write()


if __name__ == "__main__":
    main()
