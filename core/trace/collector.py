"""When Python's garbage collector runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

FEW = 1000  # objects that Python itself may have frozen: 3.12 does so
MANY = 2_000_000  # objects that compilations create, some 300 MB, before all generations are collected


class Generations:
    """What may be done with the generations of the collector."""

    def __init__(self) -> None:
        self.frozen = False  # whether the user has frozen objects; they are not counted again then, since Python does so one by one
        self.created, self.limit = 0, MANY  # objects of compilations since all generations were collected, and how many there may be

    def age(self) -> None:
        """Let everything join the oldest generation, which no step here walks; nothing where the user has frozen objects."""
        self.frozen = self.frozen or gc.get_freeze_count() >= FEW
        if not self.frozen:
            gc.freeze()  # moves everything to the permanent generation, and
            gc.unfreeze()  # from there to the oldest

    def note(self, created: int) -> None:
        """Collect all generations where compilations have created enough: Python does not count what joins the oldest one at once.

        Where most of it stays, that has been in vain, and the next time is later.
        """
        self.created += max(0, created)
        if self.created >= self.limit:
            freed = gc.collect()
            self.created, self.limit = 0, MANY if freed > self.created // 4 else 2 * self.limit


GENERATIONS = Generations()


@contextmanager
def without_collector(*, keeps: bool = False) -> Iterator[None]:
    """Turn the garbage collector off: it would walk a growing trace again and again.

    With `keeps` what is created inside is to stay, as a compiled program does: it joins the oldest generation at once, or the next
    collection would walk all of it.
    """
    enabled, before = gc.isenabled(), gc.get_count()[0]
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            created = gc.get_count()[0] - before
            if keeps:
                GENERATIONS.age()
            gc.enable()
            GENERATIONS.note(created)
