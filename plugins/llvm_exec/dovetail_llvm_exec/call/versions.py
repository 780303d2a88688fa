"""Where objects hold their dictionaries, dictionaries and classes a version, functions their code.

CPython 3.11 gives a dictionary a greater version with each change.  Each CPython takes a class's version away when the class or a base of it
changes, and gives it a new one, greater than all before, when an attribute of it is looked up.

What is read is private, and written about nowhere but in CPython's source; so it is tried out before it is used.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable
from functools import cache
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

WORD = 8
VERSION = 3 * WORD  # into a dictionary: behind its reference count, its class and its length
MANAGED = 1 << 4  # flag of classes whose instances have the address of their dictionary in front of them
IN_FRONT = -3 * WORD
HEAP = 1 << 9  # flag of classes that a class statement creates: others do not change
UNBOUND = (FunctionType, MethodDescriptorType, WrapperDescriptorType, property)  # what a class returns as it is, though it has `__get__`


def place(x: Any) -> int | None:
    """Return how many bytes behind its beginning an object holds the address of its dictionary; None where that is not found."""
    held, kind = object.__getattribute__(x, "__dict__"), type(x)
    there = IN_FRONT if kind.__flags__ & MANAGED else kind.__dictoffset__
    return there if (there > 0 or there == IN_FRONT) and type(held) is dict and _word(id(x) + there) == id(held) else None


@cache
def are_known() -> bool:
    """Return whether versions are where they are looked for: greater after each change, and what they were where nothing has changed."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11) and all(map(_sees, _CHANGES)) and _sees_stores() and _is_calm()


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _version(table: dict) -> int:
    return _word(id(table) + VERSION)


class _Sample:
    """An object whose changes are to be seen."""

    def __init__(self) -> None:
        self.v: Any = 0.0


_CHANGES: tuple[Callable[[Any, dict, int], Any], ...] = (
    lambda x, held, i: setattr(x, "v", i),
    lambda x, held, i: setattr(x, f"v{i}", i),
    lambda x, held, i: delattr(x, "w") if i % 2 else setattr(x, "w", i),
    lambda x, held, i: held.update(v=-i),
    lambda x, held, i: held.__ior__({"v": i + 0.5}),
    lambda x, held, i: held.__setitem__("v", str(i)),
    lambda x, held, i: held.__delitem__("w") if i % 2 else held.setdefault("w", i),
    lambda x, held, i: held.pop("w") if i % 2 else held.update([("w", i)]),
    lambda x, held, i: held.popitem() if i % 2 else held.update(w=i),
    lambda x, held, i: held.clear() if i % 2 == 0 else held.update(w=i),
    lambda x, held, i: held.clear() if i % 2 == 0 else held.update({"v": i}),
)


def _sees(change: Callable[[Any, dict, int], Any]) -> bool:
    """Return whether versions grow with each change, also after the interpreter has specialized the instructions."""
    x = _Sample()
    seen = [_version(x.__dict__)]
    for i in range(64):
        change(x, x.__dict__, i)
        seen.append(_version(x.__dict__))
    return seen[0] > 0 and all([old < new for old, new in itertools.pairwise(seen)])


def _sees_stores() -> bool:
    """Return the same for assignments, which compile to other instructions than function calls."""
    x, table = _Sample(), {"v": -1}
    seen = [(_version(x.__dict__), _version(table))]
    for i in range(64):
        x.v, table["v"] = i, i
        seen.append((_version(x.__dict__), _version(table)))
    return all([old[0] < new[0] and old[1] < new[1] for old, new in itertools.pairwise(seen)])


def _is_calm() -> bool:
    """Return whether reading changes nothing; and another dictionary is seen where the first one was."""
    x, reads = _Sample(), 0
    held, there = x.__dict__, place(x)
    before = _version(held)
    for _ in range(64):
        reads += (x.v, held["v"], held.get("none"), *held, len(held)) == (0.0, 0.0, None, "v", 1)
    calm = reads == 64 and before == _version(held)
    x.__dict__ = other = dict(held)
    return calm and there is not None and _word(id(x) + there) == id(other) != id(held)


@cache
def tag_offset() -> int | None:
    """Return how many bytes behind its beginning a class holds its version, 32 bits that are 0 where it has none; None where that is unclear."""
    if sys.implementation.name != "cpython":
        return None
    base = type("Base", (), {"v": 0})
    kinds = base, type("Derived", (base,), {})
    places = set(range(0, type.__basicsize__ - 3, 4))
    for i in range(1, 5):
        before = [_tags(kind, kind.v) for kind in kinds]
        same = [_tags(kind, kind.v) for kind in kinds]
        base.v = i
        gone = [_tags(kind) for kind in kinds]
        after = [_tags(kind, kind.v) for kind in kinds]
        for old, again, none, new in zip(before, same, gone, after, strict=True):
            places = {at for at in places if 0 < old[at // 4] == again[at // 4] < new[at // 4] and none[at // 4] == 0}
    return places.pop() if len(places) == 1 else None


def _tags(kind: type, looked_up: Any = None) -> list[int]:
    """Return the memory of a class as numbers of 32 bits."""
    return list((ctypes.c_uint32 * (type.__basicsize__ // 4)).from_address(id(kind)))


def classes_behind(kind: type, name: str) -> list[type] | None:
    """Return the classes whose versions change where `kind.name` becomes another object; None where looking it up may run code, or make an object."""
    meta, raw = type(kind), _raw(kind, name)
    plain = type(raw) in UNBOUND or not (_FLAGS(type(raw)) & HEAP or hasattr(type(raw), "__get__"))
    standard = _raw(meta, "__getattribute__") is type.__getattribute__ and not hasattr(type(_raw(meta, name)), "__set__")
    if raw is MISSING or not plain or not standard or tag_offset() is None:
        return None
    return [each for each in (kind, meta) if _FLAGS(each) & HEAP]


MISSING = object()
_MRO, _NAMESPACE, _FLAGS = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__flags__"))  # no code of a metaclass runs


def _raw(kind: type, name: str) -> Any:
    """Return what a class or a base of it has under a name, unbound."""
    return next((_NAMESPACE(base)[name] for base in _MRO(kind) if name in _NAMESPACE(base)), MISSING)


@cache
def code_offset() -> int | None:
    """Return how many bytes behind its beginning a function holds the address of its code; None where that is unclear."""
    functions = (lambda: 0, lambda x: x, _word)
    size = range(0, FunctionType.__basicsize__ - WORD + 1, WORD)
    places = [at for at in size if all([_word(id(f) + at) == id(f.__code__) for f in functions])]
    if len(places) != 1:
        return None
    functions[0].__code__ = other = (lambda: 1).__code__
    return places[0] if _word(id(functions[0]) + places[0]) == id(other) else None
