"""Whether this machine can run generated kernels, without importing triton where it cannot."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from threading import RLock

import torch
from packaging.specifiers import SpecifierSet

INTERPRETER = RLock()  # held while it runs a kernel: its state is global, so threads take turns
SUPPORTED = SpecifierSet(">=3.6,<3.10", prereleases=True)
WORDS_FOR_YES = frozenset({"1", "true", "on", "yes", "y"})  # as triton reads its settings


def interpreting() -> bool:
    """Return whether kernels run in Triton's interpreter, on the CPU: TRITON_INTERPRET is set, before triton was first imported."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in WORDS_FOR_YES


def version() -> str | None:
    """Return the version of triton that is installed, None without one."""
    if importlib.util.find_spec("triton") is None:
        return None
    for name in ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def available() -> bool | str:
    """Return True, or what this machine lacks: triton, a triton that we know, or a CUDA device."""
    installed = version()
    if installed is None:
        return f"triton is not installed; pip install 'triton{SUPPORTED}', or a PyTorch built for CUDA, which brings it"
    if installed != "unknown" and installed not in SUPPORTED:
        return f"expected triton {SUPPORTED}, and {installed} is installed; pip install 'triton{SUPPORTED}'"
    if interpreting():
        return True
    if torch.version.hip is not None:
        return "generates kernels for CUDA devices, and this PyTorch is built for ROCm"
    message = "needs a CUDA device, and PyTorch sees none; check nvidia-smi and torch.version.cuda, or set TRITON_INTERPRET=1 to interpret on the CPU"
    return torch.cuda.is_available() or message


def devices() -> tuple[str, ...]:
    """Return the kinds of device that kernels run on here."""
    return ("cpu",) if interpreting() else ("cuda",)
