"""Where a value came from: small immutable trees, interned, so that equal sources are one object."""

from __future__ import annotations

from typing import Any


class Source:
    """How a value is reached: `kind` applied to the value at `parent` and to `key`.

    arg     the argument of the call at position `key`
    const   the object `key` itself: a class, a module, the globals of a function
    attr    parent.key
    item    parent[key]
    field   what the instance dictionary of parent has under `key`; unlike `attr` it runs no code of the program
    call    parent(), for what C code gives that only looks something up, as a weak reference
    static  what the class at parent, or a base of it, has under `key`, unbound
    """

    __slots__ = ("key", "kind", "parent", "root")

    def __init__(self, kind: str, parent: Source | None, key: Any):
        self.kind, self.parent, self.key = kind, parent, key
        self.root: Source = self if parent is None else parent.root

    def __repr__(self) -> str:
        if self.kind == "arg":
            return f"args[{self.key!r}]"
        if self.kind == "const":
            return getattr(self.key, "__name__", None) or f"<{type(self.key).__name__}>"
        if self.kind == "item":
            return f"{self.parent}[{self.key!r}]"
        if self.kind == "call":
            return f"{self.parent}()"
        return f"{self.parent}.{self.key}"


class Sources:
    """The sources of one trace, each made once."""

    def __init__(self) -> None:
        self.table: dict[tuple, Source] = {}

    def make(self, kind: str, parent: Source | None, key: Any) -> Source:
        mark = (kind, id(parent), id(key) if kind == "const" else key, type(key))
        found = self.table.get(mark)
        if found is None:
            found = self.table[mark] = Source(kind, parent, key)
        return found

    def arg(self, position: int) -> Source:
        return self.make("arg", None, position)

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

    def static(self, cls: type, name: str) -> Source:
        return self.make("static", self.const(cls), name)
