"""Load executors: each installed plugin is one entry point in the group `dovetail.executors`, loaded when executors are first needed."""

from __future__ import annotations

import copyreg
import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import RLock, get_ident
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from packaging.utils import canonicalize_name

from dovetail.errors import ExecutorError
from dovetail.executors.contract.executor import Executor, Implementation, OperatorExecutor
from dovetail.executors.discovery.find_plugins import Candidate, Known, scan
from dovetail.executors.discovery.loading import Loaded, load, ready
from dovetail.executors.discovery.plugin_filter import Selection, configured, conflict, select
from dovetail.executors.discovery.plugin_status import Plugin
from dovetail.executors.discovery.requirements import forget, problem
from dovetail.options import suggestion
from dovetail.prims.op import SYMBOLS, is_typed_again
from dovetail.trace.passes.grad import RULES
from dovetail.trace.source_location import user_line


@dataclass
class Registry:
    """The executors of this process.  Installed plugins are loaded when executors are first needed, once, and each on its own.

    `generation` counts the changes of what is registered.
    """

    executors: dict[str, Executor] = field(default_factory=dict)
    defaults: list[str] = field(default_factory=list)  # added by add_operator_executor, the newest first
    plugins: list[Plugin] | None = None
    generation: int = 0
    lock: RLock = field(default_factory=RLock)
    loaded: dict[Candidate, Loaded] = field(default_factory=dict)  # what was imported stays imported
    _owned: dict[str, Executor] = field(default_factory=dict)  # by plugins; the rest was added by calls
    _lines: dict[int, str] = field(default_factory=dict)  # of the calls that added executors, by name
    _seen: Any = None
    _loading: int | None = None  # the thread that loads

    def load(self, selection: Selection | None = None) -> None:
        """Load every plugin, each on its own: one that fails is a row in the inventory and stops nothing."""
        if self.plugins is None:
            self.refresh(selection)

    def refresh(self, selection: Selection | None = None) -> None:
        """Look again where what is installed, or the configuration, has changed; what is loaded already stays as it is.

        A plugin that asks while it is being loaded sees what is there so far.
        """
        if self._loading == get_ident():
            return
        wanted = configured() if selection is None else selection
        with self.lock:
            seen = (wanted, _places())
            if self.plugins is not None and seen == self._seen:
                return
            self._loading = get_ident()
            try:
                rows = self._rows(wanted)
            finally:
                self._loading = None
            self._seen, self.plugins = seen, sorted(rows, key=lambda row: (row.name, canonicalize_name(row.distribution), row.value, row.path))
            self.generation += 1

    def _rows(self, wanted: Selection) -> list[Plugin]:
        """The row of every plugin; those that work are registered."""
        importlib.invalidate_caches()
        there = survey(wanted)
        loaded = [self._load_one(candidate) for candidate in there.candidates]
        rows = [each for each in loaded if isinstance(each, Plugin)]
        rows = [*there.rows, *rows, *self._register([each for each in loaded if isinstance(each, Loaded)], wanted)]
        manifests = {_key(c): c.manifest for c in there.all if c.module}
        rows = [replace(row, manifest=manifests.get(_key(row), "")) for row in rows]
        names = {row.name for row in rows}
        return rows + [_absent(known) for known in there.known if known.name not in names]

    def _load_one(self, candidate: Candidate) -> Loaded | Plugin:
        """Import a plugin; one that fails leaves nothing behind in the registries."""
        if candidate in self.loaded:
            return self.loaded[candidate]
        if (old := next((c for c in self.loaded if _is_upgrade(c, candidate)), None)) is not None:
            return dataclasses.replace(self.loaded[old], candidate=candidate, running=old.version or "")
        registries = (self.executors, SYMBOLS, RULES)
        before = [dict(each) for each in registries], list(self.defaults)
        outcome = None
        try:
            outcome = load(candidate)
        finally:
            if not isinstance(outcome, Loaded):
                for registry, held in zip(registries, before[0]):
                    registry.clear()
                    registry.update(held)
                self.defaults[:] = before[1]
        if isinstance(outcome, Loaded):
            self.loaded[candidate] = outcome
        return outcome

    def _register(self, working: list[Loaded], wanted: Selection) -> list[Plugin]:
        """Register what no two plugins claim.  An executor's name belongs to the plugin of that name, where there is one."""
        added = {name: ex for name, ex in self.executors.items() if self._owned.get(name) is not ex}
        rows = {one.candidate: ready(one) for one in working}
        out = _clashes(working, rows, dict(wanted.use), added)
        owned: dict[str, Executor] = {}
        for one in working:
            if one.candidate not in out and rows[one.candidate].status == "ready":
                owned |= {ex.name: ex for ex in one.executors if ex.name in rows[one.candidate].executors}
        for name in self._owned.keys() - owned.keys() - added.keys():
            self.executors.pop(name, None)
        self.executors.update(owned)  # never without one that stays, since other threads may be looking
        self._owned = owned
        return [out.get(c, row) for c, row in rows.items()]

    def add(self, ex: Executor, *, replace: bool = False) -> None:
        """Register `ex` under its name.

        Raises ExecutorError if the name is in use, unless `replace`, or both calls belong to a notebook or a prompt.
        """
        with self.lock:
            old, line = self.executors.get(ex.name), user_line()
            before = self._lines.get(ex.name, "") if old is not None and old.place is None else ""
            if old is not None and not (replace or is_typed_again(before, line)):
                raise ExecutorError(f"an executor called {ex.name} exists already; choose another name or pass replace=True")
            self.executors[ex.name] = ex
            self._lines[ex.name] = line
            self.generation += 1

    def _after_fork(self) -> None:
        """In the child of a fork: the thread that held the lock, or was loading, is not there."""
        self.lock, self._loading = RLock(), None


class Survey(NamedTuple):
    """What there is before anything is imported: the plugins to import, the rows of the others, all of them, and what they know of."""

    candidates: list[Candidate]
    rows: list[Plugin]
    all: tuple[Candidate, ...]
    known: tuple[Known, ...]


def survey(wanted: Selection) -> Survey:
    """Look at names, configuration and requirements; no plugin code runs."""
    scanned = scan(wanted.plugins)
    forget()
    chosen, rows = select(scanned.candidates, wanted)
    wrong = {candidate: message for candidate in chosen if (message := problem(candidate.needs))}
    rows = [*scanned.rows, *rows, *(candidate.row(*message) for candidate, message in wrong.items())]
    return Survey([candidate for candidate in chosen if candidate not in wrong], rows, scanned.candidates, scanned.known)


def _clashes(working: list[Loaded], rows: dict[Candidate, Plugin], use: dict[str, str], added: dict[str, Executor]) -> dict[Candidate, Plugin]:
    """Return the rows of plugins that provide an executor of a name that others provide, too."""
    claims: dict[str, list[Candidate]] = {}
    for one in working:
        for ex in one.executors:
            claims.setdefault(ex.name, []).append(one.candidate)
    out: dict[Candidate, Plugin] = {}
    for name, sides in sorted(claims.items()):
        if name in added and rows[sides[0]].status == "ready":
            reason = f"this process has registered an executor called {name} itself"
            out |= {c: replace(rows[c], status="conflict", reason=reason, remedy="give that one another name") for c in sides}
        elif len(sides) > 1:
            kept = _owner(name, sides, use.get(name, ""))
            losers = [c for c in sides if c is not kept]
            out |= {c: conflict(rows[c], [rows[other] for other in sides if other is not c], name) for c in losers}
    return out


def _owner(name: str, sides: list[Candidate], meant: str) -> Candidate | None:
    """Return the candidate that provides `name`: the plugin in development, the configured distribution, the plugin of that name; else None."""
    for rule in (
        lambda c: bool(c.file),
        lambda c: bool(meant) and canonicalize_name(c.distribution) == canonicalize_name(meant),
        lambda c: c.name == name,
    ):
        owners = [c for c in sides if rule(c)]
        if len(owners) == 1:
            return owners[0]
    return None


def _is_upgrade(loaded: Candidate, candidate: Candidate) -> bool:
    """Return whether `candidate` is another version of a plugin whose modules this process has imported."""
    same = (loaded.name, loaded.module, loaded.distribution) == (candidate.name, candidate.module, candidate.distribution)
    return same and bool(candidate.distribution) and loaded.version != candidate.version and candidate.module in sys.modules


def _key(of: Plugin | Candidate) -> tuple:
    return of.name, of.value, of.distribution, of.path


def _places() -> tuple:
    """What a change of installed distributions changes: sys.path and the times of its entries."""
    return tuple([(entry, _time(entry)) for entry in sys.path])


def _time(entry: str) -> int | None:
    try:
        return os.stat(entry or ".").st_mtime_ns
    except OSError:
        return None


def _absent(known: Known) -> Plugin:
    """The row of an executor that is known of and not installed; it says so where its device is there."""
    present = [kind for kind in known.devices if _present(kind)]
    reason = f"{known.told_by} knows of it, and it is not installed"
    reason += f", though there is a device of kind {' and '.join(present)} here" if present else ""
    return Plugin(known.name, "", known.distribution, None, "", "absent", reason, f"pip install {known.distribution}")


def _present(kind: str) -> bool:
    """Whether this machine has a device of a kind."""
    try:
        if kind == "cpu":
            return True
        is_available: Callable[[], bool] | None = getattr(getattr(torch, kind, None), "is_available", None)
        is_available = is_available or getattr(getattr(torch.backends, kind, None), "is_available", None)
        return bool(is_available and is_available())
    except Exception:  # a hint is not worth an error
        return False


REGISTRY = Registry()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=REGISTRY._after_fork)


def get_executor(name: str) -> Executor:
    """Return the executor called `name`.

    Raises ExecutorError, which says what became of its plugin, or which name was probably meant.
    """
    if not isinstance(name, str):
        raise ExecutorError(f"an executor is called by a name, got {name!r}")
    REGISTRY.load()
    if name not in REGISTRY.executors:
        REGISTRY.refresh()  # the configuration that left it out may have changed
    try:
        return REGISTRY.executors[name]
    except KeyError:
        raise ExecutorError(unknown(name)) from None


def unknown(name: str) -> str:
    """Explain why there is no executor called `name`: its plugin does not work, or the name is nearly another."""
    rows: dict[str, Plugin] = {}
    for row in sorted(REGISTRY.plugins or (), key=lambda row: row.status != "conflict"):  # where there are several, that says most
        for each in (row.name, *row.executors):
            rows.setdefault(each, row)
    if name in rows:
        if rows[name].status == "ready":
            return f"no executor is called {name!r}; the plugin of that name brings {', '.join(rows[name].executors)}"
        return f"executor {name} cannot be used: {rows[name]}"
    known = {*REGISTRY.executors, *rows}
    if not known:
        return f"no executor is called {name!r}; known: none: install a distribution with an entry point in dovetail.executors"
    words = suggestion(name, known)
    near = [rows[other] for other in sorted(rows) if other in words.split() or f"{other}?" in words.split()]
    about = "".join(f"; {row}" for row in near if row.status != "ready")
    return f"no executor is called {name!r}; {words}{about}; known: {', '.join(sorted(REGISTRY.executors)) or 'none'}"


def executors() -> list[Executor]:
    """Return every executor of this process."""
    REGISTRY.load()
    return list(REGISTRY.executors.values())


def plugins(*, refresh: bool = False) -> list[Plugin]:
    """Return one row for each plugin, whatever its status; `refresh` looks again for what was installed meanwhile."""
    REGISTRY.load()
    if refresh:
        REGISTRY.refresh()
    return list(REGISTRY.plugins or ())


class _Implementations(SimpleNamespace):
    def __init__(self, ex: OperatorExecutor):
        super().__init__(_executor=ex)

    def __getattr__(self, name: str) -> object:
        if not hasattr(self._executor, "named"):
            who = self._executor.name
            raise AttributeError(f"{who} has no implementation called {name}: a region runs where it was fused; trace.save writes its lines")
        function = self._executor.named(name)
        setattr(self, name, function)  # so that a program on its own keeps one state for each call site
        return function


def implementations_of(name: str) -> SimpleNamespace:
    """Return the implementations of an executor by the names that programs print: `implementations_of("torch").convert_element_type`."""
    return _Implementations(get_executor(name))


def _by_name(executor: str, name: str, stateful: bool) -> Implementation:
    """What an executor of this process calls `name`; a line with a state of its own gets a new one."""
    ex = get_executor(executor)
    whole = ex.own(name.rpartition("_")[0] if stateful else name)
    return replace(whole, name=name, fn=whole.stateful()) if stateful else whole


def _pickled(implementation: Implementation) -> tuple:
    """An implementation is pickled by name where its executor can be implementation again: most functions of executors cannot be pickled."""
    ex, stateful = REGISTRY.executors.get(implementation.executor), implementation.stateful is not None and implementation.fn is not None
    if isinstance(ex, OperatorExecutor) and (ex.own(implementation.name) is implementation or stateful):
        return _by_name, (implementation.executor, implementation.name, stateful)
    return implementation.__reduce_ex__(2)


copyreg.pickle(Implementation, _pickled)
