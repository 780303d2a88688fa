"""Generated source on disk: files named by what they hold, which any process may find, and none sees half-written.

A file that holds something else than its name says, whatever became of it, is written anew, and never run.
"""

from __future__ import annotations

import hashlib
import linecache
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
    if path.is_file() and path.read_bytes() == text.encode():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{name}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path


def module(path: Path, text: str) -> ModuleType:
    """Return the module of `text`, which lies at `path`, imported once.

    It is compiled from the text: bytecode that Python keeps beside a file is told from another file's by its time and size alone.
    """
    name = PREFIX + path.stem
    with _LOCK:
        if name not in sys.modules:
            loaded = ModuleType(name)
            loaded.__file__ = str(path)
            lines = text.splitlines(keepends=True)
            linecache.cache[str(path)] = len(text), None, lines, str(path)  # what triton reads a kernel's source from
            exec(compile(text, str(path), "exec"), vars(loaded))
            sys.modules[name] = loaded
        return sys.modules[name]
