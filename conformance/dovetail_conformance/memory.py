"""Peak memory of a call, and memory of the process."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
STATM = Path("/proc/self/statm")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler prints to stderr when it starts


def peak(fn: Callable[[], object], device: str) -> int:
    """Measure the most bytes of PyTorch's that are in use at once during a call, beyond those in use before it."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        fn()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        fn()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(file))
        events = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        now += event["args"]["Bytes"]
        most = max(most, now)
    return most


def resident() -> int:
    """Measure the memory of the process, in bytes, after what is free was returned; 0 where the system does not tell."""
    if not STATM.exists():
        return 0
    trim()
    return PAGE * int(STATM.read_text().split()[1])


HEAP = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Heap(ctypes.Structure):
    """The numbers of glibc's mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in HEAP]


def allocated() -> int:
    """Return the bytes that malloc has handed out and not got back, wherever they lie; 0 without glibc."""
    try:
        heap = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return 0
    heap.restype = _Heap
    numbers = heap()
    return numbers.uordblks + numbers.hblkhd


def trim() -> None:
    """Return free memory to the system, which would hide leaks otherwise; with glibc only."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
