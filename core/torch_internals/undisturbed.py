"""Run a probe as in a process that has just imported torch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")


def in_new_thread(probe: Callable[[], T]) -> T:
    """Return `probe()`, called in a new thread: its grad mode, inference mode, dispatch modes and transforms are the defaults."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(probe).result()


def in_lasting_thread(probe: Callable[[], T]) -> T:
    """Do the same in a thread that does not end before the process does: torch may keep what belongs to it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(probe())
        except BaseException as error:
            answer.set_exception(error)
        Event().wait()

    Thread(target=run, name="dovetail: first fake tensors", daemon=True).start()
    return answer.result()
