"""Philox4x32-10 in torch's integers: 32-bit words are held in int64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round
ROUNDS = 10
BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def _product(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and the low word of a * b, by halves of a, since int64 holds 63 bits."""
    low = (a & 0xFFFF) * b
    high = (a >> 16) * b + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def philox4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute four random words for each counter of four words, under a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _product(MULTIPLIERS[0], c0)
        high1, low1 = _product(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def words(seed: Tensor, offset: Tensor, count: int, device: torch.device) -> Tensor:
    """Return the first `count` words of the stream of `seed` and `offset`: the words of block 0, of block 1, ..."""
    seed, offset = seed.to(device), offset.to(device)
    block = torch.arange(-(-count // 4), dtype=torch.int64, device=device)
    blank = torch.zeros_like(block)
    counter = (block & WORD, block >> 32, blank + (offset & WORD), blank + ((offset >> 32) & WORD))
    return torch.stack(philox4x32(counter, (seed & WORD, (seed >> 32) & WORD)), dim=-1).reshape(-1)[:count]


def _unit(seed: Tensor, offset: Tensor, count: int, bits: int, device: torch.device) -> Tensor:
    """Return `count` float64 numbers in [0, 1) of `bits` random bits each."""
    if bits <= 32:
        top = words(seed, offset, count, device) >> (32 - bits)
    else:
        low, high = words(seed, offset, 2 * count, device).reshape(-1, 2).unbind(-1)
        top = (high << (bits - 32)) | (low >> (64 - bits))
    return top.to(torch.float64) * 2.0**-bits


def uniform(seed: Tensor, offset: Tensor, shape: tuple, low: float, high: float, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Draw numbers in [low, high), in row-major order of the stream."""
    u = _unit(seed, offset, math.prod(shape), BITS[dtype], device)
    return (u * (high - low) + low).to(dtype).reshape(shape)


def normal(seed: Tensor, offset: Tensor, shape: tuple, mean: float, std: float, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Draw normal numbers, two from each two uniform ones (Box and Muller, 1958)."""
    count = math.prod(shape)
    u = _unit(seed, offset, count + count % 2, 53 if dtype is torch.float64 else 24, device).reshape(-1, 2)
    radius, angle = torch.sqrt(-2 * torch.log1p(-u[:, 0])), 2 * math.pi * u[:, 1]
    z = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1).reshape(-1)[:count]
    return (z * std + mean).to(dtype).reshape(shape)
