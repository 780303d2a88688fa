"""The lines that an executor computed otherwise than the reference: it is not offered them again.

A disagreement holds for the process, and where the executor comes from an installed distribution it is kept in a file for other processes:
`dovetail disagreements` lists them and clears them.  A file is known by what it is about: the executor, its version, that of its
distribution and of torch, the files of its package, and the structure of the line; another version, and a mended one, is tried anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch

from dovetail import options
from dovetail.executors.contract.executor import Executor
from dovetail.executors.discovery.plugin_errors import distribution
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, tree_map
from dovetail.trace.printing import is_region

FORMAT = 1


@dataclass(frozen=True)
class Disagreement:
    """One line that `executor` computed otherwise than the reference: `operation` in words, `message` the figures, `case` its replay script."""

    executor: str
    operation: str
    message: str
    case: str
    key: str

    def __str__(self) -> str:
        return f"{self.executor} disagreed with the reference in {self.operation}: {self.message}; replay it with: python {self.case}"


class Distrust:
    """The registry of disagreements: those of this process by executor, and those in files."""

    def __init__(self) -> None:
        self.own: WeakKeyDictionary[Executor, dict[str, str]] = WeakKeyDictionary()
        self.kept: dict[Path, dict[str, Disagreement]] = {}
        self.lock = Lock()

    def executors(self) -> frozenset[str]:
        """Return the names of the executors that disagreed with the reference in anything."""
        if _FORGIVING.get():
            return frozenset()
        return frozenset({*(ex.name for ex in self.own), *(entry.executor for entry in self._kept(folder()).values())})

    def of(self, ex: Executor, line: BoundSymbol) -> str | None:
        """Return why `ex` may not run `line`, as a sentence; None where it may."""
        mark = structure(line)
        if mark in (own := self.own.get(ex, {})):
            return own[mark]
        kept = self._kept(folder())
        entry = kept.get(digest(ex, mark)) if kept and _key_of(ex) else None
        return None if entry is None else _refusal(entry.message, entry.case)

    def add(self, ex: Executor, line: BoundSymbol, operation: str, message: str, case: str) -> None:
        """Remember that `ex` computes `line` otherwise than the reference."""
        mark = structure(line)
        with self.lock:
            self.own.setdefault(ex, {})[mark] = _refusal(message, case)
        if _key_of(ex) is None:
            return
        disagreement = Disagreement(ex.name, operation, message, case, digest(ex, mark))
        with self.lock:
            self._kept(folder())[disagreement.key] = disagreement
        with suppress(OSError):  # a folder that cannot be written forgets, as a process does
            _write(folder() / f"{disagreement.key}.json", {"format": FORMAT, **asdict(disagreement)})

    def clear(self) -> list[Disagreement]:
        """Forget everything, the files of the folder too; return what was in them."""
        self.own.clear()
        self.kept.pop(folder(), None)
        disagreements = list(self.listed())
        for each in disagreements:
            with suppress(OSError):
                (folder() / f"{each.key}.json").unlink()
        self.kept.pop(folder(), None)
        return disagreements

    def listed(self) -> Iterator[Disagreement]:
        """List the disagreements in files, by executor."""
        yield from sorted(self._kept(folder()).values(), key=lambda each: (each.executor, each.operation, each.key))

    def _kept(self, where: Path) -> dict[str, Disagreement]:
        """The disagreements in the files of a folder, which is read once."""
        if where not in self.kept:
            self.kept[where] = {entry.key: entry for path in _files(where) if (entry := _read(path)) is not None}
        return self.kept[where]


DISTRUST = Distrust()
_STAMPS: WeakKeyDictionary[Executor, str] = WeakKeyDictionary()  # of the files of executors' packages, read once
_FORGIVING: ContextVar[bool] = ContextVar("forgiving", default=False)


@contextmanager
def forgiving() -> Iterator[None]:
    """Offer executors what they computed otherwise before, too."""
    token = _FORGIVING.set(True)
    try:
        yield
    finally:
        _FORGIVING.reset(token)


def folder() -> Path:
    """Return the folder of disagreements and the scripts that replay them."""
    return Path(options.TRIAL_FOLDER.read() or os.path.join(options.cache_folder(), "trial"))


def structure(line: BoundSymbol) -> str:
    """Describe a line without its names: equal for lines that compute the same of tensors laid out the same."""
    numbers: dict[Proxy, str] = {}

    def word(leaf: Any) -> Any:
        if not isinstance(leaf, Proxy):
            return f"{type(leaf).__name__}:{leaf!r}"
        if leaf not in numbers:
            numbers[leaf] = f"v{len(numbers)}"
            steps = list(leaf.spec.steps) if isinstance(leaf, TensorProxy) else ""
            return f"{numbers[leaf]}:{leaf.spec}{steps}"
        return numbers[leaf]

    def rows(lines: tuple[BoundSymbol, ...]) -> list[Any]:
        return [[str(each.symbol.id), *tree_map(word, (each.args, each.kwargs, each.out)), rows(each.body)] for each in lines]

    name = "region" if is_region(line) else line.symbol.id
    return json.dumps([name, tree_map(word, line.args), tree_map(word, line.kwargs), rows(line.body), tree_map(word, line.out)], default=str)


def digest(ex: Executor, mark: str) -> str:
    """Return the name of the file for a line of an executor."""
    of = [FORMAT, ex.name, ex.version, _key_of(ex), _stamp_of(ex), torch.__version__, mark]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()


def _key_of(ex: Executor) -> tuple[str, str] | None:
    """The distribution that an executor came from, with its version; None where a version says nothing of its code."""
    origin = distribution(ex)
    return origin if origin is not None and origin[1] else None


def _stamp_of(ex: Executor) -> str:
    """Return what changes when a file of the executor's package does; empty where it has none."""
    if ex not in _STAMPS:
        modules = [row.value.partition(":")[0] for row in REGISTRY.plugins or () if ex.name in row.executors and row.value]
        files = [path for name in modules for path in _files_of(getattr(sys.modules.get(name), "__file__", None))]
        contents = [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
        _STAMPS[ex] = hashlib.sha256(json.dumps(contents).encode()).hexdigest() if contents else ""
    return _STAMPS[ex]


def _files_of(file: str | None) -> list[Path]:
    """Return the files of the package whose `__init__.py` this is, or the file of a module alone."""
    path = Path(file) if file else None
    if path is None or path.name != "__init__.py":
        return [path] if path is not None and path.is_file() else []
    return sorted(each for each in path.parent.rglob("*") if each.is_file() and each.suffix != ".pyc")


def _refusal(message: str, case: str) -> str:
    return f"disagreed with the reference: {message}; replay it with: python {case}"


def _files(where: Path) -> list[Path]:
    try:
        return sorted(where.glob("*.json"))
    except OSError:
        return []


def _read(path: Path) -> Disagreement | None:
    """What a file says; None where it is none of ours, or was copied over another's."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields.pop("format") == FORMAT and fields["key"] == path.stem:
            return Disagreement(**fields)
    return None


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a file whole, whoever else writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    os.replace(file.name, path)
