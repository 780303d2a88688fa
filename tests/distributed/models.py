"""Small models that are trained on several ranks, and the loop that trains them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from models.zoo import GPT, Llama
from torch import Tensor, distributed, nn

BATCH, LENGTH = 4, 8  # of all ranks together


class Predictor(nn.Module):
    """The loss of a language model, so that one call computes all."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.model(tokens[:, :-1])
        logits = logits[0] if isinstance(logits, tuple) else logits
        return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def language_model(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Build the small GPT or Llama of the zoo, with the same numbers on each rank; dropout is off."""
    torch.manual_seed(0)
    model = {"gpt": GPT, "llama": Llama}[name](width=16, layers=2)
    return Predictor(model).to(dtype).eval()


def tokens_of(step: int, rank: int, ranks: int) -> Tensor:
    """Return the rows of the batch of a step that belong to a rank."""
    batch = torch.randint(90, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(step))
    return batch.chunk(ranks)[rank]


def train(
    model: Callable[[Tensor], Tensor], parameters: Any, steps: int, rank: int = 0, ranks: int = 1, start: int = 0, optimizer: Any = None
) -> list[float]:
    """Return the loss of each step over the batch of all ranks."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-2) if optimizer is None else optimizer
    losses = []
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss = model(tokens_of(step, rank, ranks))
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if ranks > 1:
            distributed.all_reduce(total)
        losses.append(total.item() / ranks)
    return losses
