"""Hashing, equality and order where C code would call methods in Python: of keys, of items, and in sorting."""

from __future__ import annotations

import operator
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextvars import ContextVar
from enum import Enum
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import HEAP, NULL, is_in_python, lookup
from dovetail.frontend.guards.runtime import contents_of
from dovetail.frontend.interpreter.tracking.constants import is_constant, reads_content
from dovetail.frontend.interpreter.tracking.container_bases import BASES, CONTAINERS, base_of, keys_of
from dovetail.frontend.interpreter.tracking.hashes import changed_hash, with_many_keys
from dovetail.frontend.interpreter.tracking.rules import TYPE_ALIASES
from dovetail.frontend.interpreter.tracking.t_strings import T_STRINGS

_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_BOUND = (MethodType, BuiltinFunctionType, MethodWrapperType)
_IN_C = (WrapperDescriptorType, MethodDescriptorType)
FIXED = (
    type,
    ModuleType,
    BuiltinFunctionType,
    WrapperDescriptorType,
    MethodDescriptorType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodWrapperType,
    property,
    classmethod,
    staticmethod,
    ContextVar,
    CodeType,
    *TYPE_ALIASES,
)  # their identity is their value


class Comparing:
    """Comparisons that look into containers, with the methods of their items interpreted."""

    def is_simple(self, value: Any) -> bool:
        """Return whether C code reads nothing of a value that is not guarded: numbers, text, constants, and plain containers of them."""
        kind = type(value)
        if kind in self.atoms or is_constant(value):
            return True
        if kind not in CONTAINERS or (self.source(value) is not None and self.effects.shadow(value) is value):
            return False
        parts = [*value, *value.values()] if isinstance(value, (dict, MappingProxyType)) else value
        return all([self.is_simple(part) for part in parts])

    def is_settled(self, value: Any) -> bool:
        """Return whether a value cannot change unseen: the trace created it, or its content is guarded."""
        if isinstance(value, (*BASES, MappingProxyType)):
            parts = self.plain(value)
            return all(map(self.is_settled, [*parts, *parts.values()] if isinstance(parts, dict) else parts))
        recorder = self.recorder
        if (
            self.source(value) is None
            or type(value) in self.atoms
            or recorder.is_tensor(value)
            or recorder.is_buffer(value)
            or recorder.is_element_type(value)
            or recorder.is_known(value)
        ):
            return True
        return isinstance(value, (FunctionType, *FIXED, *T_STRINGS)) or is_constant(value)

    def check_settled(self, value: Any, name: str) -> None:
        """Refuse a method in C of an outside object with a content that no guard covers."""
        raw = lookup(type(value), name)
        if type(value) is MethodType and (source := self.source(value)) is not None:
            self._bound_outside(value)
            self.guard("is", self.sources.attr(source, "__self__"), value.__self__)
            return
        if type(raw) not in _IN_C or raw.__objclass__ is object or isinstance(value, (*BASES, MappingProxyType)):
            return
        if reads_content(value, name) or self.is_settled(value):
            return
        raise Unsupported(
            f"the program uses {name} of a {type(value).__module__}.{type(value).__qualname__} that was created outside of it, and may change "
            "unseen; create it inside, or pass what it holds"
        )

    # keys

    def pin(self, value: Any) -> None:
        """Guard that a value from outside is this very object."""
        source = self.source(value)
        if source is not None and source.kind != "const" and not self.recorder.is_tensor(value):
            self.guard("is", source, value)

    def pin_held(self, key: Any) -> None:
        """Guard the objects by which C code hashes and compares a tensor, a bound method or a weak reference; an error where it runs methods."""
        if type(key) in (tuple, frozenset):
            for part in key:
                self.pin_held(part)
        elif self.recorder.has_identity(key):
            self.keep_distinct(key)
        elif type(key).__flags__ & HEAP and not self.recorder.is_tensor(key):
            for name in ("__hash__", "__eq__"):
                self.guard_class(type(key), name)
            held = getattr(key, "__dict__", {})  # a dict runs these methods by itself
            for name, part in list(held.items()):
                if self.recorder.is_number(part):
                    self.recorder.concrete(part)
                elif self.recorder.is_symbolic(part) and not isinstance(part, tuple):
                    held[name] = operator.index(part)
        elif type(key) in _BOUND:
            self.pin(key.__self__)
        elif isinstance(key, weakref.ref):
            held = key()
            if any([self.method(held, name) is not None for name in ("__hash__", "__eq__")]):
                raise Unsupported(
                    f"C code hashes or compares a weak reference to a {type(held).__name__}, and would call methods of it that Dovetail does not "
                    "see; use the object itself, or its id"
                )
            self.pin(held)

    def keep_distinct(self, tensor: Any) -> None:
        """Guard that a tensor from outside that is hashed is none of those that were hashed before."""
        source = self.source(tensor)
        if source is None or source in self.hashed_tensors:
            return
        for other in self.hashed_tensors:
            if not source.kind == other.kind == "const":
                self.guard("notsame", source, other)
        self.hashed_tensors[source] = tensor

    def is_odd(self, key: Any) -> bool:
        """Return whether hashing a key is more than reading a guarded value."""
        kind = type(key)
        if kind in self.atoms or isinstance(key, Enum) or self.recorder.is_symbolic(key) or self.recorder.has_identity(key):
            return False
        if isinstance(key, (tuple, frozenset)):
            return any([self.is_odd(part) for part in key])
        if is_in_python(lookup(kind, "__hash__")) or is_in_python(lookup(kind, "__eq__")):
            return True
        source = self.source(key)
        return source is not None and source.kind != "const" and not self.recorder.is_tensor(key) and not is_constant(key)

    def hash(self, key: Any) -> int:
        """Return the hash of a key, with the methods that C code would call interpreted."""
        if isinstance(key, (tuple, frozenset)) and self.is_odd(key):
            digests = [_Digest(self.hash(part)) for part in key]
            return hash(frozenset(digests) if isinstance(key, frozenset) else tuple(digests))
        method = self.method(key, "__hash__")
        if method is None:
            return hash(key)
        digest = self.spelled(self.call_function(method, [key], {}))
        return hash(_Digest(operator.index(digest) if self.recorder.is_symbolic(digest) else digest))

    def check_hashes(self, container: Any, keys: Iterable[Any]) -> None:
        """Run the call in eager mode where a key of a container has another hash than when it was put there: no copy would be like it."""
        keys = list(keys)
        copy = with_many_keys(container) if keys else ()
        for key in keys:
            if not base_of(copy).__contains__(copy, key) or self.hash(key) != hash(key):
                raise changed_hash(key, container)

    def find_key(self, container: Any, key: Any) -> Any:
        """Return the key of a dict or set that equals `key`, NULL where none does."""
        digest, stored_keys = self.hash(key), keys_of(container)
        self.check_hashes(container, filter(self.is_odd, stored_keys))
        for stored in stored_keys:
            if stored is key:
                self.is_(stored, key)
                return stored
            same_hash = self.hash(stored) == digest if self.is_odd(stored) or type(stored) in CONTAINERS else hash(stored) == digest
            if self._by_identity(stored) and self._by_identity(key) and type(stored) is type(key):
                self.is_(stored, key)
            elif same_hash and self.truth(self.compare(operator.eq, stored, key)):
                return stored
        return NULL

    def _by_identity(self, key: Any) -> bool:
        kind = type(key)
        return lookup(kind, "__hash__") is object.__hash__ and lookup(kind, "__eq__") is object.__eq__

    def key_in(self, container: Any, key: Any) -> Any:
        """Return the key of a container of the trace that equals `key`: `key` itself where C code finds it, NULL where methods find none."""
        self.hashed(key)
        return self.find_key(container, key) if self.is_odd(key) else key

    def probe(self, container: Any, *keys: Any) -> None:
        """Guard what the methods of keys read that are about to be looked up in a container of the trace."""
        self.hashed(*keys)
        for key in keys:
            if self.is_odd(key) and isinstance(container, (dict, *_SETS)):
                self.find_key(container, key)

    # items

    def equal(self, x: Any, y: Any) -> bool:
        """Return whether C code takes two items for equal: they are one object, or compare equal."""
        return x is y or self.truth(self.compare(operator.eq, x, y))

    def compare_containers(self, op: Any, x: Any, y: Any) -> Any:
        """Return op(x, y) for two containers of the same kind, item by item; NULL where they are none, or simple."""
        kind = next((base for base in (*_SEQUENCES, dict) if isinstance(x, base) and isinstance(y, base)), None)
        if kind is None or (kind is dict and op not in (operator.eq, operator.ne)):
            return NULL
        x, y = self.copied(self.effects.shadow(x)), self.copied(self.effects.shadow(y))
        if self.is_simple(x) and self.is_simple(y):
            return NULL
        ordered = isinstance(x, OrderedDict) and isinstance(y, OrderedDict)
        x, y = (value if type(value) in CONTAINERS else contents_of(value, base_of(value)) for value in (x, y))  # C code reads what is there
        if kind is dict:
            same = self._same_pairs(x, y) and not (ordered and any([not self.equal(one, other) for one, other in zip(x, y, strict=True)]))
            return same is (op is operator.eq)
        if op in (operator.eq, operator.ne) and len(x) != len(y):
            return op is operator.ne
        for one, other in zip(x, y):
            if not self.equal(one, other):
                return (op is operator.ne) if op in (operator.eq, operator.ne) else self.compare(op, one, other)
        return op(len(x), len(y))

    def _same_pairs(self, x: dict, y: dict) -> bool:
        if len(x) != len(y):
            return False
        for key, item in x.items():
            stored = self.find_key(y, key) if self.is_odd(key) else key if key in y else NULL
            if stored is NULL or not self.equal(item, y[stored]):
                return False
        return True

    def position(self, items: Iterable[Any], wanted: Any) -> int | None:
        """Return where the first item stands that equals `wanted`."""
        return next((i for i, item in enumerate(items) if self.equal(item, wanted)), None)

    # order

    def sort(self, items: list[Any], *, key: Any = None, reverse: Any = False) -> list[Any]:
        """Return sorted(items, key=key, reverse=reverse), with `key` and `__lt__` interpreted."""
        ranks = items if key is None else [self.call(key, [item], {}, None) for item in items]
        ranks = [self.plain(rank) for rank in ranks]
        keys = ranks if all([self.is_simple(rank) for rank in ranks]) else [Compared(self, rank) for rank in ranks]
        if not isinstance(reverse, bool):
            first, _ = sorted((False, True), reverse=self.plain(reverse, mirrored=True))  # an error for what is no flag to this version of Python
            reverse = first
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
        return [items[i] for i in order]


class Compared:
    """A value that C code sorts and groups by the tracker's `<` and `==`."""

    __slots__ = ("tracker", "value")

    def __init__(self, tracker: Comparing, value: Any):
        self.tracker, self.value = tracker, value

    def __lt__(self, other: Compared) -> bool:
        return self.tracker.truth(self.tracker.compare(operator.lt, self.value, other.value))

    def __eq__(self, other: object) -> bool:
        return self.tracker.equal(self.value, other.value)

    __hash__ = None


class _Digest:
    """Stands in a tuple for an item with a known hash."""

    __slots__ = ("digest",)

    def __init__(self, digest: int):
        self.digest = digest

    def __hash__(self) -> int:
        return self.digest
