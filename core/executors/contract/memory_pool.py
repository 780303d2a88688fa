"""Memory for large results and for what lies between operations: a block is used again when no tensor refers to it any more.

A fresh block of many megabytes costs more in page faults than most kernels that fill it.  Whether a block is still in use is told by
the reference count of its storage, which every view, every alias and every tensor that autograd has saved is counted in, and by that of the
Python object that stands for the storage.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import torch

from dovetail.torch_internals import counts_storage_uses, storage_use_count

THRESHOLD = 32 << 20  # the most that glibc raises its threshold to: from so many bytes on it asks for new pages each time
HUGE = 16 << 20  # bytes from which huge pages are requested
PAGE = 2 << 20
UNUSED = 1, 2  # its storage's references, the block's own; and those to the Python object, the block's and that of the function which counts
STEPS = 8  # sizes between a power of two and the next: so many shapes share blocks, which are at most an eighth too large


class Statistics(NamedTuple):
    """`bytes` in all blocks, `idle` of them unused; how often one was `reused`, and `created`."""

    bytes: int
    idle: int
    reused: int
    created: int


class Block:
    """One storage, and where its memory lay when it was created."""

    __slots__ = ("address", "size", "storage")

    def __init__(self, size: int):
        self.size = size
        self.storage = torch.UntypedStorage(size)
        self.address = self.storage.data_ptr()

    def references(self) -> tuple[int, int]:
        """Count the tensors and others that refer to the memory, and the names for the Python object that stands for it.

        The object is handed to nothing but the function that counts: how often a Python function's arguments are held depends on who runs it.
        """
        return storage_use_count(self.storage), sys.getrefcount(self.storage)

    def sound(self) -> bool:
        """Return whether its memory is still its own: a storage that was resized has another, one that was shared is read by other processes."""
        return self.storage.data_ptr() == self.address and self.storage.nbytes() == self.size


class Pool:
    """Blocks of memory by their size.  At most `cap` bytes stay idle when one is created; those whose size was unused longest go first."""

    def __init__(self, cap: int = 1 << 30):
        self.cap = cap
        self._blocks: OrderedDict[int, list[Block]] = OrderedDict()
        self._lock = Lock()
        self._reused = self._created = 0
        # the references of an unused block, None where torch cannot count
        self._unused = min(Block(64).references(), UNUSED) if counts_storage_uses() else None

    def empty(self, shape: Sequence[int], steps: Sequence[int], dtype: torch.dtype, size: int) -> torch.Tensor:
        """Return a tensor of `size` bytes that nothing else refers to."""
        if self._unused is None:
            return torch.empty_strided(shape, steps, dtype=dtype)
        size = rounded(size)
        with self._lock:
            block = self._idle(size)
            if block is None:
                self._trim(self.cap - size)
                block = Block(size)
                self._blocks.setdefault(size, []).append(block)
                self._created += 1
                _advise(block.storage)
            else:
                self._reused += 1
            self._blocks.move_to_end(size)
            return torch.empty(0, dtype=dtype).set_(block.storage, 0, shape, steps)

    def _idle(self, size: int) -> Block | None:
        """Return an unused block; drop those that are the pool's no longer."""
        blocks = self._blocks.get(size, [])
        for block in list(blocks):
            if block.references() == self._unused:
                if block.sound():
                    return block
                blocks.remove(block)
        return None

    def _trim(self, room: int) -> None:
        """Let idle blocks go until no more than `room` bytes are idle."""
        idle = self._idle_bytes()
        for size in list(self._blocks):
            for block in list(self._blocks[size]):
                if idle <= room:
                    return
                if block.references() == self._unused:
                    self._blocks[size].remove(block)
                    idle -= size
            if not self._blocks[size]:
                del self._blocks[size]

    def _idle_bytes(self) -> int:
        return sum(block.size for blocks in self._blocks.values() for block in blocks if block.references() == self._unused)

    def clear(self) -> None:
        """Let every idle block go."""
        with self._lock:
            self._trim(0)

    def statistics(self) -> Statistics:
        """Count the blocks that exist, and what was done with them."""
        with self._lock:
            total = sum(size * len(blocks) for size, blocks in self._blocks.items())
            return Statistics(total, self._idle_bytes(), self._reused, self._created)

    def _after_fork(self) -> None:
        """In the child of a fork: the thread that held the lock is not there."""
        self._lock = Lock()


def rounded(size: int) -> int:
    """Round the size of a block up."""
    step = 1 << max(size.bit_length() - STEPS.bit_length(), 0)
    return -(-size // step) * step


def _advise(storage: torch.UntypedStorage) -> None:
    """Ask for huge pages for the whole pages inside the block."""
    if storage.nbytes() < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    start = -(-storage.data_ptr() // PAGE) * PAGE
    length = (storage.data_ptr() + storage.nbytes() - start) // PAGE * PAGE
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)


def _keep_pages() -> None:
    """Let the system's allocator keep what is freed below THRESHOLD, as it does in a process that has freed something as large.

    glibc gives memory at the end of its heap back from a threshold on, and asks for new pages with the next request.  The threshold rises with
    the largest block that was freed, up to 32 MiB: here one that was never written to.
    """
    torch.UntypedStorage(THRESHOLD - PAGE)


_keep_pages()
POOL = Pool()  # the registry: the process's pool
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL._after_fork)
