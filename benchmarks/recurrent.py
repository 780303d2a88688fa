"""Training steps of recurrent layers, and of loops of cells, beside eager mode and torch.compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from costs import Costs, script
from torch import Tensor, nn
from turns import Compared, in_turns, table

import dovetail

ROUNDS, WARM = 60, 30  # rounds of one step each, and steps before the first
STEPS, BATCH, FEATURES, HIDDEN = 20, 32, 64, 128


class Loop(nn.Module):
    """A cell, called for each step of a sequence."""

    def __init__(self, cell: nn.Module):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in x:
            state = self.cell(step, state)
        return state[0] if isinstance(state, tuple) else state


MODELS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(FEATURES, HIDDEN),
    "LSTM of 2 layers, dropout": lambda: nn.LSTM(FEATURES, HIDDEN, 2, dropout=0.2),
    "GRU": lambda: nn.GRU(FEATURES, HIDDEN),
    "RNN": lambda: nn.RNN(FEATURES, HIDDEN),
    "loop of LSTMCell": lambda: Loop(nn.LSTMCell(FEATURES, HIDDEN)),
    "loop of GRUCell": lambda: Loop(nn.GRUCell(FEATURES, HIDDEN)),
    "loop of RNNCell": lambda: Loop(nn.RNNCell(FEATURES, HIDDEN)),
}
WAYS: dict[str, Callable[[nn.Module], Callable]] = {"eager": lambda model: model, "dovetail": dovetail.jit, "torch.compile": torch.compile}


def compared(name: str) -> Compared:
    """Time a step by each way; their gradients agree."""
    torch.manual_seed(0)
    model, x = MODELS[name](), torch.randn(STEPS, BATCH, FEATURES)
    forwards = {way: make(model) for way, make in WAYS.items()}

    def step(way: str) -> float:
        model.zero_grad()
        began = time.perf_counter()
        out = forwards[way](x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        return time.perf_counter() - began

    grads = {}
    for way in forwards:
        for _ in range(WARM):
            step(way)
        torch.manual_seed(0)
        step(way)
        grads[way] = [p.grad for p in model.parameters()]
        torch.testing.assert_close(grads[way], grads["eager"], rtol=1e-3, atol=1e-3)
    return in_turns({way: partial(step, way) for way in forwards}, ROUNDS, name)


@script
def main() -> Iterator[Costs]:
    """Measure training steps of recurrent layers and of loops of cells, beside eager mode and torch.compile."""
    rows, figures = table({name: compared(name) for name in MODELS})
    how = (
        f"{STEPS} steps of a batch of {BATCH}, {FEATURES} features and {HIDDEN} hidden ones, forward and backward, "
        f"{torch.get_num_threads()} threads: "
        f"the least of {ROUNDS} rounds, in turns; the factor is the speed as a multiple of eager mode's, the median within a round."
    )
    yield Costs("recurrent", "Training of recurrent layers", how, ("", *WAYS), rows, figures)


if __name__ == "__main__":
    main()
