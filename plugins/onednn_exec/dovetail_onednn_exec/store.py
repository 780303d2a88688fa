"""Store the measurements of a machine in one JSON file, written atomically under a lock.

A seal binds what was measured to the machine: a file that was damaged, or copied from elsewhere, is measured again.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from dovetail.extend.advanced import processor
from dovetail_onednn_exec.measure import Row

FORMAT = 4
PATIENCE = 10.0  # seconds to wait for another process that measures
OF_LIBRARIES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE")  # variables that change which kernels run


def machine() -> dict[str, Any]:
    """Return a description of everything that times depend on."""
    limits = {name: os.environ[name] for name in OF_LIBRARIES if name in os.environ}
    return {"cpu": processor(), "cores": os.cpu_count(), "torch": torch.__version__, "threads": torch.get_num_threads(), **limits}


def path_of(of: dict[str, Any], folder: str = "") -> Path:
    """Return the file for a machine."""
    digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
    return (Path(folder) if folder else user_cache_path("dovetail") / "onednn") / f"{digest}.json"


def read(path: Path, of: dict[str, Any]) -> dict[str, Row]:
    """Read the measurements of a file by class; empty where it is missing, damaged, or another machine's."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["format"] == FORMAT and stored["machine"] == of and stored["seal"] == _seal(of, stored["classes"]):
            return {key: Row(**row) for key, row in stored["classes"].items()}
    return {}


def lock_of(path: Path) -> FileLock:
    """Return the lock of a file, held while measuring so that two processes do not disturb each other."""
    return FileLock(f"{path}.lock", timeout=PATIENCE)


def write(path: Path, of: dict[str, Any], rows: dict[str, Row]) -> None:
    """Replace the file atomically."""
    classes = {key: vars(rows[key]) for key in sorted(rows)}
    text = json.dumps(
        {"format": FORMAT, "machine": of, "classes": classes, "seal": _seal(of, classes)}
    )  # in C, which json.dump and an indent are not: a model writes the file once for each class that it measures
    with NamedTemporaryFile("w", dir=path.parent, prefix=path.stem, suffix=".new", delete=False, encoding="utf-8") as file:
        file.write(text)
    os.replace(file.name, path)


def _seal(of: dict[str, Any], classes: dict[str, dict[str, Any]]) -> str:
    """Return the hash of the measurements of a machine."""
    return hashlib.sha256(json.dumps([FORMAT, of, classes], sort_keys=True).encode()).hexdigest()


class Held:
    """Hold the lock of a file; on a read-only disk, or behind a stuck process, go on without it."""

    def __init__(self, path: Path):
        self.path, self.lock, self.holds = path, lock_of(path), False

    def __enter__(self) -> Held:
        with suppress(OSError, Timeout):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.lock.acquire()
            self.holds = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.holds:
            self.lock.release()
