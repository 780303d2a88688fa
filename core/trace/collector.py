"""When Python's garbage collector runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

FEW = 1000  # objects that Python itself may have frozen: 3.12 does so


class Generations:
    """What may be done with the generations of the collector."""

    def __init__(self) -> None:
        self.frozen = False  # whether the user has frozen objects; they are not counted again then, since Python does so one by one

    def age(self) -> None:
        """Let everything join the oldest generation, which no step here walks; nothing where the user has frozen objects."""
        self.frozen = self.frozen or gc.get_freeze_count() >= FEW
        if not self.frozen:
            gc.freeze()  # moves everything to the permanent generation, and
            gc.unfreeze()  # from there to the oldest


GENERATIONS = Generations()


@contextmanager
def without_collector(*, keeps: bool = False) -> Iterator[None]:
    """Turn the garbage collector off: it would walk a growing trace again and again.

    With `keeps` what is created inside is to stay, as a compiled program does: it joins the oldest generation at once, or the next
    collection would walk all of it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if keeps:
                GENERATIONS.age()
            gc.enable()
