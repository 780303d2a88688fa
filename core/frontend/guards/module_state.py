"""What many modules hold: checked in Python once, and again only where one of their dictionaries has changed.

CPython gives a dictionary a new version with each change.  torch asks for versions in C: many at once where its compiler has been imported
for some other reason, which takes seconds, else one by one.
"""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dovetail.torch_internals import DICT_VERSION, guard_manager, guard_managers_loaded

_LONGEST = 256  # calls that are checked in Python before changes are watched again: to begin takes milliseconds

Watch = Callable[[], bool]


def _at_once(objects: Sequence[Any], tables: Sequence[dict]) -> Watch:
    """A watch that asks torch once."""
    (root, kind), held = guard_manager(), (*objects, *tables)
    for i, x in enumerate(objects):
        instance, namespace = root.tuple_getitem_manager(i, "", x, kind), object.__getattribute__(x, "__dict__")
        instance.add_type_match_guard(id(type(x)), [""], None)
        instance.get_generic_dict_manager("", namespace, kind).add_dict_version_guard(namespace, [""], None)
    for i, table in enumerate(tables, len(objects)):
        root.tuple_getitem_manager(i, "", table, kind).add_dict_version_guard(table, [""], None)
    check = root.check
    return lambda: check(held)


def _one_by_one(objects: Sequence[Any], tables: Sequence[dict]) -> Watch:
    """A watch that asks for each version; their sum stays what it is only where none has grown."""
    version, refer, same = DICT_VERSION.value, gc.get_referents, operator.is_
    dicts = (*[object.__getattribute__(x, "__dict__") for x in objects], *tables)
    total, parts = sum(map(version, dicts)), refer(*objects)  # an object refers to its class and its `__dict__`

    def unchanged() -> bool:
        now = refer(*objects)
        return len(now) == len(parts) and all(map(same, now, parts)) and sum(map(version, dicts)) == total

    return unchanged


class _Sample:
    """An object whose changes are to be seen."""

    def __init__(self) -> None:
        self.v, self.w = 1, 2


class _Other(_Sample):
    """Its class after a change."""


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
def _sees(way: Callable[[Sequence[Any], Sequence[dict]], Watch], change: Callable[[Any, dict], Any]) -> bool:
    """Whether a way to watch sees a change, and sees none where there is none; what it asks is private, and may be something else some day."""
    x, table = _Sample(), {"v": 1}
    try:
        unchanged = way((x,), (table,))
        calm = unchanged() is True and unchanged() is True
        change(x, table)
        return calm and unchanged() is False
    except Exception:  # whatever private code does with arguments that it does not know
        return False


def watch(objects: Sequence[Any], tables: Sequence[dict]) -> Watch | None:
    """A function that is true while the objects keep class and `__dict__` and none of the dictionaries changes; None where nobody knows."""
    ways = (_at_once, _one_by_one) if guard_managers_loaded() else (_one_by_one,)
    for way in ways:
        if all([_sees(way, change) for change in _CHANGES]):
            return way(objects, tables)
    return None


class State:
    """`state()` is what `program()` gives, a tuple or a miss; the program reads nothing but what these objects and tables hold."""

    def __init__(self, program: Callable[[], Any], objects: Sequence[Any], tables: Sequence[dict]):
        self.program, self.objects, self.tables = program, tuple(objects), tuple(tables)
        self.watched: tuple[Watch, tuple] | None = None  # says that nothing has changed; what the program gave then
        self.pause = self.left = 1

    def __call__(self) -> Any:
        watched = self.watched
        if watched is None:
            return self._look()
        if watched[0]():
            return watched[1]
        self.watched, self.pause = None, min(2 * self.pause, _LONGEST)
        self.left = self.pause
        return self._look()

    def _look(self) -> Any:
        """Run the program; now and then begin to watch, before it runs, so that what another thread changes meanwhile is seen."""
        self.left -= 1
        unchanged = watch(self.objects, self.tables) if self.left < 0 else None
        found = self.program()
        if unchanged is not None and type(found) is tuple and unchanged():
            self.watched = unchanged, found
        return found


def same_objects(objects: Sequence[Any], classes: Sequence[type], namespaces: Sequence[dict]) -> bool:
    """Whether each object is of its class, and has its `__dict__`."""
    get = object.__getattribute__
    return all([type(x) is cls and get(x, "__dict__") is held for x, cls, held in zip(objects, classes, namespaces, strict=True)])


def same_values(namespaces: Sequence[dict], keys: Sequence[str], values: Sequence[Any]) -> bool:
    """Whether each dictionary has this very value under its key."""
    return all([held.get(key) is value for held, key, value in zip(namespaces, keys, values, strict=True)])
