"""The lock file: which plugins there were, of which distribution, version and content, and the order of executors."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dovetail.errors import ExecutorError
from dovetail.executors.contract.executor import Executor
from dovetail.executors.discovery.find_plugins import Candidate, scan
from dovetail.executors.discovery.plugin_filter import configured, select

FORMAT = 1
HEAD = "# Made by `dovetail lock`.  With frozen = true, or `dovetail lock --frozen`, plugins and their order have to be these.\n"


class Locked(NamedTuple):
    """One plugin as the lock file has it."""

    name: str
    distribution: str
    version: str
    hash: str


@dataclass(frozen=True)
class Lock:
    """What a lock file says: the plugins that would be imported, and the order of executors."""

    plugins: tuple[Locked, ...]
    order: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)  # of dovetail, torch and Python at that time; they need not be the same later

    def written(self) -> str:
        """Return the text of the file."""
        versions = "".join(f"{name} = {json.dumps(version)}\n" for name, version in self.versions.items())
        rows = [f"format = {FORMAT}\norder = {json.dumps(list(self.order))}\n", f"[versions]\n{versions}"]
        for plugin in self.plugins:
            rows.append("[[plugin]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in plugin._asdict().items()))
        return HEAD + "\n".join(rows)

    def differences(self, now: Lock) -> list[str]:
        """Compare with another lock: a line with `-` for what is locked, one with `+` for what there is."""
        was, there = ({plugin.name: plugin for plugin in lock.plugins} for lock in (self, now))
        rows = []
        for name in sorted({*was, *there}):
            old, new = was.get(name), there.get(name)
            if old == new:
                continue
            content = bool(old and new and old[:3] == new[:3])  # the same version, and other files
            rows += [f"{sign} {_words(each, content)}" for sign, each in (("-", old), ("+", new)) if each]
        if self.order != now.order:
            rows += [f"{sign} order: {', '.join(order)}" for sign, order in (("-", self.order), ("+", now.order)) if order]
        return rows


def _words(plugin: Locked, content: bool) -> str:
    message = f"{plugin.name}: {plugin.distribution or 'a path'} {plugin.version}".rstrip()
    return f"{message}, {plugin.hash[:23]}" if content else message


def order_of(executors: Iterable[Executor]) -> tuple[str, ...]:
    """Return the names of the executors of plugins, in order; what a program adds itself is not locked."""
    return tuple([ex.name for ex in executors if getattr(ex, "distribution", None)])


def plugins() -> tuple[Locked, ...]:
    """List the plugins that configuration admits, without importing any of them."""
    wanted = configured()
    chosen, _ = select(scan(wanted.plugins).candidates, wanted)
    return tuple([Locked(each.name, each.distribution, each.version or "", content(each)) for each in chosen])


def content(plugin: Candidate) -> str:
    """Hash the files of a plugin's package, names and bytes; a module's file where it is no package."""
    digest = hashlib.sha256()
    for name, file in _files(plugin):
        digest.update(f"{name}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return f"sha256:{digest.hexdigest()}"


def _files(plugin: Candidate) -> list[tuple[str, Path]]:
    if plugin.file:
        start = Path(plugin.file)
        tops = [start.parent if start.name == "__init__.py" else start]
    else:
        spec = importlib.util.find_spec(plugin.module.partition(".")[0])  # of a topmost package, which imports nothing
        if spec is None:
            return []
        tops = [Path(spec.origin)] if spec.origin and not spec.submodule_search_locations else [Path(top) for top in spec.submodule_search_locations]
        if spec.origin is None:  # a namespace, which others may share
            tops = [top / "/".join(plugin.module.split(".")[1:]) for top in tops]
    files = [(file.relative_to(top.parent).as_posix(), file) for top in tops for file in ([top] if top.is_file() else top.rglob("*"))]
    return sorted((name, file) for name, file in files if file.is_file() and "__pycache__" not in file.parts)


def read(path: Path) -> Lock:
    """Read the lock in a file; raise an error that says what is wrong with it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != FORMAT:
            raise ExecutorError(f"{path} has format {document.get('format')!r}, and this version reads {FORMAT}; make it anew with `dovetail lock`")
        return Lock(tuple([Locked(**row) for row in document.get("plugin", [])]), tuple(document["order"]), document.get("versions", {}))
    except FileNotFoundError:
        raise ExecutorError(f"there is no lock file {path}; make one with `dovetail lock`") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ExecutorError(f"{path} is no lock file: {error}; make it anew with `dovetail lock`") from None


def drift(path: Path, differences: list[str]) -> ExecutorError:
    """Return the error of a frozen process whose plugins differ from the lock."""
    rows = "\n".join(f"  {row}" for row in differences)
    way_out = "Install the locked versions, or update the lock: dovetail lock"
    return ExecutorError(f"{path} differs from what is installed (-: locked, +: installed):\n{rows}\n{way_out}")
