"""What classes lack: a method or attribute that is added to a class later changes what its objects do."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

from dovetail.frontend.class_lookup import IMMUTABLE, per_class
from dovetail.frontend.guards.guard import Guard
from dovetail.frontend.guards.source import Source, Sources

_OWN_BASES = 2  # of a class derived from nothing: itself and object, and then CPython lets nobody set __bases__
LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "dovetail"}


@per_class
def is_library(cls: type) -> bool:
    """Return whether a class belongs to a library whose classes stay as they are."""
    return cls.__module__.partition(".")[0] in LIBRARIES


def class_guards(natives: dict[type, dict[str, Any]], is_fresh: Callable[[type], bool], sources: Sources) -> list[Guard]:
    """Return the guards that classes keep what they have under certain names, NULL for nothing: one for each class that lacks some."""
    lacks: dict[type, dict[str, None]] = {}
    guards: list[Guard] = []
    for cls, attributes in natives.items():
        if len(cls.__mro__) > _OWN_BASES and not is_library(cls) and not is_fresh(cls):
            guards.append(Guard("is", sources.attr(sources.const(cls), "__mro__"), cls.__mro__))
        for name, raw in attributes.items():
            for base in _until(cls, name):
                if base.__flags__ & IMMUTABLE or is_fresh(base):
                    continue
                if name in vars(base):
                    guards.append(Guard("is", sources.item(_table(base, sources), name), raw))
                else:
                    lacks.setdefault(base, {})[name] = None
    return [*guards, *[Guard("lacks", _table(base, sources), tuple(names)) for base, names in lacks.items()]]


def _until(cls: type, name: str) -> Iterator[type]:
    """Yield the bases in which an attribute is looked up, to the one that has it."""
    for base in cls.__mro__:
        yield base
        if name in vars(base):
            return


def _table(cls: type, sources: Sources) -> Source:
    """Return the source of the dictionary of a class, which stays the same object."""
    source = sources.const(gc.get_referents(vars(cls))[0])
    source.path = sources.const(cls)
    return source
