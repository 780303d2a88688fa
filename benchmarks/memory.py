"""How much memory a step takes: the peak of what it allocates, and what is saved between forward and backward."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

MIB = 2**20


def peak(fn: Callable[[], object]) -> int:
    """The most bytes of PyTorch's that are in use at once during a call, beyond those in use before it.  Temporaries inside of kernels count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        fn()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(file))
        events = [e for e in json.loads(file.read_text())["traceEvents"] if e.get("name") == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e["ts"]):
        now += event["args"]["Bytes"]
        most = max(most, now)
    return most


def saved(forward: Callable[[], object], held: Iterable[torch.Tensor]) -> int:
    """The bytes that a call of `forward` saves for its backward, each storage counted once, but for those of `held`."""
    there = {x.untyped_storage().data_ptr() for x in held}
    found: dict[int, int] = {}

    def note(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in there:
            found[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        forward()
    return sum(found.values())
