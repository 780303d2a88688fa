"""The recursion limit: while programs are interpreted CPython's is higher, since one interpreted frame takes several real ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

_REAL_FRAMES, _SPARE = 10, 200  # of the interpreter, for one of the program and besides


@dataclass
class _Limit:
    """How many interpretations are on, in all threads, and the limit that the program knows."""

    lock: Lock = field(default_factory=Lock)
    users: int = 0
    known: int = 0


_limit = _Limit()


@contextmanager
def raised() -> Iterator[int]:
    """Raise CPython's limit far enough for the interpreter while open; yield the limit that the program knows."""
    with _limit.lock:
        if not _limit.users:
            _limit.known = sys.getrecursionlimit()
            sys.setrecursionlimit(_real(_limit.known))
        _limit.users += 1
    try:
        yield _limit.known
    finally:
        with _limit.lock:
            _limit.users -= 1
            if not _limit.users:
                sys.setrecursionlimit(_limit.known)


def getrecursionlimit() -> int:
    """Return the limit that the program knows, also while it is raised, by whichever thread."""
    with _limit.lock:
        return _limit.known if _limit.users else sys.getrecursionlimit()


def change(limit: int) -> None:
    """Set the limit, as the program does."""
    with _limit.lock:
        _limit.known = limit
        sys.setrecursionlimit(_real(limit))


def _real(limit: int) -> int:
    return limit * _REAL_FRAMES + _SPARE
