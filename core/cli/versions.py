"""The versions that plugins run with."""

from __future__ import annotations

import platform

import torch

import dovetail


def versions() -> dict[str, str]:
    """Return the versions of Dovetail, torch and Python in this process."""
    return {"dovetail": dovetail.__version__, "torch": torch.__version__, "python": platform.python_version()}
