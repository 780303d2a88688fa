"""The classes of containers in C, and how code of theirs reads an object of a derived class."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from types import MappingProxyType
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import is_in_python, lookup
from dovetail.frontend.interpreter.tracking.hashes import changed_hash

CONTAINERS = frozenset({list, tuple, dict, set, frozenset, OrderedDict, defaultdict, deque, MappingProxyType})
BASES = tuple(CONTAINERS - {MappingProxyType})
MAPPINGS = (dict, MappingProxyType)


def reads_in_python(kind: type) -> bool:
    """Return whether a class reads its items in Python."""
    return any([is_in_python(lookup(kind, name)) for name in ("__getitem__", "__contains__", "__len__", "__iter__", "keys", "items")])


def base_of(container: Any) -> type:
    """Return the class in C that a container's class is derived from.  Raises Unsupported for what only passes for one, as a weak proxy."""
    kind = type(container)
    if kind in CONTAINERS:
        return kind
    if (base := next((base for base in kind.__mro__ if base in CONTAINERS), None)) is None:
        raise Unsupported(f"a {kind.__module__}.{kind.__qualname__} that stands for a container is not traced; use the container itself")
    return base


def keys_of(container: Any) -> list[Any]:
    """Return the keys of a dict, or the items of a set, as C code iterates it."""
    try:
        return list(base_of(container).__iter__(container))
    except KeyError as error:  # an OrderedDict does not find a key of its own
        raise changed_hash(error.args[0], container) from None


def empty_like(container: Any) -> Any:
    """Return an empty container of the same class, as its base in C makes one."""
    kind, base = type(container), base_of(container)
    empty = base.__new__(kind)
    if base is defaultdict:
        defaultdict.__init__(empty, container.default_factory)
    elif base is deque:
        deque.__init__(empty, (), container.maxlen)
    return empty
