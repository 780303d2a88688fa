"""Items, sizes and iteration of outside containers: what is read is guarded, what is written waits."""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from types import CoroutineType, MappingProxyType, MethodType
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL, lookup
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracking.container_bases import BASES, CONTAINERS, MAPPINGS, base_of, keys_of, reads_in_python
from dovetail.frontend.interpreter.tracking.effects import DELETED
from dovetail.frontend.interpreter.tracking.hashes import changed_hash

_INDEXED = (list, deque, bytearray, array, memoryview)  # containers that are changed at an index
_HASHING = frozenset({"fromkeys", "_count_elements"})  # of dict, and what collections.Counter calls


class Containers:
    """An outside container stays what it is until it is written and read again: then its copy stands in for it."""

    def outside_container(self, value: Any) -> Any:
        """Return the source of an outside container, and guard its type; None for anything else."""
        if type(value) in CONTAINERS or isinstance(value, BASES):
            return self.outside(value)
        return None

    def contents(self, value: Any) -> Any:
        """Return the source at which an outside container can be read without code of its class; None for anything else."""
        source = self.outside_container(value)
        if source is None or type(value) in CONTAINERS or not reads_in_python(type(value)):
            return source
        return self.sources.make("contents", source, base_of(value))

    def hashed(self, *keys: Any) -> None:
        """Refuse to hash a number that the computation returns: it has no value yet."""
        for key in keys:
            self.pin_held(key)
            if isinstance(key, MethodType):
                self.check_settled(key, "__hash__")
            if self.recorder.is_number(key):
                self.recorder.words(key)
            elif isinstance(key, (tuple, frozenset)):
                self.hashed(*self.copied(key))

    def hashable(self, key: Any) -> Any:
        """Return a key with the values of the numbers in it; an error where they are not known."""
        if self.recorder.is_number(key):
            return self.recorder.concrete(key)
        self.pin_held(key)
        if isinstance(key, (tuple, frozenset)) and self.source(key) is not None:
            self.hashed(key)
        if type(key) is tuple and any([self.recorder.is_number(part) or type(part) is tuple for part in key]) and self.source(key) is None:
            parts = tuple(map(self.hashable, key))
            return key if all([a is b for a, b in zip(parts, key, strict=True)]) else parts
        return key

    def hashing(self, maker: Any, args: list[Any]) -> None:
        """Check arguments of C code that may put their items into a set or a dict."""
        kind = maker if isinstance(maker, type) else None
        pairs = kind is not None and issubclass(kind, dict)
        if not pairs and not (kind is not None and issubclass(kind, (set, frozenset))) and getattr(maker, "__name__", None) not in _HASHING:
            return
        for x in args:
            if pairs and type(x) in (list, tuple):
                x = [pair[0] for pair in x if type(pair) in (list, tuple) and pair]
            self.hashed(*(x if type(x) in CONTAINERS else ()))

    def seen_key(self, key: Any) -> Any:
        """Return a key of an outside container as the program sees it: with the traced tensors that stand for those in it."""
        if self.recorder.is_tensor(key):
            tensor = self.reach(key, self.sources.const(key))
            self.keep_distinct(tensor)
            return tensor
        return _with_parts(key, self.seen_key)

    def outside_key(self, key: Any) -> Any:
        """Return a key as an outside container holds it: with the tensors that traced ones stand for."""
        if self.recorder.is_traced(key):
            return self.recorder.stored_key(self, key)
        return _with_parts(key, self.outside_key)

    def guard_key(self, source: Any, key: Any, present: bool) -> None:
        """Guard whether an outside container has a key; none has a tensor that the trace created."""
        if not self._holds_created(key):
            self.guard("has" if present else "hasnot", source, key)

    def _holds_created(self, key: Any) -> bool:
        parts = key if type(key) is tuple else ()
        return any(map(self._holds_created, parts)) or (self.recorder.is_traced(key) and self.source(key) is None)

    def make_set(self, items: list[Any]) -> set:
        result: set = set()
        for item in items:
            self.add_to(result, item)
        return result

    def make_dict(self, keys: Iterable[Any], values: list[Any]) -> dict:
        result: dict = {}
        for key, value in zip(keys, values, strict=True):
            self.put_into(result, key, value)
        return result

    def add_to(self, target: set, item: Any) -> None:
        item = self.hashable(item)
        self.probe(target, item)
        super().add_to(target, item)

    def put_into(self, target: dict, key: Any, value: Any) -> None:
        key = self.hashable(key)
        self.probe(target, key)
        super().put_into(target, key, value)

    def get_item(self, owner: Any, key: Any) -> Any:
        if self.recorder.is_tensor(owner):
            return self.recorder.operate(self, "get_item", [owner, self.as_sizes(self.plain(key))])
        if (items := self.recorder.items(self, owner, key)) is not NULL:
            return items
        original, owner = owner, self.effects.shadow(owner)
        if self.method(owner, "__getitem__") is not None:
            return super().get_item(owner, key)
        key = self.from_front(owner, self.hashable(key))
        if self.outside_container(owner) is None or isinstance(owner, (set, frozenset)):
            if not isinstance(owner, dict):
                self.check_settled(owner, "__getitem__")
                return super().get_item(owner, key if type(key) is int else self.indexed(key))
            stored = self.key_in(owner, key)
            return self._missing(original, key) if stored is NULL or not dict.__contains__(owner, stored) else super().get_item(owner, stored)
        return self.raw_item(owner, key)

    def raw_item(self, owner: Any, key: Any) -> Any:
        """Return owner[key] of an outside container as C code reads it, whatever its class makes of `__getitem__`."""
        owner = self.effects.shadow(owner)
        source = self.contents(owner)
        if source is None:
            return base_of(owner).__getitem__(owner, key)
        self._check_key(key)
        seen, key = key, self.outside_key(key)
        if not isinstance(owner, MAPPINGS):
            key = key if type(key) is int else self.indexed(key)
            if isinstance(key, slice):
                return base_of(owner).__getitem__(self.copied(owner), key)
        elif self.is_odd(key):
            key = self.stored_key(owner, source, key)
        if id(owner) in self.views and isinstance(key, str):
            value = self.from_view(owner, key)
            if value is NULL:
                raise KeyError(key)
            return value
        return self._read(owner, key, source, seen)

    def from_front(self, owner: Any, key: Any) -> Any:
        """Return an index into a container as C code takes it: that of deque adds what `__len__` of its class returns to a negative one."""
        if not isinstance(owner, deque) or self.method(owner, "__len__") is None:
            return key
        key = self.indexed(key)
        if not isinstance(key, int) or key >= 0:
            return key
        if (front := key + self.len(owner)) < 0:
            raise IndexError("deque index out of range")
        return front

    def _read(self, owner: Any, key: Any, source: Any, seen: Any) -> Any:
        """Return owner[key] of an outside container; that it is missing is guarded too.  The program sees the key as `seen`."""
        base = base_of(owner)
        if isinstance(owner, MAPPINGS) and not base.__contains__(owner, key):
            self.guard_key(source, key, present=False)
            return self._missing(owner, seen)
        try:
            value = base.__getitem__(owner, key)
        except IndexError:
            self.guard("len", source, base.__len__(owner))
            raise
        if not isinstance(owner, MAPPINGS) and isinstance(key, int) and key < 0:
            self.guard("len", source, base.__len__(owner))
            key += base.__len__(owner)
        return self.reach(value, self.sources.item(source, key))

    def _missing(self, owner: Any, key: Any) -> Any:
        """Return the value of a dict for a missing key: `__missing__`, or a default factory."""
        hook = self.method(owner, "__missing__")
        if hook is not None:
            return self.call_function(hook, [owner, key], {})
        return self.from_factory(owner, key)

    def from_factory(self, owner: Any, key: Any) -> Any:
        """Return what the default factory of a dict makes for a missing key, and keep it there."""
        if not isinstance(owner, defaultdict):
            raise KeyError(key)
        factory = self.load_attr(owner, "default_factory")
        if factory is None:
            raise KeyError(key)
        value = self.call(factory, [], {}, None)
        self.set_item(owner, key, value)
        return value

    def set_item(self, owner: Any, key: Any, value: Any) -> None:
        if self.recorder.is_tensor(owner):
            self.recorder.operate(self, "set_item", [owner, self.as_sizes(self.plain(key)), value])
            return
        self.recorder.meets(self, owner, value)
        key = self.from_front(owner, key)
        if isinstance(owner, _INDEXED) and self.method(owner, "__setitem__") is None:
            key = self.indexed(key)
            if type(key) is slice and isinstance(owner, (list, bytearray)):
                value = self.items_added(owner, value)
            if not isinstance(owner, (list, deque)):
                value = list(map(self.indexed, value)) if type(value) is list else self.read_by_c(value)
        if isinstance(owner, dict):
            key = self.hashable(key)
            self.probe(owner, key)
        if id(owner) in self.views:
            self.set_view(owner, key, value)
        elif self._is_written_in_c(owner, "__setitem__"):
            self.effects.method(owner, "__setitem__", [key, value], {})
        else:
            super().set_item(owner, key, value)

    def delete_item(self, owner: Any, key: Any) -> None:
        if not isinstance(owner, dict):
            key = self.from_front(owner, key)
        if isinstance(owner, _INDEXED) and self.method(owner, "__delitem__") is None:
            key = self.indexed(key)
        if id(owner) in self.views:
            self.get_item(owner, key)
            self.set_view(owner, key, DELETED)
        elif self._is_written_in_c(owner, "__delitem__"):
            self.effects.method(owner, "__delitem__", [key], {})
        else:
            super().delete_item(owner, key)

    def _is_written_in_c(self, owner: Any, name: str) -> bool:
        return self.outside_container(owner) is not None and lookup(type(owner), name) is not NULL and self.method(owner, name) is None

    def contains(self, container: Any, item: Any) -> bool:
        if self.recorder.is_tensor(container):
            return self.recorder.operate(self, "contains", [container, item])
        container = self.effects.shadow(container)
        if self.method(container, "__contains__") is not None or not isinstance(container, (*BASES, MappingProxyType)):
            self.check_settled(container, "__contains__")
            self.check_advanced(container)
            return super().contains(container, item)
        if isinstance(container, (*MAPPINGS, set, frozenset)):
            item = self.hashable(item)
        return self.raw_contains(container, item)

    def _check_key(self, key: Any) -> None:
        """Refuse a key of an outside container that no guard can look up: a NaN, which equals nothing."""
        if type(key) is float and key != key:
            raise Unsupported("NaN is no key of a dict or set from outside while it is traced: it is found by its identity; use another key")

    def stored_key(self, owner: Any, source: Any, key: Any) -> Any:
        """Return the key of an outside dict or set that equals `key`, `key` where there is none: all keys are guarded."""
        if any([self.is_odd(stored) or type(stored) not in self.atoms for stored in keys_of(owner)]):
            self.guard_keys(owner, source)
        else:
            for part in key if isinstance(key, tuple) else (key,):
                self.mirror(part)
        stored = self.find_key(owner, key)
        if (stored is not NULL) is not base_of(owner).__contains__(owner, key):
            raise changed_hash(key, owner)
        place = self.source(key)
        if self._by_identity(key) and place is not None and place.kind != "const":
            self.guard("is", place, key)
        return key if stored is NULL else stored

    def indexed(self, key: Any) -> Any:
        """Return an index, or a slice of them, with `__index__` interpreted."""
        if type(key) is slice:
            return slice(*[self.indexed(part) for part in (key.start, key.stop, key.step)])
        method = None if isinstance(key, int) else self.method(key, "__index__")  # C code takes an int as it is, of whatever class
        return key if method is None else self.call(method, [key], {}, None)

    def raw_contains(self, container: Any, item: Any) -> bool:
        """Return whether an item is in an outside container as C code looks for it."""
        container = self.effects.shadow(container)
        source = self.contents(container)
        if source is None:
            if isinstance(container, (list, tuple, deque)):
                simple = self.is_simple(item) and self.is_simple(container)
                items = base_of(container).__iter__(container)
                return base_of(container).__contains__(container, item) if simple else self.position(items, item) is not None
            item = self.key_in(container, item)
            return item is not NULL and base_of(container).__contains__(container, item)
        if id(container) in self.views and isinstance(item, str):
            return self.from_view(container, item) is not NULL
        if isinstance(container, (*MAPPINGS, set, frozenset)):
            self._check_key(item)
            item = self.outside_key(item)
            if self.is_odd(item):
                item = self.stored_key(container, source, item)
            present = item in container if isinstance(container, MappingProxyType) else base_of(container).__contains__(container, item)
            self.guard_key(source, item, present)
            return present
        return self.position(self.raw_iter(container), item) is not None

    def len(self, value: Any) -> int:
        if self.recorder.is_text(value):
            return self.recorder.length_of_text(value)
        if self.recorder.is_tensor(value):
            return self.recorder.operate(self, "len", [value])
        value = self.effects.shadow(value)
        if self.method(value, "__len__") is not None or self.outside_container(value) is None:
            self.check_settled(value, "__len__")
            return super().len(value)
        return self.raw_len(value)

    def length(self, value: Any) -> int:
        return value if self.recorder.is_symbolic(value) and 0 <= value <= sys.maxsize else super().length(value)

    def raw_len(self, value: Any) -> int:
        """Return the length of an outside container as C code counts it."""
        value = self.effects.shadow(value)
        if id(value) in self.views:  # what is set or deleted there has not happened yet
            return len(self._keys(value))
        source, length = self.contents(value), base_of(value).__len__(value)
        if source is not None:
            self.guard("len", source, length)
        return length

    def iter(self, value: Any) -> Iterator[Any]:
        if self.recorder.is_tensor(value):
            return iter(self.recorder.operate(self, "iter", [value]))
        value = self.effects.shadow(value)
        if self.method(value, "__iter__") is not None or self.outside_container(value) is None:
            self.check_settled(value, "__iter__")
            return super().iter(value)
        return self.raw_iter(value)

    def raw_iter(self, value: Any) -> Iterator[Any]:
        """Return an iterator over an outside container as C code iterates it."""
        value = self.effects.shadow(value)
        source = self.contents(value)
        if source is None:
            return base_of(value).__iter__(value)
        if isinstance(value, MAPPINGS):
            return iter(self.keys_of(value))
        if isinstance(value, (set, frozenset)):
            self.guard_keys(value, source)
            items = [self.seen_key(item) for item in base_of(value).__iter__(value)]
            copy = items
            if isinstance(value, set):
                copy = self.effects.items_of(value, lambda: set(items) if type(value) is set else self.refilled(value, items))
            copied = base_of(copy).__iter__
            return copied(copy) if all([a is b for a, b in zip(copied(copy), items, strict=True)]) else iter(items)
        items = self.items_of(value)
        return base_of(items).__iter__(items)

    def items_of(self, value: Any) -> Any:
        """Return a container of the items of an outside sequence, for iterators: that of a list or a deque changes as it does."""
        source = self.contents(value)
        self.guard("len", source, base_of(value).__len__(value))

        def items() -> list[Any]:
            return [self.reach(item, self.sources.item(source, i)) for i, item in enumerate(base_of(value).__iter__(value))]

        if not isinstance(value, (list, deque)):
            return items()
        return self.effects.items_of(value, items if type(value) is list else lambda: self.refilled(value, items()))

    def gone_through(self, value: Any) -> Any:
        """Return what an iterator of C goes through, item by item, in the place of an outside container: what the program writes is seen."""
        value = self.effects.shadow(value)
        if type(value) not in (list, dict, deque) or self.contents(value) is None:
            return value
        return self.keys_of(value) if type(value) is dict else self.items_of(value)

    def tuple_items(self, value: tuple) -> tuple:
        return tuple(self.raw_iter(value))

    def _keys(self, mapping: Any) -> dict:
        """Return a dict with the keys of an outside mapping, those of a view with what was written to it."""
        self.guard_keys(mapping, self.contents(mapping))
        kind = OrderedDict if isinstance(mapping, OrderedDict) else dict
        keys = kind.fromkeys(map(self.seen_key, base_of(mapping).__iter__(mapping)))
        owner = self.views.get(id(mapping))
        for write in self.effects.log if owner is not None else ():
            if write.owner is owner and write.what != "method":
                keys.pop(write.name, None) if write.value is DELETED else keys.setdefault(write.name)
        return keys

    def keys_of(self, mapping: Any) -> dict:
        """Return a dict with the keys of an outside mapping, for iterators and views: it changes as a dict does."""
        if id(mapping) in self.views:
            return self.effects.attributes_of(self.views[id(mapping)], lambda: self._keys(mapping), valued=False)
        return self.effects.keys_of(mapping, lambda: self._keys(mapping)) if isinstance(mapping, dict) else self._keys(mapping)

    def pairs_of(self, mapping: Any) -> dict:
        """Return a dict with the pairs of an outside mapping, for views of them: it changes as a dict does."""
        if id(mapping) in self.views:
            return self.effects.attributes_of(self.views[id(mapping)], lambda: dict(self.raw_pairs(mapping)), valued=True)
        return self.effects.items_of(mapping, lambda: self.copied(mapping)) if isinstance(mapping, dict) else dict(self.raw_pairs(mapping))

    def next(self, iterator: Iterator[Any]) -> Any:
        self.check_advanced(iterator)
        return super().next(iterator)

    def send(self, iterator: Any, value: Any, frame: Frame) -> Any:
        self.check_advanced(iterator)
        return super().send(iterator, value, frame)

    def check_advanced(self, value: Any) -> None:
        """Refuse an iterator in C from outside, or a generator or coroutine, that C code would advance: no guard sees its place."""
        advances = type(value) is CoroutineType or (lookup(type(value), "__next__") is not NULL and self.method(value, "__next__") is None)
        if advances and self.source(value) is not None and not self.recorder.only_numbers(value):
            raise Unsupported(
                f"the program advances a {type(value).__name__} that was created outside of it, which no later call could repeat; make the "
                "iterator inside, or pass its items as an argument"
            )

    def pairs(self, mapping: Any) -> Iterable[tuple[Any, Any]]:
        mapping = self.effects.shadow(mapping)
        if isinstance(mapping, MAPPINGS) and self.outside_container(mapping) is not None:
            raw = type(mapping).__iter__ is dict.__iter__  # then C code copies a dict without calling methods of its class
            if raw or (self.method(mapping, "keys") is None and self.method(mapping, "__getitem__") is None):
                return self.raw_pairs(mapping)
        return super().pairs(mapping)

    def raw_pairs(self, mapping: Any) -> list[tuple[Any, Any]]:
        """Return the pairs of an outside mapping as C code reads them."""
        mapping = self.effects.shadow(mapping)
        keys = base_of(mapping).__iter__(mapping) if self.contents(mapping) is None else self._keys(mapping)
        return [(key, self.raw_item(mapping, key)) for key in keys]


def _with_parts(key: Any, change: Callable[[Any], Any]) -> Any:
    """Return a key with the items of a tuple changed; the tuple itself where none is."""
    if type(key) is not tuple:
        return key
    parts = tuple(map(change, key))
    return key if all([a is b for a, b in zip(parts, key, strict=True)]) else parts
