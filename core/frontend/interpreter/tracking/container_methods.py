"""Methods of containers that are written in C, called on containers from outside and on those that the program creates."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NoReturn

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.opcodes.build import is_iterable
from dovetail.frontend.interpreter.tracking.constructing import check_created
from dovetail.frontend.interpreter.tracking.container_bases import BASES, CONTAINERS, MAPPINGS, base_of
from dovetail.frontend.interpreter.tracking.effects import MUTATORS

_ITERATES = frozenset(
    {"__init__", "__iadd__", "extend", "extendleft", "update", "union", "intersection", "difference", "symmetric_difference"}
    | {"issubset", "issuperset", "isdisjoint"}
)
_ONE_BY_ONE = frozenset({"__iadd__", "extend", "extendleft", "update", "difference_update"})  # each item of an iterator before the next is computed
_ADDING = _ONE_BY_ONE | {"__ior__", "__init__"}
_JOINS = frozenset({f"__{side}{name}__" for name in ("add", "or", "and", "sub", "xor") for side in ("", "r", "i")} - _ITERATES)
_LOOKING_UP = frozenset({"get", "__contains__"})
_AT_ENDS = frozenset({"popitem", "move_to_end"})  # with a flag that says at which end
_ITEM_METHODS = frozenset({"__getitem__", "__setitem__", "__delitem__"})
_KEYED = _ITEM_METHODS | {"__contains__", "get", "pop", "setdefault", "add", "discard", "remove", "move_to_end"}  # of mappings and sets


class ContainerMethods:
    """Calls of methods in C, with what they store, look up or compare as the interpreter has it."""

    def base_method(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a C method of a container that the trace created, below those of its class: what it stores keeps its identity."""
        check_created(owner, name)
        if name == "__init__" and type(owner).__init__ is object.__init__:
            return None  # `__new__` has done it all: the arguments of a named tuple are no items to go through
        special = _SEQUENCE_METHODS.get(name) if isinstance(owner, (list, tuple, deque)) else None
        if special is not None:
            return special(self, owner, name, *args, **kwargs)
        if (calls := self.calls_by_item(owner, name, args, kwargs)) is not None:
            for each in calls:
                self.base_method(owner, *each)
            return owner if name in ("__iadd__", "__ior__") else None
        if name == "issuperset" and len(args) == 1 and self.computes_items(args[0]):
            return all(self.contains(owner, item) for item in self.spread(args[0]))
        iterates = name in _ITERATES or name.endswith("_update")
        keeps = args[:1] if name == "__init__" and isinstance(owner, defaultdict) else []  # its factory
        if iterates:
            args = [*keeps, *[self.items_added(owner, x) for x in args[len(keeps) :]]]
            if isinstance(owner, (set, frozenset)):
                args = [list(map(self.hashable, x)) if type(x) in (list, tuple) else x for x in args]
        elif name in _JOINS:
            args = list(map(self.shallow, args))
        if isinstance(owner, (*MAPPINGS, set, frozenset)):
            if name in _LOOKING_UP and args and self.is_odd(args[0]):
                if (stored := self.key_in(owner, args[0])) is NULL:
                    return False if name == "__contains__" else args[1] if len(args) > 1 else None
                args = [stored, *args[1:]]
            else:
                self.probe(owner, *[key for x in args[len(keeps) :] for key in x] if iterates else args[:1])
        if isinstance(owner, OrderedDict) and name in _AT_ENDS:
            at = name == "move_to_end"
            args, kwargs = [*args[:at], *map(self.truth, args[at:])], {key: self.truth(x) if key == "last" else x for key, x in kwargs.items()}
        method = getattr(base_of(owner), name, None) or getattr(type(owner), name)  # as torch.Size.numel, of a class in C
        return method(owner, *args, **{key: self.native(x) for key, x in kwargs.items()})

    def computes_items(self, value: Any) -> bool:
        """Return whether going through a value may run code of the program, which sees the items that a container has got from it so far."""
        if isinstance(value, BASES):
            return self.method(value, "__iter__") is not None
        return is_iterable(value) and not isinstance(value, (str, bytes, range, MappingProxyType))

    def changed(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a method that changes a container from outside."""
        if name == "sort" and isinstance(owner, list):
            return _sort(self, owner, name, *args, **kwargs)  # the items in their order are written: C code would call the key again
        if (calls := self.calls_by_item(owner, name, args, kwargs)) is not None:
            for each in calls:
                self.changed(owner, *each)
            return owner if name in ("__iadd__", "__ior__") else None
        if name in ("__init__", "extend", "update", "extendleft") or name.endswith("_update"):
            args = [self.items_added(owner, x) for x in args]
        result = self.effects.method(owner, name, args, kwargs)
        return owner if name.startswith("__i") and result is self.effects.shadow(owner) else result

    def calls_by_item(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Iterator[tuple] | None:
        """Yield name and arguments of the calls that do, one after the other, what one does that adds what an iterator gives; None for others."""
        if name not in _ADDING or not any(map(self.computes_items, args)):
            return None
        if name in _ONE_BY_ONE or (name == "__ior__" and isinstance(owner, dict)):
            parts = ((name, part, {}) for part in self.parts_added(owner, args))
            return chain(parts, [(name, [], kwargs)] if kwargs else [])
        at = isinstance(owner, defaultdict)  # behind its factory
        if name == "__init__" and isinstance(owner, (list, set, dict, deque)) and len(args) > at:
            last = kwargs if isinstance(owner, dict) else {}  # items of their own, behind the others
            start = (name, [*args[:at], (), *args[at + 1 :]], {} if last else kwargs)
            return chain([start], [("update" if isinstance(owner, (set, dict)) else "extend", [args[at]], last)])
        return None

    def parts_added(self, owner: Any, values: list[Any]) -> Iterator[list[Any]]:
        """Yield the arguments of calls that do what one does with `values`, each item of an iterator by itself."""
        for value in values:
            if not self.computes_items(value):
                yield [value]
            elif isinstance(owner, dict) and self.optional(value, "keys") is not None:
                yield from ([{key: item}] for key, item in self.pairs(value))
            else:
                numbered = isinstance(owner, dict) and not isinstance(owner, OrderedDict)  # its pairs, in errors
                yield from ([[self.pair(item, i) if numbered else item]] for i, item in enumerate(self.spread(value)))

    def pair(self, item: Any, number: int) -> Any:
        """Return an item that a dict takes for a key and a value, the `number`th; raise what Python raises where it is none."""
        parts = list(self.spread(item)) if is_iterable(item) else item
        if type(parts) is not list or len(parts) != 2:
            dict([*[(None, None)] * number, parts])  # raises
        return parts

    def items_added(self, owner: Any, value: Any) -> Any:
        """Return all that a container adds at once: the pairs of a mapping where it is one itself, else the items."""
        if isinstance(owner, dict) and (keys := self.optional(value, "keys")) is not None:
            if isinstance(owner, OrderedDict) and type(value) not in CONTAINERS:  # which looks up each key
                return {key: self.get_item(value, key) for key in self.spread(self.call(keys, [], {}, None))}
            return dict(self.pairs(value))
        items = list(self.spread(value)) if is_iterable(value) else value
        if isinstance(owner, dict) and type(items) is list:  # pairs, whose keys may be numbers of the program
            return [(self.hashable(x[0]), x[1]) if type(x) in (tuple, list) and len(x) == 2 else x for x in items]
        return items

    def container_method(self, method: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a bound C method of a container; return NULL where it is none."""
        owner, name = method.__self__, method.__name__
        if not isinstance(owner, (*BASES, MappingProxyType)):
            return NULL
        if name == "__missing__" and isinstance(owner, defaultdict):
            return self.from_factory(owner, *args)
        if args and isinstance(owner, (*MAPPINGS, set, frozenset)):
            args = [self.hashable(args[0]) if name in _KEYED else args[0], *args[1:]]
        if args and name in _ITEM_METHODS:
            args = [self.from_front(owner, args[0]), *args[1:]]
        if self.outside_container(owner) is None:
            if isinstance(owner, MappingProxyType):
                return method(*args, **kwargs)
            return self.base_method(owner, name, args, kwargs)
        if id(owner) in self.views and name in _VIEWED:
            return _VIEWED[name](self, owner, *args, **kwargs)
        if name in MUTATORS:
            if id(owner) in self.views:
                raise Unsupported(
                    f"the program calls {name}() of the dict that holds the attributes of an outside object; set or delete them one by one"
                )
            return self.changed(owner, name, args, kwargs)
        owner = self.effects.shadow(owner)
        if self.outside_container(owner) is None:
            return self.base_method(owner, name, args, kwargs)
        answer = _ANSWERS.get(name) if isinstance(owner, MAPPINGS) or name in ("__getitem__", "__contains__", "__len__", "__iter__") else None
        if answer is not None and not kwargs:
            return answer(self, owner, *args)
        return self.base_method(self.copied(owner), name, args, kwargs)


def _get(tracker: Any, owner: Any, key: Any, default: Any = None) -> Any:
    key = tracker.hashable(key)
    return tracker.raw_item(owner, key) if tracker.raw_contains(owner, key) else default


def _view(name: str, mapping: Any) -> Any:
    return getattr(base_of(mapping), name)(mapping)


_ANSWERS = {  # methods in C that are answered without a copy of the whole container; its class may have others, which `super()` went by
    "get": _get,
    "keys": lambda tracker, owner: tracker.keys_of(owner).keys(),
    "values": lambda tracker, owner: _view("values", tracker.pairs_of(owner)),
    "items": lambda tracker, owner: _view("items", tracker.pairs_of(owner)),
    "__getitem__": lambda tracker, owner, key: tracker.raw_item(owner, tracker.hashable(key)),
    "__contains__": lambda tracker, owner, item: tracker.raw_contains(owner, tracker.hashable(item)),
    "__len__": lambda tracker, owner: tracker.raw_len(owner),
    "__iter__": lambda tracker, owner: tracker.raw_iter(owner),
}


def _update(tracker: Any, owner: Any, *others: Any, **kwargs: Any) -> None:
    for part in tracker.parts_added(owner, [*others, kwargs]):
        for key, value in dict(tracker.items_added(owner, *part)).items():
            tracker.set_item(owner, key, value)


def _pop(tracker: Any, owner: Any, key: Any, *default: Any) -> Any:
    if default and not tracker.contains(owner, key):
        return default[0]
    value = tracker.get_item(owner, key)
    tracker.delete_item(owner, key)
    return value


def _setdefault(tracker: Any, owner: Any, key: Any, default: Any = None) -> Any:
    if not tracker.contains(owner, key):
        tracker.set_item(owner, key, default)
    return tracker.get_item(owner, key)


def _index(tracker: Any, owner: Any, name: str, item: Any, *bounds: Any) -> int:
    if tracker.is_simple(item) and tracker.is_simple(owner):
        return base_of(owner).index(owner, item, *map(tracker.indexed, bounds))
    part = slice(*[tracker.indexed(bound) for bound in (bounds[0] if bounds else 0, bounds[1] if len(bounds) > 1 else None)])
    places = range(base_of(owner).__len__(owner))[part]
    index = tracker.position(islice(base_of(owner).__iter__(owner), places.start, places.stop), item)
    if index is None:
        _raise_absent(tracker, owner, name, item)
    return index + places.start


def _count(tracker: Any, owner: Any, name: str, item: Any) -> int:
    return sum([tracker.equal(x, item) for x in base_of(owner).__iter__(owner)])


def _remove(tracker: Any, owner: Any, name: str, item: Any) -> None:
    index = tracker.position(base_of(owner).__iter__(owner), item)
    if index is None:
        _raise_absent(tracker, owner, name, item)
    base_of(owner).__delitem__(owner, index)


class _Marked:
    """Stands in C code for an item that it may write out."""

    def __repr__(self) -> str:
        return "\0"


def _raise_absent(tracker: Any, owner: Any, name: str, item: Any) -> NoReturn:
    """Raise what `index` or `remove` raises of an item that is not there, in the words that this version of Python has for an empty container."""
    try:
        getattr(base_of(owner)(), name)(_Marked())
    except ValueError as error:
        before, marked, after = str(error).partition("\0")
    text = tracker.join_text([before, tracker.call(repr, [item], {}, None), after]) if marked else before
    raise ValueError(tracker.legible(text)) from None


def _sort(tracker: Any, owner: Any, name: str, *, key: Any = None, reverse: Any = False) -> None:
    change = tracker.base_method if tracker.outside_container(owner) is None else tracker.effects.method
    ordered = items = list(tracker.raw_iter(owner))
    change(owner, "clear", [], {})  # as the program sees it meanwhile
    try:
        ordered = tracker.sort(items, key=key, reverse=reverse)
    finally:
        changed = tracker.raw_len(owner) > 0
        change(owner, "__setitem__", [slice(None), ordered], {})
    if changed:
        raise ValueError("list modified during sort")


def _at_index(tracker: Any, owner: Any, name: str, *args: Any) -> Any:
    """Call a method with an index as its first argument."""
    if name == "__setitem__" and len(args) == 2 and type(args[0]) is slice:
        args = (args[0], tracker.items_added(owner, args[1]))
    return getattr(base_of(owner), name)(owner, *map(tracker.indexed, args[:1]), *args[1:])


def _compared(tracker: Any, owner: Any, name: str, other: Any) -> Any:
    result = tracker.compare_containers(getattr(operator, name), owner, other)
    return getattr(base_of(owner), name)(owner, tracker.plain(other)) if result is NULL else result


_SEQUENCE_METHODS = {  # methods in C that compare items, or take an index
    "index": _index,
    "count": _count,
    "remove": _remove,
    "sort": _sort,
    "__contains__": lambda tracker, owner, name, item: tracker.raw_contains(owner, item),
    **dict.fromkeys(("pop", "insert", "rotate", "__getitem__", "__setitem__", "__delitem__", "__mul__", "__rmul__", "__imul__"), _at_index),
    **dict.fromkeys(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"), _compared),
}
_VIEWED = {  # methods that change the dict of an object's attributes, or of a module's variables
    "update": _update,
    "pop": _pop,
    "setdefault": _setdefault,
    "__setitem__": lambda tracker, owner, key, value: tracker.set_item(owner, key, value),
    "__delitem__": lambda tracker, owner, key: tracker.delete_item(owner, key),
}
