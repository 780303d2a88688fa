"""The first call of the 6-layer GPT: what it takes beyond an eager call, and where the time goes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
from harness import Report, progress, seconds, span
from subjects import fresh_caches, six_layers, thunder

import dovetail

REPEATS = 5


def by_step(compiled: Callable) -> dict[str, float]:
    """Seconds for each step that made a program."""
    traces = [*dovetail.last_traces(compiled), *dovetail.last_prologue_traces(compiled)]
    taken: dict[str, float] = {}
    for trace in traces:
        taken[trace.made_by] = taken.get(trace.made_by, 0.0) + trace.took
    return taken


def ours(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[list[float], list[float], list[dict[str, float]]]:
    """First calls, eager calls beside them, and the steps of each first call."""
    firsts, eager, steps = [], [], []
    for _ in progress(range(REPEATS), "first calls"):
        eager.append(seconds(lambda: model(tokens)))
        compiled = dovetail.jit(model)
        firsts.append(seconds(partial(compiled, tokens)))
        steps.append(by_step(compiled))
    return firsts, eager, steps


def peer(compiled: Callable | str, tokens: torch.Tensor) -> float | str:
    if isinstance(compiled, str):
        return compiled
    try:
        with fresh_caches():
            return seconds(lambda: compiled(tokens))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:80]


def main() -> None:
    model, tokens = six_layers()
    model(tokens)
    firsts, eagers, steps = ours(model, tokens)
    eager, first = statistics.median(eagers), statistics.median(firsts)
    medians = {name: statistics.median(s.get(name, 0.0) for s in steps) for name in steps[0]}
    rest = first - eager - sum(medians.values())
    rows = [("eager call", span(eager), ""), ("dovetail, first call", span(first), span(first - eager))]
    rows += [(f"    {name}", "", span(took)) for name, took in medians.items() if took]
    rows.append(("    guards, code generation and the rest", "", span(max(rest, 0.0))))
    figures = {"eager": eager, "dovetail": first, "beyond eager": first - eager, "process's first": firsts[0] - eagers[0], "steps": medians}
    rows.append(("dovetail, first in the process", span(firsts[0]), span(firsts[0] - eagers[0])))
    for name, made in {"torch.compile": torch.compile(model), "lightning-thunder": thunder(model, (tokens,))}.items():
        took = peer(made, tokens)
        rows.append((name, took, "") if isinstance(took, str) else (f"{name}, first call", span(took), span(took - eager)))
        figures[name] = took
    how = f"6 layers, d=384, batch 4 x 256, vocabulary 8192. Medians of {REPEATS} compilations in one process; torch.compile once, with empty caches."
    Report("first_call", "The first call of the 6-layer GPT", how, ("", "takes", "beyond eager"), rows, figures).write()


if __name__ == "__main__":
    main()
