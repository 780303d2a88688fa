"""Imports one plugin and asks it for its executors: whatever goes wrong in there becomes a record with the reason and the traceback."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from dovetail.executors.contract import hookspecs
from dovetail.executors.contract.executor import Executor, FusionExecutor, Verdict
from dovetail.executors.discovery.find_plugins import Candidate
from dovetail.executors.discovery.plugin_status import Plugin

LONGEST = 300  # characters of a foreign message that a reason repeats; the traceback has all of it
HOOKS = tuple(name for name, value in vars(hookspecs).items() if name.startswith("dovetail_") and inspect.isfunction(value))


@dataclass(frozen=True)
class Loaded:
    """A plugin whose hook has answered: its executors, and what each lacks on this machine."""

    candidate: Candidate
    executors: tuple[Executor, ...]
    lacking: tuple[tuple[str, str], ...]  # executor, sentence
    checks: Callable[[], Iterable[tuple[str, Callable[[], Verdict]]]]
    seconds: float
    running: str = ""  # the version whose code is loaded, where another has been installed since


class Failure(Exception):
    """What went wrong with a plugin, on its way to becoming a record."""

    def __init__(self, status: str, reason: str, remedy: str):
        self.status, self.reason, self.remedy = status, reason, remedy


def load(candidate: Candidate) -> Loaded | Plugin:
    """Load the executors of a plugin, or return the record of what went wrong; only KeyboardInterrupt gets through."""
    began = time.perf_counter()
    try:
        provided, lacking, checks = _run(candidate)
    except Failure as failure:
        cause = failure.__cause__
        error = "".join(traceback.format_exception(cause)) if cause else ""
        took = time.perf_counter() - began
        return candidate.row(failure.status, failure.reason, failure.remedy, error=error, seconds=took)
    for i, ex in enumerate(provided):
        ex.distribution, ex.place = (candidate.distribution or candidate.path, candidate.version), (candidate.name, i)
    return Loaded(candidate, provided, lacking, checks, time.perf_counter() - began)


def _run(candidate: Candidate) -> tuple:
    target = _imported(candidate)
    manager = _registered(candidate, target)
    provided = _executors(candidate, manager)
    return provided, tuple(_lacking(candidate, provided)), lambda: [check for answers in manager.hook.dovetail_doctor() for check in answers]


def _guarded(what: str, candidate: Candidate, status: str, fn: Callable[[], Any]) -> Any:
    """Return fn(); any error in plugin code becomes a Failure, also a BaseException of a compiled extension or an exit."""
    try:
        return fn()
    except (KeyboardInterrupt, Failure):
        raise
    except SystemExit as error:
        left = Failure(status, f"{what} called sys.exit({error.code!r})", _see(candidate))
        raise left from error
    except ModuleNotFoundError as error:
        raise _not_found(what, candidate, error) from error
    except BaseException as error:
        kind = "import-failed" if isinstance(error, (ImportError, OSError)) else status
        raise Failure(kind, f"{what} raised {message(error)}", _see(candidate)) from error


def message(error: BaseException) -> str:
    """Format an exception in one line, even one that cannot print itself."""
    try:
        words = " ".join(str(error).split())
    except Exception:
        words = "(its message cannot be printed)"
    words = words if len(words) <= LONGEST else words[:LONGEST] + "..."
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _not_found(what: str, candidate: Candidate, error: ModuleNotFoundError) -> Failure:
    """Return the failure of an import: the plugin's own module is missing, or one that it imports."""
    missing = error.name or ""
    if missing and f"{candidate.module}.".startswith(f"{missing}."):
        reason = f"its entry point names the module {candidate.module}, and there is no {missing}"
        return Failure("import-failed", reason, f"reinstall it: pip install --force-reinstall {candidate.distribution or candidate.path}")
    if not missing:
        return Failure("import-failed", f"{what} raised {message(error)}", _see(candidate))
    return Failure("import-failed", f"{what} needs the module {missing}, which is not installed", f"install what brings the module {missing}")


def _see(candidate: Candidate) -> str:
    out = f"`pip uninstall {candidate.distribution}`" if candidate.distribution else f"leaving {candidate.file} out of `plugins`"
    return f"`dovetail executors show {candidate.name}` prints the traceback; {out} takes the plugin out"


def _imported(candidate: Candidate) -> Any:
    """What the entry point names."""
    what = f"importing {candidate.module}"
    target = _guarded(what, candidate, "import-failed", lambda: _module(candidate))
    for name in filter(None, candidate.attribute.split(".")):
        if not hasattr(target, name):
            close = difflib.get_close_matches(name, dir(target), 1)
            hint = f"; did its author mean {close[0]}?" if close else ""
            reason = f"its entry point names {candidate.attribute}, and {candidate.module} has no {name}{hint}"
            raise Failure("invalid", reason, "its author corrects the entry point")
        target = getattr(target, name)
    return target


def _module(candidate: Candidate) -> ModuleType:
    if candidate.file:
        _from_file(candidate.module.partition(".")[0], Path(candidate.file))
    return importlib.import_module(candidate.module)


def _from_file(name: str, file: Path) -> None:
    """Make the module `name` from `file`, so that what it imports of itself comes from there too; it wins over an installed one."""
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return
    folders = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _registered(candidate: Candidate, target: Any) -> pluggy.PluginManager:
    """A manager that holds this plugin alone, with known hooks that fit their specifications."""
    manager = pluggy.PluginManager("dovetail")
    manager.add_hookspecs(hookspecs)
    try:
        _guarded("registering its hooks", candidate, "invalid", lambda: manager.register(target, candidate.name))
    except Failure as failure:
        if not isinstance(failure.__cause__, pluggy.PluginValidationError):
            raise
        hook = next((name for name in HOOKS if name in failure.reason), HOOKS[0])
        reason = f"its hook {hook} does not fit: the hook takes no arguments and is no wrapper"
        raise Failure("invalid", reason, f"its author writes it as `def {hook}():`") from failure.__cause__
    _check_hooks(manager, target)
    return manager


def _check_hooks(manager: pluggy.PluginManager, target: Any) -> None:
    """Refuse a hook that does not exist, and a plugin without the one that it needs."""
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        unknown = sorted(caller.name for caller in manager.get_hookcallers(target) or () if not caller.has_spec())
        close = difflib.get_close_matches(unknown[0], HOOKS, 1, cutoff=0.5)
        hint = f"; did its author mean {close[0]}?" if close else ""
        reason = f"it implements {', '.join(unknown)}, which is no hook of Dovetail's{hint}"
        raise Failure("invalid", reason, f"the hooks are {', '.join(HOOKS)}; its author renames it") from error
    if not manager.hook.dovetail_executors.get_hookimpls():
        if callable(getattr(target, "dovetail_executors", None)):
            raise Failure("invalid", "its dovetail_executors is not marked as a hook", "its author puts @dovetail.extend.hookimpl above it")
        name = getattr(target, "__name__", type(target).__name__)
        raise Failure(
            "invalid",
            f"{name} does not implement the hook dovetail_executors",
            "its author adds the hook dovetail_executors; `dovetail new-executor` shows how",
        )


def _executors(candidate: Candidate, manager: pluggy.PluginManager) -> tuple[Executor, ...]:
    """What the hook returns, which has to be executors, each with a name of its own."""

    def ask() -> list:
        (answer,) = manager.hook.dovetail_executors() or (None,)
        if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
            raise Failure("invalid", f"its hook dovetail_executors returned {_kind(answer)}, where a list of executors is wanted", _RETURN)
        return list(answer)

    provided = tuple(_guarded("its hook dovetail_executors", candidate, "invalid", ask))
    for ex in provided:
        if not isinstance(ex, Executor):
            raise Failure("invalid", f"its hook dovetail_executors gave {_kind(ex)}, which is no executor", _RETURN)
        if not isinstance(vars(ex).get("name"), str):
            raise Failure("invalid", f"its {type(ex).__name__} has no name", "its author calls super().__init__(name) in __init__")
        wanted = ("fuse",) if getattr(ex, "operations", None) is not None else ("can_fuse", "fuse")
        lacks = [name for name in wanted if getattr(type(ex), name, None) is getattr(FusionExecutor, name)]
        if lacks:
            raise Failure("invalid", f"its {type(ex).__name__} has no {' and no '.join(lacks)}", "its author writes what FusionExecutor leaves out")
    names = [ex.name for ex in provided]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Failure(
            "invalid", f"its hook dovetail_executors returned two executors called {', '.join(twice)}", "its author gives each a name of its own"
        )
    if not provided:
        raise Failure("invalid", "its hook dovetail_executors returned no executor", _RETURN)
    return provided


_RETURN = "its author returns a list of OperatorExecutor and FusionExecutor objects"


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _lacking(candidate: Candidate, provided: tuple[Executor, ...]) -> Iterator[tuple[str, str]]:
    """Each executor that this machine cannot run, and why."""
    for ex in provided:
        verdict = _guarded(f"available() of {ex.name}", candidate, "invalid", ex.available)
        if verdict is True:
            continue
        if verdict is False or verdict is None or verdict == "":
            verdict = "its available() gave no reason"
        if not isinstance(verdict, str):
            reason = f"available() of {ex.name} returned {_kind(verdict)}, where True or a sentence is wanted"
            raise Failure("invalid", reason, "its author corrects available()")
        yield ex.name, verdict


def ready(loaded: Loaded) -> Plugin:
    """Return the record of a plugin that works, or that lacks something here: part of its executors, or all of them."""
    lacking = dict(loaded.lacking)
    names = tuple(ex.name for ex in loaded.executors if ex.name not in lacking)
    one = len(loaded.executors) == 1
    reason = "; ".join(words if one else f"{name}: {words}" for name, words in lacking.items())
    brought = names or tuple(ex.name for ex in loaded.executors)
    row = loaded.candidate.row("ready" if names else "unavailable", reason, executors=brought, seconds=loaded.seconds)
    if loaded.running:
        reason = f"version {loaded.candidate.version} is installed, and the code of version {loaded.running} is still loaded; {reason}".rstrip("; ")
        row = replace(row, reason=reason, remedy="start Python again")
    if names:
        return row
    return replace(row, remedy="provide what it asks for, then start Python again; nothing else is affected")
