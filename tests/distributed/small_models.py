"""Small models that are trained on several ranks, and the loop that trains them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from zoo import GPT

BATCH, LENGTH = 4, 8  # of all ranks together
# which layers tensor_parallel cuts
LLAMA_LAYERS = {"*.w[qkv]": "column", "*.wo": "row", "*.w1": "column", "*.w3": "column", "*.w2": "row", "*.tokens": "embedding", "*.head": "column"}
GPT_LAYERS = {"*.qkv": "column", "*.attention.out": "row", "*.mlp.0": "column", "*.mlp.2": "row", "*.tokens": "embedding"}
PLANS = {"llama": LLAMA_LAYERS, "gpt": GPT_LAYERS, "llama in parts of the sequence": LLAMA_LAYERS | {"*norm": "sequence"}}


class Block(nn.Module):
    """Rotary positions, grouped queries and SwiGLU, all in the dtype of the parameters."""

    def __init__(self, width: int, heads: int, groups: int):
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.wq, self.wk, self.wv = (nn.Linear(width, n * size, bias=False) for n in (heads, groups, groups))
        self.wo = nn.Linear(width, width, bias=False)
        self.w1, self.w3 = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.w2 = nn.Linear(3 * width, width, bias=False)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        h = self.attention_norm(x)
        q, k = (rotated(w(h).view(batch, length, n, -1), cos, sin) for w, n in ((self.wq, self.heads), (self.wk, self.groups)))
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=2) for t in (k, self.wv(h).view(batch, length, self.groups, -1)))
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + self.wo(y.transpose(1, 2).contiguous().view(batch, length, width))
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs of features by angles that grow with the position."""
    a, b = x.chunk(2, -1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Llama(nn.Module):
    """A language model of such blocks."""

    def __init__(self, vocabulary: int = 98, width: int = 16, heads: int = 4, groups: int = 2, layers: int = 2, context: int = 16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, heads, groups) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        angles = torch.outer(torch.arange(context), 1.0 / 10000 ** torch.linspace(0, 1, width // heads // 2))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor) -> Tensor:
        x, length = self.tokens(tokens), tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.head(self.norm(x))


class Predictor(nn.Module):
    """The loss of a language model, so that one call computes all."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.model(tokens[:, :-1])
        logits = logits[0] if isinstance(logits, tuple) else logits
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def language_model(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Build the small GPT or Llama, the model of a plan's name, with the same numbers on each rank; dropout is off."""
    torch.manual_seed(0)
    model = GPT(width=16, layers=2) if name.startswith("gpt") else Llama()
    return Predictor(model).to(dtype).eval()


def tokens_of(step: int, rank: int, ranks: int) -> Tensor:
    """Return the rows of the batch of a step that belong to a rank."""
    batch = torch.randint(90, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(step))
    return batch.chunk(ranks)[rank]


def optimizer_of(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(model: Callable[[Tensor], Tensor], optimizer: Any, steps: Iterable[int], rank: int = 0, ranks: int = 1, group: Any = None) -> list[float]:
    """Return the loss of each step over the batch of all ranks."""
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = model(tokens_of(step, rank, ranks))
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if ranks > 1:
            distributed.all_reduce(total, group=group)
        losses.append(total.item() / ranks)
    return losses
