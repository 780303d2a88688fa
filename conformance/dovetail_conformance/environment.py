"""The environment of a report: versions, the machine, the suite's own hash, the state of the executor's repository."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from inspect import getfile
from pathlib import Path
from typing import Any

import torch

import dovetail
from dovetail.extend.advanced import Executor

HERE = Path(__file__).parent


@cache
def suite() -> dict[str, str]:
    """Return the version of the suite, and a hash of everything in it."""
    digest = hashlib.sha256()
    for path in sorted([*HERE.rglob("*.py"), *HERE.rglob("*.json"), *HERE.rglob("*.html")]):
        digest.update(path.relative_to(HERE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return {"version": suite_version(), "hash": digest.hexdigest()}


@cache
def suite_version() -> str:
    try:
        return version("dovetail-conformance")
    except PackageNotFoundError:  # run from a folder that is not installed
        return "0"


def machine() -> dict[str, Any]:
    """Describe versions and hardware."""
    description = {"dovetail": dovetail.__version__, "torch": torch.__version__, "python": platform.python_version(), "system": platform.system()}
    description |= {"machine": platform.machine(), "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        description |= {"cuda": torch.version.cuda, "device": torch.cuda.get_device_name(), "capability": f"{major}.{minor}"}
    return description


def identity(ex: Executor) -> dict[str, Any]:
    """Describe the executor, where it was installed from, and what it declares."""
    distribution, of = ex.distribution or ("", None)
    return {"name": ex.name, "version": ex.version, "distribution": distribution, "distribution_version": of or "", "declaration": ex.declaration()}


def folder(ex: Executor) -> Path | None:
    """Return the folder of the executor's code; None where it has none of its own."""
    library = Path(torch.__file__).parent
    return next((path.parent for path in map(_file, _code(ex)) if path is not None and library not in path.parents), None)


def source(ex: Executor) -> dict[str, Any]:
    """Return the commit of the repository that the executor's code lies in, and whether nothing in it was changed; empty outside of one."""
    where = folder(ex)
    if where is None or shutil.which("git") is None:
        return {}
    commit = _git(where, "rev-parse", "HEAD")
    if not commit or not _git(where, "ls-files", "."):
        return {}
    return {"commit": commit, "clean": not _git(where, "status", "--porcelain", "--untracked-files=no")}


def _code(ex: Executor) -> list[Any]:
    """Return a class or function of the executor's own repository."""
    table = getattr(ex, "table", {})
    rules = [rule for entry in table.values() for rule in (entry.checker, entry.fn, entry.grad, entry.execution_transform, entry.stateful) if rule]
    own = [type(ex)] if not type(ex).__module__.startswith("dovetail.") else []
    return [*own, *rules]


def _file(thing: Any) -> Path | None:
    try:
        return Path(getfile(thing))
    except TypeError:
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
