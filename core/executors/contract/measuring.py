"""For executors that measure which way to compute something is faster."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import torch

from dovetail.torch_internals import no_modes, no_torch_function

CPU_LINES = ("model name", "cpu family", "model", "stepping", "flags", "CPU implementer", "CPU part", "Features")


def undisturbed() -> ExitStack:
    """Return a context in which modes and gradients of the caller do not affect what is measured."""
    stack = ExitStack()
    for each in (no_modes(), no_torch_function(), torch.autocast("cpu", enabled=False), torch.no_grad()):
        stack.enter_context(each)
    return stack


def seconds_waited() -> float:
    """Return how long threads of this process that could run have waited for a core; 0 where the system does not report it.

    Linux reports it.  What ran while other processes took the cores is no measurement.
    """
    total = 0
    with suppress(OSError, ValueError, IndexError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
    return total * 1e-9


@cache
def processor() -> str:
    """Describe the CPU and its features; descriptions differ where kernels of libraries would."""
    try:
        rows = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    fields = dict((part.strip() for part in row.split(":", 1)) for row in rows if ":" in row)
    return "; ".join(f"{name} {fields[name]}" for name in CPU_LINES if name in fields)
