"""The seed of a run, on which every random number of the suite depends: samples, variants, cotangents, programs, and torch's own generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

STRIDE = 1_000_003  # between the numbers that start a generator in one run and in the next
_SEED: ContextVar[int] = ContextVar("seed of the run", default=0)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw everything from this seed while open."""
    outer = _SEED.get()
    _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.set(outer)


def start(purpose: int) -> int:
    """Return the number that starts the generator of a purpose: the purpose's own with seed 0, another one with each other seed."""
    return (purpose + STRIDE * _SEED.get()) % 2**63


def generator(purpose: int) -> torch.Generator:
    """Return a new generator for a purpose."""
    return torch.Generator().manual_seed(start(purpose))
