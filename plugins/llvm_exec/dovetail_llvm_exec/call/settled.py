"""Checks of an entry that depend on nothing but classes and dictionaries: they are skipped while the versions of these stay the same.

They come first.  A value that they read and that a later check needs is kept in a word, from which `recall` takes it where they are skipped:
what holds it has not changed, so it is alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dovetail import prims
from dovetail.extend import BoundSymbol
from dovetail.extend.advanced import Proxy
from dovetail.prims.sizes import Size
from dovetail_llvm_exec.call import versions
from dovetail_llvm_exec.call.builtin import Builtin
from dovetail_llvm_exec.ir.values import Value

Check = list[int]  # the number of the instruction, and its operands a, x, y


class SettledInstructions(Builtin):
    """The instructions for values that checks have in common which may be skipped, and the versions on which that depends."""

    slot: Callable[[Value], Value]
    fill: Callable[[Value, Value], None]
    pointer: Callable[[Value], Value]

    def keep(self, a: Value, x: Value, y: Value) -> None:
        """Store the object in slot a at the address x."""
        self.b.store(self.slot(a), self.pointer(x), align=8)

    def recall(self, a: Value, x: Value, y: Value) -> None:
        """Load the object at the address x into slot a."""
        self.fill(a, self.b.load("ptr", self.pointer(x), align=8))

    def version(self, table: Value) -> Value:
        """Return the version of a dictionary, which changes with each change of it."""
        return self.b.load("i64", self.b.address(self.pointer(table), "i8", self.field("version")), align=8)

    def watched_versions(self) -> Value:
        """Return the sum of the versions of what is watched, each of which only grows; 0 where a class has none."""
        b = self.b
        row, tables, classes = self.field("watched"), self.field("watched_tables"), self.field("watched_classes")
        with b.loop(0, tables, 1, [b.constant(0, "i64")]) as loop:
            loop.update(b.add(loop.carried[0], self.version(self.word(b.add(row, loop.index)))))
        first = b.add(row, tables)
        with b.loop(0, classes, 1, [loop.results[0], b.constant(1, "i64")]) as each:
            kind = self.word(b.add(first, each.index), "ptr")
            tag = b.cast("zext", b.load("i32", b.address(kind, "i8", self.field("tag")), align=4), "i64")
            total, known = each.carried
            each.update(b.add(total, tag), b.select(b.compare("eq", tag, 0), b.constant(0, "i64"), known))
        return b.mul(*each.results)


INSTRUCTIONS = (SettledInstructions.keep, SettledInstructions.recall)


class SettledPlan:
    """The checks of one entry in two parts: those that may be skipped, and the others; a part of its plan."""

    constants: dict[Any, Any]
    slots: dict[Any, int]
    object: Callable[[Any], Any]
    pointer: Callable[[Any], int]
    check: Callable[..., None]

    def __init__(self) -> None:
        self.settled, self.others = list[Check](), list[Check]()
        self.checks = self.others  # those to which instructions are appended
        self.tables, self.classes = dict[int, dict](), dict[int, type]()  # what is watched, by their ids
        self.settled_values = set[Any]()  # values that settled checks read
        self.filled: set[tuple[bool, int]] = set()  # slots that either part fills

    @contextmanager
    def part(self, watched: list[Any] | None) -> Iterator[None]:
        """Append instructions to the settled checks while open, and watch what they depend on; to the others where it is None."""
        before = self.checks
        self.checks = self.others if watched is None else self.settled
        for each in watched or ():
            (self.classes if isinstance(each, type) else self.tables)[id(each)] = each
        try:
            yield
        finally:
            self.checks = before

    def is_filled(self, slot: int) -> bool:
        """Return whether this part of the checks fills a slot already; from now on it does."""
        key = self.checks is self.settled, slot
        filled = key in self.filled
        self.filled.add(key)
        return filled

    def recalled(self, value: Any, keep: Callable[..., None], recall: Callable[..., None]) -> int:
        """Return the slot of a value, which the other checks fill again where settled checks have read it."""
        slot = self.slots[value]
        if value in self.settled_values and self.checks is self.others and not self.is_filled(slot):
            word = ctypes.c_int64(0)
            self.pointer(word)
            with self.part([]):
                self.check(keep, slot, ctypes.addressof(word))
            self.check(recall, slot, ctypes.addressof(word))
        return slot

    def watched_by(self, line: BoundSymbol) -> list[Any] | None:
        """Return the classes and dictionaries that what a line reads and checks depends on; None where on more, or where they have no versions."""
        at = line.args[0] if line.args else None
        if line.symbol in _READS and at in self.constants:
            return _READS[line.symbol](self.constants[at], **line.kwargs)
        if line.symbol in _IDENTITIES and at in self.settled_values:
            value = self.object(line.kwargs["value"])
            return None if isinstance(value, (Proxy, Size)) else []
        return None


def _item(table: Any, *, key: Any, **more: Any) -> list[Any] | None:
    """Return the dictionary of which an item is read, or a key looked up."""
    return [table] if type(table) is dict and type(key) is str and versions.are_known() else None


def _attribute(kind: Any, *, name: str, **more: Any) -> list[Any] | None:
    """Return the classes that the attribute of a class depends on."""
    return versions.classes_behind(kind, name) if isinstance(kind, type) else None


_READS: Mapping[Any, Callable[..., list[Any] | None]] = {
    prims.unpack_item: _item,
    prims.check_contains: _item,
    prims.unpack_attr: _attribute,
}
_IDENTITIES = (prims.check_identity, prims.check_other, prims.check_value)
