"""Locks in a traced run: the program believes that it has acquired them, and waits for none.

None is held while tracing: what compiles a program may need the lock, and tracing may end anywhere.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any, NamedTuple

from dovetail.errors import EagerCall
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.frame import Frame

LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())
_ACQUIRING = ("acquire", "acquire_lock", "__enter__")
_RELEASING = ("release", "release_lock", "__exit__")
_ASKING = ("locked", "locked_lock", "_is_owned")
_CACHE = cached_property.__get__.__code__  # up to Python 3.11 it has a lock; what it writes may be lost, and is computed again


class Held(NamedTuple):
    """A lock that the program has acquired, whether it protects writes outside, and how many of these and operations were before it."""

    lock: Any
    protects: bool
    writes: int
    operations: int


class Locks:
    """The locks that the program has acquired and not released; one that a thread may acquire again, as often as it did."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker
        self.held: list[Held] = []

    def call(self, lock: Any, name: str, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call the method `name` of a lock; NULL for one that neither acquires nor releases it, nor asks for what the program has acquired."""
        held = [each for each in self.held if each.lock is lock]
        if name in _ACQUIRING:
            blocking = {"blocking": True, **dict(zip(("blocking", "timeout"), args)), **kwargs}["blocking"]
            return self._acquire(lock, bool(held), blocking, frame)
        if name in _RELEASING:
            if not held:
                raise EagerCall("it releases a lock that it has not acquired")
            self._release(held[-1])
            return None
        return True if held and name in _ASKING else NULL

    def _acquire(self, lock: Any, is_held: bool, blocking: bool, frame: Frame | None) -> bool:
        if is_held and type(lock) is LOCK and not blocking:
            return False
        if (is_held and type(lock) is LOCK) or not lock.acquire(False):  # another thread is to release it
            raise EagerCall("it waits for a lock, or looks whether another thread has acquired it")
        lock.release()
        protects = self.tracker.source(lock) is not None and (frame is None or frame.code is not _CACHE)
        self.held.append(Held(lock, protects, len(self.tracker.effects.log), self.tracker.recorder.recorded()))
        return True

    def _release(self, held: Held) -> None:
        """Release a lock; one from outside keeps other threads from what is written meanwhile, and compiled programs write at their end."""
        self.held = [each for each in self.held if each is not held]
        if not held.protects:
            return
        if len(self.tracker.effects.log) > held.writes or not self.tracker.recorder.only_computes(held.operations):
            raise EagerCall("it writes what is outside while it has acquired a lock from outside, which keeps other threads from that")

    def check_released(self) -> None:
        """Refuse a program that ends with a lock acquired."""
        if self.held:
            raise EagerCall("it ends with a lock acquired")
