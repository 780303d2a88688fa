"""Where configuration comes from: files, the environment, the command line and `with dovetail.use(...)`; and its subscribers."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple
from weakref import WeakSet

from dovetail import options
from dovetail.errors import ExecutorError
from dovetail.options import BY_KEY, SCOPE, Option, Setting, Source, suggestion

NAMES = ("pyproject.toml", "dovetail.toml")  # looked for from the working directory upwards; where both are, the second counts more
PROCESS_WIDE = (options.ALLOW, options.CONFIG, options.FROZEN, options.LOCK, options.PLUGINS, options.REQUIRE, options.USE)


@dataclass
class Watch:
    """Counts the changes of configuration, and tells those who keep what depends on it: compiled functions."""

    generation: int = 0
    scoped: bool = False  # whether this process ever entered `dovetail.use`; until then no call has to ask for its scope
    seen: Any = None
    stats: Any = None
    listeners: WeakSet = field(default_factory=WeakSet)
    lock: RLock = field(default_factory=RLock)

    def subscribe(self, listener: Any) -> None:
        """Call listener.invalidate() after each change, as long as it lives."""
        with self.lock:
            self.listeners.add(listener)

    def changed(self) -> None:
        """Announce that something may have changed: who depends on it has to look again."""
        with self.lock:
            self.generation += 1
            for listener in self.listeners:
                listener.invalidate()


WATCH = Watch()


def refresh() -> int:
    """Read files and the environment again where they changed; the number of changes so far."""
    with WATCH.lock:
        stats = _stats()
        if stats != WATCH.stats:
            options.PROCESS.files = _read(stats)
            WATCH.stats = stats
        seen = (stats, options.environment())
        if seen != WATCH.seen:
            first, WATCH.seen = WATCH.seen is None, seen
            if not first:
                WATCH.changed()
        return WATCH.generation


# Files.


class Stat(NamedTuple):
    """A file as it was when it was read; without a time it is not there."""

    path: str
    layer: str
    time: int | None


def _stats() -> tuple[Stat, ...]:
    """The files that may hold configuration, the nearest last."""
    named = os.fspath(options.CONFIG.read())
    if named.lower() == "off":
        return ()
    if named:
        stat = Stat(named, "file", _time(named))
        if stat.time is None:
            raise ExecutorError(f"{options.CONFIG.name} names {named}, and no such file can be read; correct it, or set it to off")
        return (stat,)
    return tuple([Stat(path, "file", time) for path in (_user_file(), *_paths(os.getcwd())) if (time := _time(path)) is not None])


@lru_cache(maxsize=8)
def _paths(folder: str) -> tuple[str, ...]:
    """Return where files for a working folder may lie, the nearest last."""
    folders = [folder, *map(str, Path(folder).parents)]
    return tuple([os.path.join(each, name) for each in reversed(folders) for name in NAMES])


@lru_cache(maxsize=1)
def _user_file() -> str:
    import platformdirs  # on first use: `import dovetail` needs no files

    return os.path.join(platformdirs.user_config_dir("dovetail"), NAMES[-1])


def _time(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _read(stats: tuple[Stat, ...]) -> tuple[Setting, ...]:
    """What the user's own file says, and behind it what the nearest folder says that has something to say."""
    own = [path for stat in stats if (path := stat.path) == _user_file()]
    own_settings = [setting for path in own for setting in read_file(Path(path))]
    nearest = reversed([Path(stat.path) for stat in stats if stat.path not in own])
    for _, files in groupby(nearest, key=lambda path: path.parent):
        if settings := [setting for path in reversed(list(files)) for setting in read_file(path)]:
            return (*own_settings, *settings)
    return tuple(own_settings)


def read_file(path: Path) -> list[Setting]:
    """Read the settings in one file: all of it, or [tool.dovetail] in a pyproject.toml.  Each knows its line."""
    try:
        text = path.read_text(encoding="utf-8")
        shared = path.name == NAMES[0]
        if shared and "dovetail" not in text:
            return []
        document = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ExecutorError(f"{path} cannot be read: {error}; correct it, or name another file in {options.CONFIG.name}") from None
    prefix = "tool.dovetail." if shared else ""
    lines, read = _lines(text), []
    for key, value in (document.get("tool", {}).get("dovetail", {}) if shared else document).items():
        option = options.option_named(key, _source(path, lines, prefix + key))
        if option in (options.OPERATIONS, options.OPTIONS_OF) and isinstance(value, dict):
            read += [option.setting({name: each}, _source(path, lines, f"{prefix}{key}.{name}", prefix + key)) for name, each in value.items()]
        else:
            read.append(option.setting(_placed(option, value, path), _source(path, lines, prefix + key)))
    return read


def _placed(option: Option, value: Any, path: Path) -> Any:
    """Paths in a file start from its folder."""
    if option is options.LOCK and isinstance(value, str):
        return str(path.parent / value)
    if option is options.PLUGINS and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [str(path.parent / each) for each in value]
    return value


def _source(path: Path, lines: dict[str, int], *keys: str) -> Source:
    line = next((lines[key] for key in keys if key in lines), None)
    shown_path = path.relative_to(here) if path.is_relative_to(here := Path.cwd()) else path
    return Source("file", f"{shown_path}:{line}" if line else str(shown_path))


_SECTION = re.compile(r"\s*\[\[?\s*(?P<name>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*\{?\s*(?P<name>("[^"]*"|'[^']*'|[\w-]+)(\s*\.\s*("[^"]*"|'[^']*'|[\w-]+))*)\s*=""")


def _lines(text: str) -> dict[str, int]:
    """The first line of each key in a TOML file, by its full name, and of each table that holds it."""
    section, line_numbers = "", {}
    for number, line in enumerate(text.splitlines(), 1):
        if read := _SECTION.match(line):
            name = section = _plain(read["name"])
        elif read := _KEY.match(line):
            name = ".".join(filter(None, (section, _plain(read["name"]))))
        else:
            continue
        line_numbers.setdefault(name, number)
        for key in BY_KEY:  # `tool.dovetail.operations.x` is also where `tool.dovetail.operations` stands
            for prefix in ("tool.dovetail.", ""):
                if name.startswith(f"{prefix}{key}."):
                    line_numbers.setdefault(prefix + key, number)
    return line_numbers


def _plain(name: str) -> str:
    return re.sub(r"""["']|\s""", "", name)


def lock_path() -> Path:
    """Return the lock file: as configured, else beside the nearest configuration file, else in the working directory."""
    if options.settings(options.LOCK):
        return Path(options.LOCK.read())
    near = [each for each in options.PROCESS.files if not each.source.where.startswith(_user_file())]
    return (Path(near[-1].source.where.rpartition(":")[0]).parent if near else Path()) / options.LOCK.default


# Calls.


def command_line(**values: Any) -> None:
    """Set options for the whole process, above files and the environment, as the command line does."""
    flags = tuple([option.setting(value, Source("command line", f"--{key}")) for key, value in values.items() if (option := BY_KEY[key])])
    options.PROCESS.command_line += flags
    WATCH.changed()


def call_settings(values: dict[str, Any], where: str) -> tuple[Setting, ...]:
    """Return the arguments of `dovetail.use` as settings."""
    source, scoped = Source("use", where), []
    for key, value in values.items():
        option = options.option_named(key, source)
        if option in PROCESS_WIDE:
            raise ExecutorError(f"{source} sets {key!r}, which holds for a whole process; set it in a file, or as {option.name}")
        if value is not None:
            scoped.append(option.setting(value, source))
    return tuple(scoped)


@contextmanager
def scope(scoped: tuple[Setting, ...]) -> Iterator[None]:
    """Put `scoped` in front of all other settings, in this thread or asynchronous task and in the tasks that it starts."""
    if not WATCH.scoped:
        with WATCH.lock:
            WATCH.scoped = True
            WATCH.changed()
    token = SCOPE.set(_joined(SCOPE.get(), scoped, repr(scoped)))
    try:
        yield
    finally:
        SCOPE.reset(token)


@lru_cache(maxsize=256)
def _joined(outer: tuple[Setting, ...], inner: tuple[Setting, ...], written: str) -> tuple[Setting, ...]:
    """The same object for the same settings, so that a compiled function knows a scope again by its identity."""
    return (*outer, *inner)


# Which plugins are imported and used.


def disabling_setting(name: str, distribution: str = "") -> Setting | None:
    """Return the setting that disables the plugin or executor `name` here, or None."""
    disabled: Setting | None = None
    for setting in options.settings(options.DISABLE):  # each holds what those below it say, too
        if not {name, distribution} & set(setting.value):
            disabled = None
        elif disabled is None:
            disabled = setting
    allowed = options.settings(options.ALLOW)
    return disabled or (allowed[-1] if allowed and not {name, distribution} & set(allowed[-1].value) else None)


def check_names(known: dict[str, str], objects: Collection[str] = ()) -> None:
    """Raise for a name in `disable`, `allow` or `require` that no plugin and no executor has; `known` is name -> status.

    `options` may also name one of `objects`, executors that programs hold and pass to calls.
    """
    for option in (options.DISABLE, options.ALLOW, options.REQUIRE):
        for setting in options.settings(option):
            for name in setting.value:
                if name not in known:
                    raise ExecutorError(f"{option.key} in {setting.source} names {name!r}, and no plugin is called so; {near(name, known)}")
    for setting in options.settings(options.OPTIONS_OF):
        for path, _ in setting.value:
            if (plain := path.partition(".")[0]) not in known and plain not in objects:
                raise ExecutorError(f"options in {setting.source} sets {path!r}, and no executor is called {plain}; {near(plain, known)}")


def near(name: str, known: dict[str, str]) -> str:
    """Return `suggestion`, with the status of the nearest name where that is not ready."""
    message = suggestion(name, known)
    other = [f"{each} is {status}" for each, status in known.items() if status != "ready" and re.search(rf"\b{re.escape(each)}\b", message)]
    return message + (f" ({', '.join(other)})" if other else "")


def option_values(name: str, declared: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the executor `name`: what it declares, changed by configuration; raise for one that it does not declare."""
    values = dict(declared)
    for setting in options.settings(options.OPTIONS_OF):
        for path, value in setting.value:
            executor, _, key = path.partition(".")
            if executor != name:
                continue
            if key not in declared:
                raise ExecutorError(f"options in {setting.source} sets {path}, and {name} has no such option; {suggestion(key, declared)}")
            values[key] = _like(declared[key], value, f"{path} in {setting.source}")
    return values


def _like(usual: Any, value: Any, where: str) -> Any:
    """`value` as the type of the default: words from the environment are read as a file would write them."""
    if isinstance(value, str) and not isinstance(usual, (str, type(None))):
        with suppress(ValueError):
            value = tomllib.loads(f"value = {value}")["value"]
    wanted = (int, float) if type(usual) is float else type(usual)
    if usual is not None and (not isinstance(value, wanted) or isinstance(value, bool) is not isinstance(usual, bool)):
        raise ExecutorError(f"{where} is {value!r}; it expects {type(usual).__name__}, as in {usual!r}")
    return value
