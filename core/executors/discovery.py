"""Finds executors: each installed plugin is one entry point in the group `dovetail.executors`."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock
from types import SimpleNamespace

import importlib_metadata
import pluggy

from dovetail.errors import ExecutorError
from dovetail.executors import hookspecs
from dovetail.executors.executor import Executor, OperatorExecutor


@dataclass(frozen=True)
class Plugin:
    """One entry point and what became of it.  `status` is "ready", "unavailable" or "broken"; `reason` says why, in a sentence."""

    name: str
    distribution: str
    version: str
    status: str
    reason: str = ""
    executors: tuple[str, ...] = ()


@dataclass
class Registry:
    """The executors of this process.  Installed plugins are loaded when they are first asked for."""

    executors: dict[str, Executor] = field(default_factory=dict)
    defaults: list[str] = field(default_factory=list)  # added by add_operator_executor, the newest first
    plugins: list[Plugin] | None = None
    lock: RLock = field(default_factory=RLock)

    def load(self) -> None:
        """Load every plugin, each on its own: one that fails is a row in the inventory and stops nothing."""
        with self.lock:
            if self.plugins is not None:
                return
            self.plugins = []
            entry_points = importlib_metadata.entry_points(group=hookspecs.GROUP)
            for point in sorted(entry_points, key=lambda point: (point.name, point.value)):
                self.plugins.append(self._load_one(point))

    def _load_one(self, point: importlib_metadata.EntryPoint) -> Plugin:
        distribution = point.dist.name if point.dist else "unknown"
        version = point.dist.version if point.dist else "0"
        try:
            manager = pluggy.PluginManager("dovetail")
            manager.add_hookspecs(hookspecs)
            manager.register(point.load(), point.name)
            manager.check_pending()
            made = [ex for found in manager.hook.dovetail_executors() for ex in found]
            missing = [said for ex in made if (said := ex.available()) is not True]
            if missing:
                return Plugin(point.name, distribution, version, "unavailable", "; ".join(str(said or "gave no reason") for said in missing))
            for ex in made:
                self.add(ex)
        except (Exception, SystemExit) as error:
            return Plugin(point.name, distribution, version, "broken", f"{type(error).__name__}: {error}")
        return Plugin(point.name, distribution, version, "ready", "", tuple(ex.name for ex in made))

    def add(self, ex: Executor, *, replace: bool = False) -> None:
        """Make `ex` known by its name; a name can be taken once, unless `replace`."""
        with self.lock:
            if ex.name in self.executors and not replace:
                raise ExecutorError(f"an executor called {ex.name} exists already; choose another name or pass replace=True")
            self.executors[ex.name] = ex


REGISTRY = Registry()


def get_executor(name: str) -> Executor:
    """The executor called `name`, or an error that lists the names there are."""
    REGISTRY.load()
    try:
        return REGISTRY.executors[name]
    except KeyError:
        known = ", ".join(sorted(REGISTRY.executors)) or "none: install a distribution with an entry point in dovetail.executors"
        raise ExecutorError(f"no executor is called {name!r}; known: {known}") from None


def executors() -> list[Executor]:
    """Every executor of this process."""
    REGISTRY.load()
    return list(REGISTRY.executors.values())


def plugins() -> list[Plugin]:
    """One row for each installed plugin, whatever became of it."""
    REGISTRY.load()
    return list(REGISTRY.plugins or ())


class _Implementations(SimpleNamespace):
    def __init__(self, ex: OperatorExecutor):
        super().__init__(_executor=ex)

    def __getattr__(self, name: str) -> object:
        return self._executor.named(name)


def implementations_of(name: str) -> SimpleNamespace:
    """The implementations of an executor by the names that programs print: `implementations_of("torch").convert_element_type`."""
    return _Implementations(get_executor(name))
