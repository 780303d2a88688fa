"""Locks in a traced run: the program believes that it has acquired them, and waits for none.

None is held while tracing: what compiles a program may need the lock, and tracing may end anywhere.
"""

from __future__ import annotations

import threading
from typing import Any

from dovetail.errors import EagerCall
from dovetail.frontend.class_lookup import NULL

LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())
_ACQUIRING = ("acquire", "acquire_lock", "__enter__")
_RELEASING = ("release", "release_lock", "__exit__")
_ASKING = ("locked", "locked_lock", "_is_owned")


class Locks:
    """The locks that the program has acquired and not released; one that a thread may acquire again, as often as it did."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def call(self, lock: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call the method `name` of a lock; NULL for one that neither acquires nor releases it, nor asks for what the program has acquired."""
        is_held = any([each is lock for each in self.held])
        if name in _ACQUIRING:
            return self._acquire(lock, is_held, {"blocking": True, **dict(zip(("blocking", "timeout"), args)), **kwargs}["blocking"])
        if name in _RELEASING:
            if not is_held:
                raise EagerCall("it releases a lock that it has not acquired")
            del self.held[max(i for i, each in enumerate(self.held) if each is lock)]
            return None
        return True if is_held and name in _ASKING else NULL

    def _acquire(self, lock: Any, is_held: bool, blocking: bool) -> bool:
        if is_held and type(lock) is LOCK and not blocking:
            return False
        if (is_held and type(lock) is LOCK) or not lock.acquire(False):  # another thread is to release it
            raise EagerCall("it waits for a lock, or looks whether another thread has acquired it")
        lock.release()
        self.held.append(lock)
        return True

    def check_released(self) -> None:
        """Refuse a program that ends with a lock acquired."""
        if self.held:
            raise EagerCall("it ends with a lock acquired")
