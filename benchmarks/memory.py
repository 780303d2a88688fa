"""How much memory a call takes: the peak of what it allocates."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def peak(fn: Callable[[], object]) -> int:
    """Return the peak of PyTorch's memory during a call in bytes, beyond that in use before it.  Temporaries inside kernels count."""
    empty_pools()
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


def empty_pools() -> None:
    """Free the blocks that executors pool for later calls: otherwise calls seem to need no memory."""
    for name, module in list(sys.modules.items()):
        if name.startswith("dovetail") and hasattr(getattr(module, "POOL", None), "clear"):
            module.POOL.clear()
