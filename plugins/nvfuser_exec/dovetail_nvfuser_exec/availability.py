"""Whether this machine can run nvFuser: decided from metadata where possible, since a wheel for another torch may crash the process."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from packaging.version import Version

from dovetail.extend.advanced import ExecutorError

MODULE = "nvfuser_direct"
FLOOR = Version("0.2.34.dev0")
PYTHONS = ((3, 10), (3, 12))  # for which wheels exist; Dovetail itself needs 3.11 or later
TORCHES = ((2, 8), (2, 9), (2, 10))
ENVIRONMENT = "make an environment of Python 3.12 and torch 2.10 for CUDA 12.8, and there pip install --pre nvfuser-cu128-torch210"
_WHEEL = re.compile(r"nvfuser[-_]cu(\d+)(\d)[-_]torch(\d)(\d+)$")


class Wheel(NamedTuple):
    """An installed distribution of nvFuser: its name and version, and what it was built for."""

    name: str
    version: str
    torch: tuple[int, int] | None  # None where its name does not say
    cuda: str | None


def installed() -> Wheel | None:
    """Return the distribution that contains `nvfuser_direct`, None where none does; nothing is imported.

    Of all installed distributions, only those are read of which the folder is called so: reading hundreds takes a quarter of a second.
    """
    folders = [folder for place in sys.path for folder in Path(place).glob("nvfuser*.dist-info")]
    wheels = [wheel for folder in folders if (wheel := _wheel(importlib.metadata.Distribution.at(folder))) is not None]
    return min(wheels, key=lambda wheel: wheel.torch is None) if wheels else None


def _wheel(dist: importlib.metadata.Distribution) -> Wheel | None:
    name = (dist.metadata["Name"] or "").lower() if dist.metadata is not None else ""
    if (match := _WHEEL.match(name)) is not None:
        cuda, minor, major_of_torch, minor_of_torch = match.groups()
        return Wheel(name, dist.version, (int(major_of_torch), int(minor_of_torch)), f"{cuda}.{minor}")
    return Wheel(name, dist.version, None, None) if name in ("nvfuser", "nvfuser-direct", "nvfuser_direct") else None


def available() -> bool | str:
    """Return True, or what this machine lacks and how to fix it.  nvFuser is imported only where everything else is present."""
    message = fits()
    if message is True and not torch.cuda.is_available():
        return "needs a CUDA device with its driver, and PyTorch sees none; check nvidia-smi and CUDA_VISIBLE_DEVICES"
    return imports() if message is True else message


def fits() -> bool | str:
    """Return whether the installed nvFuser was built for this Python and this torch, or a sentence with what to install."""
    wheel = installed()
    if importlib.util.find_spec(MODULE) is None:
        return _absent(wheel)
    version = torch.__version__
    if wheel is None:
        return True  # built from source: importing it shows whether it fits
    if Version(wheel.version) < FLOOR:
        return f"expected nvFuser 0.2.34 or later, and {wheel.name} {wheel.version} is installed; pip install --pre --upgrade {wheel.name}"
    if wheel.torch is not None and wheel.torch != torch_version():
        return f"{wheel.name} {wheel.version} was built for torch {_dotted(wheel.torch)}, and torch {version} is installed; {_other(wheel)}"
    if torch.version.cuda is None:
        index = f"https://download.pytorch.org/whl/cu{(wheel.cuda or '12.8').replace('.', '')}"
        return f"expected a torch for CUDA, and torch {version} is built without it; pip install torch=={Version(version).public} --index-url {index}"
    return True


def _absent(wheel: Wheel | None) -> str:
    """Return the refusal where `nvfuser_direct` is missing, with the way out."""
    if wheel is not None:
        return f"expected {MODULE}, which {wheel.name} {wheel.version} does not bring; pip uninstall {wheel.name}, then {_install()}"
    return f"nvFuser is not installed; {_install()}"


def _install() -> str:
    """Return the command that installs nvFuser into this environment, or into one with wheels."""
    python, torch_is = sys.version_info[:2], torch_version()
    if python in PYTHONS and torch_is in TORCHES:
        cuda = "130" if (torch.version.cuda or "").startswith("13") else "128"
        return f"pip install --pre nvfuser-cu{cuda}-torch{_dotted(torch_is).replace('.', '')}"
    why = f"there is no wheel for Python {_dotted(python)} with torch {torch.__version__}, only for Python 3.12 with torch 2.8 to 2.10"
    return f"{why}; {ENVIRONMENT}"


def _other(wheel: Wheel) -> str:
    """Return the way out where nvFuser and torch do not fit together."""
    ours = f"pip install torch=={_dotted(wheel.torch)}.*"
    return f"{ours}, or {_install()}" if torch_version() in TORCHES else ours


def imports() -> bool | str:
    """Return whether `nvfuser_direct` imports, or the error and which versions it was built for."""
    if (message := fits()) is not True:
        return message
    try:
        module()
    except ExecutorError as error:
        return str(error)
    return True


def module() -> ModuleType:
    """Import `nvfuser_direct`; any failure of it is an ExecutorError that names both versions."""
    try:
        return importlib.import_module(MODULE)
    except Exception as error:  # undefined symbols, a missing library: any failure is reported
        wheel = installed()
        what = f"{wheel.name} {wheel.version}" if wheel is not None else MODULE
        built = f", built for torch {_dotted(wheel.torch)}," if wheel is not None and wheel.torch is not None else ""
        first = str(error).splitlines()[0] if str(error) else "no reason given"
        raise ExecutorError(
            f"{what}{built} does not import with torch {torch.__version__}, {type(error).__name__}: {first}; {ENVIRONMENT}"
        ) from error


def torch_version() -> tuple[int, int]:
    """Return the release of torch: (2, 10) for "2.10.0+cu128"."""
    return Version(torch.__version__).release[:2]


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
