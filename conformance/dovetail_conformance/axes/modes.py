"""Modes that a program may meet when it runs: torch's own switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def mode(name: str) -> Iterator[None]:
    """Set one of torch's switches to what `name` stands for while open."""
    if name == "inference":
        with torch.inference_mode():
            yield
    elif name == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            yield
    elif name == "float64":
        with _kept(torch.get_default_dtype(), torch.set_default_dtype, torch.float64):
            yield
    elif name == "deterministic":
        with _kept(torch.get_deterministic_debug_mode(), torch.set_deterministic_debug_mode, "warn"):
            yield
    elif name.endswith(("thread", "threads")):
        with _kept(torch.get_num_threads(), torch.set_num_threads, 1 if name == "one thread" else 3):
            yield
    else:
        yield


@contextmanager
def _kept(before, put, value) -> Iterator[None]:
    put(value)
    try:
        yield
    finally:
        put(before)
