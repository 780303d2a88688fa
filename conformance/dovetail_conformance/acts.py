"""What happens outside the process: files that are written or removed, processes that are started, connections."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec")
FILES = {"os.remove": "removed", "os.rename": "renamed", "os.mkdir": "made", "os.rmdir": "removed", "os.truncate": "cut", "shutil.rmtree": "removed"}
HARMLESS = ("/dev/null", "/proc/", "/sys/")

_noted: list[Callable[[str, tuple], None]] = []  # the recorders that are open; one hook of the interpreter serves all, since none can be taken away
_hooked = threading.Event()


@contextmanager
def acts(*, reads: bool = False) -> Iterator[list[str]]:
    """Record what this thread and others do outside the process while open, as predicates; with `reads`, also files that are read."""
    seen: list[str] = []

    def note(event: str, args: tuple) -> None:
        if (act := _act(event, args, reads)) is not None:
            seen.append(act)

    if not _hooked.is_set():
        _hooked.set()
        sys.addaudithook(_heard)
    _noted.append(note)
    try:
        yield seen
    finally:
        _noted.remove(note)


def _heard(event: str, args: tuple) -> None:
    if _noted:
        for note in tuple(_noted):
            note(event, args)


def _act(event: str, args: tuple, reads: bool) -> str | None:
    """Describe an event; None where it stays inside the process."""
    if event == "open":
        path, _, flags = args
        if not isinstance(path, (str, bytes)) or str(path).startswith(HARMLESS):
            return None
        if isinstance(flags, int) and flags & WRITING:
            return f"wrote the file {_text(path)}"
        return f"read the file {_text(path)}" if reads else None
    if event in FILES:
        return f"{FILES[event]} {_text(args[0])}"
    if event in PROCESSES:
        return "started a process"
    return "connected to another process or machine" if event == "socket.connect" else None


def _text(path: Any) -> str:
    return os.path.basename(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
