"""Run a probe as in a process that has just imported torch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_new_thread(probe: Callable[[], T]) -> T:
    """Return `probe()`, called in a new thread: its grad mode, inference mode, dispatch modes and transforms are the defaults."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(probe).result()
