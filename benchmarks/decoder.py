"""A Llama that decodes a token at a time, with a cache that grows or with one of the final length."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Cache = list[tuple[Tensor, Tensor]]  # keys and values of each layer, [rows, groups, length, size]


class Decoder(nn.Module):
    """Grouped queries, rotary positions, SwiGLU; returns the next tokens and the cache."""

    def __init__(self, layers: int = 4, width: int = 256, heads: int = 8, groups: int = 4, vocabulary: int = 1024, *, static: bool):
        super().__init__()
        self.groups, self.size, self.static = groups, width // heads, static
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.layers = nn.ModuleList([Layer(width, heads, groups) for _ in range(layers)])
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, self.size, 2) / self.size), persistent=False)

    def forward(self, tokens: Tensor, cache: Cache, position: int) -> tuple[Tensor, Cache]:
        angles = torch.arange(position, position + tokens.shape[1])[:, None] * self.frequencies
        x, kept = self.embed(tokens), []
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            x, now = layer(x, angles.cos(), angles.sin(), keys, values, position if self.static else None)
            kept.append(now)
        return self.head(x[:, -1]).argmax(-1, keepdim=True), kept

    def empty(self, rows: int, length: int) -> Cache:
        """Return the cache before the first token."""
        shape = (rows, self.groups, length if self.static else 0, self.size)
        return [(torch.zeros(shape), torch.zeros(shape)) for _ in self.layers]


class Layer(nn.Module):
    """One layer; `position` is where a static cache is written, None for one that grows."""

    def __init__(self, width: int, heads: int, groups: int):
        super().__init__()
        size = width // heads
        self.size, self.parts = size, (heads * size, groups * size, groups * size)
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, sum(self.parts), bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((width, 2 * width), (width, 2 * width), (2 * width, width)))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, position: int | None) -> tuple[Tensor, tuple]:
        rows, length, _ = x.shape
        q, k, v = (part.view(rows, length, -1, self.size).transpose(1, 2) for part in self.qkv(self.before(x)).split(self.parts, -1))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if position is None:
            keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            k, v = keys, values
        else:
            end = position + length
            keys[:, :, position:end], values[:, :, position:end] = k, v
            k, v = keys[:, :, :end], values[:, :, :end]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, -1))
        h = self.after(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), (keys, values)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
