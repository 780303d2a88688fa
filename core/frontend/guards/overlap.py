"""Checks whether tensors share memory, at every call of a program that writes its inputs."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Any

from dovetail.frontend.shards import local_part
from dovetail.torch_internals import counts_storage_uses, is_zero_tensor, storage_use_count

WORK = 10_000  # steps after which the exact comparison of two strided tensors stops, and they count as overlapping


def memory_overlap(written: tuple, others: tuple, buffers: tuple = ()) -> bool:
    """Return whether a tensor in `written` shares an element's memory with another in `written` or `others`, or with one of `buffers`.

    Address ranges are compared, since storages may be distinct and yet overlap: slices of one NumPy array have a storage each.
    `buffers` are objects with the buffer protocol, such as arrays of NumPy.
    """
    if buffers and _meets_buffer(written, buffers):
        return True
    spans = sorted(map(_span, [x for x in written if x.numel()]))
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    rest = map(_span, [local_part(x) for x in others if x.numel()])
    if any([before[1] > after[0] for before, after in pairwise(spans)]) or any(
        [(at := bisect_left(starts, end)) > 0 and ends[at - 1] > start for start, end in rest]
    ):
        return _elements_overlap(written, tuple(map(local_part, others)))
    return False


def owns_memory(x: Any, _: Any = None) -> bool:
    """Return whether no other tensor shares the storage of x; False where PyTorch cannot tell."""
    return counts_storage_uses() and storage_use_count(x.untyped_storage()) == 2  # x, and the object that is asked


def _span(x: Any) -> tuple[int, int]:
    """Return the range of addresses of a tensor without gaps, and that of the storage of any other."""
    try:
        if x.is_contiguous():
            start = x.data_ptr()
            return start, start + x.nbytes
        storage = x.untyped_storage()
        start = storage.data_ptr()
    except RuntimeError:  # zeros that take no memory, as autograd makes them
        return 0, 0
    return start, start + storage.nbytes()


class _Memory:
    """The elements of a tensor as NumPy takes them: addresses, none of which is read."""

    def __init__(self, x: Any, is_written: bool):
        self.start, self.is_written = x.data_ptr(), is_written
        size = x.element_size()
        strides = [n * size for n in x.stride()]
        self.end = self.start + size + sum([(n - 1) * step for n, step in zip(x.shape, strides, strict=True)])
        shape = (*x.shape, size)
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": shape, "strides": (*strides, 1), "data": (self.start, True)}


def _elements_overlap(written: tuple, others: tuple) -> bool:
    """Compare pairs of tensors whose ranges of addresses meet, one of them written, element by element."""
    ranges = [
        _Memory(x, is_written) for tensors, is_written in ((written, True), (others, False)) for x in tensors if x.numel() and not is_zero_tensor(x)
    ]
    active: list[_Memory] = []
    for memory in sorted(ranges, key=lambda each: each.start):
        active = [each for each in active if each.end > memory.start]
        if any([(each.is_written or memory.is_written) and _share_elements(each, memory) for each in active]):
            return True
        active.append(memory)
    return False


def _meets_buffer(written: tuple, buffers: tuple) -> bool:
    """Compare each tensor that is written with each buffer."""
    try:
        import numpy as np
    except ImportError:  # torch can do without
        return True
    memories = [_Memory(x, True) for x in written if x.numel()]
    arrays = [array for array in map(np.asarray, buffers) if array.nbytes]
    return any([_share_elements(memory, array) for memory in memories for array in arrays])


def _share_elements(x: Any, y: Any) -> bool:
    try:
        import numpy as np
    except ImportError:  # torch can do without
        return True
    try:
        return bool(np.shares_memory(np.asarray(x), np.asarray(y), max_work=WORK))
    except np.exceptions.TooHardError:
        return True
