"""Finds the kernel, `xentropy_cuda`, or says why it is not there."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from types import ModuleType

import torch

NAME = "xentropy_cuda"  # a module of its own, beside the package apex
BUILD = "build NVIDIA's from source with APEX_CPP_EXT=1 APEX_CUDA_EXT=1 APEX_XENTROPY=1 (README of dovetail-apex-xentropy)"


def find() -> tuple[ModuleType | None, str]:
    """Return the kernel and "", or None and a sentence that says what is missing and what helps."""
    try:
        kernel = importlib.import_module(NAME)
    except ModuleNotFoundError as error:
        if error.name == NAME:
            return None, _without()
        return None, f"{NAME} is there and needs {error.name}, which is not; {BUILD}"
    except (ImportError, OSError) as error:
        return None, f"{NAME} was built against another PyTorch than {torch.__version__} ({error}); {BUILD} again"
    if not (hasattr(kernel, "forward") and hasattr(kernel, "backward")):
        return None, f"the module {NAME} has no forward and backward, so it is another than NVIDIA apex's; uninstall it, then {BUILD}"
    return kernel, ""


def _without() -> str:
    """Return why there is no kernel: which apex is installed, if any."""
    folder = _apex_folder()
    if folder is None:
        return f"{NAME} is not installed, and neither is NVIDIA apex; {BUILD}"
    if _is_unrelated(folder):
        return f"{NAME} is not installed, and the apex here is the unrelated one from PyPI, for Pyramid; pip uninstall apex, then {BUILD}"
    return f"NVIDIA apex is installed and was built without {NAME}; {BUILD} again"


def _apex_folder() -> Path | None:
    """Return where the package apex lies; it is not imported."""
    try:
        spec = importlib.util.find_spec("apex")
    except ValueError:  # a module without a spec was put into sys.modules by hand
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else Path(spec.origin or ".").parent if spec else None


def _is_unrelated(folder: Path) -> bool:
    """Return whether a distribution is not NVIDIA's: that has a folder `contrib`, and the other's summary speaks of Pyramid."""
    try:
        summary = importlib.metadata.metadata("apex").get("Summary") or ""
    except importlib.metadata.PackageNotFoundError:
        summary = ""
    return "Pyramid" in summary or not (folder / "contrib").is_dir()


def available() -> bool | str:
    """Return True, or what this machine lacks."""
    kernel, missing = find()
    if kernel is None:
        return missing
    return torch.cuda.is_available() or f"{NAME} is there and needs a CUDA device, and PyTorch sees none; check nvidia-smi and torch.version.cuda"
