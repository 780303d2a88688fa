"""Generated source on disk: files named by what they hold, which any process may find, and none sees half-written."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from threading import Lock
from types import ModuleType

from platformdirs import user_cache_path

from dovetail_triton_exec import __version__

PREFIX = "dovetail_triton_generated_"
_LOCK = Lock()


def folder(named: str = "") -> Path:
    """Return where generated files lie: the folder that the user named, else one in the user's cache."""
    return Path(named) if named else user_cache_path("dovetail") / "triton"


def digest(text: str) -> str:
    """Return what names a file: of its text, and of the version whose helpers it calls."""
    return hashlib.sha256(f"{__version__}\n{text}".encode()).hexdigest()[:20]


def written(text: str, named: str = "") -> Path:
    """Return the file that holds `text`, written unless it is there: first beside its place, then moved to it, which is one step."""
    name = digest(text)
    path = folder(named) / name[:2] / f"{name}.py"
    if path.is_file() and path.read_text() == text:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{name}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path


def module(path: Path) -> ModuleType:
    """Return a generated file, imported once."""
    name = PREFIX + path.stem
    with _LOCK:
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            sys.modules[name] = loaded
        return sys.modules[name]
