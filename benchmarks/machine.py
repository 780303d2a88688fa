"""What figures depend on, where they are kept, and how they are written."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return processor and versions; nothing that identifies the machine."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def today() -> str:
    return datetime.date.today().isoformat()


def commit() -> str:
    """Return the commit that is measured, with a + where files differ from it; "unknown" outside a checkout."""
    told = [git("rev-parse", "--short=12", "HEAD"), git("status", "--porcelain", "--untracked-files=no")]
    return "unknown" if None in told else told[0] + ("+" if told[1] else "")


def git(*command: str) -> str | None:
    try:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def written(about: dict[str, Any]) -> str:
    """Format names and values on one line."""
    named = {key: " ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value for key, value in about.items()}
    return ", ".join(f"{key} {value}" for key, value in named.items() if value not in (None, ""))


def span(seconds: float) -> str:
    """Format a duration with three digits: 1.42 us, 35.0 ms, 11.5 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
