"""Items, sizes and iteration of outside containers: what is read is guarded, what is written waits."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.interpreter.frame import NULL
from dovetail.frontend.interpreter.opcodes.build import is_iterable
from dovetail.frontend.interpreter.tracking.effects import DELETED, MUTATORS

CONTAINERS = frozenset({list, tuple, dict, set, frozenset, OrderedDict, defaultdict, deque, MappingProxyType})
BASES = tuple(CONTAINERS - {MappingProxyType})
MAPPINGS = (dict, MappingProxyType)
ITERATES = frozenset({"extend", "extendleft", "update", "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset"})
_HASHING = frozenset({"fromkeys", "_count_elements"})  # of dict, and what collections.Counter calls


class Containers:
    """An outside container stays what it is until it is written and read again: then its copy stands in for it."""

    def outside_container(self, value: Any) -> Any:
        """The source of an outside container, whose type is guarded; None for anything else."""
        if type(value) in CONTAINERS or isinstance(value, BASES):
            return self.outside(value)
        return None

    def hashed(self, *keys: Any) -> None:
        """Keys are about to be hashed: a number that the computation gives has no value yet."""
        for key in keys:
            if self.recorder.is_number(key):
                self.recorder.truth(self, key)
            elif isinstance(key, (tuple, frozenset)):
                self.hashed(*key)

    def hashing(self, maker: Any, args: list[Any]) -> None:
        """C code that may put what its arguments hold into a set or a dict is about to be called."""
        kind = maker if isinstance(maker, type) else None
        pairs = kind is not None and issubclass(kind, dict)
        if not pairs and not (kind is not None and issubclass(kind, (set, frozenset))) and getattr(maker, "__name__", None) not in _HASHING:
            return
        for x in args:
            if pairs and type(x) in (list, tuple):
                x = [pair[0] for pair in x if type(pair) in (list, tuple) and pair]
            self.hashed(*(x if type(x) in CONTAINERS else ()))

    def make_set(self, items: list[Any]) -> set:
        self.hashed(*items)
        return super().make_set(items)

    def make_dict(self, keys: Iterable[Any], values: list[Any]) -> dict:
        keys = list(keys)
        self.hashed(*keys)
        return super().make_dict(keys, values)

    def add_to(self, made: set, item: Any) -> None:
        self.hashed(item)
        super().add_to(made, item)

    def put_into(self, made: dict, key: Any, value: Any) -> None:
        self.hashed(key)
        super().put_into(made, key, value)

    def get_item(self, owner: Any, key: Any) -> Any:
        if self.recorder.is_tensor(owner):
            return self.recorder.operate(self, "get_item", [owner, self.plain(key)])
        self.hashed(key)
        owner = self.effects.shadow(owner)
        if self.method(owner, "__getitem__") is not None:
            return super().get_item(owner, key)
        source = self.outside_container(owner)
        if source is None:
            return super().get_item(owner, key)
        if isinstance(key, slice):
            return self.copied(owner)[key]
        if id(owner) in self.views and isinstance(key, str):
            found = self.from_view(owner, key)
            if found is NULL:
                raise KeyError(key)
            return found
        return self._read(owner, key, source)

    def _read(self, owner: Any, key: Any, source: Any) -> Any:
        """owner[key] of an outside container; that it is missing is a fact too."""
        try:
            value = owner[key]
        except KeyError:
            self.guard("hasnot", source, key)
            raise
        except IndexError:
            self.guard("len", source, len(owner))
            raise
        if isinstance(key, int) and key < 0:
            self.guard("len", source, len(owner))
            key += len(owner)
        return self.reach(value, self.sources.item(source, key))

    def set_item(self, owner: Any, key: Any, value: Any) -> None:
        if self.recorder.is_tensor(owner):
            self.recorder.operate(self, "set_item", [owner, self.plain(key), value])
            return
        self.hashed(key)
        if id(owner) in self.views:
            self.set_view(owner, key, value)
        elif self.method(owner, "__setitem__") is None and self.outside_container(owner) is not None:
            self.effects.method(owner, "__setitem__", [key, value], {})
        else:
            super().set_item(owner, key, value)

    def delete_item(self, owner: Any, key: Any) -> None:
        if id(owner) in self.views:
            self.get_item(owner, key)
            self.set_view(owner, key, DELETED)
        elif self.method(owner, "__delitem__") is None and self.outside_container(owner) is not None:
            self.effects.method(owner, "__delitem__", [key], {})
        else:
            super().delete_item(owner, key)

    def contains(self, container: Any, item: Any) -> bool:
        if self.recorder.is_tensor(container):
            return self.recorder.operate(self, "contains", [container, item])
        if isinstance(container, (*MAPPINGS, set, frozenset)):
            self.hashed(item)
        container = self.effects.shadow(container)
        source = self.outside_container(container) if self.method(container, "__contains__") is None else None
        if source is None:
            return super().contains(self.plain(container), item)
        if id(container) in self.views and isinstance(item, str):
            return self.from_view(container, item) is not NULL
        if isinstance(container, (*MAPPINGS, set, frozenset)):
            found = item in container
            self.guard("has" if found else "hasnot", source, item)
            return found
        return any(x is item or self.truth(self.compare(operator.eq, x, item)) for x in self.spread(container))

    def len(self, value: Any) -> int:
        if self.recorder.is_tensor(value):
            return self.recorder.operate(self, "len", [value])
        value = self.effects.shadow(value)
        source = self.outside_container(value) if self.method(value, "__len__") is None else None
        if source is not None:
            self.guard("len", source, len(value))
        return super().len(value)

    def iter(self, value: Any) -> Iterator[Any]:
        if self.recorder.is_tensor(value):
            return iter(self.recorder.operate(self, "iter", [value]))
        value = self.effects.shadow(value)
        source = self.outside_container(value) if self.method(value, "__iter__") is None else None
        if source is None:
            return super().iter(value)
        if isinstance(value, MAPPINGS):
            self.guard_keys(value, source)
            return iter(self._keys(value))
        if isinstance(value, (set, frozenset)):
            self.guard_keys(value, source)
            return iter(value)
        self.guard("len", source, len(value))
        return iter([self.reach(item, self.sources.item(source, i)) for i, item in enumerate(value)])

    def _keys(self, mapping: Any) -> list[Any]:
        """The keys, those of a view with what was written to it."""
        keys = dict.fromkeys(mapping)
        owner = self.views.get(id(mapping))
        for write in self.effects.log if owner is not None else ():
            if write.owner is owner and write.what != "method":
                keys.pop(write.name, None) if write.value is DELETED else keys.setdefault(write.name)
        return list(keys)

    def next(self, iterator: Iterator[Any]) -> Any:
        if self.source(iterator) is not None:
            raise Unsupported(
                f"the program advances a {type(iterator).__name__} that was made outside of it, which no later call could repeat; make the "
                "iterator inside, or pass what it gives as an argument"
            )
        return super().next(iterator)

    def pairs(self, mapping: Any) -> Iterable[tuple[Any, Any]]:
        mapping = self.effects.shadow(mapping)
        if isinstance(mapping, MAPPINGS) and self.outside_container(mapping) is not None and self.method(mapping, "keys") is None:
            return [(key, self.get_item(mapping, key)) for key in self.iter(mapping)]
        return super().pairs(mapping)

    def _fresh_method(self, method: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A C method of a container that the trace made: what it stores keeps its identity, what it iterates is reached."""
        iterates = method.__name__ in ITERATES or method.__name__.endswith("_update")
        if iterates:
            args = [self.taken_in(method.__self__, x) for x in args]
        if isinstance(method.__self__, (*MAPPINGS, set, frozenset)):
            self.hashed(*[key for x in args for key in x] if iterates else args[:1])
        return method(*args, **{name: self.native(x) for name, x in kwargs.items()})

    def taken_in(self, owner: Any, value: Any) -> Any:
        """What a container takes in all at once: the pairs of a mapping where it is one itself, else the items."""
        if isinstance(owner, dict) and self.optional(value, "keys") is not None:
            return dict(self.pairs(value))
        return list(self.spread(value)) if is_iterable(value) else value

    def container_method(self, method: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of a bound C method of a container; NULL where it is none."""
        owner, name = method.__self__, method.__name__
        if not isinstance(owner, (*BASES, MappingProxyType)):
            return NULL
        if self.outside_container(owner) is None:
            return self._fresh_method(method, args, kwargs)
        if id(owner) in self.views and name in _VIEWED:
            return _VIEWED[name](self, owner, *args, **kwargs)
        if name in MUTATORS:
            if id(owner) in self.views:
                raise Unsupported(
                    f"the program calls {name}() of the dict that holds the attributes of an outside object; set or delete them one by one"
                )
            if name in ("extend", "update", "extendleft") or name.endswith("_update"):
                args = [self.taken_in(owner, x) for x in args]
            return self.effects.method(owner, name, args, kwargs)
        owner = self.effects.shadow(owner)
        if self.outside_container(owner) is None:
            return getattr(owner, name)(*args, **kwargs)
        answer = _ANSWERS.get(name) if isinstance(owner, MAPPINGS) or name in ("__getitem__", "__contains__", "__len__", "__iter__") else None
        if answer is not None and not kwargs:
            return answer(self, owner, *args)
        return getattr(self.copied(owner), name)(*args, **kwargs)


def _get(tracker: Any, owner: Any, key: Any, default: Any = None) -> Any:
    return tracker.get_item(owner, key) if tracker.contains(owner, key) else default


_ANSWERS = {  # methods that are answered without a copy of the whole container
    "get": _get,
    "keys": lambda tracker, owner: dict.fromkeys(tracker.iter(owner)).keys(),
    "values": lambda tracker, owner: dict(tracker.pairs(owner)).values(),
    "items": lambda tracker, owner: dict(tracker.pairs(owner)).items(),
    "__getitem__": lambda tracker, owner, key: tracker.get_item(owner, key),
    "__contains__": lambda tracker, owner, item: tracker.contains(owner, item),
    "__len__": lambda tracker, owner: tracker.len(owner),
    "__iter__": lambda tracker, owner: tracker.iter(owner),
}


def _update(tracker: Any, owner: Any, *others: Any, **kwargs: Any) -> None:
    for other in (*others, kwargs):
        for key, value in dict(tracker.taken_in(owner, other)).items():
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


_VIEWED = {  # methods that change the dict of an object's attributes, or of a module's variables
    "update": _update,
    "pop": _pop,
    "setdefault": _setdefault,
    "__setitem__": lambda tracker, owner, key, value: tracker.set_item(owner, key, value),
    "__delitem__": lambda tracker, owner, key: tracker.delete_item(owner, key),
}
