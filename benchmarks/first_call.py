"""The first call of the 6-layer GPT: what it takes beyond an eager call, and where the time goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from harness import Report, progress, seconds, span
from subjects import fresh_caches, six_layers, thunder

import dovetail

REPEATS = 8


def by_step(compiled: Callable) -> dict[str, float]:
    """Seconds for each step that made a program."""
    traces = [*dovetail.last_traces(compiled), *dovetail.last_prologue_traces(compiled)]
    taken: dict[str, float] = {}
    for trace in traces:
        taken[trace.made_by] = taken.get(trace.made_by, 0.0) + trace.took
    return taken


def ours(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[list[float], list[float], list[dict[str, float]]]:
    """Eager calls, the first calls beside them, and the steps of each first call."""
    eager, firsts, steps = [], [], []
    for _ in progress(range(REPEATS), "first calls"):
        compiled = dovetail.jit(model)
        eager.append(seconds(lambda: model(tokens)))
        firsts.append(seconds(partial(compiled, tokens)))
        steps.append(by_step(compiled))
    return eager, firsts, steps


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
    eagers, firsts, steps = ours(model, tokens)
    eager, first = min(eagers), min(firsts)
    least = {name: min(s.get(name, 0.0) for s in steps) for name in steps[0]}
    rows = [("an eager call", span(eager), ""), ("dovetail, first call", span(first), span(first - eager))]
    rows += [(f"    {name}", "", span(took)) for name, took in least.items() if took]
    rows.append(("dovetail, the process's first", span(firsts[0]), span(firsts[0] - eager)))
    figures = {"eager": eager, "beyond eager": first - eager, "the process's first beyond eager": firsts[0] - eager, "steps": least}
    for name, made in {"torch.compile": torch.compile(model), "lightning-thunder": thunder(model)}.items():
        took = peer(made, tokens)
        rows.append((name, took, "") if isinstance(took, str) else (f"{name}, first call", span(took), span(took - eager)))
        figures[name] = took
    how = (
        f"6 layers, d=384, batch 4 x 256, vocabulary 8192. The least of {REPEATS} compilations in one process, and of the eager calls beside them; "
        "torch.compile once, with empty caches."
    )
    Report("first_call", "The first call of the 6-layer GPT", how, ("", "takes", "beyond eager"), rows, figures).write()


if __name__ == "__main__":
    main()
