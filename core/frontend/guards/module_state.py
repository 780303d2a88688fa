"""The state of many modules: checked in Python once, and again only where one of their dictionaries has changed.

CPython gives a dictionary a new version with each change.  torch reads versions in C: many at once where its compiler has been imported
for some other reason, which takes seconds, else one by one.
"""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dovetail.torch_internals import DICT_VERSION, guard_manager, guard_managers_loaded

_MOST_CALLS = 256  # calls that are checked in Python before dictionaries are watched again: to begin takes milliseconds

Watch = Callable[[], bool]


def _by_guard_manager(objects: Sequence[Any], tables: Sequence[dict]) -> Watch:
    """Return a watch that compares all versions in one call of torch's guards."""
    (root, kind), values = guard_manager(), (*objects, *tables)
    for i, x in enumerate(objects):
        instance, namespace = root.tuple_getitem_manager(i, "", x, kind), object.__getattribute__(x, "__dict__")
        instance.add_type_match_guard(id(type(x)), [""], None)
        instance.get_generic_dict_manager("", namespace, kind).add_dict_version_guard(namespace, [""], None)
    for i, table in enumerate(tables, len(objects)):
        root.tuple_getitem_manager(i, "", table, kind).add_dict_version_guard(table, [""], None)
    check = root.check
    return lambda: check(values)


def _by_versions(objects: Sequence[Any], tables: Sequence[dict]) -> Watch:
    """Return a watch that reads each version: their sum stays the same only where none has grown."""
    version, refer, same = DICT_VERSION.value, gc.get_referents, operator.is_
    dicts = (*[object.__getattribute__(x, "__dict__") for x in objects], *tables)
    total, parts = sum(map(version, dicts)), refer(*objects)  # an object refers to its class and its `__dict__`

    def unchanged() -> bool:
        now = refer(*objects)
        return len(now) == len(parts) and all(map(same, now, parts)) and sum(map(version, dicts)) == total

    return unchanged


class _Sample:
    """An object on which changes are tried."""

    def __init__(self) -> None:
        self.v, self.w = 1, 2


class _Other(_Sample):
    """The class of a sample after a change."""


_CHANGES: tuple[Callable[[Any, dict], Any], ...] = (
    lambda x, table: setattr(x, "v", 5),
    lambda x, table: setattr(x, "new", 5),
    lambda x, table: delattr(x, "w"),
    lambda x, table: vars(x).update(v=7),
    lambda x, table: setattr(x, "__dict__", dict(vars(x))),
    lambda x, table: setattr(x, "__class__", _Other),
    lambda x, table: table.update(v=7),
    lambda x, table: table.setdefault("new"),
    lambda x, table: table.pop("v"),
)


@cache
def _detects(watch_with: Callable[[Sequence[Any], Sequence[dict]], Watch], change: Callable[[Any, dict], Any]) -> bool:
    """Return whether a watch detects a change, and no change where there is none: a self-test of private parts of torch."""
    x, table = _Sample(), {"v": 1}
    try:
        unchanged = watch_with((x,), (table,))
        calm = unchanged() is True and unchanged() is True
        change(x, table)
        return calm and unchanged() is False
    except Exception:  # whatever private code does with arguments that it does not know
        return False


def watch(objects: Sequence[Any], tables: Sequence[dict]) -> Watch | None:
    """Return a function that is true while the objects keep class and `__dict__` and no dictionary changes; None where nothing detects that."""
    watches = (_by_guard_manager, _by_versions) if guard_managers_loaded() else (_by_versions,)
    for watch_with in watches:
        if all([_detects(watch_with, change) for change in _CHANGES]):
            return watch_with(objects, tables)
    return None


class ModuleState:
    """Calls to it return what `program()` returns: a tuple, or a Miss.

    The program reads nothing but what these objects and tables hold, so its result is kept while a watch reports no change.
    """

    def __init__(self, program: Callable[[], Any], objects: Sequence[Any], tables: Sequence[dict]):
        self.program, self.objects, self.tables = program, tuple(objects), tuple(tables)
        self.watched: tuple[Watch, tuple] | None = None  # a watch, and the result that is valid while it is true
        self.pause = self.left = 1  # calls between two attempts to watch, and until the next

    def __call__(self) -> Any:
        watched = self.watched
        if watched is None:
            return self._run()
        if watched[0]():
            return watched[1]
        self.watched, self.pause = None, min(2 * self.pause, _MOST_CALLS)
        self.left = self.pause
        return self._run()

    def _run(self) -> Any:
        """Run the program; now and then begin to watch, before it runs, so that what another thread changes meanwhile is detected."""
        self.left -= 1
        unchanged = watch(self.objects, self.tables) if self.left < 0 else None
        result = self.program()
        if unchanged is not None and type(result) is tuple and unchanged():
            self.watched = unchanged, result
        return result


def same_objects(objects: Sequence[Any], classes: Sequence[type], namespaces: Sequence[dict]) -> bool:
    """Return whether each object is of its class, and has its `__dict__`."""
    get = object.__getattribute__
    return all([type(x) is cls and get(x, "__dict__") is namespace for x, cls, namespace in zip(objects, classes, namespaces, strict=True)])


def same_values(namespaces: Sequence[dict], keys: Sequence[str], values: Sequence[Any]) -> bool:
    """Return whether each dictionary has this very value under its key."""
    return all([namespace.get(key) is value for namespace, key, value in zip(namespaces, keys, values, strict=True)])
