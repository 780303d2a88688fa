"""Memory for large results: a block is used again when no tensor refers to it any more.

A fresh block of some hundred megabytes costs more in page faults than most kernels that fill it.  Who still refers to a block is said by
the reference count of its storage, which every view, every alias and every tensor that autograd has saved is counted in, and by that of the
Python object that stands for the storage.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import torch

HUGE = 16 << 20  # bytes from which huge pages are asked for
PAGE = 2 << 20


class Statistics(NamedTuple):
    """`bytes` in all blocks, `idle` of them unused; how often one was `reused`, and `made`."""

    bytes: int
    idle: int
    reused: int
    made: int


class Pool:
    """Blocks of memory by their size.  Where one is made, at most `cap` bytes stay idle; those of sizes not asked for longest go first."""

    def __init__(self, cap: int = 1 << 30):
        self.cap = cap
        self._blocks: OrderedDict[int, list[torch.UntypedStorage]] = OrderedDict()
        self._lock = Lock()
        self._reused = self._made = 0
        probe = [torch.UntypedStorage(64)]
        self._unused = next(self._probed(s) for s in probe)

    def empty(self, shape: Sequence[int], steps: Sequence[int], dtype: torch.dtype, size: int) -> torch.Tensor:
        """A tensor of `size` bytes that nobody else refers to."""
        with self._lock:
            storage = next((s for s in self._blocks.get(size, ()) if self._free(s)), None)
            if storage is None:
                self._trim(self.cap - size)
                storage = torch.UntypedStorage(size)
                self._blocks.setdefault(size, []).append(storage)
                self._made += 1
                _advise(storage)
            else:
                self._reused += 1
            self._blocks.move_to_end(size)
            return torch.empty(0, dtype=dtype).set_(storage, 0, shape, steps)

    def _free(self, storage: torch.UntypedStorage) -> bool:
        return _references(storage) == self._unused

    def _probed(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        """What `_free` sees of a block that nobody uses."""
        return _references(storage)

    def _trim(self, room: int) -> None:
        """Let idle blocks go until no more than `room` bytes are idle."""
        idle = sum(size for size, blocks in self._blocks.items() for s in blocks if self._free(s))
        for size in list(self._blocks):
            if idle <= room:
                break
            blocks = self._blocks[size]
            unused = [self._free(s) for s in blocks]
            gone = [i for i, free in enumerate(unused) if free][: -(-(idle - room) // size)]
            idle -= len(gone) * size
            for i in reversed(gone):
                del blocks[i]
            if not blocks:
                del self._blocks[size]

    def clear(self) -> None:
        """Let every idle block go."""
        with self._lock:
            self._trim(0)

    def statistics(self) -> Statistics:
        """What there is, and what was done."""
        with self._lock:
            total = sum(size * len(blocks) for size, blocks in self._blocks.items())
            idle = sum(size for size, blocks in self._blocks.items() for s in blocks if self._free(s))
            return Statistics(total, idle, self._reused, self._made)


def _references(storage: torch.UntypedStorage) -> tuple[int, int]:
    """How many tensors and others refer to the memory, and how many names to the Python object that stands for it."""
    return torch._C._storage_Use_Count(storage._cdata), sys.getrefcount(storage)


def _advise(storage: torch.UntypedStorage) -> None:
    """Ask for huge pages for the whole pages inside the block."""
    if storage.nbytes() < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    start = -(-storage.data_ptr() // PAGE) * PAGE
    length = (storage.data_ptr() + storage.nbytes() - start) // PAGE * PAGE
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)


POOL = Pool()  # the registry: the process's pool
