"""Training steps of a small network, where the time between kernels counts: the forward compiled alone, and the whole step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import models
import torch
import torch.nn.functional as F
from costs import Costs, progress, script
from machine import span
from torch import nn

import dovetail

ROUNDS, A_ROUND, WARM = 200, 20, 150  # rounds, steps in each, steps before the first one
FORWARD, WHOLE, PEER = "dovetail, the forward", "dovetail, the whole step", "torch.compile, the forward"
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "Adam": torch.optim.Adam,
    "Adam, fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
}


def subjects(optimizer: str) -> dict[str, tuple[nn.Module, Callable[[], None]]]:
    """Return the equal networks that are trained in different ways, each with its step."""
    torch.manual_seed(0)
    x, labels = torch.randn(32, 784), torch.randint(10, (32,))

    def build(compile: Callable = lambda model: model) -> tuple[nn.Module, Callable[[], None]]:
        torch.manual_seed(0)
        model = models.digits()
        forward, updates = compile(model), OPTIMIZERS[optimizer](model.parameters())

        def step() -> None:
            updates.zero_grad()
            F.cross_entropy(forward(x), labels).backward()
            updates.step()

        return model, step

    model, step = build()
    return {"eager": build(), FORWARD: build(dovetail.jit), WHOLE: (model, dovetail.jit(step)), PEER: build(torch.compile)}


def compared(optimizer: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of a step of each subject, and its speed as a multiple of eager mode's: the median of the ratios within a round."""
    steps = subjects(optimizer)
    for _, step in steps.values():
        for _ in range(WARM):
            step()
    for name, (model, _) in steps.items():
        for mine, theirs in zip(model.parameters(), steps["eager"][0].parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in progress(range(ROUNDS), optimizer):
        for name, (_, step) in steps.items():
            rounds[name].append(spent(step))
    ratios = {name: statistics.median([theirs / mine for mine, theirs in zip(rounds[name], rounds["eager"], strict=True)]) for name in steps}
    return {name: min(seconds) for name, seconds in rounds.items()}, ratios


def spent(step: Callable[[], None]) -> float:
    """Return the processor time of one step: other processes do not count."""
    began = time.process_time()
    for _ in range(A_ROUND):
        step()
    return (time.process_time() - began) / A_ROUND


@script
def main() -> Iterator[Costs]:
    """Measure training steps of a small network beside eager mode and torch.compile."""
    torch.set_num_threads(1)
    rows, figures = [], {}
    for optimizer in OPTIMIZERS:
        seconds, ratios = compared(optimizer)
        figures[optimizer] = {"seconds": seconds, "speeds": ratios}
        rows.append((optimizer, span(seconds["eager"]), *[f"{span(seconds[name])}, {ratios[name]:.2f}x" for name in seconds if name != "eager"]))
    how = (
        "An MLP 784-128-10 at batch 32, zero_grad() to step(): processor time on one thread, "
        f"the least of {ROUNDS} rounds of {A_ROUND} steps, in turns; "
        "the factor is the speed as a multiple of eager mode's, the median within a round."
    )
    yield Costs("small_training", "Training steps of a small network", how, ("", "eager", FORWARD, WHOLE, PEER), rows, figures)


if __name__ == "__main__":
    main()
