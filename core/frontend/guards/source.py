"""Where a value came from: small immutable trees, interned, so that equal sources are one object."""

from __future__ import annotations

from typing import Any


class Source:
    """How a value is reached: `kind` applied to the value at `parent` and to `key`.

    arg     what the call brings: `key` is "args", the tuple, or "kwargs", the dict
    const   the object `key` itself: a class, a module, the globals of a function; `found` is where it was met first
    attr    parent.key
    item    parent[key]
    field   what the instance dictionary of parent has under `key`; unlike `attr` it runs no code of the program
    call    parent(), for what C code gives that only looks something up, as a weak reference
    setting  parent(), for a function that tells a global setting, such as the default dtype; it never fails
    fresh   what the function `key[1]` gives for the value at parent, None for none: it is the call number `key[0]` of those that are run anew
    contents  what is in the container at parent, of a class that is derived from `key`, as a plain container
    static  what the class at parent, or a base of it, has under `key`, unbound
    """

    __slots__ = ("found", "key", "kind", "parent", "root")

    def __init__(self, kind: str, parent: Source | None, key: Any):
        self.kind, self.parent, self.key = kind, parent, key
        self.root: Source = self if parent is None else parent.root
        self.found: Source | None = None

    def __repr__(self) -> str:
        if self.kind == "arg":
            return self.key
        if self.kind == "const":
            return _word(self.key) if self.found is None else repr(self.found)
        if self.kind in ("call", "setting"):
            return f"{self.parent}()"
        if self.kind == "fresh":
            return f"the result of call {self.key[0]}"
        if self.kind == "contents":
            return repr(self.parent)
        if self.kind != "item":
            return f"{self.parent}.{self.key}"
        above = self.parent
        if above.kind == "const" and type(above.key) is dict and isinstance(above.key.get("__name__"), str):
            return f"{above.key['__name__']}.{self.key}"
        if above.kind == "field" and above.key in ("_parameters", "_buffers", "_modules"):
            return f"{above.parent}.{self.key}"
        return f"{above}[{self.key!r}]"


def _word(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else type(value).__name__.lower()


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
