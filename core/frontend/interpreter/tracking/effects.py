"""Writes to outside objects: they wait until the computation has run, and are seen by what the same trace reads later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.frontend.class_lookup import NULL, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.frontend.interpreter.tracking.tracker import Tracker

BLIND = frozenset({"append", "extend", "__setitem__", "add", "update"})  # methods with a result that tells nothing about the container
MUTATORS = BLIND | {"insert", "pop", "remove", "clear", "reverse", "sort", "setdefault", "discard", "popitem", "__delitem__", "move_to_end"}
MUTATORS |= {"__ior__", "__iadd__", "__iand__", "__isub__", "__ixor__", "__imul__", "appendleft", "extendleft", "popleft", "rotate"}
MUTATORS |= {"__init__", "difference_update", "intersection_update", "symmetric_difference_update"}
DELETED = object()


@dataclass
class Write:
    """One write: `what` is "attribute" or "item" for a name or key that is set or DELETED, "method" for a method called with `value`, and
    "call" for a function called with it, "context" for a context variable that is set, or reset where the value is DELETED, by the token `name`."""

    owner: Any
    what: str
    name: Any
    value: Any


class Effects:
    """The writes of one trace, in order."""

    def __init__(self, tracker: Tracker):
        self.tracker = tracker
        self.log: list[Write] = []
        self.reads = 0  # how often the program has read what it had written
        self.of_classes = False  # whether the program has written an attribute of a class
        self.written: dict[tuple[int, str], Any] = {}  # (address of an owner, name): what it is now, DELETED for nothing
        self.shadows: dict[int, Any] = {}  # address of a container: a copy that stands in for it from its first read on
        self.iterated: dict[int, tuple[Any, Any]] = {}  # address of a container: itself, and a copy that iterators and views go through
        self.keys: dict[int, tuple[dict, dict]] = {}  # address of a dict: itself, and one with its keys, which those go through that read no values
        self.attributes: dict[int, dict[bool, dict]] = {}  # address of an object: dicts of its attributes, the one with True with their values
        self.blind: dict[int, list[tuple[str, list]]] = {}  # address of a container: methods called on it before it is read

    def now(self, owner: Any, name: str) -> Any:
        """Return the value that a name of `owner` was set to, DELETED, or NULL when it was not written."""
        value = self.written.get((address_of(owner), name), NULL) if self.written else NULL
        self.reads += value is not NULL
        return value

    def set(self, owner: Any, name: str, value: Any, what: str = "attribute") -> None:
        """Set or delete an attribute of an outside object, a variable of a module, or the content of a cell."""
        self.of_classes = self.of_classes or isinstance(owner, type)
        self.written[address_of(owner), name] = value
        self.log.append(Write(owner, what, name, value))
        for valued, attributes in self.attributes.get(address_of(owner), {}).items():
            if value is DELETED:
                attributes.pop(name, None)
            else:
                attributes[name] = value if valued else None

    def method(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a method that changes an outside container.  One that was not read yet stays unread where the result does not depend on it."""
        self.log.append(Write(owner, "method", name, (list(args), dict(kwargs))))
        if address_of(owner) not in self.shadows:
            waiting = self.blind.setdefault(address_of(owner), [])
            if name in BLIND and not kwargs and address_of(owner) not in self.iterated:
                waiting.append((name, args))
                self._change_keys(owner, name, args, kwargs)
                return None
        write, result = self.log[-1], NotImplemented
        try:
            result = self.tracker.base_method(self.shadow(owner), name, args, kwargs)
        finally:
            if result is NotImplemented:
                self.log = [other for other in self.log if other is not write]
        self._change_keys(owner, name, args, kwargs)
        return result

    def _change_keys(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Let iterators and views of the keys of an outside dict see a method that has changed it."""
        _, keys = self.keys.get(address_of(owner), (owner, None))
        if keys is None:
            return
        if name in ("__setitem__", "setdefault"):
            args = [args[0], None]
        self.tracker.base_method(keys, name, args, kwargs)
        if name in ("update", "__ior__", "__init__"):
            keys.update(dict.fromkeys(keys))

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Delay a call that has an effect outside and no result."""
        self.log.append(Write(None, "call", function, (list(args), dict(kwargs))))

    def items_of(self, owner: Any, read: Callable[[], Any]) -> Any:
        """Return what iterators and views of an outside container go through: `read` copies it, and what the program writes is written there."""
        if address_of(owner) not in self.iterated:
            self.iterated[address_of(owner)] = owner, read()
        return self.iterated[address_of(owner)][1]

    def keys_of(self, owner: dict, read: Callable[[], dict]) -> dict:
        """Return what iterators and views of the keys of an outside dict go through: `read` makes a dict of them, which changes as `owner` does."""
        if address_of(owner) not in self.keys:
            self.keys[address_of(owner)] = owner, read()
        return self.keys[address_of(owner)][1]

    def attributes_of(self, owner: Any, read: Callable[[], dict], *, valued: bool) -> dict:
        """Return what iterators and views of the attributes of an object go through: `read` makes a dict of them, which changes as `owner` does."""
        dicts = self.attributes.setdefault(address_of(owner), {})
        if valued not in dicts:
            dicts[valued] = read()
        return dicts[valued]

    def shadow(self, owner: Any) -> Any:
        """Return a container as the program sees it: itself, or a copy with the waiting writes applied."""
        if not self.blind and not self.shadows:
            return owner
        waiting = self.blind.pop(address_of(owner), None)
        if waiting is not None:
            _, items = self.iterated.get(address_of(owner), (owner, None))  # iterators see what is written meanwhile
            copy = self.shadows[address_of(owner)] = self.tracker.copied(owner) if items is None else items
            for name, args in waiting:
                self.tracker.base_method(copy, name, args, {})
        shadow = self.shadows.get(address_of(owner), owner)
        self.reads += shadow is not owner
        return shadow
