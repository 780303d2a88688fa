"""torch's own pool of OpenMP threads, reached through libgomp, and the state that keeps forked children out of it."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
ALONE = ctypes.c_int32(0)  # 1 in a forked child, whose copy of the pool has no threads; kernels read it through its address


@cache
def pool() -> dict[str, int]:
    """Return the addresses of libgomp's functions in the copy that torch has loaded; none where there is no such copy."""
    library = _loaded()
    if library is None:
        return {}
    try:
        return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in NAMES}
    except AttributeError:
        return {}


def _loaded() -> ctypes.CDLL | None:
    """Return the libgomp that this process has loaded."""
    if not sys.platform.startswith("linux"):
        return None
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "libgomp" in path.rsplit("/", 1)[-1] and path.startswith("/"):
            return ctypes.CDLL(path)
    return None


def _child() -> None:
    ALONE.value = 1


os.register_at_fork(after_in_child=_child)
