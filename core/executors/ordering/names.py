"""The names of executors and operations in configuration, and the sentences about names that mean none."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from dovetail import options
from dovetail.errors import ExecutorError
from dovetail.executors.discovery import configuration
from dovetail.executors.discovery.plugin_status import Plugin
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.langs.torch import symbol_for
from dovetail.langs.torch.binding.symbol import resolve
from dovetail.options import Setting, Source, suggestion
from dovetail.prims.op import SYMBOLS


def known_names(local: Iterable[str] = ()) -> dict[str, str]:
    """Return every name of an executor, a plugin or a distribution, and its status."""
    rows = REGISTRY.plugins or ()
    status = {row.distribution: row.status for row in rows if row.distribution}
    status |= {name: row.status for row in rows for name in (row.name, *row.executors)}
    return status | dict.fromkeys([*REGISTRY.executors, *local], "ready")


def like(name: str, local: Iterable[str] = ()) -> str:
    """Return a sentence with the names most like `name`."""
    distributions = {row.distribution for row in REGISTRY.plugins or ()}
    known = {each: status for each, status in known_names(local).items() if each not in distributions}
    return configuration.near(name, known) if known else "none is installed: install a distribution with an entry point in dovetail.executors"


def state_of(name: str, row: Plugin | None) -> str:
    """Return why the executor of this name cannot be used."""
    return f"no executor is called so here; {like(name)}" if row is None else str(row)


def contradiction(name: str, requested: tuple[Setting, str], disabling: Setting) -> str:
    verb = "disables it" if disabling.option is options.DISABLE else "does not allow it"
    in_code = requested[0].source.layer in ("jit", "use")  # which goes before the environment
    edit = f"; leave {name} out there" if in_code else f'; take it out of one of them, or say {options.EXECUTORS.name}="-{name}"'
    return (
        f"{requested[0].option.key} in {requested[0].source} asks for {name} ({requested[1]}), "
        f"and {disabling.option.key} in {disabling.source} {verb}{edit}"
    )


def is_pattern(words: str) -> bool:
    return any([sign in words for sign in "*?["])


def operation_id(words: str, source: Source) -> str:
    """Return the id of the named operation, or the pattern.  Raises ExecutorError where no operation matches."""
    if is_pattern(words):
        if any([fnmatchcase(id, words) for id in SYMBOLS]):
            return words
    elif words in SYMBOLS:
        return words
    elif words.startswith("torch.") and resolve(words) is not None:
        return getattr(symbol_for(words), "id", words)
    raise ExecutorError(f"operations in {source} names the unknown operation {words!r}; {suggestion(words, SYMBOLS)}")
