"""Where a value is read from: small immutable trees, interned, so that equal sources are one object."""

from __future__ import annotations

from enum import Enum
from typing import Any

from dovetail.frontend.class_lookup import address_of

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), range})  # keys that C code writes out


class Source:
    """A path to a value: `kind` applied to the value at `parent` and to `key`.

    arg       the arguments of the call: `key` is "args", the tuple, or "kwargs", the dict
    const     the object `key` itself: a class, a module, the globals of a function; `path` is where it was read first
    attr      parent.key
    item      parent[key]
    field     the value under `key` in the instance dictionary of parent; unlike `attr` it runs no code of the program
    call      parent(), for C code that only looks something up, as a weak reference
    setting   parent(), for a function that returns a global setting, such as the default dtype; it never fails
    fresh     key[1](parent), run anew at every call; `key[0]` numbers such calls, and parent is the constant None for a function without argument
    contents  the contents of the container at parent, of a class that derives from `key`, as a plain container
    leaves    the leaves of the nested value at parent, which has the structure `key`
    array     the tensor that shares the memory of the array at parent, or holds the number there; `key.convert` creates it
    static    the attribute `key` of the class at parent, or of a base of it, unbound
    """

    __slots__ = ("_root", "key", "kind", "parent", "path")

    def __init__(self, kind: str, parent: Source | None, key: Any):
        self.kind, self.parent, self.key = kind, parent, key
        self._root: Source | None = None if parent is None else parent.root
        self.path: Source | None = None

    @property
    def root(self) -> Source:
        """Return the source without a parent that this one starts at."""
        return self if self._root is None else self._root

    def __repr__(self) -> str:
        if self.kind == "arg":
            return self.key
        if self.kind == "const":
            return _name(self.key) if self.path is None else repr(self.path)
        if self.kind in ("call", "setting"):
            text = repr(self.parent)
            return text if text.endswith(")") and self.parent.kind == "const" else f"{text}()"  # a call with its arguments
        if self.kind == "fresh":
            return f"the result of call {self.key[0]}"
        if self.kind in ("contents", "array"):
            return repr(self.parent)
        if self.kind != "item":
            return f"{self.parent}.{self.key}"
        above = self.parent
        if above.kind == "const" and type(above.key) is dict and isinstance(above.key.get("__name__"), str):
            return f"{above.key['__name__']}.{self.key}"
        if above.kind == "field" and above.key in ("_parameters", "_buffers", "_modules"):
            return f"{above.parent}.{self.key}"
        return f"{above}[{_key(self.key)}]"


def _key(key: Any) -> str:
    """Return a key as text; no code of the program runs for it."""
    if type(key) is tuple:
        return f"({', '.join(map(_key, key))})"
    if isinstance(key, Enum) and key._name_:
        return f"{type(key).__name__}.{key._name_}"
    return repr(key) if type(key) in _PLAIN or isinstance(key, type) else object.__repr__(key)


def _name(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else type(value).__name__.lower()


class Sources:
    """The sources of one trace, each of which exists once."""

    def __init__(self) -> None:
        self.table: dict[tuple, Source] = {}

    def make(self, kind: str, parent: Source | None, key: Any) -> Source:
        """Return the source of these parts."""
        mark = (kind, parent, address_of(key) if kind == "const" else key, type(key))
        source = self.table.get(mark)
        if source is None:
            source = self.table[mark] = Source(kind, parent, key)
        return source

    def arg(self, name: str) -> Source:
        return self.make("arg", None, name)

    def const(self, value: Any) -> Source:
        return self.make("const", None, value)

    def attr(self, parent: Source, name: str) -> Source:
        return self.make("attr", parent, name)

    def item(self, parent: Source, key: Any) -> Source:
        return self.make("item", parent, key)

    def field(self, parent: Source, name: str) -> Source:
        return self.make("field", parent, name)

    def call(self, parent: Source) -> Source:
        return self.make("call", parent, None)

    def setting(self, function: Any) -> Source:
        return self.make("setting", self.const(function), None)

    def fresh(self, parent: Source | None, number: int, function: Any) -> Source:
        return self.make("fresh", self.const(None) if parent is None else parent, (number, function))

    def static(self, cls: type, name: str) -> Source:
        return self.make("static", self.const(cls), name)
