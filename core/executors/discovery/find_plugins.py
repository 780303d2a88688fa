"""Which plugins there are, from metadata and paths alone: nothing is imported here, and one unreadable distribution hides no other."""

from __future__ import annotations

import importlib.util
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import importlib_metadata
from packaging.utils import canonicalize_name

from dovetail.executors.contract.hookspecs import GROUP, KNOWN
from dovetail.executors.discovery.plugin_status import Plugin
from dovetail.executors.discovery.requirements import Requires

MANIFEST = "dovetail-manifest.json"
_VALUE = re.compile(r"(?P<module>[\w.]+)\s*(:\s*(?P<attribute>[\w.]+)\s*)?(\[(?P<extras>[^\]]*)\]\s*)?")


@dataclass(frozen=True)
class Candidate:
    """A plugin that could be imported: `module`, and `attribute` in it where the entry point names one.

    `file` is the module's own file where the plugin is loaded from a path, else empty.
    """

    name: str
    value: str
    module: str
    attribute: str = ""
    distribution: str = ""
    version: str | None = None
    path: str = ""
    file: str = ""
    needs: Requires = field(default_factory=lambda: Requires(""))

    def row(self, status: str, reason: str = "", remedy: str = "", **more: object) -> Plugin:
        """Return the record of this plugin."""
        return Plugin(self.name, self.value, self.distribution, self.version, self.path, status, reason, remedy, **more)

    @property
    def manifest(self) -> str:
        """The file next to the package in which the plugin declares itself; empty where there is none."""
        top = _package(self.module) if not self.file else Path(self.file).parent if self.file.endswith("__init__.py") else None
        return str(top / MANIFEST) if top and (top / MANIFEST).is_file() else ""


@dataclass(frozen=True)
class Known:
    """An executor that another distribution names, installed or not: its distribution and its devices."""

    name: str
    distribution: str
    devices: tuple[str, ...]
    told_by: str


@dataclass(frozen=True)
class Scan:
    """The result of a scan, each part sorted, so that it does not depend on the file system."""

    candidates: tuple[Candidate, ...]
    rows: tuple[Plugin, ...]  # of plugins that could not be read
    known: tuple[Known, ...]


def scan(paths: Iterable[str] = ()) -> Scan:
    """Find all installed plugins, and those at `paths`."""
    candidates: list[Candidate] = []
    rows: list[Plugin] = []
    known: list[Known] = []
    for path in paths:
        _sort(at_path(path), candidates, rows)
    for distribution in distributions():
        _sort(_of(distribution, known), candidates, rows)
    candidates.sort(key=lambda c: (c.name, not c.file, canonicalize_name(c.distribution), c.value, c.path))
    rows.sort(key=lambda row: (row.name, row.distribution, row.value))
    known.sort(key=lambda k: (k.name, canonicalize_name(k.distribution), k.told_by))
    return Scan(tuple(dict.fromkeys(candidates)), tuple(rows), tuple(known))


def _sort(entries: Iterable[Candidate | Plugin], candidates: list[Candidate], rows: list[Plugin]) -> None:
    for each in entries:
        (rows if isinstance(each, Plugin) else candidates).append(each)


def distributions() -> Iterator[importlib_metadata.Distribution]:
    """List each distribution once, the first on sys.path, as `import` would find its modules."""
    seen = set()
    for distribution in importlib_metadata.distributions():
        try:
            name = canonicalize_name(_name(distribution))
        except Exception:
            continue
        if name and name not in seen:
            seen.add(name)
            yield distribution


def _name(distribution: importlib_metadata.Distribution) -> str:
    """Return the name from the folder's name, which reads no file, else from the metadata."""
    folder = Path(str(getattr(distribution, "_path", ""))).name
    stem, suffix = os.path.splitext(folder)
    if suffix in (".dist-info", ".egg-info") and stem:
        return stem.partition("-")[0]
    return distribution.metadata["Name"] or ""


def _of(distribution: importlib_metadata.Distribution, known: list[Known]) -> Iterator[Candidate | Plugin]:
    """The plugins of one distribution, whose metadata may be damaged."""
    try:
        text = distribution.read_text("entry_points.txt") or ""
    except Exception as error:
        yield _damaged(distribution, "entry_points.txt", f"cannot be read: {type(error).__name__}: {error}")
        return
    if GROUP not in text and KNOWN not in text:
        return
    try:
        metadata = distribution.metadata
        name, version = metadata.get("Name") or _name(distribution), metadata.get("Version")
        needs = Requires(name, tuple(distribution.requires or ()), metadata.get("Requires-Python") or "")
    except Exception as error:
        yield _damaged(distribution, "metadata", f"cannot be read: {type(error).__name__}: {error}")
        return
    folder = str(distribution.locate_file(""))
    for group, line in _lines(text):
        key, equals, value = (part.strip() for part in line.partition("="))
        if group == GROUP:
            plain = Candidate(key, value, "", "", name, version, folder, needs=needs)
            yield _candidate(plain) if equals else plain.row("invalid", f"its entry_points.txt has an invalid line: {line!r}", _AUTHOR)
        elif group == KNOWN and equals and (read := _VALUE.fullmatch(value)):
            known.append(Known(key, canonicalize_name(read["module"]), _split(read["extras"]), name))


_AUTHOR = "report it to the author of the plugin, and reinstall it"


def _damaged(distribution: importlib_metadata.Distribution, what: str, message: str) -> Plugin:
    name = _name(distribution)
    return Plugin(name, "", name, None, str(distribution.locate_file("")), "invalid", f"its {what} {message}", f"reinstall it: pip install {name}")


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of an ini file, each with its section."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif line and not line.startswith(("#", ";")):
            yield section, line


def _split(extras: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (extras or "").split(",") if part.strip())


def _candidate(plain: Candidate) -> Candidate | Plugin:
    """`plain` with its value taken apart."""
    read = _VALUE.fullmatch(plain.value)
    if not plain.name or not read or not all(part.isidentifier() for part in read["module"].split(".")):
        reason = f"its entry point {plain.name} = {plain.value!r} names no module"
        return plain.row("invalid", reason, 'the author writes it as `name = "package.module"`')
    fields = plain.__dict__ | {"module": read["module"], "attribute": read["attribute"] or ""}
    return Candidate(**fields | {"needs": plain.needs._replace(extras=_split(read["extras"]))})


def _package(module: str) -> Path | None:
    """The folder of a module's topmost package, found without importing it."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


def at_path(path: str) -> Iterator[Candidate | Plugin]:
    """Find the plugins at one path: a module's file, a package's folder, or a project's folder with its pyproject.toml."""
    where = Path(path).expanduser().absolute()
    plain = Candidate(where.stem, str(where), "", path=str(where))
    init = where / "__init__.py"
    file = init if init.is_file() else where
    if (where / "pyproject.toml").is_file():
        yield from _project(where)
    elif not file.is_file() or file.suffix != ".py":
        message = "is not there" if not where.exists() else "is not a module, package or project with a pyproject.toml"
        yield plain.row("invalid", f"{where} {message}", "correct the path, or take it out of DOVETAIL_PLUGINS")
    elif not where.stem.isidentifier():
        yield plain.row("invalid", f"{where.stem!r} is not a valid module name", "rename the file")
    else:
        yield Candidate(where.stem, str(where), where.stem, path=str(where), file=str(file))


def _project(where: Path) -> Iterator[Candidate | Plugin]:
    """The plugins of a project that need not be installed: its entry points, and what it says that it requires."""
    plain = Candidate(where.name, str(where), "", path=str(where))
    try:
        project = tomllib.loads((where / "pyproject.toml").read_text()).get("project", {})
        points = dict(project.get("entry-points", {}).get(GROUP, {}))
        needs = Requires(str(project.get("name", "")), tuple(project.get("dependencies", ())), str(project.get("requires-python", "")))
        version = str(project["version"]) if "version" in project else None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        yield plain.row("invalid", f"its pyproject.toml cannot be read: {error}", "correct it")
        return
    if not points:
        yield plain.row("invalid", f"{where / 'pyproject.toml'} has no entry point in {GROUP}", f'add [project.entry-points."{GROUP}"]')
    for name, value in sorted(points.items()):
        candidate = _candidate(Candidate(name, str(value), "", "", needs.distribution, version, str(where), needs=needs))
        if isinstance(candidate, Plugin):
            yield candidate
            continue
        file = _module_file(where, candidate.module.partition(".")[0])
        if file is None:
            top = candidate.module.partition(".")[0]
            yield candidate.row("import-failed", f"{where} has no module {top}, nor has its folder src", "correct the entry point")
        else:
            yield Candidate(**candidate.__dict__ | {"file": str(file)})


def _module_file(where: Path, top: str) -> Path | None:
    tried = [folder / name for folder in (where, where / "src") for name in (f"{top}/__init__.py", f"{top}.py")]
    return next((file for file in tried if file.is_file()), None)
